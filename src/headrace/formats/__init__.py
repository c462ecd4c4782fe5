"""The registry of formats. A new one is a folder here and a line below."""

from __future__ import annotations

from headrace.formats import anthropic, bedrock, bedrock_invoke, gateway, llm_stream, openai_chat
from headrace.formats.base import Format

FORMATS: dict[str, Format] = {
    fmt.name: fmt
    for fmt in (
        llm_stream.FORMAT,
        gateway.FORMAT,
        openai_chat.FORMAT,
        anthropic.FORMAT,
        bedrock.FORMAT,
        bedrock_invoke.FORMAT,
    )
}
"""Every format by its name."""

__all__ = ["FORMATS", "Format"]
