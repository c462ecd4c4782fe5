"""Amazon Bedrock's InvokeModel and InvokeModelWithResponseStream for Claude's models: `FORMAT`.

What is invoked is the model's own API, so everything but the envelope is Anthropic's (formats/anthropic): the model and
the wish for a stream stand in the path, `anthropic_version` in the body, and each event of a stream comes as base64 in a
message of its own. Errors are Bedrock's. The vendor is `anthropic`, since signatures and extensions are Anthropic's own.
"""

from __future__ import annotations

from headrace.formats import anthropic
from headrace.formats.base import Format, Route, bearer
from headrace.formats.bedrock.errors import error_headers, read_error, write_error

from .request import NAME, STREAM_PATH, WHOLE_PATH, read_request, write_request
from .response import read_response
from .stream import InvokeStreamReader, InvokeStreamWriter

__all__ = ["FORMAT", "InvokeStreamReader", "InvokeStreamWriter"]

FORWARDED_HEADERS = tuple(
    f"x-amzn-bedrock-{name}"
    for name in (
        "guardrailidentifier",
        "guardrailversion",
        "performanceconfig-latency",
        "request-metadata",
        "service-tier",
        "trace",
    )
)
"""What an invocation says of guardrails, tiers and traces: in Converse that stands in the body."""

FORMAT = Format(
    name=NAME,
    vendor=anthropic.FORMAT.vendor,
    media_type="application/json",
    profile="bedrock-invoke",
    routes=(Route(STREAM_PATH, stream=True), Route(WHOLE_PATH, stream=False)),
    upstream_path=STREAM_PATH,
    framings=("eventstream", "sse", "ndjson"),
    auth_headers=bearer,
    read_request=read_request,
    write_request=write_request,
    stream_reader=InvokeStreamReader,
    stream_writer=InvokeStreamWriter,
    read_response=read_response,
    write_response=anthropic.FORMAT.write_response,
    read_error=read_error,
    write_error=write_error,
    error_headers=error_headers,
    forwarded_headers=FORWARDED_HEADERS,
    quirks=anthropic.FORMAT.quirks,
)
"""Anthropic's Messages in Bedrock's envelope."""
