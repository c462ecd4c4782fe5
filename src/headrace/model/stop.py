"""Why a choice ended, in one vocabulary; the provider's own word always travels beside it (DOSSIER 0.4)."""

from __future__ import annotations

from enum import StrEnum


class StopReason(StrEnum):
    """Normal forms. A format that lacks one maps it to its nearest word by a table of its own."""

    END_TURN = "end_turn"
    STOP_SEQUENCE = "stop_sequence"
    MAX_TOKENS = "max_tokens"
    CONTEXT_WINDOW = "context_window"
    TOOL_USE = "tool_use"
    CONTENT_FILTER = "content_filter"
    """The provider's filter cut the answer off."""
    REFUSAL = "refusal"
    """The model declined."""
    PAUSE = "pause"
    """The provider paused its own tool loop; send the conversation again to go on (Anthropic pause_turn)."""
    MALFORMED_TOOL_CALL = "malformed_tool_call"
    OTHER = "other"
    """A word we do not know; the provider's own is kept in `raw`."""
