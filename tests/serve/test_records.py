"""The log record: one line a request, whatever callers write."""

from __future__ import annotations

import logging

import pytest

from headrace import engine
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.usage import Usage
from headrace.serve.records import log
from headrace.upstream import TraceContext


def outcome(model: str) -> engine.Outcome:
    return engine.Outcome(
        kind="failed",
        provider="p",
        model=model,
        error=ErrorInfo(code=ErrorCode.TIMEOUT, message="a prompt might stand here", type="idle_stream_timeout"),
        usage=Usage(input_tokens=3, output_tokens=0),
        response_id="r",
        status=200,
        ttft=0.0123,
        duration=1.5,
        events=7,
        bytes_out=99,
        skipped_frames=0,
        lost=frozenset({"request.top_k", "citations"}),
        exception=None,
    )


def line(caplog: pytest.LogCaptureFixture, model: str) -> str:
    with caplog.at_level(logging.INFO):
        log(outcome(model), request_id="req_1", trace=TraceContext.new(), path="/v1/chat", stream=True)
    return caplog.messages[-1]


def test_a_record_names_what_happened(caplog: pytest.LogCaptureFixture) -> None:
    shown = line(caplog, "gpt-5")
    for word in (
        "request_id=req_1", "outcome=failed", "status=200", "provider=p", "model=gpt-5", "error=timeout",
        "error_type=idle_stream_timeout", "ttft_ms=12.3", "duration_ms=1500.0", "input_tokens=3", "output_tokens=0",
        "lost=citations,request.top_k",
    ):  # fmt: skip
        assert word in shown.split(" ")
    assert "prompt" not in shown


@pytest.mark.parametrize("model", ["a\nERROR fake", "a\r\nb", "m outcome=completed", 'q"q', "x" * 1_000_000, "\u2028"])
def test_a_callers_words_cannot_break_the_line(caplog: pytest.LogCaptureFixture, model: str) -> None:
    shown = line(caplog, model)
    assert len(shown) < 1500
    assert shown.isprintable()
    assert shown.split(" ").count("outcome=failed") == 1
    assert "outcome=completed" not in shown.split('"')[0::2]


def test_lines_can_be_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log(outcome("m"), request_id="r", trace=TraceContext.new(), path="/", stream=True, lines=False)
    assert caplog.messages == []
