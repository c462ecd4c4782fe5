"""Media in OpenAI's words: data URLs, and short names of audio encodings."""

from __future__ import annotations

_AUDIO_TYPES = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "opus": "audio/opus",
    "aac": "audio/aac",
    "ogg": "audio/ogg",
    "m4a": "audio/mp4",
    "pcm16": "audio/pcm",
}
_AUDIO_FORMATS = {
    **{media_type: name for name, media_type in _AUDIO_TYPES.items()},
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mp3": "mp3",
}


def split_data_url(url: str) -> tuple[str, str]:
    """(MIME type, base64 data) of a base64 data URL, ("", "") of any other."""
    if not url.startswith("data:"):
        return "", ""
    head, _, data = url[5:].partition(",")
    if not head.endswith(";base64"):
        return "", ""
    return head.removesuffix(";base64").partition(";")[0], data


def data_url(media_type: str, data: str) -> str:
    return f"data:{media_type or 'application/octet-stream'};base64,{data}"


def audio_type(format: str) -> str:
    """The MIME type of OpenAI's short name ("wav", "mp3")."""
    return _AUDIO_TYPES.get(format, f"audio/{format}")


def audio_format(media_type: str) -> str:
    """OpenAI's short name of a MIME type."""
    return _AUDIO_FORMATS.get(media_type, media_type.partition("/")[2])
