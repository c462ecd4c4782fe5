"""What can go wrong between us and a provider's HTTP server.

One exception type, told apart by `kind`, so that the engine decides about retries from a word and not from a class
tree. Messages name the host and the cause; they never hold a credential, a header value or a piece of a body.
"""

from __future__ import annotations

from typing import Literal

UpstreamErrorKind = Literal["connect", "connect_timeout", "tls", "reset", "truncated", "protocol", "proxy", "dns"]
"""What failed.

- `dns`: the host name does not resolve. `connect`: no TCP connection. `connect_timeout`: name, TCP, proxy and TLS
  together took longer than allowed. `tls`: the handshake or the certificate. `proxy`: the proxy refused or failed.
- `reset`: the connection broke or closed with the answer outstanding. `truncated`: it closed inside an answer whose
  length HTTP had announced. `protocol`: the answer breaks HTTP's rules or a bound of ours.
"""


class UpstreamError(Exception):
    """An exchange failed below the format: `kind` says how, `message` says it to a person.

    `bytes_received` is true when any byte of the answer had arrived, that is when the provider surely saw the request.
    """

    def __init__(self, kind: UpstreamErrorKind, message: str, *, bytes_received: bool = False) -> None:
        super().__init__(message)
        self.kind: UpstreamErrorKind = kind
        self.message = message
        self.bytes_received = bytes_received

    def bare(self) -> UpstreamError:
        """The same error without traceback and context, which would keep frames and all their variables alive."""
        return UpstreamError(self.kind, self.message, bytes_received=self.bytes_received)

    def __repr__(self) -> str:
        return f"UpstreamError({self.kind!r}, {self.message!r}, bytes_received={self.bytes_received})"
