"""What the content that a format cannot carry is called among what is lost."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.model.content import Extensions, Media, Opaque, Part, Reasoning, RedactedReasoning


def name_of(part: Part) -> str:
    if isinstance(part, Media):
        return part.type
    if isinstance(part, Opaque):
        return f"{part.role} of {part.vendor}"
    return "reasoning" if isinstance(part, Reasoning | RedactedReasoning) else type(part).__name__


def foreign(extensions: Extensions | None, *own: str) -> Iterator[str]:
    """The names of what vendors say of a block or event, but for those whose words the format can carry."""
    return (f"extensions.{vendor}" for vendor in extensions or () if vendor not in own)
