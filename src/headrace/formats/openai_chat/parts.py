"""Reading parts of messages that OpenAI's two APIs write alike; each checks with the path in the caller's own terms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.model.content import Media, Opaque, Part, Refusal, Text

from .fields import bad, base64_at, object_at, string_at
from .media import audio_type

PartReaders = Mapping[str, Callable[[dict[str, Any], str], Part]]


def read_content(raw: Any, path: str, readers: PartReaders, vendor: str) -> list[Part]:
    """A text, or parts by the readers of their types; a part of a type that has none is kept whole as this vendor's.

    Raises InvalidRequest.
    """
    if isinstance(raw, str):
        return [Text(text=raw)]
    if not isinstance(raw, list):
        raise bad(path, "Expected `str` or `array`")
    parts: list[Part] = []
    for index, one in enumerate(raw):
        where = f"{path}[{index}]"
        part = object_at(one, where)
        read = readers.get(string_at(part.get("type"), f"{where}.type"))
        parts.append(read(part, where) if read is not None else Opaque(vendor=vendor, payload=part))
    return parts


def read_text(raw: dict[str, Any], path: str) -> Part:
    return Text(text=string_at(raw.get("text"), f"{path}.text", empty=True))


def read_refusal(raw: dict[str, Any], path: str) -> Part:
    return Refusal(text=string_at(raw.get("refusal"), f"{path}.refusal", empty=True))


def read_audio(raw: dict[str, Any], path: str) -> Part:
    audio = object_at(raw.get("input_audio"), f"{path}.input_audio")
    format = string_at(audio.get("format"), f"{path}.input_audio.format")
    data = base64_at(string_at(audio.get("data"), f"{path}.input_audio.data"), f"{path}.input_audio.data")
    return Media(type="audio", media_type=audio_type(format), data=data)
