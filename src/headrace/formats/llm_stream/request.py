"""Requests of the draft: `application/llm-request+json`, every table of spec/llm-stream.md.

The rule: what the draft requires is required, what it says to ignore is ignored (and kept in `origin`), and what it has no
word for travels in `extensions["vendor:headrace"]` (standard/options.py names the words), for callers as for providers.
"""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from headrace.formats.base import IN_THE_BODY, Located, Target, WireRequest
from headrace.formats.json import decode_object, encode
from headrace.formats.standard.extensions import WireExtensions
from headrace.formats.standard.fields import bad, read_as
from headrace.formats.standard.messages import (
    WireMessage,
    WireTool,
    read_messages,
    read_tools,
    write_messages,
    write_tools,
)
from headrace.formats.standard.options import Sampling, apply_sampling, write_options, write_sampling
from headrace.formats.standard.requests import apply_extensions, merge_own, write_extensions
from headrace.model.request import Request

NAME = "llm_stream"
VERSION = "1.0"
MEDIA_TYPE = "application/llm-request+json"
PATH = "/v1/chat"


class _Body(Struct, kw_only=True):
    version: Any = UNSET
    stream: bool
    model: str
    messages: list[WireMessage]
    tools: list[WireTool] | None = None
    parameters: Sampling | None = None
    metadata: dict[str, Any] | None = None
    extensions: WireExtensions | None = None


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """A caller's body. Raises InvalidRequest with the path of the field that is wrong."""
    origin = decode_object(body)
    _check_version(origin.get("version", UNSET))
    fields = read_as(origin, _Body)
    if not fields.model:
        bad("model", "must not be empty")
    request = Request(
        model=fields.model,
        messages=read_messages(fields.messages),
        stream=fields.stream,
        tools=read_tools(fields.tools, strict=True),
        metadata=fields.metadata or {},
        format=NAME,
        origin=origin,
    )
    if fields.parameters is not None:
        apply_sampling(request, fields.parameters)
    apply_extensions(request, fields.extensions)
    return request


def _check_version(version: Any | UnsetType) -> None:
    if version is UNSET:
        bad("version", f'is required and must be "{VERSION}"')
    if version != VERSION:
        bad("version", f'must be "{VERSION}", the only version that is spoken here')


def write_request(request: Request, target: Target) -> WireRequest:
    """The request for a provider that speaks the draft. Raises nothing: all of a request has a place here."""
    lost = list(request.lost)
    if request.format == NAME and request.origin is not None:
        body = dict(request.origin)
        body["stream"] = target.stream
        body["model"] = target.model
    else:
        body = _compose(request, target, lost)
    body = merge_own(body, request, target)
    accept = "text/event-stream" if target.stream else "application/json"
    headers = (("content-type", MEDIA_TYPE), ("accept", accept))
    return WireRequest(path=target.path or PATH, body=encode(body), headers=headers, lost=tuple(lost))


def _compose(request: Request, target: Target, lost: list[str]) -> dict[str, Any]:
    body: dict[str, Any] = {
        "version": VERSION,
        "stream": target.stream,
        "model": target.model,
        "messages": write_messages(request.messages),
    }
    optional = {
        "tools": write_tools(request.tools, lost),
        "parameters": write_sampling(request),
        "extensions": write_extensions(request, target, write_options(request)),
    }
    body.update((name, value) for name, value in optional.items() if value)
    return body
