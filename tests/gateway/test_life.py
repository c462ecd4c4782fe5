"""The life of a stream over real sockets: cancellation, timeouts, failures, keepalives, slow callers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace.config import Config
from headrace.tape import Library, ReplayServer
from tests.gateway.client import Answer, Connection
from tests.gateway.test_serving import CALLERS, ask
from tests.live import PROVIDERS, LiveGateway, LoopThread, gateway_config, live_gateway, live_replay

PATIENCE = 10.0
"""Seconds after which a test gives up; nothing here takes that long."""


@pytest.fixture(scope="module")
def impatient(servers: LoopThread, replay: ReplayServer) -> Iterator[LiveGateway]:
    """A gateway that waits 300 ms where others wait half a minute."""
    config = gateway_config(
        replay.base_url,
        "timeouts: {first_token: 300ms, idle_stream: 300ms, request: 600ms, slow_consumer: 300ms}\n"
        "server: {keepalive_interval: 100ms}\n",
    )
    with live_gateway(servers, config) as gateway:
        yield gateway


def eventually(condition: Callable[[], bool]) -> bool:
    """Whether it comes true before the patience ends."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("fault", ["hang=1", "silence=0", "silence=3"])
def test_a_caller_who_leaves_cancels_the_provider(
    gateway: LiveGateway, replay: ReplayServer, servers: LoopThread, provider: str, fault: str, stream: bool
) -> None:
    """Before the first token, in the middle, and for whole bodies: only the caller's leaving can end these."""
    if not stream and fault == "silence=3":
        fault = "delay=3600"
    before, started = replay.aborted, len(replay.requests)
    path, content_type, body = CALLERS["openai"]
    with Connection(gateway.port) as connection:
        sent = json.dumps({"model": f"{provider}/text?{fault}", "stream": stream, **body}).encode()
        connection.send(path, sent, {"content-type": content_type})
        assert eventually(lambda: len(replay.requests) > started)
        if fault == "silence=3":
            connection.head()
    assert eventually(lambda: replay.aborted > before)
    assert eventually(lambda: not gateway.application.ticker.live)


def ended(caller: str, answer: Answer) -> tuple[str, Any]:
    """(how the stream ended, the error it holds): the last events of a failed stream, by the caller's format."""
    events = answer.sse()
    if caller == "openai":
        assert events[-1][1] == "[DONE]"
        error = json.loads(events[-2][1])["error"]
        assert not any(c["finish_reason"] for e in answer.sse_json() for c in e.get("choices", []))
        return "error, [DONE]", error
    names = [name for name, _ in events]
    if caller == "anthropic":
        assert names[-1] == "error"
        assert "message_stop" not in names
        assert "message_delta" not in names
        return "error", json.loads(events[-1][1])["error"]
    if caller == "llm-stream":
        assert names[-2:] == ["error", "stream.end"]
        return "error, stream.end", json.loads(events[-2][1])
    assert names[-1] == "error"
    assert "done" not in names
    return "error", json.loads(events[-1][1])["data"]


MID_STREAM = ["cut=4", "cut=4&cut_clean=1", "reset=4", "malformed=5", "error=4:overloaded_error", "silence=4"]


@pytest.mark.parametrize("fault", MID_STREAM)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("caller", CALLERS)
def test_failures_after_the_first_event_are_told_in_band(
    impatient: LiveGateway, caller: str, provider: str, fault: str
) -> None:
    answer = ask(impatient.port, caller, f"{provider}/text?{fault}")
    assert answer.status == 200
    assert answer.complete
    _, error = ended(caller, answer)
    assert error["message"]


