"""The client against a real server on the loopback: pool, retry, backpressure, abort in every phase."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import ssl
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.upstream import Client, Exchange, Headers, HttpRequest, UpstreamError, tls_context
from headrace.upstream.connection import Connection
from headrace.upstream.opening import OpeningProtocol, _start_tls
from headrace.upstream.pool import Route

from .conftest import Authority
from .support import PATIENCE, Peer, Recorder, Script, aborting, answer, answering, serving, turns, until


def post(url: str, body: bytes = b'{"a":1}') -> HttpRequest:
    return HttpRequest("POST", url, [("Content-Type", "application/json")], body)


def send(client: Client, request: HttpRequest, recorder: Recorder, connect_timeout: float = PATIENCE) -> Exchange:
    return client.send(request, recorder, connect_timeout=connect_timeout)


async def exchange(client: Client, url: str) -> Recorder:
    recorder = Recorder()
    send(client, post(url), recorder)
    return await recorder.done()


@pytest.fixture
def refusing_port() -> int:
    """A port of the loopback where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@pytest.fixture
def silent_port() -> Iterator[int]:
    """A port whose queue of connections is full, so that the next connection stays in its opening."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


# Requests, answers, keep-alive


async def test_a_request_and_its_answer(client: Client) -> None:
    async def script(peer: Peer) -> None:
        request = await peer.request()
        assert request.line == "POST /v1/chat?x=1 HTTP/1.1"
        assert request.values("host") == [f"127.0.0.1:{server.port}"]
        assert request.values("accept-encoding") == ["identity"]
        assert request.values("content-type") == ["application/json"]
        assert request.body == b'{"a":1}'
        await peer.send(answer(b"hello", "X-Request-Id: 7\r\n"))
        await peer.closed()

    async with serving(script) as server:
        recorder = Recorder()
        send(client, post(server.url()), recorder)
        assert recorder.calls == []  # never from within send()
        await recorder.done()
        assert recorder.calls == ["started", "data", "ended"]
        assert (recorder.status, recorder.headers.get("x-request-id"), recorder.body) == (200, "7", b"hello")
        await client.aclose()


async def test_a_large_body_arrives_whole(client: Client) -> None:
    body = os.urandom(3_000_000)

    async def script(peer: Peer) -> None:
        assert (await peer.request()).body == body
        await peer.send(answer())
        await peer.closed()

    async with serving(script) as server:
        recorder = Recorder()
        send(client, post(server.url(), body), recorder)
        assert (await recorder.done()).body == b"hello"
        await client.aclose()


async def test_nagle_is_off(client: Client) -> None:
    async with serving(answering(answer())) as server:
        await exchange(client, server.url())
        (connection,) = client._connections
        assert connection._transport is not None
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        await client.aclose()


async def test_a_connection_is_used_again(client: Client) -> None:
    async with serving(answering(answer(b"1"), answer(b"2"), answer(b"3"))) as server:
        for expected in (b"1", b"2", b"3"):
            assert (await exchange(client, server.url())).body == expected
        assert server.accepted == 1
        await client.aclose()


async def test_a_handler_may_send_from_its_last_callback_on_the_same_connection(client: Client) -> None:
    async with serving(answering(answer(b"1"), answer(b"2"))) as server:
        second = Recorder()

        def again(name: str) -> None:
            if name == "ended":
                send(client, post(server.url()), second)
                assert second.calls == []

        send(client, post(server.url()), Recorder(again))
        assert (await second.done()).body == b"2"
        await client.aclose()


async def test_the_newest_idle_connection_is_taken_first(client: Client) -> None:
    gates = [asyncio.Event(), asyncio.Event()]

    def held(index: int) -> Script:
        async def script(peer: Peer) -> None:
            await peer.request()
            await gates[index].wait()
            await peer.send(answer(b"%d" % index))
            if index == 1:
                await peer.request()
                await peer.send(answer(b"again on 1"))
            assert await peer.closed() == b""

        return script

    async with serving(held(0), held(1)) as server:
        recorders = [Recorder(), Recorder()]
        for recorder in recorders:
            send(client, post(server.url()), recorder)
        for index, gate in enumerate(gates):  # connection 0 becomes idle first
            gate.set()
            finished = index + 1
            await until(lambda: sum(recorder.finished for recorder in recorders) == finished)  # noqa: B023  # waited for here
        assert (await exchange(client, server.url())).body == b"again on 1"
        await client.aclose()


async def test_routes_do_not_share_connections(client: Client) -> None:
    async with serving(answering(answer(b"1")), answering(answer(b"2"))) as server:
        await exchange(client, server.url(host="127.0.0.1"))
        await exchange(client, server.url(host="localhost"))
        assert server.accepted == 2
        await client.aclose()


@pytest.mark.parametrize(
    "data",
    [answer(head="Connection: close\r\n"), answer().replace(b"HTTP/1.1", b"HTTP/1.0")],
    ids=["Connection: close", "HTTP/1.0"],
)
async def test_a_connection_that_does_not_stay_is_closed(client: Client, data: bytes) -> None:
    async with serving(answering(data)) as server:
        assert (await exchange(client, server.url())).calls[-1] == "ended"
        await server.finished()  # the server saw our close


async def test_idle_connections_are_bounded_in_number() -> None:
    client = Client(max_idle_per_origin=1, env={})
    async with serving(answering(answer()), answering(answer())) as server:
        recorders = [Recorder(), Recorder()]
        for recorder in recorders:
            send(client, post(server.url()), recorder)
        for recorder in recorders:
            await recorder.done()
        assert len(client._pool) == 1
        await turns()
        assert len(client._connections) == 1
        await client.aclose()


async def test_an_idle_connection_that_is_too_old_is_not_used() -> None:
    now = 1000.0
    client = Client(idle_timeout=60.0, env={}, now=lambda: now)
    async with serving(answering(answer(b"1"), answer(b"2")), answering(answer(b"3"))) as server:
        await exchange(client, server.url())
        now += 59.9
        assert (await exchange(client, server.url())).body == b"2"
        now += 60.0
        assert (await exchange(client, server.url())).body == b"3"
        assert server.accepted == 2
        await client.aclose()


async def test_idle_connections_are_closed_in_time() -> None:
    client = Client(idle_timeout=0.02, env={})
    async with serving(answering(answer())) as server:
        await exchange(client, server.url())
        await server.finished()  # the server saw our close
        assert len(client._pool) == 0
    await client.aclose()


async def test_a_connection_closed_while_idle_leaves_the_pool(client: Client) -> None:
    async def short(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer())

    async with serving(short, answering(answer(b"2"))) as server:
        await exchange(client, server.url())
        await until(lambda: not client._connections)
        assert len(client._pool) == 0
        assert (await exchange(client, server.url())).body == b"2"
        await client.aclose()


# The stale connection


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_a_request_on_a_stale_connection_is_sent_again(client: Client, end: str) -> None:
    async def stale(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer(b"1"))
        await peer.request()  # taken, and never answered
        if end == "reset":
            peer.reset()

    async def fresh(peer: Peer) -> None:
        assert (await peer.request()).body == b'{"a":1}'
        await peer.send(answer(b"2"))
        await peer.closed()

    async with serving(stale, fresh) as server:
        await exchange(client, server.url())
        second = await exchange(client, server.url())
        assert (second.calls, second.body) == (["started", "data", "ended"], b"2")
        await client.aclose()


async def test_the_retry_is_the_only_one(client: Client) -> None:
    async def stale(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer(b"1"))
        await peer.request()

    async def also_closing(peer: Peer) -> None:
        await peer.request()

    async with serving(stale, also_closing) as server:
        await exchange(client, server.url())
        error = await (await exchange(client, server.url())).failure()
        assert (error.kind, error.bytes_received) == ("reset", False)
        assert server.accepted == 2


async def test_no_retry_once_a_byte_came_back(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer(b"1"))
        await peer.request()
        await peer.send(b"H")

    async with serving(script) as server:
        await exchange(client, server.url())
        second = await exchange(client, server.url())
        error = await second.failure()
        assert (second.calls, error.kind, error.bytes_received) == (["failed"], "truncated", True)


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_no_retry_on_a_fresh_connection(client: Client, end: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        if end == "reset":
            peer.reset()

    async with serving(script) as server:
        error = await (await exchange(client, server.url())).failure()
        assert (error.kind, error.bytes_received) == ("reset", False)


# Ends


async def test_a_body_without_length_ends_at_eof(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\nabc")
        await peer.send(b"def")

    async with serving(script) as server:
        recorder = await exchange(client, server.url())
        assert (recorder.calls[-1], recorder.body) == ("ended", b"abcdef")


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ],
    ids=["length", "chunked"],
)
@pytest.mark.parametrize(("end", "kind"), [("close", "truncated"), ("reset", "reset")])
async def test_a_cut_body_is_a_failure(client: Client, data: bytes, end: str, kind: str) -> None:
    arrived = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(data)
        await arrived.wait()
        if end == "reset":
            peer.reset()

    async with serving(script) as server:
        recorder = Recorder(lambda name: arrived.set() if name == "data" else None)
        send(client, post(server.url()), recorder)
        error = await recorder.failure()
        assert (recorder.calls, recorder.body) == (["started", "data", "failed"], b"abc")
        assert (error.kind, error.bytes_received) == (kind, True)


async def test_bytes_one_by_one(client: Client) -> None:
    data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"

    async def script(peer: Peer) -> None:
        await peer.request()
        for byte in data:
            await peer.send(bytes([byte]))
            await asyncio.sleep(0)
        await peer.closed()

    async with serving(script) as server:
        recorder = await exchange(client, server.url())
        assert (recorder.calls[0], recorder.calls[-1], recorder.body) == ("started", "ended", b"hello")
        assert recorder.calls.count("started") == 1
        await client.aclose()


async def test_all_events_of_one_read_are_one_call(client: Client) -> None:
    heard = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(5):
            await heard.wait()
            heard.clear()
            await peer.send(b"2\r\na%d\r\n2\r\nb%d\r\n" % (number, number))
        await heard.wait()
        await peer.send(b"0\r\n\r\n")
        await peer.closed()

    async with serving(script) as server:
        recorder = Recorder(lambda _: heard.set())
        send(client, post(server.url()), recorder)
        await recorder.done()
        assert recorder.pieces == [b"a%db%d" % (number, number) for number in range(5)]
        await client.aclose()


# Failures before an answer


async def test_connection_refused(client: Client, refusing_port: int) -> None:
    recorder = Recorder()
    send(client, post(f"http://127.0.0.1:{refusing_port}/"), recorder)
    assert recorder.calls == []
    error = await recorder.failure()
    assert (error.kind, error.bytes_received) == ("connect", False)
    assert (error.__traceback__, error.__context__) == (None, None)  # they would hold on to frames
    assert f"127.0.0.1:{refusing_port}" in error.message


@pytest.mark.parametrize("host", ["a" * 70 + ".test", ".".join(["a" * 60] * 6)], ids=["long label", "long name"])
async def test_a_name_that_does_not_resolve(client: Client, host: str) -> None:
    # Names that fail before any name server is asked.
    error = await (await exchange(client, f"http://{host}/")).failure()
    assert (error.kind, error.bytes_received) == ("dns", False)
    assert host in error.message


async def test_connect_timeout(client: Client, silent_port: int) -> None:
    recorder = Recorder()
    send(client, post(f"http://127.0.0.1:{silent_port}/"), recorder, connect_timeout=0.05)
    error = await recorder.failure()
    assert (recorder.calls, error.kind, error.bytes_received) == (["failed"], "connect_timeout", False)


async def test_connect_timeout_covers_the_tls_handshake(client: Client) -> None:
    async def script(peer: Peer) -> None:
        assert await peer.closed()  # a ClientHello, and then our close

    async with serving(script) as server:
        recorder = Recorder()
        send(client, post(server.url(scheme="https")), recorder, connect_timeout=0.05)
        assert (await recorder.failure()).kind == "connect_timeout"


async def test_a_connection_that_closes_as_soon_as_it_is_open(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async def closed_already(*_: object) -> None:
        """What `open_connection` leaves behind where the server's close was faster than its return."""

    monkeypatch.setattr("headrace.upstream.client.open_connection", closed_already)
    error = await (await exchange(client, "http://127.0.0.1:1/")).failure()
    assert (error.kind, error.bytes_received) == ("reset", False)


