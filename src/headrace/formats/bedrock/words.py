"""Bedrock's words and ours, as tables: names, stop reasons, formats of media, and what a model's name says of it.

The rule: every word of the wire that has a counterpart in the model is paired here and nowhere else. Reading keeps the
provider's own word beside ours (`Finish.raw`); writing takes the nearest word where Bedrock has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from headrace.model.content import Extensions
from headrace.model.stop import StopReason

NAME = "bedrock"
VENDOR = "bedrock"
STREAM_PATH = "/model/{model}/converse-stream"
WHOLE_PATH = "/model/{model}/converse"
EVENTSTREAM = "application/vnd.amazon.eventstream"

STOP_REASONS: dict[str, StopReason] = {
    "end_turn": StopReason.END_TURN,
    "stop_sequence": StopReason.STOP_SEQUENCE,
    "max_tokens": StopReason.MAX_TOKENS,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
    "tool_use": StopReason.TOOL_USE,
    "content_filtered": StopReason.CONTENT_FILTER,
    "guardrail_intervened": StopReason.CONTENT_FILTER,
    "malformed_tool_use": StopReason.MALFORMED_TOOL_CALL,
    "malformed_model_output": StopReason.MALFORMED_TOOL_CALL,
}

_STOP_WORDS: dict[StopReason, str] = {
    **{reason: word for word, reason in reversed(STOP_REASONS.items())},
    StopReason.REFUSAL: "content_filtered",
    StopReason.PAUSE: "end_turn",
    StopReason.OTHER: "end_turn",
}


def read_stop(word: str | None) -> StopReason:
    """Bedrock's stopReason as ours."""
    return STOP_REASONS.get(word or "", StopReason.OTHER)


def write_stop(reason: StopReason | None, raw: str | None, *, tool_called: bool, refused: bool) -> str:
    """Our stop reason as Bedrock's, its own word where it has several for ours.

    Derived from the content where a provider says only "stop": clients run tools on `tool_use` alone.
    """
    if reason in (StopReason.END_TURN, StopReason.OTHER, None):
        if tool_called:
            return "tool_use"
        if refused:
            return "content_filtered"
    elif raw is not None and STOP_REASONS.get(raw) is reason:
        return raw
    return _STOP_WORDS[reason or StopReason.OTHER]


# Media: Bedrock's short names of formats, by the family of the block that holds them.

MEDIA_TYPES: dict[str, dict[str, str]] = {
    "image": {"png": "image/png", "jpeg": "image/jpeg", "gif": "image/gif", "webp": "image/webp"},
    "document": {
        "pdf": "application/pdf",
        "csv": "text/csv",
        "doc": "application/msword",
        "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        "xls": "application/vnd.ms-excel",
        "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
        "html": "text/html",
        "txt": "text/plain",
        "md": "text/markdown",
    },
    "video": {
        "mkv": "video/x-matroska",
        "mov": "video/quicktime",
        "mp4": "video/mp4",
        "webm": "video/webm",
        "flv": "video/x-flv",
        "mpeg": "video/mpeg",
        "mpg": "video/mpg",
        "wmv": "video/x-ms-wmv",
        "three_gp": "video/3gpp",
    },
    "audio": {
        "mp3": "audio/mpeg",
        "opus": "audio/opus",
        "wav": "audio/wav",
        "aac": "audio/aac",
        "flac": "audio/flac",
        "mp4": "audio/mp4",
        "ogg": "audio/ogg",
        "mkv": "audio/x-matroska",
        "pcm": "audio/pcm",
        "webm": "audio/webm",
        "m4a": "audio/x-m4a",
    },
}
"""Family -> format -> MIME type."""

_FORMATS = {family: {mime: name for name, mime in names.items()} for family, names in MEDIA_TYPES.items()}
_ALIASES = {"image/jpg": "jpeg", "audio/mp3": "mp3", "audio/wave": "wav", "audio/x-wav": "wav", "video/x-msvideo": ""}


def media_type(family: str, format: str) -> str:
    """The MIME type of Bedrock's short name; one made of the name where it is not known."""
    return MEDIA_TYPES[family].get(format) or f"{'application' if family == 'document' else family}/{format}"


def media_format(family: str, mime: str) -> str | None:
    """Bedrock's short name of a MIME type; None where it has none."""
    mime = mime.partition(";")[0].strip().lower()
    return _FORMATS.get(family, {}).get(mime) or _ALIASES.get(mime) or None


# What a model's name says of its parameters.

_OTHER_VENDOR = re.compile(
    r"(?:^|[./])(?:amazon|ai21|cohere|deepseek|google|luma|meta|minimax|mistral|moonshotai?|nvidia|openai|qwen|stability"
    r"|twelvelabs|writer|zai)\."
)


def family(model: str, quirks: Mapping[str, Any]) -> str:
    """Whose parameters the model takes in `additionalModelRequestFields`: "claude", "nova" or "other".

    The quirk `family` says it where a name does not: those of inference profiles and of imported models. Without it a
    name without a vendor is taken for Claude's.
    """
    said = quirks.get("family")
    if isinstance(said, str) and said:
        return said
    if "amazon.nova" in model:
        return "nova"
    return "other" if _OTHER_VENDOR.search(model) else "claude"


def path_of(template: str, model: str) -> str:
    """A path with the model in it, percent-encoded as AWS's clients do."""
    return template.replace("{model}", quote(model, safe=""))


def own(extensions: Extensions | None, vendor: str = VENDOR) -> dict[str, Any]:
    """The fields that extensions hold for a vendor ({} where there are none)."""
    fields = (extensions or {}).get(vendor)
    return fields if isinstance(fields, dict) else {}


def extended(vendor: str, fields: Mapping[str, Any]) -> Extensions | None:
    """Extensions of these fields; None where there are none (null says nothing)."""
    kept = {name: value for name, value in fields.items() if value is not None}
    return {vendor: kept} if kept else None
