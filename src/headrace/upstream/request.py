"""The request as a caller states it, and as the bytes of an HTTP/1.1 head.

Everything that is wrong with a request is found here, before a connection is touched, as a ValueError that names the
part and never shows a header's value or the query of a URL (both may be credentials).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from headrace import __version__

from .headers import check_headers, is_token

USER_AGENT = f"headrace/{__version__}"

_UNSAFE_IN_URL = re.compile(r"[^\x21-\x7e]")
_HOST = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=%:-]+")


class HttpRequest(msgspec.Struct):
    """One request to a provider. `url` is absolute, `http` or `https`, percent-encoded; `body` is complete.

    `headers` may replace `User-Agent`; `Host`, `Content-Length`, `Accept-Encoding` and the other names in
    `headers.RESERVED` are the client's own.
    """

    method: str
    url: str
    headers: list[tuple[str, str]] = msgspec.field(default_factory=list)
    body: bytes = b""

    def __repr__(self) -> str:
        """Without header values, body and query, which may be secret."""
        return (
            f"HttpRequest({self.method} {self.url.partition('?')[0].rpartition('@')[2]}, "
            f"{len(self.headers)} headers, {len(self.body)} bytes)"
        )


class Address(NamedTuple):
    """An `http` or `https` URL taken apart. `host` is lower-case and without brackets; `target` is path and query."""

    tls: bool
    host: str
    port: int
    target: str

    @property
    def authority(self) -> str:
        """`host[:port]` as the Host header has it: the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


@lru_cache(maxsize=256)
def parse_url(url: str) -> Address:
    """Take an absolute URL apart. Raises ValueError, without the query, where it is not one we can request."""
    shown = repr(url.partition("?")[0].rpartition("@")[2])
    if _UNSAFE_IN_URL.search(url):
        raise ValueError(f"URL {shown} holds a blank, a control or a non-ASCII character: percent-encode it")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"URL {shown} is not valid: write http(s)://host[:port]/path") from None
    if parts.scheme not in ("http", "https") or not host or not _HOST.fullmatch(host):
        raise ValueError(f"URL {shown} is not an absolute http or https URL: write http(s)://host[:port]/path")
    if "@" in parts.netloc:
        raise ValueError(f"URL {shown} holds a user name or password: send credentials in a header")
    tls = parts.scheme == "https"
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(tls, host.rstrip("."), port if port is not None else (443 if tls else 80), target)


def encode_head(
    request: HttpRequest, address: Address, *, through_proxy: bool, proxy_authorization: str | None
) -> bytes:
    """The request's head, from its first line to the empty one. Raises ValueError (see `check_headers`).

    `through_proxy` asks for the absolute form (RFC 9112, section 3.2.2) that a proxy needs for a plain `http` target.
    """
    if not is_token(request.method):
        raise ValueError(f"method {request.method!a} is not valid")
    check_headers(request.headers)
    target = f"http://{address.authority}{address.target}" if through_proxy else address.target
    lines = [f"{request.method} {target} HTTP/1.1", f"Host: {address.authority}", "Accept-Encoding: identity"]
    if proxy_authorization is not None:
        lines.append(f"Proxy-Authorization: {proxy_authorization}")
    own_agent = True
    for name, value in request.headers:
        lines.append(f"{name}: {value}")
        own_agent = own_agent and name.lower() != "user-agent"
    if own_agent:
        lines.insert(3, f"User-Agent: {USER_AGENT}")
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(request.body)}")
    lines.append("\r\n")
    return "\r\n".join(lines).encode("latin-1")
