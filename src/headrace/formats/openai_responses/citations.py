"""Annotations of this format, which are flat, and Chat Completions', which are nested: one citation in the model."""

from __future__ import annotations

from typing import Any

from headrace.formats.openai_chat.citations import write_annotation as write_nested
from headrace.model.content import Citation


def read_annotation(raw: dict[str, Any], vendor: str) -> Citation:
    """A citation of a web page is kept as Chat Completions have it, all others as they are."""
    if raw.get("type") == "url_citation" and "url_citation" not in raw:
        inner = {name: value for name, value in raw.items() if name != "type"}
        return Citation(vendor, {"type": "url_citation", "url_citation": inner})
    return Citation(vendor, raw)


_OWN_TYPES = frozenset({"file_citation", "container_file_citation", "file_path"})


def write_annotation(citation: Citation) -> dict[str, Any] | None:
    """None where there is no way to say it."""
    if str(citation.payload.get("type")) in _OWN_TYPES:
        return citation.payload
    nested = write_nested(citation)
    return None if nested is None else {"type": "url_citation", **nested["url_citation"]}
