"""What other vendors' ids, signatures and redacted reasoning look like in Bedrock's fields, and its own in ours.

The rule is Anthropic's (../sealing.py): reversible, never forged, and nothing sealed reaches a provider. Redacted
reasoning is a blob here, base64 in JSON; a sealed one is base64 of the seal. What Claude's models put there is, once
decoded, the very text that Anthropic itself calls `data`: so a provider whose vendor is `anthropic` has it decoded.
"""

from __future__ import annotations

import base64
import hashlib
import re

from headrace.formats.sealing import Sealed, seal, unseal

from .words import VENDOR

_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
_ANTHROPIC = "anthropic"


def tool_id(id: str) -> str:
    """A call's id as Bedrock allows it: one that it does not becomes a digest of itself, the same in call and result."""
    if _ID.fullmatch(id):
        return id
    return "hr-" + hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def read_redacted(blob: str, vendor: str) -> Sealed:
    """`redactedContent` of a body, and whose it is."""
    text = _decoded(blob)
    sealed = unseal(text) if text is not None else None
    return Sealed(vendor, "", streamed_redacted(blob, vendor)) if sealed is None else sealed


def streamed_redacted(blob: str, vendor: str) -> str:
    """`redactedContent` of a provider's stream."""
    text = _decoded(blob) if vendor == _ANTHROPIC else None
    return blob if text is None else text


def own_redacted(data: str, vendor: str) -> str:
    """`redactedContent` for the vendor that it came from."""
    return _encoded(data) if vendor == _ANTHROPIC else data


def told_redacted(data: str, vendor: str) -> str:
    """`redactedContent` for a caller: Bedrock's own as it is, that of others sealed."""
    return data if vendor == VENDOR else _encoded(seal(vendor, "", data))


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()


def _decoded(blob: str) -> str | None:
    try:
        return base64.b64decode(blob, validate=True).decode()
    except ValueError:
        return None


__all__ = [
    "Sealed",
    "own_redacted",
    "read_redacted",
    "seal",
    "streamed_redacted",
    "told_redacted",
    "tool_id",
    "unseal",
]
