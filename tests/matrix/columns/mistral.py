"""Mistral, which carries what OpenAI's chat completions do (see cannot.py), in shapes of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from headrace.framing import Frame, SSEEncoder
from headrace.framing.ndjson import NDJSONDecoder
from tests.fixtures import FixtureRow

from .base import Column

DONE = b"[DONE]"

UNKNOWN: dict[str, Any] = {
    "x_top": {"deep": [1, {"deeper": None}]},
    "messages": [
        {"role": "user", "x_message": 1, "content": [{"type": "text", "text": "Hi", "x_part": {"a": [0.10]}}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]},
        {"role": "user", "content": "On"},
    ],
    "safe_prompt": True,
    "random_seed": 7,
    "prompt_mode": "reasoning",
}


def check_whole_ending(frames: Sequence[Frame]) -> None:
    assert [number for number, frame in enumerate(frames) if frame.data == DONE] == [len(frames) - 1]
    assert not any(json.loads(frame.data).get("object") == "error" for frame in frames[:-1])


def check_failed_ending(frames: Sequence[Frame], finished: Sequence[int]) -> None:
    payloads = [json.loads(frame.data) for frame in frames if frame.data != DONE]
    assert len(payloads) == len(frames), "nothing has come to its end"
    assert payloads[-1].get("object") == "error" or "error" in payloads[-1]
    said = [choice for chunk in payloads for choice in chunk.get("choices", ()) if choice.get("finish_reason")]
    assert len(said) == len(finished), "a finish_reason was made up"


def recorded(row: FixtureRow, data: bytes) -> bytes:
    decoder = NDJSONDecoder()
    return SSEEncoder().encode([*decoder.feed(data), *decoder.eof(), Frame(DONE)])


COLUMN = Column(
    name="mistral",
    limits=(),
    request_limits=(),
    bodies={},
    unknown=UNKNOWN,
    check_whole_ending=check_whole_ending,
    check_failed_ending=check_failed_ending,
    recordings=("mistral.chat",),
    recorded=recorded,
)
