"""The life of one request, rule by rule, with formats so small that only the engine shows."""

from __future__ import annotations

import gc
import math
from dataclasses import replace
from typing import Any

import pytest

from headrace.engine import Abort, Connect, Finish, Limits, Pause, Plan, Resume, SendHead, Settle, Stream, Timeouts
from headrace.framing import Frame
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.events import Event
from tests.engine.fakes import (
    FATAL_BUG,
    LINES,
    READ_BUG,
    TIMEOUTS,
    WRITE_BUG,
    Driver,
    LinesReader,
    acme,
    answer,
    line,
    sse,
)

START, PING = sse(line("start")), sse(line("ping"))


def text(value: str) -> bytes:
    return sse(line("text", value))


# --- the good case ----------------------------------------------------------------------------------------------------


def test_a_stream_from_beginning_to_end() -> None:
    driver = Driver().begin()
    assert driver.seen == [Connect(0, 0)]
    driver.headers()
    assert driver.seen == [Connect(0, 0)], "the provider's headers alone commit to nothing"
    driver.data(START).data(text(""))
    assert driver.seen == [Connect(0, 0)], "nor does what no caller could see"
    driver.data(text("a"))
    assert driver.seen[1:] == [SendHead(200, "text/event-stream", stream=True)]
    driver.data(text("b") + text("c"))
    assert driver.told == ["start", "", "a", "b", "c"]
    assert len(driver.writes) == 2, "one write a read"
    driver.data(sse(line("end")))
    assert driver.told == ["start", "", "a", "b", "c", "end"]
    assert driver.kinds == ["Connect", "SendHead", "Settle", "Finish"]
    assert not driver.stream.done, "the provider's HTTP message is still open"
    driver.end()
    assert driver.stream.done
    assert driver.kinds == ["Connect", "SendHead", "Settle", "Finish"], (
        "a connection that ended by itself can be reused"
    )
    assert driver.stream.next_deadline == math.inf


def test_the_outcome_of_a_stream() -> None:
    driver = Driver(lost=("request.top_k",)).open()
    driver.wait(2).data(START).wait(1).data(text("a") + PING + sse(line("usage", 5)))
    driver.wait(3).data(sse(line("usage", 9)) + sse(line("end"))).end()
    outcome = driver.outcome
    assert (outcome.kind, outcome.error, outcome.status) == ("completed", None, 200)
    assert (outcome.provider, outcome.model, outcome.response_id) == ("acme", "m-1", "answer-1")
    assert outcome.usage is not None
    assert outcome.usage.output_tokens == 9
    assert (outcome.ttft, outcome.duration) == (3, 6), "the first token is the first text, not the start"
    assert outcome.bytes_out == len(driver.body)
    assert outcome.lost == {"request.top_k", "ping"}
    assert outcome.events == 9


def test_the_terminal_event_names_who_answered() -> None:
    driver = Driver().open().data(answer())
    assert driver.lines()[-1]["routing"] == {
        "strategy": "direct",
        "selected_provider": "acme",
        "selected_model": "m-1",
        "attempts": 1,
        "failovers": 0,
        "tried": [],
        "cache": "miss",
    }


@pytest.mark.parametrize(
    ("framing", "media_type"),
    [("sse", "text/event-stream"), ("ndjson", "application/x-ndjson"), ("json_array", "application/json")],
)
def test_every_framing_of_the_caller(framing: str, media_type: str) -> None:
    driver = Driver(framing=framing).open().data(answer("a", "b")).end()
    assert driver.head == SendHead(200, media_type, stream=True)
    assert driver.told == ["start", "a", "b", "end"]
    if framing == "json_array":
        assert driver.body.endswith(b"]\n")
        assert [line["t"] for line in driver.json] == ["start", "text", "text", "end"]


