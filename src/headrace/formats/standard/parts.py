"""Content parts: what a message's `content` array and a whole answer's `content` consist of.

text, image, document and audio (media_type and base64 data) are the draft's. Ours beyond it, so that an answer can be sent
back as it came: media by `url` or `file_id`, reasoning with its signature, refusal, tool_call, and opaque blocks of a
vendor's. Vendor-bound content sits in `extensions` under its vendor's key:

    {"type":"reasoning","text":"...","extensions":{"vendor:anthropic":{"signature":"..."}}}
    {"type":"reasoning","text":"","extensions":{"vendor:anthropic":{"redacted":"..."}}}
    {"type":"text","text":"...","extensions":{"vendor:anthropic":{"citations":[...]},"vendor:openai":{"logprobs":[...]}}}
    {"type":"opaque","role":"server_tool_call","extensions":{"vendor:anthropic":{"block":{...}}}}

Carrying it to any endpoint of these formats is safe: it keeps its vendor's name, and who does not know it ignores it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from headrace.model.content import (
    Citation,
    Media,
    Opaque,
    Part,
    Reasoning,
    RedactedReasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)

from .extensions import WireExtensions, check_keys, find, from_wire, put, to_wire, without
from .fields import bad, is_base64


class WirePart(Struct, tag_field="type", kw_only=True):
    """Base of the parts on the wire."""

    extensions: WireExtensions | None = None


class TextPart(WirePart, tag="text", kw_only=True):
    text: str


class RefusalPart(WirePart, tag="refusal", kw_only=True):
    text: str


class ReasoningPart(WirePart, tag="reasoning", kw_only=True):
    text: str = ""
    id: str | None = None
    vendor: str | None = None


class ToolCallPart(WirePart, tag="tool_call", kw_only=True):
    id: str
    name: str
    arguments: str
    complete: bool = True


class OpaquePart(WirePart, tag="opaque", kw_only=True):
    role: str = "other"


class MediaPart(WirePart, kw_only=True):
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    file_id: str | None = None
    title: str | None = None
    detail: str | None = None
    transcript: str | None = None


class ImagePart(MediaPart, tag="image"):
    pass


class DocumentPart(MediaPart, tag="document"):
    pass


class AudioPart(MediaPart, tag="audio"):
    pass


AnyPart = TextPart | ImagePart | DocumentPart | AudioPart | ReasoningPart | RefusalPart | ToolCallPart | OpaquePart

ASSISTANT_ONLY = (ReasoningPart, RefusalPart, ToolCallPart, OpaquePart)
"""What only a model can have said."""


def read_part(part: AnyPart, path: str) -> Part:
    """The model's part. Raises InvalidRequest with the path of the bad field."""
    check_keys(part.extensions, f"{path}.extensions")
    if isinstance(part, MediaPart):
        _check_media(part, path)
    return make_part(part, path)


def make_part(part: AnyPart, path: str) -> Part:
    """The same for what a provider has said: its media are taken as they are."""
    return _READERS[type(part)](part, path)


def write_part(part: Part) -> dict[str, Any]:
    """The part's object on the wire."""
    written = _WRITERS[type(part)](part)
    if not written.get("extensions", True):
        del written["extensions"]
    return written


def plain_text(parts: Sequence[Part]) -> str | None:
    """The text where the parts are one text and nothing else; else None."""
    if len(parts) != 1 or not isinstance(parts[0], Text):
        return None
    part = parts[0]
    return None if part.citations or part.logprobs or part.extensions else part.text


def _read_text(part: TextPart, path: str) -> Text:
    citations = [
        Citation(vendor, payload)
        for vendor, payloads in find(part.extensions, "citations")
        if isinstance(payloads, list)
        for payload in payloads
        if isinstance(payload, dict)
    ]
    return Text(
        text=part.text,
        citations=citations or None,
        logprobs=_logprobs(part.extensions),
        extensions=from_wire(without(part.extensions, "citations", "logprobs")),
    )


def _read_refusal(part: RefusalPart, path: str) -> Refusal:
    return Refusal(
        text=part.text,
        logprobs=_logprobs(part.extensions),
        extensions=from_wire(without(part.extensions, "logprobs")),
    )


def _logprobs(extensions: WireExtensions | None) -> list[Any] | None:
    return next((value for _, value in find(extensions, "logprobs") if isinstance(value, list)), None)


def _read_reasoning(part: ReasoningPart, path: str) -> Part:
    extensions = from_wire(without(part.extensions, "signature", "redacted"))
    for vendor, data in find(part.extensions, "redacted"):
        if not isinstance(data, str):
            bad(f"{path}.extensions", "must hold the redacted reasoning as a string, as it was received")
        return RedactedReasoning(data=data, vendor=vendor, extensions=extensions)
    for vendor, signature in find(part.extensions, "signature"):
        if not isinstance(signature, str):
            bad(f"{path}.extensions", "must hold the signature as a string, as it was received")
        return Reasoning(text=part.text, signature=signature, vendor=vendor, id=part.id, extensions=extensions)
    return Reasoning(text=part.text, vendor=part.vendor, id=part.id, extensions=extensions)


