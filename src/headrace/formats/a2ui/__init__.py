"""A2UI v0.9 (https://a2ui.org), user interfaces that a model writes, for callers: asked in the gateway format, answered in it.

extract.py finds the messages in the text, messages.py says which are fit to be sent, writer.py and response.py put them
beside the gateway format's own events.
"""

from __future__ import annotations

from headrace.formats.base import IN_THE_BODY, Format, Located, Route
from headrace.formats.callers import no_provider
from headrace.formats.gateway import request as gateway
from headrace.formats.gateway.errors import write_error
from headrace.model.request import Request

from .response import write_response
from .writer import A2UIWriter

NAME = "a2ui"


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """A body of the gateway format; `stream` is true where it is absent. Raises InvalidRequest."""
    request = gateway.read_request(body, located)
    assert request.origin is not None
    request.stream = request.origin.get("stream") is not False
    request.format = NAME
    return request


FORMAT = Format(
    name=NAME,
    vendor=NAME,
    media_type="application/json",
    profile="a2ui-0.9",
    routes=(Route("/v1/ui/a2ui"),),
    upstream_path="",
    framings=("sse", "ndjson"),
    auth_headers=no_provider,
    read_request=read_request,
    write_request=no_provider,
    stream_reader=no_provider,
    stream_writer=A2UIWriter,
    read_response=no_provider,
    write_response=write_response,
    read_error=no_provider,
    write_error=write_error,
    provides=False,
)
