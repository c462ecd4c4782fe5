"""Requests: Anthropic's body without `model` and `stream`, and with `anthropic_version`.

The rule: the body is read and written by Anthropic's codec, what the path says is put in before and taken out after. A
caller of Anthropic's own format is sent on as one of this format would be, and the other way round.
"""

from __future__ import annotations

import msgspec

from headrace.formats import anthropic
from headrace.formats.base import IN_THE_BODY, Located, Target, WireRequest
from headrace.formats.bedrock.words import EVENTSTREAM, path_of
from headrace.formats.json import decode_object, encode
from headrace.model.errors import InvalidRequest
from headrace.model.request import Request

NAME = "bedrock_invoke"
STREAM_PATH = "/model/{model}/invoke-with-response-stream"
WHOLE_PATH = "/model/{model}/invoke"
VERSION = "bedrock-2023-05-31"
"""Value of anthropic_version: the only one there has been."""

_OF_THE_ENVELOPE = ("anthropic_version", "anthropic_beta")


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """Raises InvalidRequest with the path of the bad field."""
    payload = decode_object(body)
    if located.model:
        for name in ("model", "stream"):
            if name in payload:
                raise InvalidRequest(f"{name}: stands in the path, not in the body", param=name)
        told = encode({"model": located.model, "stream": bool(located.stream)})
        # Spliced and not encoded anew: the text of the tools' arguments must stay as it is.
        body = told[:-1] + (b"," if payload else b"") + body.strip()[1:]
    request = anthropic.FORMAT.read_request(body)
    request.format = NAME
    request.origin = payload
    request.lost = [name for name in request.lost if name.removeprefix("request.") not in _OF_THE_ENVELOPE]
    return request


def write_request(request: Request, target: Target) -> WireRequest:
    """Raises InvalidRequest where nothing is left to send."""
    if request.format == NAME:
        request = msgspec.structs.replace(request, format=anthropic.FORMAT.name)
    wire = anthropic.FORMAT.write_request(request, msgspec.structs.replace(target, path=None))
    body = decode_object(wire.body)
    for name in ("model", "stream"):
        body.pop(name, None)
    body.setdefault("anthropic_version", VERSION)
    template = target.path or (STREAM_PATH if target.stream else WHOLE_PATH)
    headers = (
        ("content-type", "application/json"),
        ("accept", EVENTSTREAM if target.stream else "application/json"),
    )
    return WireRequest(path=path_of(template, target.model), body=encode(body), headers=headers, lost=wire.lost)
