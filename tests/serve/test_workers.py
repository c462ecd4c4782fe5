"""Workers and the end of the gateway, with real processes and real signals."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from headrace.config import load
from headrace.serve.reload import FileWatch, Source
from headrace.serve.server import bind
from headrace.serve.supervisor import BACKOFF_MAX, HEALTHY_SECONDS, Supervisor, backoff, bind_shared
from tests.gateway.client import Connection
from tests.gateway.test_life import ended
from tests.gateway.test_serving import CALLERS, text_of
from tests.serve.process import LONG, PATIENCE, Process, get_on, serving, wait_for


def alive(connection: Connection) -> bool:
    """Whether a kept connection still answers."""
    try:
        return get_on(connection, "/healthz") == (200, {"status": "ok"})
    except OSError:
        return False


def test_workers_share_the_load_and_a_killed_one_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, workers=2) as gateway, contextlib.ExitStack() as kept:
        before = gateway.workers
        assert len({gateway.pid, *before.values()}) == 3
        connections = [kept.enter_context(Connection(gateway.port)) for _ in range(32)]
        assert all(alive(connection) for connection in connections)
        os.kill(before[1], signal.SIGKILL)
        gateway.wait_for_log("was ended by SIGKILL")
        lost = [connection for connection in connections if not alive(connection)]
        assert 0 < len(lost) < len(connections)  # each worker had some of them
        wait_for(lambda: gateway.workers[1] != before[1], "a replacement")
        # every new connection is answered, also those for the one that is just starting
        fresh = [kept.enter_context(Connection(gateway.port)) for _ in range(16)]
        assert all(alive(connection) for connection in fresh)
        assert gateway.workers[2] == before[2]
        os.kill(gateway.workers[1], signal.SIGKILL)
        wait_for(lambda: not all(alive(connection) for connection in fresh), "the replacement to have had some")
        gateway.wait_for_log("was ended by SIGKILL", 2)
        gateway.signal(signal.SIGTERM)
        assert gateway.exit_code() == 0


def to_the_parent(gateway: Process) -> None:
    gateway.signal(signal.SIGTERM)


def to_the_terminal(gateway: Process) -> None:
    """Ctrl+C reaches every process of the group; workers hear of it twice, and it is still the first time."""
    os.killpg(gateway.pid, signal.SIGINT)


def to_everybody(gateway: Process) -> None:
    """As service managers do that end all processes of a service."""
    os.killpg(gateway.pid, signal.SIGTERM)


@pytest.mark.parametrize("ask", [to_the_parent, to_the_terminal, to_everybody])
@pytest.mark.parametrize("workers", [1, 2])
def test_streams_may_finish(tmp_path: Path, workers: int, ask: Any) -> None:
    with serving(tmp_path, workers=workers) as gateway, Connection(gateway.port) as idle:
        assert alive(idle)
        with gateway.stream("openai", "replay/text?speed=0.5") as stream:
            ask(gateway)
            assert idle.sock.recv(1) == b""
            wait_for(lambda: gateway.refuses, "the end of accepting")
            assert "outcome=" not in gateway.log
            answer = stream.answer()
        assert answer.complete
        assert answer.sse()[-1][1] == "[DONE]"
        assert "error" not in answer.sse()[-2][1]
        assert len(text_of("openai", answer)) > 40
        assert gateway.exit_code() == 0
        assert gateway.log.count("outcome=completed") == 1
        assert "Traceback" not in gateway.log


@pytest.mark.parametrize("workers", [1, 2])
def test_streams_that_outlive_the_grace_period_end_with_an_error_event(tmp_path: Path, workers: int) -> None:
    with (
        serving(tmp_path, "server: {shutdown_grace: 100ms}", workers=workers) as gateway,
        contextlib.ExitStack() as kept,
    ):
        streams = {caller: kept.enter_context(gateway.stream(caller, LONG)) for caller in CALLERS}
        gateway.signal(signal.SIGTERM)
        for caller, stream in streams.items():
            answer = stream.answer()
            assert answer.complete
            assert answer.status == 200
            _, error = ended(caller, answer)
            assert error["message"] == "The gateway is shutting down"
        assert gateway.exit_code() == 0
        assert gateway.log.count("outcome=cancelled") == len(streams)
        assert "Traceback" not in gateway.log


@pytest.mark.parametrize("workers", [1, 2])
def test_a_second_signal_ends_the_grace_period(tmp_path: Path, workers: int) -> None:
    with (
        serving(tmp_path, "server: {shutdown_grace: 1h}", workers=workers) as gateway,
        gateway.stream("anthropic", LONG) as stream,
    ):
        gateway.signal(signal.SIGTERM)
        gateway.wait_for_log("may go on for 3600 s")
        gateway.signal(signal.SIGTERM)
        answer = stream.answer()
        assert answer.complete
        assert ended("anthropic", answer)[1]["message"] == "The gateway is shutting down"
        assert gateway.exit_code() == 0


def test_a_caller_who_does_not_go_on_cannot_hold_the_end_up(tmp_path: Path) -> None:
    with serving(tmp_path, "server: {shutdown_grace: 100ms}") as gateway, Connection(gateway.port) as half:
        half.sock.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\n{")
        gateway.signal(signal.SIGTERM)
        assert gateway.exit_code() == 0
        with contextlib.suppress(ConnectionResetError):
            assert half.sock.recv(1) == b""
        assert "Traceback" not in gateway.log


def test_workers_end_when_their_supervisor_was_killed(tmp_path: Path) -> None:
    with serving(tmp_path, workers=2) as gateway:
        gateway.signal(signal.SIGKILL)
        wait_for(lambda: gateway.refuses, "the workers' end")
        assert "the supervisor has died" in gateway.log


@pytest.mark.parametrize("workers", [1, 2])
def test_a_gateway_that_cannot_start_says_why_and_exits(tmp_path: Path, workers: int) -> None:
    (tmp_path / "keys.json").write_text("no keys")
    process = Process(tmp_path, "keys_file: keys.json", "--workers", str(workers))
    try:
        assert process.exit_code() == 1
        assert "cannot start: " in process.log
        assert "keys.json" in process.log
        assert "Traceback" not in process.log
    finally:
        process.end()


def test_without_keys_only_this_machine_is_served(tmp_path: Path) -> None:
    process = Process(tmp_path, "", "--host", "0.0.0.0")
    try:
        assert process.exit_code() == 4
        assert "headrace keys create" in process.log
    finally:
        process.end()


def test_shared_sockets_share_one_free_port_and_no_taken_one() -> None:
    listeners = bind_shared("127.0.0.1", 0, 3)
    try:
        (port,) = {listener.getsockname()[1] for listener in listeners}
        with pytest.raises(OSError, match="in use"):
            bind_shared("127.0.0.1", port, 2)  # a second gateway by accident
        with pytest.raises(OSError, match="in use"):
            bind("127.0.0.1", port)
    finally:
        for listener in listeners:
            listener.close()
    for listener in bind_shared("127.0.0.1", port, 2):
        listener.close()


def test_the_wait_before_a_replacement_grows_to_a_bound() -> None:
    delays = [backoff(failures) for failures in range(12)]
    assert delays[0] == 0
    assert delays == sorted(delays)
    assert delays[1] < delays[2] < delays[3]
    assert delays[-1] == BACKOFF_MAX


def test_a_worker_that_keeps_dying_leaves_its_share_to_the_others() -> None:
    listeners = bind_shared("127.0.0.1", 0, 2)
    source = Source(lambda: load(None, {}), load(None, {}), FileWatch(None))
    supervisor = Supervisor(load(None, {}), list(listeners), source)
    broken, healthy = supervisor._workers
    try:
        supervisor._ended(broken, 1, -9, now=broken.started + HEALTHY_SECONDS)
        assert (broken.failures, broken.listener) == (0, listeners[0])
        supervisor._ended(broken, 1, -9, now=broken.started)
        assert broken.listener is not None  # what waits in its queue is served in a moment
        supervisor._ended(broken, 1, 1, now=broken.started)
        assert broken.listener is None
        assert broken.start_at == broken.started + backoff(2)
        clients = [socket.create_connection(listeners[1].getsockname(), PATIENCE) for _ in range(16)]
        assert healthy.listener is not None
        healthy.listener.settimeout(PATIENCE)
        for client in clients:
            healthy.listener.accept()[0].close()
            client.close()
    finally:
        for listener in listeners:
            listener.close()
