"""The form of a record on every wire."""

from __future__ import annotations

import json

import msgspec
import pytest

from headrace.metering import AttemptRecord, RecordedUsage
from headrace.metering.record import decode, encode
from tests.metering.samples import record


def test_the_event_is_what_the_specification_names() -> None:
    line = encode(record("1", attribution={"key": "k1", "team": "search"}))
    assert b"\n" not in line
    assert json.loads(line) == {
        "event": "llm.usage.recorded",
        "record_id": "1",
        "request_id": "req-1",
        "timestamp": "2026-03-04T05:06:07Z",
        "attribution": {"key": "k1", "team": "search"},
        "model": "fast",
        "provider": "openai",
        "provider_model": "gpt-5",
        "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120, "cost_usd": 0.5},
    }


def test_what_is_written_is_read_back() -> None:
    lost = RecordedUsage(prompt_tokens=100, completion_tokens=3, total_tokens=103, quality="estimated")
    attempts = [
        AttemptRecord(provider="a", model="m", code="hedge_lost", ms=3.5, usage=lost),
        AttemptRecord(provider="b", model="m", ms=4),
    ]
    one = record("1", attempts=attempts, outcome="cancelled", error="cancelled", ttft_ms=1.5, route="fast", stream=True)
    assert decode(encode(one)) == one


def test_an_absent_cost_is_absent() -> None:
    usage = json.loads(encode(record("1", usage=RecordedUsage(prompt_tokens=1, total_tokens=1))))["usage"]
    assert usage == {"prompt_tokens": 1, "total_tokens": 1}


@pytest.mark.parametrize("name", ["\ud800", "a\udfffb", "line\nbreak\u2028\0", '"quoted"', "北京"])
def test_whatever_callers_call_their_models_makes_one_line(name: str) -> None:
    line = encode(record("1", model=name, attribution={name: name}))
    assert b"\n" not in line
    read = decode(line)
    assert read.model == name.replace("\ud800", "\ufffd").replace("\udfff", "\ufffd")
    assert read.attribution == {read.model: read.model}


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"event":"x"}', b"\xff\xfe", b'{"record_id":"\xff"}'])
def test_what_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)):
        decode(line)
