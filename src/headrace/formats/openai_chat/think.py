"""Reasoning that a server leaks into the text between `<think>` and `</think>` (quirk `think_tags`).

The rule: tags count only where the answer begins with one; later ones are the model's own text, since answers may speak
of tags. A tag may be cut over deltas, so what could become one is held back, and nothing else is.
"""

from __future__ import annotations

_OPEN = "<think>"
_CLOSE = "</think>"


class ThinkSplitter:
    """One choice's text in pieces, out as pieces of (is reasoning, text)."""

    __slots__ = ("_held", "_state")

    def __init__(self, *, inside: bool = False) -> None:
        """`inside`: the opening tag is part of the prompt's template, so the answer begins in the reasoning."""
        self._state = "inside" if inside else "before"
        self._held = ""

    @property
    def done(self) -> bool:
        """Whether everything that follows is plain text."""
        return self._state == "after"

    def feed(self, text: str) -> list[tuple[bool, str]]:
        if self._state == "after":
            return [(False, text)]
        text = self._held + text
        self._held = ""
        pieces: list[tuple[bool, str]] = []
        if self._state == "before":
            begun = text.lstrip()
            if _OPEN.startswith(begun[: len(_OPEN)]) and len(begun) < len(_OPEN):
                self._held = text
                return []
            if not begun.startswith(_OPEN):
                self._state = "after"
                return [(False, text)]
            self._state = "inside"
            text = begun[len(_OPEN) :]
        reasoning, closed, rest = text.partition(_CLOSE)
        if closed:
            self._state = "after"
        else:
            keep = next((n for n in range(len(_CLOSE) - 1, 0, -1) if reasoning.endswith(_CLOSE[:n])), 0)
            if keep:
                self._held = reasoning[-keep:]
                reasoning = reasoning[:-keep]
        if reasoning:
            pieces.append((True, reasoning))
        if rest:
            pieces.append((False, rest))
        return pieces

    def finish(self) -> list[tuple[bool, str]]:
        """What was held back, when the choice ends."""
        held, self._held = self._held, ""
        return [(self._state == "inside", held)] if held else []