def _read_tool_call(part: ToolCallPart, path: str) -> ToolCall:
    return ToolCall(
        id=part.id,
        name=part.name,
        arguments=part.arguments,
        complete=part.complete,
        extensions=from_wire(part.extensions),
    )


def _read_opaque(part: OpaquePart, path: str) -> Opaque:
    found = [(vendor, block) for vendor, block in find(part.extensions, "block") if isinstance(block, dict)]
    if not found:
        bad(f"{path}.extensions", 'must hold the block, as it was received, under its vendor\'s key ("vendor:name")')
    vendor, block = found[0]
    return Opaque(vendor=vendor, payload=block, role=part.role, extensions=from_wire(without(part.extensions, "block")))


def _check_media(part: MediaPart, path: str) -> None:
    kind = part.__struct_config__.tag
    sources = [name for name in ("data", "url", "file_id") if getattr(part, name) is not None]
    if len(sources) != 1:
        named = " and ".join(sources) if sources else "none of them"
        place = f"{path}.{sources[1] if sources else 'data'}"
        bad(place, f"is wrong: a part of type {kind} has exactly one of data, url and file_id, and this has {named}")
    if part.data is not None:
        if not part.media_type:
            bad(f"{path}.media_type", 'is required beside data (a MIME type such as "image/png")')
        if not is_base64(part.data):
            bad(f"{path}.data", "is not base64 (standard alphabet, padded, no line breaks, no data: prefix)")
    elif part.url is not None and "://" not in part.url:
        bad(f"{path}.url", "must be an absolute URL; content itself goes into data, as base64")


def _read_media(part: MediaPart, path: str) -> Media:
    return Media(
        type=str(part.__struct_config__.tag),
        media_type=part.media_type or "",
        data=part.data,
        url=part.url,
        file_id=part.file_id,
        title=part.title,
        detail=part.detail,
        transcript=part.transcript,
        extensions=from_wire(part.extensions),
    )


_READERS: dict[type, Callable[[Any, str], Part]] = {
    TextPart: _read_text,
    RefusalPart: _read_refusal,
    ReasoningPart: _read_reasoning,
    ToolCallPart: _read_tool_call,
    OpaquePart: _read_opaque,
    ImagePart: _read_media,
    DocumentPart: _read_media,
    AudioPart: _read_media,
}


def _write_text(part: Text) -> dict[str, Any]:
    extensions = to_wire(part.extensions)
    by_vendor: dict[str, list[Any]] = {}
    for citation in part.citations or ():
        by_vendor.setdefault(citation.vendor, []).append(citation.payload)
    for vendor, payloads in by_vendor.items():
        put(extensions, vendor, "citations", payloads)
    if part.logprobs:
        put(extensions, "openai", "logprobs", part.logprobs)
    return {"type": "text", "text": part.text, "extensions": extensions}


def _write_refusal(part: Refusal) -> dict[str, Any]:
    extensions = to_wire(part.extensions)
    if part.logprobs:
        put(extensions, "openai", "logprobs", part.logprobs)
    return {"type": "refusal", "text": part.text, "extensions": extensions}


def _write_reasoning(part: Reasoning) -> dict[str, Any]:
    extensions = to_wire(part.extensions)
    written: dict[str, Any] = {"type": "reasoning", "text": part.text}
    if part.id:
        written["id"] = part.id
    if part.signature:
        put(extensions, part.vendor or "", "signature", part.signature)
    elif part.vendor:
        written["vendor"] = part.vendor
    return {**written, "extensions": extensions}


def _write_redacted(part: RedactedReasoning) -> dict[str, Any]:
    extensions = to_wire(part.extensions)
    put(extensions, part.vendor, "redacted", part.data)
    return {"type": "reasoning", "text": "", "extensions": extensions}


def _write_tool_call(part: ToolCall) -> dict[str, Any]:
    written: dict[str, Any] = {"type": "tool_call", "id": part.id, "name": part.name, "arguments": part.arguments}
    if not part.complete:
        written["complete"] = False
    return {**written, "extensions": to_wire(part.extensions)}


def _write_media(part: Media) -> dict[str, Any]:
    written: dict[str, Any] = {"type": part.type}
    if part.text is not None:
        written["media_type"] = part.media_type or "text/plain"
        written["data"] = base64.b64encode(part.text.encode()).decode()
    for name in ("media_type", "data", "url", "file_id", "title", "detail", "transcript"):
        value = getattr(part, name)
        if value:
            written[name] = value
    return {**written, "extensions": to_wire(part.extensions)}


def _write_opaque(part: Opaque) -> dict[str, Any]:
    extensions = to_wire(part.extensions)
    put(extensions, part.vendor, "block", part.payload)
    return {"type": "opaque", "role": part.role, "extensions": extensions}


def _write_tool_result(part: ToolResult) -> dict[str, Any]:
    raise TypeError("a tool result is a message of its own in these formats, not a part")


_WRITERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    Text: _write_text,
    Refusal: _write_refusal,
    Reasoning: _write_reasoning,
    RedactedReasoning: _write_redacted,
    ToolCall: _write_tool_call,
    Media: _write_media,
    Opaque: _write_opaque,
    ToolResult: _write_tool_result,
}
