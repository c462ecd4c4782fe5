"""What cannot be handed on before it is whole is bounded: no provider can fill the gateway's memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace import engine
from headrace.engine.commands import SendHead, Settle
from headrace.formats import FORMATS
from headrace.formats.anthropic import writer as anthropic_writer
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.routing.retry import RetryPolicy

LIMIT = 10_000


class Run:
    """A stream from an OpenAI provider to a caller of `target`, until it has settled."""

    def __init__(self, target: str, *, stream: bool) -> None:
        fmt = FORMATS["openai_chat"]
        self.stream = engine.Stream(
            caller=engine.Caller(format=FORMATS[target], framing="sse", stream=stream, writer_options=WriterOptions()),
            plan=engine.Plan(
                [engine.Upstream(provider="p", model="m", format=fmt, framing="sse", reader_options=ReaderOptions())],
                retry=RetryPolicy(attempts=1),
            ),
            limits=engine.Limits(body_bytes=LIMIT),
            timeouts=engine.Timeouts(),
        )
        self.head: SendHead | None = None
        self.outcome: engine.Outcome | None = None
        self.sent = b""
        self.stream.begin(0)
        self.stream.upstream_headers(0, 200, {"content-type": "text/event-stream"}, 0)
        self.pump()

    def delta(self, **delta: Any) -> None:
        chunk = {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        self.sent += self.stream.upstream_data(0, b"data: " + json.dumps(chunk).encode() + b"\n\n", 0)
        self.pump()

    def pump(self) -> None:
        while True:
            commands = self.stream.commands()
            for command in commands:
                if isinstance(command, SendHead):
                    self.head = command
                elif isinstance(command, Settle):
                    self.outcome = command.outcome
            data = self.stream.data_to_send()
            self.sent += data
            if not data and not commands:
                return


def call(index: int, arguments: str, **first: Any) -> dict[str, Any]:
    return {"index": index, **first, "function": {"arguments": arguments, **({"name": "f"} if first else {})}}


def error_type(run: Run) -> str | None:
    assert run.outcome is not None
    assert run.outcome.error is not None
    return run.outcome.error.type


def test_a_body_that_is_assembled_from_an_endless_stream() -> None:
    run = Run("openai_chat", stream=False)
    for _ in range(2 * LIMIT // 100):
        if run.outcome is None:
            run.delta(content="x" * 100)
    assert error_type(run) == "answer_too_large"
    assert run.head is not None
    assert run.head.status == 503
    assert "body_bytes" in run.sent.decode()


def test_an_endless_tool_call_towards_a_format_that_wants_it_whole() -> None:
    run = Run("llm_stream", stream=True)
    run.delta(tool_calls=[call(0, "{", id="a", type="function")])
    for _ in range(2 * LIMIT // 100):
        if run.outcome is None:
            run.delta(tool_calls=[call(0, " " * 100)])
    assert error_type(run) == "answer_too_large"
    assert run.sent.endswith(b'"type":"stream.end"}\n\n') or b"stream.end" in run.sent[-200:]


def test_an_endless_stream_that_can_be_handed_on_has_no_end_of_ours() -> None:
    run = Run("llm_stream", stream=True)
    for _ in range(5 * LIMIT // 100):
        run.delta(content="x" * 100)
    assert run.outcome is None


def test_endless_calls_side_by_side_towards_a_format_with_one_open_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anthropic_writer, "MAX_WAITING", LIMIT)
    run = Run("anthropic", stream=True)
    run.delta(tool_calls=[call(0, "{", id="a", type="function")])
    run.delta(tool_calls=[call(1, "{", id="b", type="function")])
    for _ in range(2 * LIMIT // 100):
        if run.outcome is None:
            run.delta(tool_calls=[call(0, " "), call(1, " " * 100)])
    assert error_type(run) == "malformed_upstream"
    assert b"event: error" in run.sent
