"""OpenAI's Chat Completions, and the dialects that are compatible with it (DOSSIER 1 and 11)."""

from __future__ import annotations

from headrace.formats.base import Format, Route, bearer

from .errors import VENDOR, read_error, write_error
from .reader import ChatStreamReader
from .request_reader import NAME, read_request
from .request_writer import PATH, write_request
from .response import read_response, write_response
from .writer import ChatStreamWriter

QUIRKS = {
    "done_marker": "`false`: the provider sends no `[DONE]`; the end of the body after every finish reason is the end.",
    "think_tags": "`true`: reasoning stands in the text between `<think>` and `</think>`. `open`: the first tag is missing.",
    "max_tokens_field": "Name of the request's output limit: `max_tokens` or `max_completion_tokens`.",
    "stream_options": "`false`: the provider refuses `stream_options`; no usage is asked for.",
    "top_k": "`true`: the provider takes `top_k`.",
}
"""Where compatible providers depart from OpenAI (DOSSIER, section 11)."""

FORMAT = Format(
    name=NAME,
    vendor=VENDOR,
    media_type="application/json",
    profile="openai-chat",
    routes=(Route("/v1/chat/completions"),),
    upstream_path=PATH,
    framings=("sse", "ndjson"),
    auth_headers=bearer,
    read_request=read_request,
    write_request=write_request,
    stream_reader=ChatStreamReader,
    stream_writer=ChatStreamWriter,
    read_response=read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
    quirks=QUIRKS,
    framing_options={"extra_fields": frozenset({"error"})},
)
