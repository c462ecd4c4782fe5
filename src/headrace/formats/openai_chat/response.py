"""Whole bodies: a provider's `chat.completion` -> Response, and a Response -> the caller's body.

A body is a chunk whose deltas are called messages, so the stream's reader reads it, with the same tolerance, and the one
assembler folds the events.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.json import decode_payload, encode
from headrace.model.assemble import Assembler
from headrace.model.content import Media, Opaque, Reasoning, RedactedReasoning, Refusal, Text, ToolCall
from headrace.model.errors import GatewayError, ProtocolError
from headrace.model.response import Choice, Response

from .citations import write_annotation
from .errors import VENDOR
from .media import data_url
from .reader import ChatStreamReader
from .stops import native_stop, write_stop
from .usage import write_usage
from .writer import own_fields, redacted_item, signature_item

_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def read_response(body: bytes, options: ReaderOptions) -> Response:
    """Raises ProtocolError, and GatewayError where the body is an error in disguise (or holds no answer)."""
    parsed = decode_payload(body, _decoder, "The provider's answer")
    if not isinstance(parsed, dict):
        raise ProtocolError(f"The provider's answer must be a JSON object, got {type(parsed).__name__}")
    assembler = Assembler()
    assembler.feed(ChatStreamReader(options).read_body(parsed))
    if assembler.error is not None:
        raise GatewayError(assembler.error)
    response = assembler.response()
    response.provider = options.provider
    response.origin = body if options.passthrough else None
    return response


def write_response(response: Response, options: WriterOptions) -> bytes:
    """The body of a `chat.completion`."""
    if options.passthrough and isinstance(response.origin, bytes):
        return response.origin
    body: dict[str, Any] = {
        "id": response.id or f"chatcmpl-{options.request_id}",
        "object": "chat.completion",
        "created": response.created or options.created,
        "model": response.model or options.model,
        "choices": [_choice(choice, options) for choice in response.choices],
    }
    if response.usage is not None:
        body["usage"] = write_usage(response.usage, VENDOR)
    own = own_fields(response.extensions)
    body.update({name: own[name] for name in ("service_tier", "system_fingerprint") if own.get(name)})
    return encode(body)


def _choice(choice: Choice, options: WriterOptions) -> dict[str, Any]:
    message = _Message(options, choice.index)
    for part in choice.parts:
        message.add(part)
    body: dict[str, Any] = {"index": choice.index, "message": message.body(), "logprobs": message.logprobs()}
    body["finish_reason"] = (
        write_stop(choice.stop, refused=message.refusal is not None) if choice.stop is not None else None
    )
    native = native_stop(choice.stop, choice.raw_stop) if choice.stop is not None else None
    if native:
        body["native_finish_reason"] = native
    return body


class _Message:
    """The one message that a choice's parts become."""

    def __init__(self, options: WriterOptions, choice: int) -> None:
        self._id = f"{options.request_id}_{choice}"
        self._texts: list[str] = []
        self.refusal: str | None = None
        self._reasoning: list[str] = []
        self._lists: dict[str, list[dict[str, Any]]] = {
            name: [] for name in ("reasoning_details", "annotations", "tool_calls", "images")
        }
        self._audio: dict[str, Any] | None = None
        self._tokens: dict[str, list[Any]] = {"content": [], "refusal": []}

    def add(self, part: Any) -> None:
        lists = self._lists
        if isinstance(part, Text):
            self._texts.append(part.text)
            self._tokens["content"] += part.logprobs or []
            lists["annotations"] += [a for c in part.citations or [] if (a := write_annotation(c)) is not None]
        elif isinstance(part, Refusal):
            self.refusal = (self.refusal or "") + part.text
            self._tokens["refusal"] += part.logprobs or []
        elif isinstance(part, Reasoning):
            self._reasoning.append(part.text)
            if part.signature:
                index = len(lists["reasoning_details"])
                item = signature_item(part.signature, part.vendor or "", part.extensions, index, part.text)
                lists["reasoning_details"].append(item)
        elif isinstance(part, RedactedReasoning):
            index = len(lists["reasoning_details"])
            lists["reasoning_details"].append(redacted_item(part.data, part.vendor, part.extensions, index))
        elif isinstance(part, ToolCall):
            lists["tool_calls"].append(self._call(part))
        elif isinstance(part, Media):
            self._media(part)
        elif isinstance(part, Opaque) and part.vendor == VENDOR and part.payload.get("type") == "custom":
            lists["tool_calls"].append(part.payload)

    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = {
            "role": "assistant",
            "content": "".join(self._texts) if self._texts else None,
            "refusal": self.refusal,
        }
        if any(self._reasoning):
            body["reasoning_content"] = "".join(self._reasoning)
        body.update((name, items) for name, items in self._lists.items() if items)
        if self._audio is not None:
            body["audio"] = self._audio
        return body

    def logprobs(self) -> dict[str, Any] | None:
        if not any(self._tokens.values()):
            return None
        return {name: tokens or None for name, tokens in self._tokens.items()}

    def _call(self, call: ToolCall) -> dict[str, Any]:
        written: dict[str, Any] = {
            "id": call.id or f"call_{self._id}_{len(self._lists['tool_calls'])}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        if call.extensions:
            written["extra_content"] = call.extensions
        return written

    def _media(self, media: Media) -> None:
        if media.type == "audio" and media.data is not None:
            self._audio = {
                "id": f"audio_{self._id}",
                "expires_at": 0,
                **own_fields(media.extensions),
                "data": media.data,
                "transcript": media.transcript or "",
            }
        elif media.type == "image" and (media.data or media.url):
            url = data_url(media.media_type, media.data) if media.data else media.url
            self._lists["images"].append({"type": "image_url", "image_url": {"url": url}})
