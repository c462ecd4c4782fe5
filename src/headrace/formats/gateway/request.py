"""Requests of the gateway format (LLM-005; the table of spec/gateway.md), `application/json`.

The rule: the table's fields have the table's meaning; beyond them the words of standard/options.py (tool_choice,
reasoning, n, seed ...) are plain fields. Unknown fields are kept in `origin` and never refused. `model` may be absent where
a default route can stand in; `stream` is false where it is absent.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from headrace.formats.base import IN_THE_BODY, Located, Target, WireRequest
from headrace.formats.json import decode_object, encode
from headrace.formats.standard.extensions import WireExtensions
from headrace.formats.standard.fields import read_as
from headrace.formats.standard.messages import (
    WireMessage,
    WireTool,
    read_messages,
    read_tools,
    write_messages,
    write_tools,
)
from headrace.formats.standard.options import (
    Options,
    Sampling,
    apply_options,
    apply_sampling,
    write_options,
    write_sampling,
)
from headrace.formats.standard.requests import apply_extensions, merge_own, write_extensions
from headrace.model.request import Request

NAME = "gateway"
MEDIA_TYPE = "application/json"
PATH = "/v1/chat"


class _Body(Struct, kw_only=True):
    model: str | None = None
    messages: list[WireMessage]
    tools: list[WireTool] | None = None
    stream: bool | None = None
    metadata: dict[str, Any] | None = None
    extensions: WireExtensions | None = None


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """A caller's body. Raises InvalidRequest with the path of the field that is wrong."""
    origin = decode_object(body)
    fields = read_as(origin, _Body)
    sampling, options = read_as(origin, Sampling), read_as(origin, Options)
    request = Request(
        model=fields.model or "",
        messages=read_messages(fields.messages),
        stream=bool(fields.stream),
        tools=read_tools(fields.tools, strict=False),
        metadata=fields.metadata or {},
        format=NAME,
        origin=origin,
    )
    apply_sampling(request, sampling)
    apply_extensions(request, fields.extensions)
    apply_options(request, options)
    return request


def write_request(request: Request, target: Target) -> WireRequest:
    """The request for a provider that speaks the gateway format. Raises nothing: all of a request has a place here."""
    lost = list(request.lost)
    if request.format == NAME and request.origin is not None:
        body = dict(request.origin)
        body["model"] = target.model
        body["stream"] = target.stream
    else:
        body = _compose(request, target, lost)
    body = merge_own(body, request, target)
    accept = "text/event-stream" if target.stream else "application/json"
    headers = (("content-type", MEDIA_TYPE), ("accept", accept))
    return WireRequest(path=target.path or PATH, body=encode(body), headers=headers, lost=tuple(lost))


def _compose(request: Request, target: Target, lost: list[str]) -> dict[str, Any]:
    body: dict[str, Any] = {"model": target.model, "messages": write_messages(request.messages)}
    optional = {
        "tools": write_tools(request.tools, lost),
        **write_options(request),
        **write_sampling(request),
        "extensions": write_extensions(request, target, {}),
    }
    body.update((name, value) for name, value in optional.items() if value not in ({}, []))
    body["stream"] = target.stream
    return body
