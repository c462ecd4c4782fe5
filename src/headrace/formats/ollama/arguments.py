"""Arguments of tool calls: text in the model, an object in Ollama's JSON. They are set in as they are, not written anew."""

from __future__ import annotations

import json as stdlib_json

import msgspec

_as_raw = msgspec.json.Decoder(msgspec.Raw).decode


def json_object(text: str) -> msgspec.Raw | None:
    """The text as a value to encode unchanged; None where it is no JSON object. "" is {}: a call without arguments."""
    text = text.strip()
    if not text:
        return msgspec.Raw(b"{}")
    if not text.startswith("{"):
        return None
    try:
        _as_raw(text)
    except msgspec.DecodeError:
        if "\\ud" not in text.lower():
            return None
        try:  # halves of surrogate pairs are JSON, but msgspec refuses them
            stdlib_json.loads(text)
        except (ValueError, RecursionError):
            return None
    except (RecursionError, UnicodeEncodeError):
        return None
    return msgspec.Raw(text.encode())
