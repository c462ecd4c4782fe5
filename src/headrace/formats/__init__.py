"""The registry of formats. A new one is a folder here and a line below."""

from __future__ import annotations

from headrace.formats import (
    anthropic,
    azure_openai,
    gateway,
    gemini,
    llm_stream,
    mistral,
    ollama,
    ollama_generate,
    openai_chat,
    openai_responses,
)
from headrace.formats.base import Format

FORMATS: dict[str, Format] = {
    fmt.name: fmt
    for fmt in (
        llm_stream.FORMAT,
        gateway.FORMAT,
        openai_chat.FORMAT,
        openai_responses.FORMAT,
        anthropic.FORMAT,
        gemini.FORMAT,
        mistral.FORMAT,
        azure_openai.FORMAT,
        ollama.FORMAT,
        ollama_generate.FORMAT,
    )
}
"""Every format by its name."""

__all__ = ["FORMATS", "Format"]