# --- streams and bodies, in every combination ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b'{"text": "ab", "tokens": 2}'),
        ("application/json; charset=utf-8", b'{"text": "ab", "tokens": 2}'),
        ("application/vnd.acme+json", b'{"text": "ab", "tokens": 2}'),
        ("text/event-stream; charset=utf-8", sse(line("start"), line("text", "ab"), line("usage", 2), line("end"))),
        (
            "application/x-ndjson",
            b"\n".join([line("start"), line("text", "ab"), line("usage", 2), line("end")]),
        ),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
@pytest.mark.parametrize("stream", [True, False])
def test_what_comes_is_read_by_what_it_says_it_is(content_type: str, body: bytes, asked: bool, stream: bool) -> None:
    driver = Driver(stream=stream, upstream=acme(stream=asked)).begin().headers(200, content_type)
    for at in range(len(body)):
        driver.data(body[at : at + 1])
    driver.end()
    if stream:
        assert driver.told == ["start", "ab", "end"]
    else:
        assert driver.json == {"text": "ab", "tokens": 2, "provider": "acme"}
        assert driver.head == SendHead(200, "application/json")
    assert driver.outcome.kind == "completed"
    assert driver.outcome.usage is not None
    assert driver.outcome.usage.output_tokens == 2


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/octet-stream"])
@pytest.mark.parametrize(("asked", "body"), [(True, answer("ab")), (False, b'{"text": "ab"}')])
def test_a_vague_content_type_means_what_was_asked_for(content_type: str, asked: bool, body: bytes) -> None:
    driver = Driver(upstream=acme(stream=asked)).begin().headers(200, content_type).data(body).end()
    assert driver.told == ["start", "ab", "end"]


def test_a_json_array_can_stream() -> None:
    driver = Driver(upstream=acme(framing="json_array")).begin().headers(200, "application/json")
    driver.data(b"[" + line("start") + b"," + line("text", "a"))
    assert driver.told == ["start", "a"]
    driver.data(b"," + line("end") + b"]").end()
    assert driver.told == ["start", "a", "end"]


