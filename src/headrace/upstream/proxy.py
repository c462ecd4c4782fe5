"""Which proxy a request takes.

The rules are those that curl and Go's net/http share: HTTP_PROXY, HTTPS_PROXY and ALL_PROXY by the target's scheme,
NO_PROXY for exceptions, the lower-case name first, an empty variable as good as none. As in Go, a loopback target
never takes a proxy from the environment: a proxy elsewhere could not reach it. Only `http://` proxies are spoken to;
a variable that names another kind fails the requests that would have used it, rather than letting them go direct.
"""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from .errors import UpstreamError
from .request import Address


class ProxyAddress(NamedTuple):
    """An `http://` proxy. `authorization` is the value of Proxy-Authorization, or None."""

    host: str
    port: int
    authorization: str | None

    def __repr__(self) -> str:
        """Without the credentials."""
        return f"ProxyAddress({self.host}:{self.port})"

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@lru_cache(maxsize=64)
def parse_proxy(url: str) -> ProxyAddress:
    """Read `[http://][user:password@]host[:port]`; the port is 80 by default.

    Raises ValueError, which never shows the URL: it may hold a password.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError("the proxy's URL is not valid: write http://[user:password@]host[:port]") from None
    if parts.scheme != "http":
        raise ValueError(f"proxies of the kind {parts.scheme!r} are not supported: use an http:// proxy")
    if not host or re.search(r"[^\x21-\x7e]", host):
        raise ValueError("the proxy's URL names no host: write http://[user:password@]host[:port]")
    authorization = None
    userinfo, at, _ = parts.netloc.rpartition("@")
    if at:
        user, _, password = userinfo.partition(":")
        credentials = unquote_to_bytes(user) + b":" + unquote_to_bytes(password)
        authorization = f"Basic {base64.b64encode(credentials).decode()}"
    return ProxyAddress(host, port if port is not None else 80, authorization)


def _as_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


class NoProxy:
    """The exceptions of NO_PROXY: entries separated by commas or blanks.

    `*` excepts everything. `example.com`, `.example.com` and `*.example.com` except that host and every host below it;
    an address or a CIDR block excepts the hosts that are *written* as such addresses (no name is resolved); `:port`
    after a name or an address narrows the entry to that port.
    """

    __slots__ = ("_everything", "_names", "_networks")

    def __init__(self, text: str) -> None:
        self._everything = False
        self._names: list[tuple[str, int | None]] = []
        self._networks: list[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, int | None]] = []
        for entry in re.split(r"[,\s]+", text.strip().lower()):
            if entry == "*":
                self._everything = True
            elif entry:
                self._add(entry)

    def _add(self, entry: str) -> None:
        host, port = entry, None
        # A port follows the only colon, or the bracket of an IPv6 address; other colons belong to a bare IPv6 address.
        if match := re.fullmatch(r"(\[[^]]+\]|[^:]+):([0-9]{1,5})", entry):
            host, port = match[1], int(match[2])
        host = host.strip("[]")
        try:
            self._networks.append((ipaddress.ip_network(host, strict=False), port))
        except ValueError:
            self._names.append((host.removeprefix("*").strip("."), port))

    def excepts(self, host: str, port: int) -> bool:
        """Whether `host` (lower-case, no brackets) at `port` is to be reached without a proxy."""
        if self._everything:
            return True
        ip = _as_ip(host)
        if ip is not None:
            return any(ip in network and entry_port in (None, port) for network, entry_port in self._networks)
        return any(
            (host == name or host.endswith(f".{name}")) and entry_port in (None, port)
            for name, entry_port in self._names
            if name
        )


class ProxySettings:
    """The proxies of one environment, read once."""

    __slots__ = ("_by_scheme", "_no_proxy")

    def __init__(self, env: Mapping[str, str]) -> None:
        self._by_scheme = {tls: self._read(env, name) for tls, name in ((False, "HTTP_PROXY"), (True, "HTTPS_PROXY"))}
        self._no_proxy = NoProxy(env.get("no_proxy") or env.get("NO_PROXY") or "")

    @staticmethod
    def _read(env: Mapping[str, str], scheme_variable: str) -> tuple[str, str] | None:
        """(variable, proxy URL) of the first variable that is set."""
        for upper in (scheme_variable, "ALL_PROXY"):
            for variable in (upper.lower(), upper):
                if url := env.get(variable):
                    return variable, url
        return None

    def select(self, target: Address) -> ProxyAddress | None:
        """The proxy for `target`, or None to go direct. Raises UpstreamError("proxy") where the variable is unusable."""
        setting = self._by_scheme[target.tls]
        if setting is None or self._is_loopback(target.host) or self._no_proxy.excepts(target.host, target.port):
            return None
        variable, url = setting
        try:
            return parse_proxy(url)
        except ValueError as error:
            raise UpstreamError("proxy", f"environment variable {variable}: {error}") from None

    @staticmethod
    def _is_loopback(host: str) -> bool:
        ip = _as_ip(host)
        return ip.is_loopback if ip is not None else host == "localhost" or host.endswith(".localhost")
