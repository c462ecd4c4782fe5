"""The columns of formats that keep what the matrix must know of them in one module each. A new one is a line below."""

from __future__ import annotations

from .base import Column
from .bedrock import BEDROCK
from .cohere import COLUMN as COHERE
from .gemini import COLUMN as GEMINI
from .mistral import COLUMN as MISTRAL
from .ollama import OLLAMA, OLLAMA_GENERATE
from .openai_responses import COLUMN as OPENAI_RESPONSES

_COLUMNS: tuple[Column, ...] = (OPENAI_RESPONSES, GEMINI, BEDROCK, MISTRAL, COHERE, OLLAMA, OLLAMA_GENERATE)

COLUMNS: dict[str, Column] = {column.name: column for column in _COLUMNS}
