"""The driver between an ASGI `send` that may suspend and an upstream client: order, backpressure, the caller's end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headrace import engine
from headrace.formats import FORMATS
from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.routing.retry import RetryPolicy
from headrace.serve.driver import Call, StreamDriver, upstream_error
from headrace.upstream import Headers, HttpRequest, UpstreamError

CHUNK = 'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[%s]}\n\n'
FIRST = CHUNK % '{"index":0,"delta":{"role":"assistant","content":"a"},"finish_reason":null}'
MORE = CHUNK % '{"index":0,"delta":{"content":"b"},"finish_reason":null}'
LAST = CHUNK % '{"index":0,"delta":{},"finish_reason":"stop"}' + "data: [DONE]\n\n"


class FakeExchange:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def pause_reading(self) -> None:
        self.calls.append("pause")

    def resume_reading(self) -> None:
        self.calls.append("resume")

    def abort(self) -> None:
        self.calls.append("abort")


class FakeClient:
    def __init__(self) -> None:
        self.exchange = FakeExchange()
        self.handler: Any = None

    def send(self, request: HttpRequest, handler: object, **options: Any) -> FakeExchange:
        self.handler = handler
        return self.exchange


class Caller:
    """An ASGI `send` that takes messages at once, until `block` makes it suspend until `release`."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None

    async def send(self, message: Any) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.error is not None:
            raise self.error
        self.messages.append(message)

    def block(self) -> None:
        self.gate = asyncio.Event()

    def release(self) -> None:
        assert self.gate is not None
        self.gate.set()
        self.gate = None

    @property
    def body(self) -> bytes:
        return b"".join(m["body"] for m in self.messages if m["type"] == "http.response.body")


class Setup:
    def __init__(self) -> None:
        self.caller = Caller()
        self.client = FakeClient()
        self.outcomes: list[engine.Outcome] = []
        self.aborted = 0
        fmt = FORMATS["openai_chat"]
        timeouts = engine.Timeouts(slow_consumer=30)
        stream = engine.Stream(
            caller=engine.Caller(
                format=fmt, framing="sse", stream=True, writer_options=WriterOptions(passthrough=True)
            ),
            plan=engine.Plan(
                [
                    engine.Upstream(
                        provider="p",
                        model="m",
                        format=fmt,
                        framing="sse",
                        reader_options=ReaderOptions(passthrough=True),
                    )
                ],
                retry=RetryPolicy(attempts=1),
            ),
            limits=engine.Limits(),
            timeouts=timeouts,
        )
        call = Call("p", self.client, HttpRequest("POST", "http://x/"), 2.0, None)  # type: ignore[arg-type]  # a fake client
        self.clock: set[StreamDriver] = set()
        self.driver = StreamDriver(
            stream,
            [call].__getitem__,
            self.caller.send,
            clock=self,
            headers=[(b"x-a", b"b")],
            settled=self.outcomes.append,
            abort=self.abort,
        )

    def add(self, driver: StreamDriver) -> None:
        self.clock.add(driver)

    def remove(self, driver: StreamDriver) -> None:
        self.clock.discard(driver)

    def abort(self) -> None:
        self.aborted += 1

    def start(self) -> None:
        self.driver.begin()
        self.provider.response_started(200, Headers([("content-type", "text/event-stream")]))

    @property
    def provider(self) -> Any:
        """The handler of the upstream client's that was asked last."""
        return self.client.handler

    @property
    def exchange(self) -> list[str]:
        return self.client.exchange.calls


@pytest.fixture
async def setup() -> Setup:
    return Setup()


async def settle_down() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_bytes_of_a_read_are_sent_before_the_call_returns(setup: Setup) -> None:
    setup.start()
    assert setup.caller.messages == []
    setup.provider.data_received(FIRST.encode())
    head, body = setup.caller.messages
    assert head["status"] == 200
    assert (b"x-a", b"b") in head["headers"]
    assert body == {"type": "http.response.body", "body": FIRST.encode(), "more_body": True}
    setup.provider.data_received(MORE.encode() + LAST.encode())
    setup.provider.response_ended()
    assert setup.caller.body == (FIRST + MORE + LAST).encode()
    assert setup.caller.messages[-1]["more_body"] is False
    assert [outcome.kind for outcome in setup.outcomes] == ["completed"]
    assert setup.exchange == []
    assert not setup.clock, "nothing has to wake it any more"


