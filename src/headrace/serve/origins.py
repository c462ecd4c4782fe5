"""Which web pages may use a gateway that asks for no keys, whatever transport they come over.

A key is no cookie: a page that sends one was given it, so with keys a page's origin does not matter. Without keys any page
on the caller's machine could use the gateway, and only pages of its own host and of `server.allowed_origins` may.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError
from headrace.serve.runtime import Runtime


def check_origin(runtime: Runtime, headers: Mapping[str, str]) -> None:
    """Raises GatewayError 403 for a request (its headers, with lower-case names) of a page that may not ask."""
    origin = headers.get("origin")
    if origin is None or runtime.keys is not None:
        return
    allowed, own = runtime.config.server.allowed_origins, urlsplit(origin).netloc
    if "*" in allowed or origin in allowed or (own and own == headers.get("host")):
        return
    what = f"Pages of {origin[:200]} may not use this gateway, which asks for no keys. Allow the origin with"
    raise GatewayError(
        ErrorInfo(
            code=ErrorCode.FORBIDDEN,
            type="forbidden_origin",
            message=f"{what} server.allowed_origins, or create keys",
        )
    )
