"""Who may use a gateway that has no keys: whoever can reach it, so by default that must be this machine alone.

Asked at every start and for every new configuration, with the address that is really listened on. A host name other than
`localhost` counts as reachable: what it resolves to may change.
"""

from __future__ import annotations

import ipaddress

from headrace.config import Config


def refusal(config: Config) -> str | None:
    """Why this configuration must not be served; None where it may be."""
    server = config.server
    if config.keys_file is not None or server.open:
        return None
    hosts = {"server.host": server.host, **({"server.grpc.host": server.grpc.host} if server.grpc is not None else {})}
    reachable = next(((name, host) for name, host in hosts.items() if not is_loopback(host)), None)
    if reachable is None:
        return None
    return (
        f"{reachable[0]} is {reachable[1]}, which others can reach, and callers need no key: "
        "make keys with `headrace keys create` and name their file in keys_file, "
        "or set server.open to serve anybody"
    )


def warning(config: Config) -> str | None:
    """What its operator should know about a configuration that is served; None where there is nothing."""
    if config.keys_file is not None:
        return None
    who = "anybody on this machine" if is_loopback(config.server.host) else f"anybody who reaches {config.server.host}"
    return f"callers need no key: {who} can use the providers (keys_file)"


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
