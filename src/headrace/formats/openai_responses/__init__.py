"""OpenAI's Responses API (https://platform.openai.com/docs/api-reference/responses)."""

from __future__ import annotations

from headrace.formats.base import Format, Route, bearer
from headrace.formats.openai_chat.errors import read_error, write_error

from .reader import ResponsesStreamReader
from .request_reader import read_request
from .request_writer import PATH, write_request
from .response import read_response, write_response
from .words import NAME, VENDOR
from .writer import ResponsesStreamWriter

FORMAT = Format(
    name=NAME,
    vendor=VENDOR,
    media_type="application/json",
    profile="openai-responses",
    routes=(Route("/v1/responses"),),
    upstream_path=PATH,
    framings=("sse", "ndjson"),
    auth_headers=bearer,
    read_request=read_request,
    write_request=write_request,
    stream_reader=ResponsesStreamReader,
    stream_writer=ResponsesStreamWriter,
    read_response=read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
)
