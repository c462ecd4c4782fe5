"""OpenAI's Chat Completions, and the dialects that are compatible with it (DOSSIER 1 and 11)."""

from __future__ import annotations

from headrace.formats.base import Format

from .errors import VENDOR, read_error, write_error
from .reader import ChatStreamReader
from .request_reader import NAME, read_request
from .request_writer import PATH, write_request
from .response import read_response, write_response
from .writer import ChatStreamWriter


def _auth_headers(credential: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {credential}"),)


FORMAT = Format(
    name=NAME,
    vendor=VENDOR,
    media_type="application/json",
    profile="openai-chat",
    caller_path="/v1/chat/completions",
    upstream_path=PATH,
    framings=("sse", "ndjson"),
    auth_headers=_auth_headers,
    read_request=read_request,
    write_request=write_request,
    stream_reader=ChatStreamReader,
    stream_writer=ChatStreamWriter,
    read_response=read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
    framing_options={"extra_fields": frozenset({"error"})},
)
