"""Cohere's chat, version 2 (https://docs.cohere.com/reference/chat)."""

from __future__ import annotations

from headrace.formats.base import Format, Route, bearer

from .reader import CohereStreamReader
from .request import PATH, read_request, write_request
from .response import read_response, write_response
from .words import NAME, VENDOR, read_error, write_error
from .writer import CohereStreamWriter

FORMAT = Format(
    name=NAME,
    vendor=VENDOR,
    media_type="application/json",
    profile="cohere-chat-2",
    routes=(Route(PATH),),
    upstream_path=PATH,
    framings=("sse", "ndjson"),
    auth_headers=bearer,
    read_request=read_request,
    write_request=write_request,
    stream_reader=CohereStreamReader,
    stream_writer=CohereStreamWriter,
    read_response=read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
)
