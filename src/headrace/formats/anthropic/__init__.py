"""The Anthropic Messages format: `FORMAT`, with readers and writers for requests, streams, answers and errors.

words.py holds its vocabulary as tables; sealing.py what other vendors' ids and signatures look like in its fields.
"""

from __future__ import annotations

from headrace.formats.base import Format, Route

from .errors import error_status, read_error, write_error
from .reader import AnthropicStreamReader
from .request_reader import read_request
from .request_writer import PATH, write_request
from .response import read_response, write_response
from .words import NAME, VENDOR
from .writer import AnthropicStreamWriter

__all__ = ["FORMAT", "FORWARDED_HEADERS", "AnthropicStreamReader", "AnthropicStreamWriter"]

FORWARDED_HEADERS = ("anthropic-version", "anthropic-beta")
"""Headers of a caller of this format that go on to a provider of this format; the caller's version replaces ours."""


def _auth_headers(credential: str) -> tuple[tuple[str, str], ...]:
    return (("x-api-key", credential),)


QUIRKS = {
    "input_includes_cache": "`true`: `input_tokens` includes the cached tokens, as OpenAI counts them.",
    "effort_as_budget": "`true`: the model knows no effort; a caller's effort becomes a budget of thinking tokens.",
}
"""Where compatible providers and older models depart from Anthropic."""

FORMAT = Format(
    name=NAME,
    vendor=VENDOR,
    media_type="application/json",
    profile="anthropic-messages",
    routes=(Route(PATH),),
    upstream_path=PATH,
    framings=("sse", "ndjson"),
    auth_headers=_auth_headers,
    read_request=read_request,
    write_request=write_request,
    stream_reader=AnthropicStreamReader,
    stream_writer=AnthropicStreamWriter,
    read_response=read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
    quirks=QUIRKS,
    error_status=error_status,
    forwarded_headers=FORWARDED_HEADERS,
)
