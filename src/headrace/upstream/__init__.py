"""Reaching a provider: the HTTP/1.1 client, its pool, TLS and proxies; credentials; trace context.

`Client.send` hands a request to a provider and reports the answer to a `ResponseHandler` by callbacks. This layer
knows transport and nothing else: no framing, no format, no retry policy beyond the stale keep-alive connection.
"""

from .client import Client, Exchange
from .connection import ResponseHandler
from .errors import UpstreamError, UpstreamErrorKind
from .headers import Headers, check_headers
from .proxy import parse_proxy
from .request import HttpRequest, parse_url
from .sigv4 import AwsKeys, SigningError, SigV4Signer
from .tls import tls_context
from .trace import TraceContext

__all__ = [
    "AwsKeys",
    "Client",
    "Exchange",
    "Headers",
    "HttpRequest",
    "ResponseHandler",
    "SigV4Signer",
    "SigningError",
    "TraceContext",
    "UpstreamError",
    "UpstreamErrorKind",
    "check_headers",
    "parse_proxy",
    "parse_url",
    "tls_context",
]
