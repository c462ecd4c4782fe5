"""What the content that a format cannot carry is called among what is lost."""

from __future__ import annotations

from headrace.model.content import Media, Opaque, Part, Reasoning, RedactedReasoning


def name_of(part: Part) -> str:
    if isinstance(part, Media):
        return part.type
    if isinstance(part, Opaque):
        return f"{part.role} of {part.vendor}"
    return "reasoning" if isinstance(part, Reasoning | RedactedReasoning) else type(part).__name__
