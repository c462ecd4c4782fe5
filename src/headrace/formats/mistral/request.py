"""Requests: OpenAI's codecs, and around them what Mistral says otherwise."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats import openai_chat
from headrace.formats.base import IN_THE_BODY, Located, Target, WireRequest
from headrace.formats.json import decode_object, encode, merged
from headrace.model.request import Request

from .shapes import Body, nine, with_thinking, without_thinking

NAME = "mistral"
VENDOR = "mistral"
PATH = "/chat/completions"

_QUIRKS = {"max_tokens_field": "max_tokens", "stream_options": False}
_UNKNOWN = ("logprobs", "top_logprobs", "user")
_GATEWAY_FIELDS = ("budget", "extensions")


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """Raises InvalidRequest with the path of the bad field."""
    origin = decode_object(body)
    told = dict(origin)
    if told.get("random_seed") is not None:
        told["seed"] = told.pop("random_seed")
    messages = told.get("messages")
    if isinstance(messages, list):
        told["messages"] = [without_thinking(message) for message in messages]
    request = openai_chat.FORMAT.read_request(encode(told), located)
    return msgspec.structs.replace(request, format=NAME, origin=origin, include_usage=True)


def write_request(request: Request, target: Target) -> WireRequest:
    """Raises nothing: every request of the model has a body in this format."""
    if request.format == NAME and request.origin is not None:
        return _own(request, request.origin, target)
    general = msgspec.structs.replace(target, quirks={**_QUIRKS, **target.quirks}, path=target.path or PATH)
    bare = msgspec.structs.replace(request, extensions={})
    wire = openai_chat.FORMAT.write_request(bare, general)
    body: Body = msgspec.json.decode(wire.body)
    lost = [*wire.lost, *[f"request.{name}" for name in _UNKNOWN if body.pop(name, None) is not None]]
    body.pop("metadata", None)
    if "seed" in body:
        body["random_seed"] = body.pop("seed")
    if body.get("tool_choice") == "required":
        body["tool_choice"] = "any"
    effort = body.pop("reasoning_effort", None)
    if effort is not None:
        body["reasoning_effort"] = "none" if effort == "none" else "high"  # the two that there are
    body["messages"] = [_message(message) for message in body["messages"]]
    extension = request.extensions.get(target.vendor)
    if isinstance(extension, dict):
        body = merged(body, extension)
    return msgspec.structs.replace(wire, body=encode(body), lost=tuple(lost))


def _own(request: Request, origin: Body, target: Target) -> WireRequest:
    """The caller's own body."""
    body = {name: value for name, value in origin.items() if name not in _GATEWAY_FIELDS}
    body["model"] = target.model
    body.pop("stream", None)
    if target.stream:
        body["stream"] = True
    extension = request.extensions.get(target.vendor)
    if isinstance(extension, dict):
        body = merged(body, extension)
    headers = (
        ("content-type", "application/json"),
        ("accept", "text/event-stream" if target.stream else "application/json"),
    )
    return WireRequest(path=target.path or PATH, body=encode(body), headers=headers)


def _message(message: Body) -> Body:
    written = with_thinking(message)
    written.pop("reasoning_details", None)
    calls = written.get("tool_calls")
    if isinstance(calls, list):
        written["tool_calls"] = [{**call, "id": nine(str(call.get("id", "")))} for call in calls]
    if written.get("tool_call_id") is not None:
        written["tool_call_id"] = nine(written["tool_call_id"])
    if isinstance(written.get("content"), list):
        written["content"] = [_chunk(chunk) for chunk in written["content"]]
    return written


def _chunk(chunk: Any) -> Any:
    """Documents and audio have chunks of their own."""
    kind = chunk.get("type") if isinstance(chunk, dict) else None
    if kind == "file" and isinstance(chunk["file"].get("file_data"), str):
        file = chunk["file"]
        return {"type": "document_url", "document_url": file["file_data"], "document_name": file.get("filename")}
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": chunk["input_audio"]["data"]}
    return chunk
