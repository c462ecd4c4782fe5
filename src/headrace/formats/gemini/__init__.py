"""Google's Gemini: generateContent and streamGenerateContent (https://ai.google.dev/api/generate-content)."""

from __future__ import annotations

from headrace.formats.base import Format, Route

from .errors import read_error, write_error
from .reader import GeminiStreamReader
from .request_reader import read_request
from .request_writer import write_request
from .response import read_response, write_response
from .words import NAME, VENDOR
from .writer import GeminiStreamWriter


def _auth_headers(credential: str) -> tuple[tuple[str, str], ...]:
    return (("x-goog-api-key", credential),)


def _routes() -> tuple[Route, ...]:
    """With `alt=sse` a stream of server-sent events, without it one JSON array that grows."""
    routes: list[Route] = []
    for version in ("/v1beta", "/v1"):
        stream, whole = (f"{version}/models/{{model}}:{name}" for name in ("streamGenerateContent", "generateContent"))
        routes += (
            Route(stream, stream=True, query=("alt", "sse")),
            Route(stream, stream=True, framing="json_array"),
            Route(whole, stream=False),
        )
    return tuple(routes)


FORMAT = Format(
    name=NAME,
    vendor=VENDOR,
    media_type="application/json",
    profile="gemini",
    routes=_routes(),
    upstream_path="/models/{model}:streamGenerateContent?alt=sse",
    framings=("sse", "json_array", "ndjson"),
    auth_headers=_auth_headers,
    read_request=read_request,
    write_request=write_request,
    stream_reader=GeminiStreamReader,
    stream_writer=GeminiStreamWriter,
    read_response=read_response,
    write_response=write_response,
    read_error=read_error,
    write_error=write_error,
)
