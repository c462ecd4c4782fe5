"""Images and documents: Anthropic's `source` objects to and from `Media`.

The rule: what a source says is checked where it comes in (base64 that is none never reaches a provider). A document made
of content blocks keeps its source in extensions, beside the plain text that other vendors can be given.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from headrace.formats.json import split_path
from headrace.model.content import Media
from headrace.model.errors import InvalidRequest

from .words import VENDOR, extras


class _Base64(msgspec.Struct, tag_field="type", tag="base64"):
    media_type: str
    data: str


class _URL(msgspec.Struct, tag_field="type", tag="url"):
    url: str


class _File(msgspec.Struct, tag_field="type", tag="file"):
    file_id: str


class _PlainText(msgspec.Struct, tag_field="type", tag="text"):
    data: str
    media_type: str = "text/plain"


class _TextBlock(msgspec.Struct):
    type: str
    text: str = ""


class _Content(msgspec.Struct, tag_field="type", tag="content"):
    content: str | list[_TextBlock]


MEDIA_BLOCKS: dict[str, Any] = {
    "image": _Base64 | _URL | _File,
    "document": _Base64 | _URL | _File | _PlainText | _Content,
}
"""The blocks that have a source, and what it may be."""


def read_media(block: dict[str, Any], path: str, vendor: str = VENDOR) -> Media:
    """An image or document block. Raises InvalidRequest with the path of what is wrong with it."""
    family = block["type"]
    if "source" not in block:
        raise InvalidRequest(f"{path}.source: Field required", param=f"{path}.source")
    try:
        source = msgspec.convert(block["source"], MEDIA_BLOCKS[family])
    except msgspec.ValidationError as error:
        message, inner = split_path(str(error))
        where = f"{path}.source.{inner}" if inner else f"{path}.source"
        raise InvalidRequest(f"{where}: {message}", param=where) from None
    media = Media(type=family, title=block["title"] if isinstance(block.get("title"), str) else None)
    known = ["type", "source", "title"]
    if isinstance(source, _Base64):
        _check_base64(source.data, f"{path}.source.data")
        media.media_type, media.data = source.media_type, source.data
    elif isinstance(source, _URL):
        media.url = source.url
    elif isinstance(source, _File):
        media.file_id = source.file_id
    elif isinstance(source, _PlainText):
        media.media_type, media.text = source.media_type, source.data
    else:
        media.text = (
            source.content if isinstance(source.content, str) else "\n".join(part.text for part in source.content)
        )
        known.remove("source")
    media.extensions = extras(block, known, vendor)
    return media


def write_media(media: Media, *, files: bool) -> dict[str, Any] | None:
    """The block, or None where Anthropic has none for it. `files`: whether file ids are Anthropic's own."""
    source = _source(media, files=files)
    if source is None:
        return None
    block: dict[str, Any] = {"type": media.type, "source": source}
    if media.title and media.type == "document":
        block["title"] = media.title
    return block


def _source(media: Media, *, files: bool) -> dict[str, Any] | None:
    if media.type not in MEDIA_BLOCKS:
        return None
    if media.file_id is not None:
        return {"type": "file", "file_id": media.file_id} if files else None
    if media.url is not None:
        return {"type": "url", "url": media.url}
    document = media.type == "document"
    if media.text is not None and document:
        return {"type": "text", "media_type": "text/plain", "data": media.text}
    if media.data is None:
        return None
    media_type = media.media_type or ("application/pdf" if document else "image/png")
    if document and media_type.startswith("text/"):
        try:
            text = base64.b64decode(media.data).decode()
        except ValueError:
            return None
        return {"type": "text", "media_type": "text/plain", "data": text}
    if document and media_type != "application/pdf":
        return None
    return {"type": "base64", "media_type": media_type, "data": media.data}


def _check_base64(data: str, path: str) -> None:
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        raise InvalidRequest(f"{path}: not valid base64", param=path) from None