async def test_a_send_that_suspends_pauses_the_provider_and_loses_nothing(setup: Setup) -> None:
    setup.start()
    setup.provider.data_received(FIRST.encode())
    setup.caller.block()
    setup.provider.data_received(MORE.encode())
    assert setup.exchange == ["pause"]
    setup.provider.data_received(MORE.encode())  # still on its way when reading was paused
    await settle_down()
    assert setup.caller.body == FIRST.encode()
    setup.caller.release()
    await settle_down()
    assert setup.exchange == ["pause", "resume"]
    assert setup.caller.body == (FIRST + MORE + MORE).encode()
    setup.provider.data_received(LAST.encode())
    setup.provider.response_ended()
    assert setup.caller.body == (FIRST + MORE + MORE + LAST).encode()
    assert len(setup.outcomes) == 1


async def test_the_end_while_the_caller_is_blocked_comes_after_everything(setup: Setup) -> None:
    setup.start()
    setup.caller.block()
    setup.provider.data_received(FIRST.encode())
    setup.provider.data_received(LAST.encode())
    setup.provider.response_ended()
    assert setup.outcomes == []
    setup.caller.release()
    await settle_down()
    assert setup.caller.body == (FIRST + LAST).encode()
    assert setup.caller.messages[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    assert len(setup.outcomes) == 1


async def test_the_caller_leaves(setup: Setup) -> None:
    setup.start()
    setup.provider.data_received(FIRST.encode())
    setup.driver.caller_gone()
    setup.driver.caller_gone()
    assert setup.exchange == ["abort"]
    assert [outcome.kind for outcome in setup.outcomes] == ["cancelled"]


async def test_a_whole_answer_has_its_length(setup: Setup) -> None:
    setup.driver.begin()
    setup.provider.response_started(503, Headers([("content-type", "text/html")]))
    setup.provider.data_received(b"<html>sorry</html>")
    setup.provider.response_ended()
    head = setup.caller.messages[0]
    assert dict(head["headers"])[b"content-length"] == b"%d" % len(setup.caller.body)


async def test_the_caller_leaves_while_a_send_is_suspended(setup: Setup) -> None:
    setup.start()
    setup.caller.block()
    setup.provider.data_received(FIRST.encode())
    setup.driver.caller_gone()
    await settle_down()
    assert setup.exchange == ["pause", "abort"]
    assert setup.caller.messages == []


@pytest.mark.parametrize("suspended", [False, True])
async def test_a_server_whose_send_raises_when_the_caller_has_gone(setup: Setup, suspended: bool) -> None:
    setup.start()
    if suspended:
        setup.caller.block()
    setup.caller.error = OSError("gone")
    setup.provider.data_received(FIRST.encode())
    if suspended:
        setup.caller.release()
    await settle_down()
    assert setup.exchange[-1] == "abort"
    assert [outcome.kind for outcome in setup.outcomes] == ["cancelled"]


async def test_a_caller_who_never_reads_is_cut(setup: Setup) -> None:
    setup.start()
    setup.caller.block()
    now = asyncio.get_running_loop().time()
    setup.provider.data_received(FIRST.encode())
    setup.driver.tick(now + 31)
    assert setup.exchange == ["pause", "abort"]
    assert setup.aborted == 0, "it may still read the reason"
    setup.driver.tick(now + 100)
    assert setup.aborted == 1
    assert [outcome.error.code for outcome in setup.outcomes if outcome.error] == ["consumer_too_slow"]


async def test_a_failure_below_the_format(setup: Setup) -> None:
    setup.driver.begin()
    setup.provider.response_failed(UpstreamError("connect_timeout", "no answer from x within 2 s"))
    head, body, end = setup.caller.messages
    assert head["status"] == 504
    assert b"p did not take the connection in time" in body["body"]
    assert b"from x" not in body["body"], "addresses are for the log"
    assert end["more_body"] is False


def test_upstream_errors_have_codes_of_the_gateway() -> None:
    assert upstream_error(UpstreamError("connect_timeout", "x"), "p").code == "timeout"
    assert upstream_error(UpstreamError("reset", "x"), "p").code == "provider_unavailable"
