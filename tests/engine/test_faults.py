"""Kinds of fault that users reported in other gateways, as far as they concern the life of a stream; with real formats.

Provider's and caller's format are the same lines of the engine, so each kind is tried with every pair.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.engine import Abort, Finish, Limits, Settle
from headrace.formats import FORMATS
from headrace.framing import FRAMINGS, Frame
from tests.engine.fakes import Driver, acme

OPENAI_DELTA = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def openai(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return _sse({**OPENAI_DELTA, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def anthropic(type: str, **fields: Any) -> bytes:
    return b"event: " + type.encode() + b"\n" + _sse({"type": type, **fields})


def _sse(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def openai_stream(*texts: str) -> list[bytes]:
    return [
        openai({"role": "assistant", "content": ""}),
        *(openai({"content": text}) for text in texts),
        openai({}, "stop"),
        _sse({**OPENAI_DELTA, "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}}),
        b"data: [DONE]\n\n",
    ]


def anthropic_stream(*texts: str) -> list[bytes]:
    message: dict[str, Any] = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
    }
    delta = {"stop_reason": "end_turn", "stop_sequence": None}
    return [
        anthropic("message_start", message={**message, "usage": {"input_tokens": 5, "output_tokens": 1}}),
        anthropic("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *(anthropic("content_block_delta", index=0, delta={"type": "text_delta", "text": text}) for text in texts),
        anthropic("content_block_stop", index=0),
        anthropic("message_delta", delta=delta, usage={"output_tokens": 2}),
        anthropic("message_stop"),
    ]


STREAMS = {"openai_chat": openai_stream, "anthropic": anthropic_stream}
HEADS = {"openai_chat": 1, "anthropic": 2}  # frames before the first text
CALLERS = ("openai_chat", "anthropic", "llm_stream", "gateway")

pairs = pytest.mark.parametrize(
    ("provider", "caller"), [(provider, caller) for provider in STREAMS for caller in CALLERS]
)


def drive(provider: str, caller: str, **more: Any) -> Driver:
    candidate = acme(format=FORMATS[provider], malformed=more.pop("malformed", "fail"))
    return Driver(format=FORMATS[caller], upstream=candidate, **more)


def frames(driver: Driver) -> list[Frame]:
    return FRAMINGS["sse"].decoder().feed(driver.body)


def assert_failed_properly(driver: Driver, caller: str, code: str) -> None:
    """The stream ends as the table of the specification says: the error, then the format's own last frame if it has
    one after an error; no finish reason is made up."""
    said = frames(driver)
    objects = [json.loads(frame.data) for frame in said if frame.data != b"[DONE]"]
    if caller == "openai_chat":
        assert said[-1].data == b"[DONE]"
        assert "error" in objects[-1]
        assert not any(choice.get("finish_reason") for data in objects for choice in data.get("choices", []))
    elif caller == "anthropic":
        assert (said[-1].event, objects[-1]["type"]) == ("error", "error")
        assert not {"message_delta", "message_stop"} & {frame.event for frame in said}
    elif caller == "llm_stream":
        assert [data["type"] for data in objects[-2:]] == ["error", "stream.end"]
        assert [data["seq"] for data in objects] == list(range(len(objects)))
    else:
        assert objects[-1]["type"] == "error"
        assert [data["seq"] for data in objects] == list(range(len(objects)))
    assert driver.count(Finish) == driver.count(Settle) == 1
    assert driver.outcome.kind == "failed"
    assert driver.outcome.error is not None
    assert driver.outcome.error.code == code


@pairs
def test_a_good_stream_is_the_measure(provider: str, caller: str) -> None:
    driver = drive(provider, caller).open()
    for frame in STREAMS[provider]("Hel", "lo"):
        driver.data(frame)
    driver.end()
    assert driver.outcome.kind == "completed"
    assert driver.outcome.usage is not None
    assert (driver.outcome.usage.input_tokens, driver.outcome.usage.output_tokens) == (5, 2)
    assert b"Hel" in driver.body
    assert not any("error" in frame.event for frame in frames(driver))


@pairs
def test_no_finish_reason_and_no_done_14(provider: str, caller: str) -> None:
    told = STREAMS[provider]("Hel", "lo")[: HEADS[provider] + 2]
    driver = drive(provider, caller).open().data(b"".join(told)).end()
    assert_failed_properly(driver, caller, "provider_unavailable")
    assert driver.outcome.error is not None
    assert driver.outcome.error.type == "upstream_truncated"
    assert driver.count(Abort) == 0


@pairs
def test_the_result_does_not_depend_on_the_cuts_22(provider: str, caller: str) -> None:
    whole = b"".join(STREAMS[provider]("Hel", "lö\u2028"))
    expected = drive(provider, caller).open().data(whole).end()
    for cut in range(1, len(whole)):
        driver = drive(provider, caller).open().data(whole[:cut]).data(whole[cut:]).end()
        assert driver.body == expected.body, cut
        assert driver.outcome.usage == expected.outcome.usage
    byte_by_byte = drive(provider, caller).open()
    for at in range(len(whole)):
        byte_by_byte.data(whole[at : at + 1])
    assert byte_by_byte.end().body == expected.body


@pairs
def test_cut_half_way_27a(provider: str, caller: str) -> None:
    texts = [f"t{n} " for n in range(60)]
    driver = drive(provider, caller).open()
    for frame in STREAMS[provider](*texts)[: HEADS[provider] + 40]:
        driver.data(frame)
    driver.fail()
    assert b"t39" in driver.body
    assert_failed_properly(driver, caller, "provider_unavailable")


@pairs
def test_silence_half_way_27b_42(provider: str, caller: str) -> None:
    driver = drive(provider, caller).open()
    for frame in STREAMS[provider]("a", "b", "c")[: HEADS[provider] + 2]:
        driver.data(frame)
    driver.wait(10).data(b": ping\n\n").wait(10)
    if provider == "anthropic":
        driver.data(anthropic("ping"))
    driver.wait(9.9)
    assert driver.count(Abort) == 0
    driver.wait(0.2)
    assert driver.count(Abort) == 1, "neither comments nor pings keep a dead stream alive"
    assert_failed_properly(driver, caller, "timeout")


@pairs
@pytest.mark.parametrize("malformed", ["fail", "skip"])
def test_one_malformed_event_27c(provider: str, caller: str, malformed: str) -> None:
    told = STREAMS[provider]("a", "b")
    told.insert(HEADS[provider] + 1, b'data: {"cut\n\n')
    driver = drive(provider, caller, malformed=malformed).open().data(b"".join(told)).end()
    if malformed == "fail":
        assert_failed_properly(driver, caller, "provider_unavailable")
    else:
        assert driver.outcome.kind == "completed"
        assert driver.outcome.skipped_frames == 1


@pairs
def test_a_fault_of_ours_in_mid_stream_29(provider: str, caller: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = drive(provider, caller).open().data(b"".join(STREAMS[provider]("a")[: HEADS[provider] + 1]))

    def fail(data: bytes) -> list[Frame]:
        raise LookupError("a bug")

    (attempt,) = driver.stream._attempts
    monkeypatch.setattr(attempt.decoder, "feed", fail)
    driver.data(STREAMS[provider]("b")[HEADS[provider]])
    assert_failed_properly(driver, caller, "internal_error")
    assert isinstance(driver.outcome.exception, LookupError)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("position", ["first", "middle", "last"])
def test_an_error_in_band_is_an_error_in_any_position_34(caller: str, position: str) -> None:
    told = openai_stream("a", "b")
    error = _sse({"error": {"message": "overloaded", "type": "server_error", "code": None}, "choices": []})
    at = {"first": 0, "middle": 2, "last": 3}[position]
    driver = drive("openai_chat", caller).open().data(b"".join([*told[:at], error])).end()
    assert driver.outcome.kind == "failed"
    if position == "first":
        assert driver.head.status >= 400
        assert driver.head.content_type == "application/json"
        json.loads(driver.body)
    else:
        assert driver.head.status == 200
        assert driver.outcome.error is not None
        assert_failed_properly(driver, caller, driver.outcome.error.code)


@pairs
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("headers", [True, False])
def test_a_caller_who_leaves_before_the_first_token_37_40(
    provider: str, caller: str, stream: bool, headers: bool
) -> None:
    driver = drive(provider, caller, stream=stream).begin()
    if headers:
        driver.headers(200, "text/event-stream" if stream else "application/json")
    driver.gone()
    assert driver.kinds[-2:] == ["Abort", "Settle"]
    assert driver.stream.done
    assert driver.outcome.kind == "cancelled"


@pairs
def test_memory_is_bounded_whatever_the_caller_does_41(provider: str, caller: str) -> None:
    limits = Limits(stream_buffer_bytes=64 * 1024)
    driver = drive(provider, caller, limits=limits).open()
    piece = STREAMS[provider]("x" * 1000)[HEADS[provider]] * 4
    driver.data(b"".join(STREAMS[provider]("")[: HEADS[provider]])).data(piece).block()
    most = 0
    for _ in range(1000):
        driver.data(piece)
        most = max(most, driver.stream.buffered)
    assert 64 * 1024 <= most < 64 * 1024 + 4 * 2000
    assert driver.count(Abort) == 1
    driver.unblock()
    assert_failed_properly(driver, caller, "consumer_too_slow")
