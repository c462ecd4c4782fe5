"""The UI message stream of Vercel's AI SDK, version 1 (https://ai-sdk.dev/docs/ai-sdk-ui/stream-protocol), for callers."""

from __future__ import annotations

import msgspec

from headrace.formats.base import Format, Route, WriterOptions
from headrace.formats.callers import no_provider
from headrace.formats.json import encode
from headrace.model.assemble import explode
from headrace.model.errors import ErrorInfo
from headrace.model.response import Response

from .request import NAME, read_request
from .writer import DONE, UIStreamWriter


def write_response(response: Response, options: WriterOptions) -> bytes:
    """A whole answer is its chunks: `{"chunks": [...]}`. The protocol has only streams; this is for those who ask for less."""
    frames = UIStreamWriter(options).write(list(explode(response)))
    return encode({"chunks": [msgspec.Raw(frame.data) for frame in frames if frame.data != DONE]})


def write_error(info: ErrorInfo) -> bytes:
    """The SDK shows the body of a refused request as it is."""
    return encode({"error": {"message": info.message, "type": info.type or info.code.value, "code": info.code.value}})


FORMAT = Format(
    name=NAME,
    vendor="vercel",
    media_type="application/json",
    profile="vercel-ui-1",
    routes=(Route("/v1/ui/vercel"),),
    upstream_path="",
    framings=("sse",),
    auth_headers=no_provider,
    read_request=read_request,
    write_request=no_provider,
    stream_reader=no_provider,
    stream_writer=UIStreamWriter,
    read_response=no_provider,
    write_response=write_response,
    read_error=no_provider,
    write_error=write_error,
    provides=False,
    answer_headers=(("x-vercel-ai-ui-message-stream", "v1"),),
)
