"""Parts of the model as Gemini's parts: an answer's for a caller, a conversation's for a provider."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.model.content import Media, Opaque, Text, ToolCall

from .words import VENDOR, signature_of

Body = dict[str, Any]

_TYPES = {
    "png": "image/png",
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "gif": "image/gif",
    "webp": "image/webp",
    "heic": "image/heic",
    "pdf": "application/pdf",
    "txt": "text/plain",
    "md": "text/markdown",
    "html": "text/html",
    "csv": "text/csv",
    "mp3": "audio/mpeg",
    "wav": "audio/wav",
    "ogg": "audio/ogg",
    "flac": "audio/flac",
    "mp4": "video/mp4",
    "mov": "video/quicktime",
    "webm": "video/webm",
}
_DEFAULTS = {"image": "image/jpeg", "audio": "audio/mpeg", "document": "application/pdf"}


def text_part(text: Text, vendor: str) -> Body:
    signature = signature_of(text.extensions, vendor)
    return {"text": text.text, **({"thoughtSignature": signature} if signature else {})}


def call_part(call: ToolCall, vendor: str) -> Body:
    return function_call(call.id, call.name, call.arguments, signature_of(call.extensions, vendor))


def function_call(id: str, name: str, arguments: str, signature: str) -> Body:
    """Arguments that are no object are told under a name of their own, since `args` must be one."""
    try:
        args = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        args = arguments
    if not isinstance(args, dict):
        args = {"arguments": args}
    call: Body = {"name": name, "args": args}
    if id:
        call["id"] = id
    return {"functionCall": call, **({"thoughtSignature": signature} if signature else {})}


def media_part(media: Media) -> Body | None:
    if media.text is not None:
        return {"text": f"{media.title}\n{media.text}" if media.title else media.text}
    if media.data:
        media_type = media.media_type or _DEFAULTS.get(media.type, "application/octet-stream")
        return {"inlineData": {"mimeType": media_type, "data": media.data}}
    if media.url:
        return {"fileData": {"mimeType": media.media_type or url_type(media.url, media.type), "fileUri": media.url}}
    return None


def url_type(url: str, type: str) -> str:
    """A MIME type, which Gemini wants with every URL, by the name at its end."""
    name = url.partition("?")[0].partition("#")[0].rpartition("/")[2]
    return _TYPES.get(name.rpartition(".")[2].lower(), _DEFAULTS.get(type, "application/octet-stream"))


def media_type_of(mime: str) -> str:
    """What the model calls it."""
    family = mime.partition("/")[0]
    return family if family in ("image", "audio") else "document"


def own_part(opaque: Opaque) -> Body | None:
    return opaque.payload if opaque.vendor == VENDOR else None
