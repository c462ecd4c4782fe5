"""Estimates: close where the vocabulary is known, sane everywhere, and never an exception."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metering.tokens import count, count_request
from headrace.model.content import Media, Text, ToolCall
from headrace.model.request import Message, Request, Tool


@pytest.mark.parametrize(
    ("model", "text", "tokens"),
    [
        # as OpenAI's own tokenizer counts them
        ("gpt-4o", "hello world", 2),
        ("gpt-4", "hello world", 2),
        ("gpt-4o", "tiktoken is great!", 6),
        ("gpt-4", "tiktoken is great!", 6),
        ("gpt-5", "", 0),
        ("gpt-4o", "<|endoftext|>", 7),  # text like any other
    ],
)
def test_known_counts(model: str, text: str, tokens: int) -> None:
    assert count(text, model) == tokens


@pytest.mark.parametrize(
    "model",
    ["", "claude-sonnet-4-5", "gemini-3-pro", "llama-3.3-70b", "Llama-2-7b", "mistral-large", "mixtral-8x7b", "qwen3-32b",
     "deepseek-chat", "gemma-3-27b", "kimi-k2", "glm-4.6", "phi-4", "gpt-oss-120b", "command-a"],
)  # fmt: skip
def test_every_family_gives_a_sensible_figure(model: str) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 20
    assert 150 < count(text, model) < 300


@given(st.text(alphabet=st.characters(codec=None), max_size=200))
def test_any_text_can_be_counted(text: str) -> None:
    assert 0 <= count(text) <= 4 * len(text)


def test_a_long_text_is_counted_in_pieces() -> None:
    assert abs(count("word " * 100_000) - 100_000) < 50


def test_a_request_counts_all_that_is_sent() -> None:
    def request(**more: object) -> Request:
        return Request(model="m", messages=[Message(role="user", parts=[Text(text="hello world")])], **more)  # type: ignore[arg-type]  # fields by name

    plain = count_request(request())
    assert 5 < plain < 15
    assert count_request(request(tools=[Tool(name="weather", parameters={"type": "object"})])) > plain + 5
    call = Message(role="assistant", parts=[ToolCall(id="1", name="weather", arguments='{"city": "Berlin"}')])
    image = Message(role="user", parts=[Media(type="image", media_type="image/png", data="AAAA")])
    longer = request()
    longer.messages += [call, image]
    assert count_request(longer) > plain + 800
