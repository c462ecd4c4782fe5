"""The gateway format (LLM-005, spec/gateway.md): for callers, and for providers that are gateways of this kind themselves."""

from __future__ import annotations

from headrace.formats.base import Format, Route, bearer

from .errors import VENDOR, read_error, write_error
from .reader import GatewayReader
from .request import MEDIA_TYPE, NAME, PATH, read_request, write_request
from .response import read_response, write_response
from .writer import GatewayWriter

FORMAT = Format(
    name=NAME,
    vendor=VENDOR,
    media_type=MEDIA_TYPE,
    profile="headrace-gateway-1.0",
    routes=(Route(PATH),),
    upstream_path=PATH,
    framings=("sse", "ndjson"),
    auth_headers=bearer,
    read_request=read_request,
    write_request=write_request,
    stream_reader=GatewayReader,
    stream_writer=GatewayWriter,
    read_response=read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
)