def test_a_web_page_is_no_answer() -> None:
    driver = Driver().begin().headers(200, "text/html; charset=utf-8")
    assert driver.head.status == 503
    assert driver.json["type"] == "unexpected_content_type"
    assert "text/html" in driver.outcome.error.message if driver.outcome.error else False
    assert driver.kinds == ["Connect", "Abort", "SendHead", "Settle", "Finish"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_body_that_is_an_error_in_disguise(stream: bool) -> None:
    driver = Driver(stream=stream).begin().headers(200, "application/json").data(b'{"error": "slow down"}').end()
    assert driver.head == SendHead(429, "application/json", (("retry-after", "2"),))
    assert driver.json == {"error": "provider_rate_limited", "type": None, "provider": "acme"}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("body", [b"", b"not json"])
def test_a_body_that_cannot_be_read(stream: bool, body: bytes) -> None:
    driver = Driver(stream=stream, upstream=acme(malformed="skip")).begin().headers(200, "application/json")
    driver.data(body).end()
    assert driver.head.status == 503
    assert driver.json["type"] == "malformed_upstream"


def test_a_body_beyond_the_bound() -> None:
    driver = Driver(stream=False, limits=Limits(body_bytes=10)).begin().headers(200, "application/json")
    driver.data(b'{"text":').data(b'"aaaaaa"}')
    assert driver.head.status == 503
    assert driver.json["type"] == "malformed_upstream"
    assert driver.count(Abort) == 1


def test_a_whole_body_waits_for_the_end_of_the_stream() -> None:
    driver = Driver(stream=False).open().data(START + text("a"))
    assert driver.kinds == ["Connect"]
    driver.fail()
    assert driver.head.status == 503, "nothing was sent, so the status is still free"
    assert driver.json["type"] == "upstream_reset"


# --- passing through --------------------------------------------------------------------------------------------------


def options_seen(driver: Driver) -> bool:
    """Whether the reader was told to let frames pass."""
    (attempt,) = driver.stream._attempts
    reader: Any = attempt.reader
    options = getattr(reader, "options", None) or reader._options
    return bool(options.passthrough)


@pytest.mark.parametrize(
    ("content_type", "framing", "stream", "passes"),
    [
        ("text/event-stream", "sse", True, True),
        ("text/event-stream", "ndjson", True, True),
        ("application/x-ndjson", "ndjson", True, True),
        ("application/x-ndjson", "sse", True, False),
        ("text/event-stream", "sse", False, False),
        ("application/json", "sse", True, False),
        ("application/json", "sse", False, True),
    ],
)
def test_where_frames_may_stand_for_themselves(content_type: str, framing: str, stream: bool, passes: bool) -> None:
    upstream = acme(passthrough=True)
    driver = Driver(framing=framing, stream=stream, upstream=upstream, passthrough=True).begin()
    driver.headers(200, content_type)
    assert options_seen(driver) is passes


def test_a_body_passes_unchanged_from_whole_to_whole() -> None:
    body = b'{"text":"a",  "of no format": [1]}'
    driver = Driver(stream=False, upstream=acme(passthrough=True), passthrough=True).begin()
    driver.headers(200, "application/json").data(body).end()
    assert driver.body == body


# --- hold-back --------------------------------------------------------------------------------------------------------


def test_life_signs_commit_to_nothing() -> None:
    driver = Driver().open().data(b": comment\n\n").data(PING).data(PING)
    assert driver.kinds == ["Connect"]
    driver.data(sse(line("error", "overloaded", wait=0.2))).end()
    assert driver.head == SendHead(429, "application/json", (("retry-after", "1"),)), "rounded up"
    assert driver.json["error"] == "provider_rate_limited"
    assert driver.kinds == ["Connect", "SendHead", "Settle", "Finish"]


def test_pings_before_the_first_event_are_kept_within_bounds() -> None:
    driver = Driver().open().data(PING * 3).data(answer())
    assert driver.outcome.events == 3 + len(driver.stream_events(answer()))
    driver = Driver().open().data(PING * 10).data(PING * 10).data(answer())
    assert driver.outcome.events == 16 + len(driver.stream_events(answer()))


@pytest.mark.parametrize("cut", [True, False])
def test_the_same_answer_however_the_bytes_are_cut(cut: bool) -> None:
    pieces = [PING, START, text("a"), sse(line("error", "overloaded"))]
    driver = Driver().open()
    for piece in pieces if cut else [b"".join(pieces)]:
        driver.data(piece)
    assert driver.head.status == 200, "something visible came first, so the caller has a stream"
    assert driver.told == ["start", "a", ("error", "provider_rate_limited", None)]


@pytest.mark.parametrize(
    ("status", "code"),
    [(401, "unauthenticated"), (404, "model_not_found"), (429, "provider_rate_limited"), (302, "provider_unavailable")],
)
@pytest.mark.parametrize("stream", [True, False])
def test_an_http_error_is_an_http_error(status: int, code: str, stream: bool) -> None:
    driver = Driver(stream=stream).begin().headers(status, "text/html", retry_after="3")
    driver.data(b"<html>")
    assert driver.kinds == ["Connect"], "its body is not complete"
    driver.data(b"no").end()
    assert driver.json == {"error": code, "type": None, "provider": "acme"}
    assert driver.head.headers == (("retry-after", "3"),)
    assert driver.outcome.error is not None
    assert driver.outcome.error.message == "<html>no"
    assert driver.kinds == ["Connect", "SendHead", "Settle", "Finish"]
    assert driver.outcome.kind == "failed"


def test_the_body_of_an_http_error_is_bounded() -> None:
    driver = Driver(limits=Limits(error_body_bytes=4)).begin().headers(500).data(b"abc").data(b"def")
    assert driver.outcome.error is not None
    assert driver.outcome.error.message == "abcd"
    assert driver.kinds == ["Connect", "Abort", "SendHead", "Settle", "Finish"]


@pytest.mark.parametrize("how", ["break", "silence"])
def test_an_http_error_whose_body_does_not_end(how: str) -> None:
    driver = Driver(stream=False).begin().headers(429).data(b"slow")
    _ = driver.fail() if how == "break" else driver.wait(121)
    assert driver.head.status == 429
    assert driver.count(Abort) == (how == "silence")


@pytest.mark.parametrize(
    ("act", "code", "type"),
    [
        (lambda driver: driver.fail(), "provider_unavailable", "upstream_reset"),
        (lambda driver: driver.end(), "provider_unavailable", "upstream_closed"),
        (lambda driver: driver.headers().end(), "provider_unavailable", "upstream_truncated"),
        (lambda driver: driver.headers().data(PING).end(), "provider_unavailable", "upstream_truncated"),
        (lambda driver: driver.headers().data(sse(b"nonsense")), "provider_unavailable", "malformed_upstream"),
        (lambda driver: driver.headers().data(b"data: x" + b"x" * 2000), "provider_unavailable", "malformed_upstream"),
        (lambda driver: driver.cancel(), "cancelled", "cancelled"),
        (lambda driver: driver.cancel(code=ErrorCode.BUDGET_EXCEEDED), "budget_exceeded", "budget_exceeded"),
    ],
)
@pytest.mark.parametrize("alive", [False, True])
@pytest.mark.parametrize("stream", [True, False])
def test_failures_before_the_first_event(act: Any, code: str, type: str, alive: bool, stream: bool) -> None:
    driver = Driver(stream=stream, limits=Limits(frame_bytes=1000)).begin()
    if alive:
        driver.wait(16)
    act(driver)
    if alive and stream:
        assert driver.head.status == 200
        assert driver.body.startswith(b": keepalive\n\n")
        assert driver.told == [("error", code, type)], "the headers are gone, so the error goes in-band"
    else:
        assert driver.head.status != 200
        assert driver.json["error"] == code
        assert driver.json["type"] == type
    assert driver.kinds[-2:] == ["Settle", "Finish"]
    assert driver.outcome.kind == ("cancelled" if code == "cancelled" else "failed")
    assert driver.outcome.ttft is None


# --- keepalive --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("framing", "sign"), [("sse", b": keepalive\n\n"), ("ndjson", b"\n"), ("json_array", b"\n")])
def test_signs_of_life(framing: str, sign: bytes) -> None:
    slow = Timeouts(first_token=1000, idle_stream=1000, keepalive=15)
    driver = Driver(framing=framing, timeouts=slow).open()
    driver.wait(14)
    assert driver.body == b""
    driver.wait(2)
    assert driver.head.status == 200
    assert driver.body.endswith(sign)
    driver.data(START + text("a"))
    said = driver.body
    driver.wait(14.9)
    assert driver.body == said
    driver.wait(30)
    assert driver.body == said + sign * 2, "two intervals of silence"
    driver.data(sse(line("end"))).end()
    assert driver.told == ["start", "a", "end"]
    if framing == "json_array":
        assert len(driver.json) == 3


def test_no_sign_of_life_ahead_of_a_body() -> None:
    driver = Driver(stream=False).begin().headers(200, "application/json").wait(100)
    assert driver.body == b""
    assert driver.kinds == ["Connect"]


def test_no_sign_of_life_for_a_caller_who_is_blocked() -> None:
    driver = Driver().open().data(START + text("a")).block()
    driver.wait(39)
    assert driver.stream.buffered == 0


# --- timeouts ---------------------------------------------------------------------------------------------------------


def test_no_first_token() -> None:
    driver = Driver().open().wait(5).data(START).wait(10).data(PING)
    driver.wait(4.9)
    assert driver.count(Abort) == 0
    driver.wait(0.2)
    assert driver.told == [("error", "timeout", "first_token_timeout")], "after the keepalive that came with the head"
    assert driver.count(Abort) == 1


@pytest.mark.parametrize(("begun", "headers"), [(True, False), (True, True)])
def test_no_answer_at_all(begun: bool, headers: bool) -> None:
    driver = Driver(timeouts=Timeouts(first_token=5)).begin()
    if headers:
        driver.headers()
    driver.wait(6)
    assert driver.head.status == 504
    assert driver.json["type"] == "first_token_timeout"
    assert driver.kinds == ["Connect", "Abort", "SendHead", "Settle", "Finish"]


def test_a_whole_request_has_one_clock() -> None:
    driver = Driver(stream=False).begin().headers(200, "application/json").wait(119)
    assert driver.kinds == ["Connect"], "no first token is expected of a body"
    driver.wait(2)
    assert driver.head.status == 504
    assert driver.json["type"] == "request_timeout"


def test_a_provider_that_streams_to_a_caller_who_does_not_has_both_clocks() -> None:
    driver = Driver(stream=False, upstream=acme(stream=True)).open().data(START + text("a"))
    driver.wait(31)
    assert driver.json["type"] == "idle_stream_timeout"
    driver = Driver(stream=False, upstream=acme(stream=True)).open().data(START)
    for _ in range(6):
        driver.data(text("a")).wait(20.5)
    assert driver.json["type"] == "request_timeout"


@pytest.mark.parametrize("pings_count", [False, True])
@pytest.mark.parametrize("ping", [PING, b": comment\n\n", b"da"])
def test_pings_are_no_progress_unless_so_configured(pings_count: bool, ping: bytes) -> None:
    upstream = acme(timeouts=Timeouts(idle_stream=30, pings_count=pings_count))
    driver = Driver(upstream=upstream).open().data(START + text("a"))
    driver.wait(20).data(ping).wait(11)
    assert (driver.count(Abort) == 0) is pings_count
    if not pings_count:
        assert driver.told[-1] == ("error", "timeout", "idle_stream_timeout")


def test_the_candidates_own_timeouts_win() -> None:
    driver = Driver(upstream=acme(timeouts=Timeouts(first_token=1)), timeouts=TIMEOUTS).open().wait(1.5)
    assert driver.json["type"] == "first_token_timeout"


def test_the_providers_clock_stands_still_while_the_caller_blocks() -> None:
    driver = Driver().open().data(START + text("a")).wait(20).block().wait(35)
    assert driver.count(Abort) == 0
    driver.unblock().wait(9.9)
    assert driver.count(Abort) == 0
    driver.wait(0.2)
    assert driver.told[-1] == ("error", "timeout", "idle_stream_timeout")


def test_bytes_that_come_during_the_pause_set_the_clock_anew() -> None:
    driver = Driver().open().data(START + text("a")).wait(20).block().wait(10).data(text("b")).wait(10).unblock()
    driver.wait(29.9)
    assert driver.count(Abort) == 0
    driver.wait(0.2)
    assert driver.count(Abort) == 1


# --- ends -------------------------------------------------------------------------------------------------------------


def test_what_follows_the_terminal_event_is_not_read() -> None:
    driver = Driver().open().data(answer("a")).data(text("b") + sse(b"nonsense")).data(b"\xff" * 100).end()
    assert driver.told == ["start", "a", "end"]
    assert driver.outcome.kind == "completed"


def test_a_provider_that_does_not_hang_up_is_cut_off() -> None:
    driver = Driver().open().data(answer("a"))
    assert driver.kinds[-1] == "Finish", "the caller does not wait for it"
    driver.wait(0.9)
    assert driver.count(Abort) == 0
    driver.wait(0.2)
    assert driver.kinds[-1] == "Abort"
    assert driver.stream.done


@pytest.mark.parametrize("missing", [1, 2])
def test_the_last_blank_line_may_be_missing(missing: int) -> None:
    driver = Driver().open().data(answer("a")[:-missing]).end()
    assert driver.told == ["start", "a", "end"]


@pytest.mark.parametrize("cut", range(1, len(answer("a", "b")) - 2))
def test_a_stream_that_was_cut_is_an_error(cut: int) -> None:
    driver = Driver().open().data(answer("a", "b")[:cut]).end()
    assert driver.outcome.kind == "failed"
    assert driver.outcome.error is not None
    assert driver.outcome.error.type == "upstream_truncated"
    if driver.head.status == 200:
        assert driver.told[-1] == ("error", "provider_unavailable", "upstream_truncated")


def test_a_bare_error_body_in_a_stream_reaches_the_reader() -> None:
    driver = Driver().open().data(b'{"error": "no such thing"}').end()
    assert driver.outcome.error is not None
    assert driver.outcome.error.message == "cut (27 bytes left over)"


@pytest.mark.parametrize("malformed", ["fail", "skip"])
@pytest.mark.parametrize("cut", [True, False])
def test_frames_that_cannot_be_read(malformed: str, cut: bool) -> None:
    pieces = [START, text("a"), sse(b"nonsense"), text("b"), sse(b"{}"), sse(b"[]"), text("c"), sse(line("end"))]
    driver = Driver(upstream=acme(malformed=malformed)).open()
    for piece in pieces if cut else [b"".join(pieces)]:
        driver.data(piece)
    driver.end()
    if malformed == "skip":
        assert driver.told == ["start", "a", "b", "c", "end"]
        assert driver.outcome.skipped_frames == 3
        assert driver.outcome.kind == "completed"
    else:
        assert driver.told == ["start", "a", ("error", "provider_unavailable", "malformed_upstream")]
        assert driver.count(Abort) == 1


@pytest.mark.parametrize("phase", ["connecting", "headers", "streaming", "blocked", "refused"])
def test_the_caller_leaves(phase: str) -> None:
    driver = Driver().begin()
    if phase == "refused":
        driver.headers(500)
    elif phase != "connecting":
        driver.headers()
    if phase in ("streaming", "blocked"):
        driver.data(START + text("a") + sse(line("usage", 7)))
    if phase == "blocked":
        driver.block().data(text("b"))
    body = driver.body
    driver.gone()
    assert driver.kinds[-2:] == ["Abort", "Settle"]
    assert driver.stream.done
    assert driver.outcome.kind == "cancelled"
    assert driver.body == body
    if phase == "streaming":
        assert driver.outcome.usage is not None
        assert driver.outcome.usage.output_tokens == 7, "what was consumed is known"
    seen = list(driver.seen)
    driver.data(text("c")).end().gone().cancel().wait(500)
    assert (driver.seen, driver.body) == (seen, body)


def test_a_caller_who_leaves_after_its_answer_changes_nothing() -> None:
    driver = Driver().open().data(answer("a")).gone()
    assert driver.outcome.kind == "completed"
    assert driver.count(Abort) == 0, "the provider may still end its message"
    driver.end()
    assert driver.stream.done


def test_cancel_in_mid_stream_is_told() -> None:
    driver = Driver().open().data(START + text("a")).cancel(message="stopped by the operator")
    assert driver.told == ["start", "a", ("error", "cancelled", "cancelled")]
    assert driver.outcome.kind == "cancelled"
    assert driver.outcome.error is not None
    assert driver.outcome.error.message == "stopped by the operator"
    assert driver.count(Abort) == 1


def test_cancel_before_the_beginning() -> None:
    driver = Driver().cancel()
    assert driver.kinds == ["SendHead", "Settle", "Finish"]
    driver.begin()
    assert driver.count(Connect) == 0


def test_no_candidates() -> None:
    caller = Driver().stream._answer.caller
    with pytest.raises(ValueError, match="at least one candidate"):
        Stream(caller=caller, plan=Plan([]), timeouts=TIMEOUTS)


# --- backpressure -----------------------------------------------------------------------------------------------------


def test_a_blocked_caller_pauses_the_provider() -> None:
    driver = Driver().open().data(START + text("a")).block()
    assert driver.kinds[-1] == "Pause"
    body = driver.body
    driver.data(text("b")).data(text("c"))
    assert driver.body == body, "nothing is handed out"
    assert driver.stream.buffered > 0
    driver.unblock()
    assert driver.kinds[-1] == "Resume"
    assert driver.told == ["start", "a", "b", "c"]
    assert driver.stream.buffered == 0
    driver.block().unblock()
    assert driver.kinds[-4:] == ["Pause", "Resume", "Pause", "Resume"]


def test_the_end_is_not_finished_before_all_was_handed_out() -> None:
    driver = Driver().open().data(START + text("a")).block().data(sse(line("end")))
    assert driver.kinds[-2:] == ["Pause", "Resume"], "a provider that has said all may end its message"
    driver.end().wait(10)
    assert driver.count(Finish) == driver.count(Settle) == 0
    driver.unblock()
    assert driver.told == ["start", "a", "end"]
    assert driver.kinds[-2:] == ["Settle", "Finish"]
    assert driver.outcome.kind == "completed"
    assert driver.outcome.duration == 10


def test_finish_waits_for_the_write_that_blocks() -> None:
    driver = Driver(block_after=1).open().data(answer("a")).end()
    assert driver.told == ["start", "a", "end"]
    assert driver.count(Finish) == 0
    driver.block_after = math.inf
    driver.unblock()
    assert driver.kinds[-2:] == ["Settle", "Finish"]


def test_a_caller_that_does_not_read() -> None:
    driver = Driver().open().data(START + text("a")).block().data(text("b")).wait(39.9)
    assert driver.count(Abort) == 0
    driver.wait(0.2)
    assert driver.kinds[-1] == "Abort"
    assert driver.count(Settle) == 0
    driver.unblock()
    assert driver.told == ["start", "a", "b", ("error", "consumer_too_slow", "consumer_too_slow")]
    assert driver.kinds[-2:] == ["Settle", "Finish"]
    assert driver.outcome.kind == "failed"


@pytest.mark.parametrize("ended", [False, True])
def test_a_caller_that_never_reads_again_is_cut(ended: bool) -> None:
    driver = Driver().open().data(START + text("a")).block().data(text("b"))
    if ended:
        driver.data(sse(line("end"))).end()
    body = driver.body
    driver.wait(42)
    assert driver.stream.done
    assert driver.count(Finish) == 0, "the answer must look cut"
    assert driver.body == body
    assert driver.outcome.error is not None
    assert driver.outcome.error.code is ErrorCode.CONSUMER_TOO_SLOW
    assert driver.stream.buffered == 0


def test_the_buffer_is_bounded_even_if_reading_goes_on() -> None:
    limits = Limits(stream_buffer_bytes=1000)
    driver = Driver(limits=limits).open().data(START).block()
    most = 0
    for _ in range(100):
        driver.data(text("x" * 200))
        most = max(most, driver.stream.buffered)
    assert 1000 <= most < 1000 + 400
    assert driver.count(Abort) == 1
    driver.unblock()
    assert driver.told[-1] == ("error", "consumer_too_slow", "consumer_too_slow")


# --- readers and writers that break their contract --------------------------------------------------------------------


class Gossip(LinesReader):
    """Goes on after its terminal event, and thinks that nothing is wrong at the end."""

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        self.ended = False
        super().read_frame(frame, events)

    def eof(self, leftover: bytes = b"") -> list[Event]:
        return []


def test_one_terminal_event_even_if_the_reader_has_more() -> None:
    gossip = replace(LINES, stream_reader=Gossip)
    driver = Driver(upstream=acme(format=gossip)).open().data(answer("a")).data(answer("b"))
    assert driver.told == ["start", "a", "end"]
    driver = Driver(upstream=acme(format=gossip, malformed="skip")).open()
    driver.data(answer("a") + sse(b"nonsense") + answer("b")).end()
    assert driver.told == ["start", "a", "end"]


def test_no_end_without_a_terminal_event_even_if_the_reader_sees_no_harm() -> None:
    driver = Driver(upstream=acme(format=replace(LINES, stream_reader=Gossip))).open().data(START + text("a")).end()
    assert driver.told == ["start", "a", ("error", "provider_unavailable", "upstream_truncated")]


# --- faults of our own ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bug", [READ_BUG, WRITE_BUG])
@pytest.mark.parametrize("before", ["nothing", "start", "text"])
def test_a_bug_in_a_codec_ends_its_stream_only(bug: str, before: str) -> None:
    driver = Driver().open()
    if before != "nothing":
        driver.data(START)
    if before == "text":
        driver.data(text("a"))
    driver.data((START if before == "nothing" else b"") + text(bug))
    if before != "text":
        assert driver.head.status == 500
        assert driver.json["error"] == "internal_error"
    else:
        assert driver.told[-1] == ("error", "internal_error", "internal_error")
    assert driver.count(Abort) == 1
    outcome = driver.outcome
    assert outcome.kind == "failed"
    assert isinstance(outcome.exception, ZeroDivisionError if bug == READ_BUG else LookupError)
    assert outcome.error is not None
    assert bug not in outcome.error.message
    assert driver.stream.done


def test_a_writer_that_cannot_even_say_so() -> None:
    driver = Driver().open().data(START + text("a")).data(text(FATAL_BUG))
    assert driver.told == ["start", "a"]
    assert driver.kinds == ["Connect", "SendHead", "Abort", "Settle", "Cut"], "no Finish: the answer looks cut"
    assert driver.outcome.kind == "failed"
    assert isinstance(driver.outcome.exception, LookupError)
    assert driver.stream.done


def test_a_format_that_cannot_write_its_errors() -> None:
    def write_error(info: ErrorInfo) -> bytes:
        raise LookupError(FATAL_BUG)

    driver = Driver(format=replace(LINES, write_error=write_error)).begin().headers(429).end()
    assert driver.head == SendHead(500, "application/json")
    assert driver.json["error"]["type"] == "internal_error"
    assert driver.kinds[-2:] == ["Settle", "Finish"]


def test_a_body_that_cannot_be_written() -> None:
    driver = Driver(stream=False).open().data(answer(WRITE_BUG)).end()
    assert driver.head.status == 500
    assert driver.json["error"] == "internal_error"


# --- odd drivers ------------------------------------------------------------------------------------------------------


def test_inputs_before_the_beginning_are_harmless() -> None:
    driver = Driver().headers().data(START).end().fail().unblock()
    assert driver.seen == []
    assert driver.stream.next_deadline == math.inf
    driver.open().data(answer("a"))
    assert driver.told == ["start", "a", "end"]


def test_inputs_that_come_twice_are_harmless() -> None:
    driver = Driver().open().begin().headers(500).data(START + text("a")).block().block().unblock().unblock()
    driver.data(sse(line("end"))).end().end().fail()
    assert driver.told == ["start", "a", "end"]
    assert driver.kinds == ["Connect", "SendHead", "Pause", "Resume", "Settle", "Finish"]
    assert driver.count(Resume) == driver.count(Pause) == 1


# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_stream_is_freed_without_the_cycle_collector() -> None:
    def run() -> None:
        Driver().open().data(answer("a")).end()
        Driver().open().data(START + sse(b"nonsense"))
        Driver().open().data(START).block().data(text("a")).gone()
        Driver(stream=False).begin().headers(500).end()
        Driver(stream=False).begin().headers(200, "application/json").data(b'{"text": "a"}').end()

    run()
    gc.collect()
    gc.disable()
    try:
        run()
        assert gc.collect() == 0
    finally:
        gc.enable()
