"""Requests: OpenAI's codecs, and around them what Mistral says otherwise."""

from __future__ import annotations

import msgspec

from headrace.formats import openai_chat
from headrace.formats.base import IN_THE_BODY, Located, Target, WireRequest
from headrace.formats.json import decode_object, encode, merged
from headrace.model.request import Request

from .shapes import Body, in_mistrals_words, in_openais_words, with_nine

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
        told["messages"] = [in_openais_words(message) for message in messages]
    request = openai_chat.FORMAT.read_request(encode(told), located)
    return msgspec.structs.replace(request, format=NAME, origin=origin, include_usage=True)


def write_request(request: Request, target: Target) -> WireRequest:
    """Raises nothing: every request of the model has a body in this format."""
    if request.format == NAME and request.origin is not None:
        return _own(request, request.origin, target)
    general = msgspec.structs.replace(target, quirks={**_QUIRKS, **target.quirks}, path=target.path or PATH)
    # Composed anew, for OpenAI's callers too: Mistral refuses fields that it does not know.
    bare = msgspec.structs.replace(request, extensions={}, format="")
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
    body["messages"] = [in_mistrals_words(message) for message in body["messages"]]
    extension = request.extensions.get(target.vendor)
    if isinstance(extension, dict):
        body = merged(body, extension)
    return msgspec.structs.replace(wire, body=encode(body), lost=tuple(lost))


def _own(request: Request, origin: Body, target: Target) -> WireRequest:
    """The caller's own body."""
    body = {name: value for name, value in origin.items() if name not in _GATEWAY_FIELDS}
    body["messages"] = [with_nine(message) for message in origin["messages"]]
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
