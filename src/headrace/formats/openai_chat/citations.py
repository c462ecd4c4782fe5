"""Citations as OpenAI's `annotations`: what they have no word for is reported as lost by the writers."""

from __future__ import annotations

from typing import Any

from headrace.model.content import Citation


def write_annotation(citation: Citation) -> dict[str, Any] | None:
    """A citation of this format as it is, a citation of a web page of another one converted; None where there is no way.

    Offsets are 0 where the other format has none.
    """
    payload = citation.payload
    if isinstance(payload.get("url_citation"), dict):
        return payload
    url = payload.get("url")
    if not isinstance(url, str) or not url:
        return None
    inner: dict[str, Any] = {
        "url": url,
        "title": _text(payload.get("title")),
        "start_index": _offset(payload.get("start_index")),
        "end_index": _offset(payload.get("end_index")),
    }
    quoted = _text(payload.get("cited_text"))
    if quoted:
        inner["content"] = quoted
    return {"type": "url_citation", "url_citation": inner}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _offset(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