@pytest.mark.parametrize(
    "fault", ["cut=0", "cut=0&cut_clean=1", "reset=0", "malformed=1", "error=0", "silence=0", "hang=1"]
)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("caller", CALLERS)
def test_failures_before_the_first_event_are_plain_http(
    early: LiveGateway, caller: str, provider: str, fault: str
) -> None:
    if fault == "error=0" and provider in ("as-llm-stream", "as-gateway"):
        fault = "status=500"  # these formats cannot begin with an error: their first event is a start
    answer = ask(early.port, caller, f"{provider}/text?{fault}")
    assert answer.status in {500, 503, 504, 529}
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def early(servers: LoopThread, replay: ReplayServer) -> Iterator[LiveGateway]:
    """Short timeouts, no keepalive before them."""
    with live_gateway(
        servers, gateway_config(replay.base_url, "timeouts: {first_token: 300ms, idle_stream: 300ms, request: 600ms}\n")
    ) as gateway:
        yield gateway


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("status=400", 400),
        ("status=401", 401),
        ("status=403", 403),
        ("status=404", 404),
        ("status=429&retry_after=7", 429),
        ("status=500", 503),
        ("status=503&retry_after=2", 503),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("caller", CALLERS)
def test_a_providers_http_error(
    gateway: LiveGateway, caller: str, provider: str, stream: bool, fault: str, status: int
) -> None:
    answer = ask(gateway.port, caller, f"{provider}/text?{fault}", stream=stream)
    assert answer.status == status or (answer.status // 100 == status // 100 == 5), answer.body
    assert answer.json()["error"]["message"]
    if "retry_after" in fault:
        assert answer.headers["retry-after"] == fault.rpartition("=")[2]


def test_whole_bodies_time_out(early: LiveGateway) -> None:
    answer = ask(early.port, "openai", "as-openai/text?hang=1", stream=False)
    assert answer.status == 504


def test_a_refused_connection(servers: LoopThread) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        config = gateway_config(f"http://127.0.0.1:{unused.getsockname()[1]}")
        with live_gateway(servers, config) as gateway:
            for caller in CALLERS:
                answer = ask(gateway.port, caller, "as-openai/text")
                assert answer.status == 503
                assert "as-openai" in answer.json()["error"]["message"]


@pytest.mark.parametrize("caller", CALLERS)
def test_keepalive_comments_come_before_and_between_events(
    servers: LoopThread, replay: ReplayServer, caller: str
) -> None:
    config = gateway_config(replay.base_url, "server: {keepalive_interval: 50ms}\n")
    with live_gateway(servers, config) as gateway:
        answer = ask(gateway.port, caller, "as-anthropic/text?first_delay=1")
        refused = ask(gateway.port, caller, "as-anthropic/text?delay=1&status=503")
    assert answer.status == 200
    assert answer.body.startswith(b": keepalive\n\n")
    assert len(answer.sse()) > 5
    # The headers had gone out with the comment, so the error can only come in-band.
    assert refused.status == 200
    ended(caller, refused)


def test_an_answer_that_is_json_although_a_stream_was_asked_for(gateway: LiveGateway) -> None:
    for provider in PROVIDERS:
        answer = ask(gateway.port, "llm-stream", f"{provider}/text?json=1")
        plain = ask(gateway.port, "llm-stream", f"{provider}/text")
        texts = [
            "".join(e["delta"]["text"] for e in a.sse_json() if e["type"] == "content.delta") for a in (answer, plain)
        ]
        assert texts[0] == texts[1] != ""


@pytest.mark.parametrize("fault", ["crlf=1", "cr=1", "nospace=1", "comment=1", "split=1", "split=3", "coalesce=5"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_odd_but_legal_framing_changes_nothing(gateway: LiveGateway, provider: str, fault: str) -> None:
    odd = ask(gateway.port, "llm-stream", f"{provider}/parallel-tools?{fault}")
    plain = ask(gateway.port, "llm-stream", f"{provider}/parallel-tools")

    def essence(answer: Answer) -> list[Any]:
        # the name of the model holds the fault
        return [{k: v for k, v in e.items() if k not in ("created", "request_id")} for e in words(answer)]

    def words(answer: Answer) -> list[dict[str, Any]]:
        events = answer.sse_json()
        events[-1].get("extensions", {}).get("vendor:headrace", {}).get("routing", {}).pop("selected_model", None)
        return events

    assert essence(odd) == essence(plain)


# --- slow callers ---------------------------------------------------------------------------------------------------

DELTA = "x" * 4096
DELTAS = 4000
"""16 MB: more than all socket buffers on the way can hold."""


@pytest.fixture(scope="module")
def flood(servers: LoopThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplayServer]:
    """A provider whose stream `flood` is larger than what sockets can hold."""
    folder = tmp_path_factory.mktemp("flood")
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}

    def choice(delta: dict[str, Any], finish: str | None = None) -> str:
        return json.dumps({**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    lines = [choice({"role": "assistant", "content": ""}), *[choice({"content": DELTA})] * DELTAS, choice({}, "stop")]
    body = "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"])
    (folder / "flood.sse").write_text(body)
    with live_replay(servers, Library.load(folder, format="openai_chat")) as server:
        yield server


@contextlib.contextmanager
def stalled(gateway: LiveGateway, model: str, accept: str) -> Iterator[Connection]:
    """A caller with a small window who asks and does not read."""
    connection = Connection.__new__(Connection)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
    sock.settimeout(PATIENCE * 3)
    sock.connect(("127.0.0.1", gateway.port))
    connection.sock = sock
    connection._buffer = b""
    path, _, body = CALLERS["openai"]
    sent = json.dumps({"model": model, "stream": True, **body}).encode()
    connection.send(path, sent, {"content-type": "application/json", "accept": accept})
    with connection:
        yield connection


SLOW_ACCEPTS = ["text/event-stream", 'text/event-stream; profile="llm-stream-1.0"']


def flood_config(flood: ReplayServer, slow_consumer: str) -> Config:
    return gateway_config(
        flood.base_url, f"timeouts: {{slow_consumer: {slow_consumer}}}\nlimits: {{stream_buffer_bytes: 64KiB}}\n"
    )


@pytest.mark.parametrize("accept", SLOW_ACCEPTS)
def test_reading_from_the_provider_pauses_while_a_caller_is_slow(
    servers: LoopThread, flood: ReplayServer, accept: str
) -> None:
    """Nothing is lost and nothing piles up: memory stays within the bound and one read."""
    with (
        live_gateway(servers, flood_config(flood, "60s")) as gateway,
        stalled(gateway, "as-openai/flood", accept) as caller,
    ):
        assert eventually(lambda: bool(gateway.application.ticker.live))
        (driver,) = gateway.application.ticker.live
        assert eventually(lambda: driver.stream._blocked_at is not None)
        time.sleep(0.2)  # let everything come that would come
        held = driver.stream.buffered
        assert held < 64 * 1024 + 2 * 256 * 1024
        assert flood.active == 1
        answer = caller.answer()
    assert answer.complete
    text = "".join(
        event["delta"]["text"] if "delta" in event else event["choices"][0]["delta"].get("content") or ""
        for event in answer.sse_json()
        if event.get("type") == "content.delta" or event.get("choices")
    )
    assert text == DELTA * DELTAS


@pytest.mark.parametrize("accept", SLOW_ACCEPTS)
def test_a_caller_who_never_reads_is_given_up(servers: LoopThread, flood: ReplayServer, accept: str) -> None:
    with live_gateway(servers, flood_config(flood, "300ms")) as gateway:
        before = flood.aborted
        with stalled(gateway, "as-openai/flood", accept) as caller:
            assert eventually(lambda: flood.aborted > before)
            assert eventually(lambda: not gateway.application.ticker.live)
            with pytest.raises((ConnectionError, OSError)):
                raise_unless_complete(caller)


def raise_unless_complete(caller: Connection) -> None:
    answer = caller.answer()
    if not answer.complete:
        raise ConnectionError("cut, as it should be")


def test_a_hundred_callers_who_leave_at_random_leave_nothing_behind(
    gateway: LiveGateway, replay: ReplayServer, servers: LoopThread
) -> None:
    async def one(number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        path, content_type, body = list(CALLERS.values())[number % 4]
        sent = json.dumps({"model": "as-anthropic/long?speed=1", "stream": True, **body}).encode()
        writer.write(
            f"POST {path} HTTP/1.1\r\nhost: t\r\ncontent-type: {content_type}\r\n"
            f"content-length: {len(sent)}\r\n\r\n".encode()
            + sent
        )
        await reader.read(100 * number + 1)
        writer.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(one(number) for number in range(100)))

    asyncio.run(all_of_them())
    assert eventually(lambda: not gateway.application.ticker.live)
    assert eventually(lambda: replay.active == 0)
