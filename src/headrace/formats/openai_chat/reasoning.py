"""Reasoning under its many names, read once.

The family has no agreed field: `reasoning_content`, `reasoning`, `reasoning_text`, items in `reasoning_details` or
`thinking_blocks`, and several of them side by side with the same text. The rule: the items win where they hold text,
else the first of the plain fields; signatures and encrypted items are read in any case.
"""

from __future__ import annotations

from typing import Any

import msgspec

_PLAIN = ("reasoning_content", "reasoning", "reasoning_text")


class ReasoningItem(msgspec.Struct):
    """A piece of reasoning: text and signature, or the `data` of an encrypted item."""

    text: str = ""
    signature: str = ""
    data: str = ""
    number: Any = None
    """What tells one item from the next, where the provider says it."""
    own: dict[str, Any] = {}
    """The members of the provider's item that name it (format, id), to send it back as it was."""


def reasoning_items(holder: dict[str, Any]) -> list[ReasoningItem]:
    """The reasoning of a delta or a message; [] mostly."""
    details = holder.get("reasoning_details") or holder.get("thinking_blocks")
    opaque = holder.get("reasoning_opaque")
    plain = next((value for name in _PLAIN if (value := holder.get(name)) and isinstance(value, str)), "")
    if not details and not opaque:
        return [ReasoningItem(plain)] if plain else []
    items = [item for raw in details if (item := _item(raw))] if isinstance(details, list) else []
    if plain and not any(item.text for item in items):
        items.insert(0, ReasoningItem(plain))
    if isinstance(opaque, str) and opaque:
        items.append(ReasoningItem(signature=opaque))
    return items


def _item(raw: Any) -> ReasoningItem | None:
    if not isinstance(raw, dict):
        return None
    own = {name: raw[name] for name in ("format", "id") if isinstance(raw.get(name), str)}
    data = raw.get("data")
    if isinstance(data, str) and data:
        return ReasoningItem(data=data, own=own)
    text = next((raw[name] for name in ("text", "summary", "thinking") if isinstance(raw.get(name), str)), "")
    signature = raw.get("signature")
    return ReasoningItem(text, signature if isinstance(signature, str) else "", number=raw.get("index"), own=own)