async def test_whatever_an_event_loop_raises_the_handler_hears_of_an_end(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def surprising(*_: object) -> None:
        raise RuntimeError("surprise")

    monkeypatch.setattr("headrace.upstream.client.open_connection", surprising)
    error = await (await exchange(client, "http://127.0.0.1:1/")).failure()
    assert (error.kind, error.message) == ("connect", "cannot connect to 127.0.0.1:1: RuntimeError: surprise")


async def test_a_bad_header_is_refused_by_send(client: Client) -> None:
    request = HttpRequest("GET", "http://h/", [("X-Key", "a\r\nb")])
    with pytest.raises(ValueError, match="X-Key"):
        send(client, request, Recorder())
    assert not client._exchanges


# Backpressure


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("when", ["before the answer", "in the answer"])
async def test_a_pause_stops_the_server(client: Client, authority: Authority, when: str, tls: bool) -> None:
    block, total = bytes(65536), 256 * 1024 * 1024
    blocked, resumed = asyncio.Event(), asyncio.Event()
    written = 0

    async def script(peer: Peer) -> None:
        nonlocal written
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        transport = peer.writer.transport
        while written < total:
            peer.writer.write(b"10000\r\n" + block + b"\r\n")
            written += len(block)
            # If the client read, this many turns of their common event loop would empty the buffer.
            for _ in range(200):
                if not transport.get_write_buffer_size():
                    break
                await asyncio.sleep(0)
            else:
                break
        blocked.set()
        await resumed.wait()
        await peer.send(b"0\r\n\r\n")
        assert await peer.closed() == b""

    async with serving(script, tls=authority.server_context if tls else None) as server:
        exchanges: list[Exchange] = []

        def pause(name: str) -> None:
            if name == "started" and when == "in the answer":
                exchanges[0].pause_reading()

        recorder = Recorder(pause)
        exchanges.append(send(client, post(server.url(scheme="https" if tls else "http")), recorder))
        if when == "before the answer":
            exchanges[0].pause_reading()
        async with asyncio.timeout(PATIENCE * 2):
            await blocked.wait()
        assert written < 32 * 1024 * 1024  # what the kernel's buffers hold, and ours
        assert len(recorder.body) <= 512 * 1024
        assert recorder.calls == [] or when == "in the answer"
        exchanges[0].resume_reading()
        resumed.set()
        await recorder.done()
        assert (recorder.calls[-1], len(recorder.body)) == ("ended", written)
        assert len(client._pool) == 1
        await client.aclose()


async def test_a_connection_returns_to_the_pool_unpaused(client: Client) -> None:
    async with serving(answering(answer(b"1"), answer(b"2"))) as server:
        exchanges: list[Exchange] = []
        first = Recorder(lambda _: exchanges[0].pause_reading())
        exchanges.append(send(client, post(server.url()), first))
        await first.done()
        assert first.calls == ["started", "data", "ended"]  # one read brought them all
        assert (await exchange(client, server.url())).body == b"2"
        await client.aclose()


# Abort


async def silent(peer: Peer) -> None:
    await peer.request()
    assert await peer.closed() == b""


async def started_only(peer: Peer) -> None:
    await peer.request()
    await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert await peer.closed() == b""


async def endless(peer: Peer) -> None:
    await peer.request()
    with contextlib.suppress(ConnectionError):
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await peer.send(b"1000\r\n" + bytes(4096) + b"\r\n")


async def test_abort_while_connecting(client: Client, silent_port: int) -> None:
    def open_sockets() -> int:
        links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
        return sum(os.path.islink(link) and os.readlink(link).startswith("socket:") for link in links)

    before = open_sockets()
    recorder = Recorder()
    exchange = send(client, post(f"http://127.0.0.1:{silent_port}/"), recorder)
    await turns()
    assert open_sockets() == before + 1
    exchange.abort()
    exchange.abort()
    await turns()
    assert open_sockets() == before
    assert (recorder.calls, client._openings, client._exchanges) == ([], set(), set())


async def test_abort_at_once_connects_nowhere(client: Client) -> None:
    async with serving() as server:
        recorder = Recorder()
        send(client, post(server.url()), recorder).abort()
        await turns()
        assert (recorder.calls, server.accepted) == ([], 0)


async def test_abort_in_the_tls_handshake(client: Client) -> None:
    hello = asyncio.Event()

    async def script(peer: Peer) -> None:
        assert await peer.reader.readexactly(1) == b"\x16"
        hello.set()
        await peer.closed()

    async with serving(script) as server:
        recorder = Recorder()
        exchange = send(client, post(server.url(scheme="https")), recorder)
        await hello.wait()
        exchange.abort()
        await server.finished()
        assert recorder.calls == []


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("paused", [False, True])
async def test_abort_before_the_first_byte(client: Client, authority: Authority, paused: bool, tls: bool) -> None:
    async def script(peer: Peer) -> None:
        await peer.closed()  # the request may be cut off as well; what the server sees for sure is the close

    async with serving(script, tls=authority.server_context if tls else None) as server:
        recorder = Recorder()
        exchange = send(client, post(server.url(scheme="https" if tls else "http")), recorder)
        await until(lambda: bool(client._connections and server.accepted))
        if paused:
            exchange.pause_reading()
        exchange.abort()
        exchange.resume_reading()
        exchange.pause_reading()
        exchange.abort()
        await server.finished()
        await turns()
        assert (recorder.calls, client._connections) == ([], set())


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize(("script", "at"), [(started_only, "started"), (endless, "started"), (endless, "data")])
async def test_abort_from_a_callback(client: Client, authority: Authority, script: Script, at: str, tls: bool) -> None:
    exchanges: list[Exchange] = []
    recorder = aborting(exchanges, at)
    async with serving(script, tls=authority.server_context if tls else None) as server:
        exchanges.append(send(client, post(server.url(scheme="https" if tls else "http")), recorder))
        await server.finished()
        await turns()
        assert recorder.calls == (["started"] if at == "started" else ["started", "data"])
        assert client._connections == set()


async def test_abort_from_the_data_that_completes_the_answer(client: Client) -> None:
    exchanges: list[Exchange] = []
    recorder = aborting(exchanges, "data")
    async with serving(answering(answer())) as server:
        exchanges.append(send(client, post(server.url()), recorder))
        await server.finished()  # the connection is closed, as its exchange was aborted before its end
        assert recorder.calls == ["started", "data"]
        assert len(client._pool) == 0


@pytest.mark.parametrize("at", ["ended", "later"])
async def test_abort_after_the_end_leaves_the_connection_in_the_pool(client: Client, at: str) -> None:
    exchanges: list[Exchange] = []
    recorder = aborting(exchanges, at)
    async with serving(answering(answer(b"1"), answer(b"2"))) as server:
        exchanges.append(send(client, post(server.url()), recorder))
        await recorder.done()
        for call in (exchanges[0].abort, exchanges[0].pause_reading, exchanges[0].resume_reading, exchanges[0].abort):
            call()
        assert (await exchange(client, server.url())).body == b"2"
        assert recorder.calls == ["started", "data", "ended"]
        await client.aclose()


async def test_abort_during_the_retry_of_a_stale_connection(client: Client) -> None:
    asked = asyncio.Event()

    async def stale(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer(b"1"))
        await peer.request()

    async def fresh(peer: Peer) -> None:
        await peer.request()
        asked.set()
        assert await peer.closed() == b""

    async with serving(stale, fresh) as server:
        await exchange(client, server.url())
        recorder = Recorder()
        running = send(client, post(server.url()), recorder)
        await asked.wait()
        running.abort()
        await server.finished()
        assert recorder.calls == []


async def test_a_handler_that_raises_leaves_the_client_working(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(name: str) -> None:
        if name == "data":
            raise ZeroDivisionError

    async with serving(answering(answer(b"1")), answering(answer(b"2"))) as server:
        recorder = Recorder(fail)
        send(client, post(server.url()), recorder)
        error = await recorder.failure()
        assert recorder.calls == ["started", "data", "failed"]
        assert "ZeroDivisionError" in error.message
        assert (await exchange(client, server.url())).body == b"2"
        assert "ZeroDivisionError" in caplog.text
        await client.aclose()


# The client's end, and what remains of an exchange


async def test_aclose_ends_everything(client: Client, silent_port: int) -> None:
    async with serving(silent) as waiting, serving(started_only) as streaming, serving(answering(answer())) as idle:
        recorders = [Recorder() for _ in range(3)]
        for recorder, port in zip(recorders, (waiting.port, streaming.port, silent_port), strict=True):
            send(client, post(f"http://127.0.0.1:{port}/"), recorder)
        await exchange(client, idle.url())
        await recorders[1].until(lambda: recorders[1].calls == ["started"])
        await client.aclose()
        await client.aclose()
        assert [recorder.calls for recorder in recorders] == [["failed"], ["started", "failed"], ["failed"]]
        assert {(await recorder.failure()).kind for recorder in recorders} == {"reset"}
        assert (client._connections, client._openings, client._exchanges) == (set(), set(), set())
        with pytest.raises(RuntimeError, match="closed"):
            send(client, post(idle.url()), Recorder())


@pytest.mark.parametrize("how", ["ended", "eof", "truncated", "aborted", "refused", "broken handler", "no tunnel"])
async def test_nothing_of_a_finished_exchange_is_left_for_the_collector(
    client: Client, refusing_port: int, how: str
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        if how == "no tunnel":
            await peer.send(b"no")
        elif how == "eof":
            await peer.send(b"HTTP/1.1 200 OK\r\n\r\nabc")
        elif how == "truncated":
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")
        else:
            await peer.send(answer())
            await peer.closed()

    class Owning(Recorder):
        """Holds its exchange, as a stream does; breaks or aborts it from its first callback where that is asked."""

        running: Exchange

        def response_started(self, status: int, headers: Headers) -> None:
            super().response_started(status, headers)
            if how == "broken handler":
                raise ZeroDivisionError
            if how == "aborted":
                self.running.abort()

    async def run(url: str) -> list[weakref.ref[object]]:
        recorder = Owning()
        request, proxy = (HttpRequest("GET", "https://h.test/"), url) if how == "no tunnel" else (post(url), None)
        recorder.running = client.send(request, recorder, connect_timeout=PATIENCE, proxy=proxy)
        await recorder.until(lambda: recorder.finished or (how == "aborted" and recorder.calls == ["started"]))
        return [weakref.ref(recorder), weakref.ref(recorder.running)]

    async with serving(*([] if how == "refused" else [script])) as server:
        gc.collect()
        gc.disable()
        try:
            left = await run(f"http://127.0.0.1:{refusing_port}/" if how == "refused" else server.url())
            await turns()
            assert [reference() for reference in left] == [None, None]
            things = gc.get_objects()  # of the whole process, where other tests' servers may keep connections
            alive = [thing for thing in things if isinstance(thing, Connection) and thing._owner is client]
            assert len(alive) == len(client._connections) == (how == "ended")
        finally:
            gc.enable()
        await client.aclose()


# TLS


async def test_tls_with_a_trusted_authority(client: Client, authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        assert peer.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        await peer.send(answer(b"1"))
        await peer.request()
        await peer.send(answer(b"2"))
        await peer.closed()

    async with serving(script, tls=authority.server_context) as server:
        for expected in (b"1", b"2"):
            assert (await exchange(client, server.url(scheme="https"))).body == expected
        assert server.accepted == 1
        await client.aclose()


@pytest.mark.parametrize(
    ("host", "known", "reason"),
    [
        ("127.0.0.1", False, "unable to get local issuer certificate"),
        ("127.0.0.2", True, "IP address mismatch"),
    ],
)
async def test_a_certificate_that_does_not_hold(
    authority: Authority, trusting: ssl.SSLContext, host: str, known: bool, reason: str
) -> None:
    client = Client(env={}, ssl_context=trusting if known else None)
    listener = await asyncio.start_server(
        lambda *_: pytest.fail("the handshake must fail"), host, 0, ssl=authority.server_context
    )
    port = listener.sockets[0].getsockname()[1]
    recorder = await exchange(client, f"https://{host}:{port}/")
    error = await recorder.failure()
    assert (recorder.calls, error.kind, error.bytes_received) == (["failed"], "tls", False)
    assert "the certificate is not accepted" in error.message
    assert reason in error.message
    await client.aclose()
    listener.close()


async def test_verification_is_off_only_where_that_is_asked(authority: Authority) -> None:
    client = Client(env={}, ssl_context=tls_context(verify=False))
    async with serving(answering(answer(b"1")), tls=authority.server_context) as server:
        assert (await exchange(client, server.url(scheme="https"))).body == b"1"
        await client.aclose()


async def test_contexts_do_not_share_connections(client: Client, authority: Authority) -> None:
    async with serving(answering(answer(b"1")), answering(answer(b"2")), tls=authority.server_context) as server:
        await exchange(client, server.url(scheme="https"))
        recorder = Recorder()
        other = tls_context(verify=False)
        client.send(post(server.url(scheme="https")), recorder, connect_timeout=PATIENCE, ssl_context=other)
        assert (await recorder.done()).body == b"2"
        await client.aclose()


@pytest.mark.parametrize("words", [b"220 mail.example ESMTP\r\n", b""], ids=["another protocol", "a close"])
async def test_a_server_without_tls(client: Client, words: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.readexactly(1)
        await peer.send(words)

    async with serving(script) as server:
        recorder = await exchange(client, server.url(scheme="https"))
        error = await recorder.failure()
        assert (recorder.calls, error.kind) == (["failed"], "tls")


async def test_a_tls_answer_that_is_cut(client: Client, authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")

    async with serving(script, tls=authority.server_context) as server:
        recorder = await exchange(client, server.url(scheme="https"))
        error = await recorder.failure()
        assert (recorder.body, error.kind, error.bytes_received) == (b"abc", "truncated", True)


async def test_tls_does_not_start_on_a_connection_that_has_closed(client: Client, trusting: ssl.SSLContext) -> None:
    async def script(peer: Peer) -> None:
        assert await peer.closed() == b""

    async with serving(script) as server:
        opening = OpeningProtocol()
        await asyncio.get_running_loop().create_connection(lambda: opening, "127.0.0.1", server.port)
        await until(lambda: server.accepted == 1)
        assert opening.transport is not None
        opening.transport.abort()
        await turns()
        connection = Connection(client, Route(True, "127.0.0.1", server.port, None, trusting))
        with pytest.raises(UpstreamError, match="the connection was closed"):
            async with asyncio.timeout(PATIENCE):
                await _start_tls(opening, connection)
        connection.drop()


@pytest.mark.parametrize("content", [None, "not a certificate"])
def test_an_unusable_ca_file_is_named(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ValueError, match="CA certificates") as caught:
        tls_context(ca_file=path)
    assert str(path) in str(caught.value)
