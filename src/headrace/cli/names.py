"""Names of formats and framings as they are written on the command line: with dashes, as people type."""

from __future__ import annotations

from enum import StrEnum

from headrace.formats import FORMATS, Format


class FormatName(StrEnum):
    LLM_STREAM = "llm-stream"
    GATEWAY = "gateway"
    OPENAI_CHAT = "openai-chat"
    ANTHROPIC = "anthropic"

    @property
    def codecs(self) -> Format:
        return FORMATS[self.value.replace("-", "_")]


class FramingName(StrEnum):
    SSE = "sse"
    NDJSON = "ndjson"
