"""Amazon Bedrock's Converse and ConverseStream: `FORMAT`, with readers and writers for requests, streams, answers, errors.

words.py holds its vocabulary as tables; in_turn.py puts blocks that run side by side in a row.
"""

from __future__ import annotations

from headrace.formats.base import Format, Route, bearer

from .errors import error_headers, read_error, write_error
from .reader import BedrockStreamReader
from .request_reader import read_request
from .request_writer import write_request
from .response import read_response, write_response
from .words import NAME, STREAM_PATH, VENDOR, WHOLE_PATH
from .writer import BedrockStreamWriter

__all__ = ["FORMAT", "BedrockStreamReader", "BedrockStreamWriter"]


QUIRKS = {
    "family": "Whose parameters the model takes where its name does not say it (an inference profile's ARN): `claude`, "
    "`nova` or `other`.",
    "effort_as_budget": "`true`: a Claude that knows no effort; a caller's effort becomes a budget of thinking tokens.",
    "input_includes_cache": "`true`: `inputTokens` includes the cached tokens, as OpenAI counts them.",
}
"""Where models depart from one another."""

FORMAT = Format(
    name=NAME,
    vendor=VENDOR,
    media_type="application/json",
    profile="bedrock-converse",
    routes=(Route(STREAM_PATH, stream=True), Route(WHOLE_PATH, stream=False)),
    upstream_path=STREAM_PATH,
    framings=("eventstream", "sse", "ndjson"),
    auth_headers=bearer,
    read_request=read_request,
    write_request=write_request,
    stream_reader=BedrockStreamReader,
    stream_writer=BedrockStreamWriter,
    read_response=read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
    error_headers=error_headers,
    quirks=QUIRKS,
)
"""The format that every model of Bedrock speaks."""
