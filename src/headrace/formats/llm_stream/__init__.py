"""llm-stream 1.0, the standard format of draft-spk-agentproto-llm-stream: for callers, and for providers that speak it."""

from __future__ import annotations

from headrace.formats.base import Format, Route, bearer

from .errors import VENDOR, read_error, write_error
from .reader import LlmStreamReader
from .request import MEDIA_TYPE, NAME, PATH, read_request, write_request
from .response import read_response, write_response
from .writer import LlmStreamWriter

FORMAT = Format(
    name=NAME,
    vendor=VENDOR,
    media_type=MEDIA_TYPE,
    profile="llm-stream-1.0",
    routes=(Route(PATH),),
    upstream_path=PATH,
    framings=("sse", "ndjson"),
    auth_headers=bearer,
    read_request=read_request,
    write_request=write_request,
    stream_reader=LlmStreamReader,
    stream_writer=LlmStreamWriter,
    read_response=read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
)
