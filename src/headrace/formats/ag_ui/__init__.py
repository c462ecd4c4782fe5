"""AG-UI, the agent-user interaction protocol (https://docs.ag-ui.com), for callers: a model answers in place of an agent."""

from __future__ import annotations

import msgspec

from headrace.formats.base import Format, Route, WriterOptions
from headrace.formats.callers import no_provider
from headrace.formats.json import encode
from headrace.model.assemble import explode
from headrace.model.errors import ErrorInfo
from headrace.model.response import Response

from .request import NAME, read_request
from .writer import RunWriter


def write_response(response: Response, options: WriterOptions) -> bytes:
    """A whole run is its events: `{"events": [...]}`. The protocol has only streams; this is for those who ask for less."""
    frames = RunWriter(options).write(list(explode(response)))
    return encode({"events": [msgspec.Raw(frame.data) for frame in frames]})


def write_error(info: ErrorInfo) -> bytes:
    """A run that never started, told as an error of a run is."""
    return encode({"type": "RUN_ERROR", "message": info.message, "code": info.code.value})


FORMAT = Format(
    name=NAME,
    vendor="ag_ui",
    media_type="application/json",
    profile="ag-ui-1",
    routes=(Route("/v1/ui/ag-ui"),),
    upstream_path="",
    framings=("sse",),
    auth_headers=no_provider,
    read_request=read_request,
    write_request=no_provider,
    stream_reader=no_provider,
    stream_writer=RunWriter,
    read_response=no_provider,
    write_response=write_response,
    read_error=no_provider,
    write_error=write_error,
    provides=False,
)
