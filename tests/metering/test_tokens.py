"""Estimates: close where the vocabulary is known, sane everywhere, and never an exception."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.metering import tokens
from headrace.metering.tokens import count, count_request
from headrace.model.content import Media, Text, ToolCall
from headrace.model.request import Message, Request, Tool


@pytest.mark.parametrize(
    ("model", "text", "expected"),
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
def test_known_counts(model: str, text: str, expected: int) -> None:
    assert count(text, model) == expected


@pytest.mark.parametrize(
    ("older", "newer"), [("gpt-4", "gpt-4o"), ("gpt-35-turbo", "gpt-4.1"), ("Mixtral-8x7B", "mistral-large")]
)
def test_the_name_of_a_model_chooses_its_vocabulary(older: str, newer: str) -> None:
    assert count("北京欢迎你", older) > count("北京欢迎你", newer), "larger vocabularies need fewer tokens"


@pytest.mark.parametrize(
    "model",
    ["", "claude-sonnet-4-5", "gemini-3-pro", "llama-3.3-70b", "Llama-2-7b", "mistral-large", "mixtral-8x7b", "qwen3-32b",
     "gemma-4", "olmo-2", "deepseek-chat", "gemma-3-27b", "kimi-k2", "glm-4.6", "phi-4", "gpt-oss-120b", "command-a"],
)  # fmt: skip
def test_every_family_gives_a_sensible_figure(model: str) -> None:
    text = "The quick brown fox jumps over the lazy dog. " * 20
    assert 150 < count(text, model) < 300


@given(st.text(alphabet=st.characters(codec=None), max_size=200))
def test_any_text_can_be_counted(text: str) -> None:
    assert 0 <= count(text) <= 4 * len(text)


@pytest.mark.parametrize("model", ["gpt-4o", "gemma-3-27b"])
def test_a_long_text_is_estimated_from_samples(model: str) -> None:
    whole = "word " * 200_000
    assert count(whole, model) == pytest.approx(200_000, rel=0.03)
    half_dense = "word " * 100_000 + "北京" * 250_000
    dense = count("北京" * 2500, model) * 100
    assert count(half_dense, model) == pytest.approx(100_000 + dense, rel=0.05), "samples come from all over the text"


def test_no_text_keeps_a_tokenizer_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    class Recording:
        def encode_ordinary(self, text: str) -> list[int]:
            given.append(len(text))
            return [0] * len(text)

    monkeypatch.setattr(tokens, "_load", lambda vocabulary: Recording())
    for model, limit in {"gpt-4o": 100_000, "llama-2-7b": 5_000}.items():
        for size in (limit - 1, limit, limit + 1, 10_000_000):
            given.clear()
            assert count("x" * size, model) == size
            assert sum(given) <= limit


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
