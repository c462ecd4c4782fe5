"""The registry of formats. A new one is a folder here and a line below."""

from __future__ import annotations

from headrace.formats import (
    a2ui,
    ag_ui,
    anthropic,
    azure_openai,
    bedrock,
    bedrock_invoke,
    cohere,
    gateway,
    gemini,
    llm_stream,
    mistral,
    ollama,
    ollama_generate,
    openai_chat,
    openai_responses,
    vercel_ui,
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
        bedrock.FORMAT,
        bedrock_invoke.FORMAT,
        mistral.FORMAT,
        cohere.FORMAT,
        azure_openai.FORMAT,
        ollama.FORMAT,
        ollama_generate.FORMAT,
        vercel_ui.FORMAT,
        ag_ui.FORMAT,
        a2ui.FORMAT,
    )
}
"""Every format by its name."""

PROVIDED: dict[str, Format] = {name: fmt for name, fmt in FORMATS.items() if fmt.provides}
"""Those that there are providers of."""

__all__ = ["FORMATS", "PROVIDED", "Format"]
