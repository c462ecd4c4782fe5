"""Images, documents, video and audio: Bedrock's blocks to and from `Media`.

The rule: bytes are base64 in JSON and are checked where they come in. What lies in S3 has a `file_id`, its `s3://` address,
which means something to Bedrock alone. Bedrock fetches nothing from the web: media by URL have no place here. A document
has to have a name of few characters; its title is put in them.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

import msgspec

from headrace.formats.anthropic.blocks import checked
from headrace.model.content import Media
from headrace.model.errors import InvalidRequest

from .words import MEDIA_TYPES, VENDOR, extended, media_format, media_type

FAMILIES = tuple(MEDIA_TYPES)
_S3 = "s3://"
_UNFIT = re.compile(r"[^a-zA-Z0-9 ()\[\]-]+")
_MAX_NAME = 200


class _S3Location(msgspec.Struct):
    uri: str


class _Text(msgspec.Struct):
    text: str


class _Source(msgspec.Struct, rename="camel"):
    bytes: str | None = None
    s3_location: _S3Location | None = None
    text: str | None = None
    content: list[_Text] | None = None


class _Block(msgspec.Struct):
    source: _Source
    format: str = "txt"
    name: str | None = None


def read_media(family: str, block: dict[str, Any], path: str, vendor: str = VENDOR) -> Media:
    """The block under the name of its family. Raises InvalidRequest with the path of what is wrong with it."""
    said = checked(block, _Block, path)
    source = said.source
    media = Media(type=family, media_type=media_type(family, said.format), title=said.name)
    more = {name: value for name, value in block.items() if name not in ("source", "format", "name")}
    if source.bytes is not None:
        _check_base64(source.bytes, f"{path}.source.bytes")
        media.data = source.bytes
    elif source.s3_location is not None:
        media.file_id = source.s3_location.uri
        more["source"] = block["source"]
    elif source.text is not None:
        media.text = source.text
    elif source.content is not None:
        media.text = "\n".join(part.text for part in source.content)
        more["source"] = block["source"]
    else:
        where = f"{path}.source"
        raise InvalidRequest(f"{where}: one of bytes, s3Location, text or content is required", param=where)
    media.extensions = extended(vendor, more)
    return media


def write_media(media: Media, *, number: int) -> dict[str, Any] | None:
    """`{family: block}`, or None where Bedrock has none for it. `number`: of the document, where it has no title."""
    format = media_format(media.type, media.media_type or _DEFAULTS.get(media.type, ""))
    source = _source(media)
    if format is None or source is None:
        return None
    block: dict[str, Any] = {"format": format, "source": source}
    if media.type == "document":
        block["name"] = _name(media.title, format) or f"document-{number}"
    return {media.type: block}


_DEFAULTS = {"image": "image/png", "document": "application/pdf"}


def _source(media: Media) -> dict[str, Any] | None:
    address = media.file_id or media.url
    if address is not None:
        return {"s3Location": {"uri": address}} if address.startswith(_S3) else None
    if media.text is not None:
        return {"bytes": base64.b64encode(media.text.encode("utf-8", "surrogatepass")).decode()}
    return None if media.data is None else {"bytes": media.data}


def _name(title: str | None, format: str) -> str:
    """The title without its extension, in the characters that a name may have."""
    plain = (title or "").removesuffix("." + format)
    return _UNFIT.sub("-", plain).strip(" -")[:_MAX_NAME]


def _check_base64(data: str, path: str) -> None:
    try:
        binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        raise InvalidRequest(f"{path}: not valid base64", param=path) from None
