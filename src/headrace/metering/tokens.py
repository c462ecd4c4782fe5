"""Estimates of token counts, for providers that give none and for budgets that must be checked before anybody counts.

The tokenizers come with their vocabularies (splintr); nothing is fetched. Vendors that publish no tokenizer (Anthropic,
Google ...) are estimated with OpenAI's latest: some per cent off, and marked as an estimate wherever it shows.

A long text is not counted to its end: an estimate may take a millisecond of a request's time, and the event loop has no
more to give to a caller with a prompt of megabytes. Beyond a first length, samples spread evenly over the text stand for
the whole. The trade-off is a text made to be dense between the samples, which is estimated too low until its provider's
own count comes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol

from headrace.formats.json import encode
from headrace.model.content import Media, Reasoning, Text, ToolCall, ToolResult
from headrace.model.request import Request

_DEFAULT = "o200k_base"
_VOCABULARIES: Sequence[tuple[str, str]] = (
    # (pattern found in a model's lower-case name, vocabulary); the first that is found counts
    (r"gpt-oss", "gpt-oss"),
    (r"gpt-3\.?5|gpt-4(?!o|\.[1-9])|text-embedding", "cl100k_base"),
    (r"gpt|chatgpt|\bo[1-9]", "o200k_base"),
    (r"llama-?2|vicuna|tinyllama", "llama2"),
    (r"codellama", "codellama"),
    (r"llama", "llama3"),
    (r"deepseek", "deepseek_v3"),
    (r"qwen-?2", "qwen2"),
    (r"qwen", "qwen3"),
    (r"gemma-?2", "gemma2"),
    (r"gemma-?4", "gemma4"),
    (r"gemma", "gemma3"),
    (r"mixtral|mistral-?7b", "mistral_v1"),
    (r"mistral|codestral|ministral|pixtral|magistral|devstral|voxtral", "mistral_v3"),
    (r"glm", "glm4"),
    (r"kimi", "kimi_k2"),
    (r"phi-?4", "phi4"),
    (r"olmo-?2", "olmo2"),
)

_PER_MESSAGE = 4
"""The marks around each message and its role, as chat templates have them."""

_PER_REQUEST = 3
"""What primes the answer."""

_PER_MEDIA = {"image": 800, "audio": 500, "document": 2000, "video": 3000}
"""Flat figures: what an image or a file costs depends on sizes that only its decoder knows."""

_COUNTED = 100_000
"""Characters that are counted in full, and the length of all samples of a longer text: 1 ms of prose, 10 of noise."""

_COUNTED_SLOW = 5_000
"""The same for SentencePiece vocabularies, whose tokenizers take twenty times as long."""

_SLOW = frozenset({"llama2", "codellama", "mistral_v1", "gemma2", "gemma3", "gemma4"})

_SAMPLES = 10


class _Tokenizer(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


@lru_cache(maxsize=1024)
def _vocabulary(model: str) -> str:
    name = model.lower()
    return next((vocabulary for pattern, vocabulary in _VOCABULARIES if re.search(pattern, name)), _DEFAULT)


@lru_cache(maxsize=32)
def _load(vocabulary: str) -> _Tokenizer:
    from splintr import Tokenizer  # some ten megabytes: loaded when the first estimate is asked for

    tokenizer: _Tokenizer = Tokenizer.from_pretrained(vocabulary)
    return tokenizer


def warm(model: str = "") -> None:
    """Load the tokenizer of a model now, so that no request waits for it."""
    count("a", model)


def count(text: str, model: str = "") -> int:
    """The tokens of a text, whatever it holds: unpaired surrogates count as question marks, marks like <|endoftext|> as the
    text that they are."""
    if not text:
        return 0
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    vocabulary = _vocabulary(model)
    tokenizer = _load(vocabulary)
    counted = _COUNTED_SLOW if vocabulary in _SLOW else _COUNTED
    if len(text) <= counted:
        return len(tokenizer.encode_ordinary(text))
    sample, step = counted // _SAMPLES, (len(text) - counted // _SAMPLES) / (_SAMPLES - 1)
    starts = [int(step * number) for number in range(_SAMPLES)]
    tokens = sum([len(tokenizer.encode_ordinary(text[start : start + sample])) for start in starts])
    return round(tokens * len(text) / (sample * _SAMPLES))


def count_request(request: Request, model: str = "") -> int:
    """The tokens of a prompt: messages, tools, the schema of the answer."""
    total = _PER_REQUEST
    texts: list[str] = []
    for message in request.messages:
        total += _PER_MESSAGE
        total += _collect(message.parts, texts)
    if request.tools:
        texts += [encode(tool).decode() for tool in request.tools]
    if request.response_format is not None and request.response_format.schema is not None:
        texts.append(encode(request.response_format.schema).decode())
    return total + count("\n".join(texts), model)


def _collect(parts: Iterable[Any], texts: list[str]) -> int:
    """Gather the texts of these parts; the tokens of what is no text."""
    tokens = 0
    for part in parts:
        if isinstance(part, Text | Reasoning):
            texts.append(part.text)
        elif isinstance(part, ToolCall):
            texts += [part.name, part.arguments]
        elif isinstance(part, ToolResult):
            tokens += _collect(part.parts, texts)
        elif isinstance(part, Media):
            if part.text is not None:
                texts.append(part.text)
            else:
                tokens += _PER_MEDIA.get(part.type, 1000)
    return tokens
