"""The real `headrace stdio`, as the program that starts it sees it: lines in, lines out, signals, an exit code."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from headrace.access.keys import KeyFile
from headrace.tape import ReplayServer
from tests.gateway.test_life import DELTA, DELTAS, eventually, flood  # noqa: F401  # a fixture
from tests.live import PROVIDERS, LiveGateway

from .test_websocket import USER, comparable, over_http

COMMAND = [sys.executable, "-c", "from headrace.cli import main; main()", "stdio"]
PATIENCE = 30.0


class Child:
    """One `headrace stdio` with the providers of tests.live. `reads`: whether anybody takes its output."""

    def __init__(self, folder: Path, replay: ReplayServer, extra: str, options: list[str], env: dict[str, str]) -> None:
        lines = ["retry: {attempts: 1}", "breaker: {enabled: false}", "providers:"]
        for name, (fmt, suffix) in PROVIDERS.items():
            lines.append(f"  {name}: {{format: {fmt}, base_url: '{replay.base_url}{suffix}'}}")
        file = folder / "headrace.yaml"
        file.write_text("\n".join([*lines, extra]))
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [*COMMAND, "--config", str(file), *options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "XDG_STATE_HOME": str(folder), **env},
            )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout
        self._lines: queue.SimpleQueue[bytes] | None = None

    @property
    def log(self) -> str:
        return self._log.read_text()

    def send(self, **message: Any) -> None:
        self.write(json.dumps(message).encode() + b"\n")

    def write(self, data: bytes) -> None:
        self.input.write(data)
        self.input.flush()

    def ask(self, id: str, model: str, **more: Any) -> None:
        self.send(type="request", id=id, model=model, messages=USER, **more)

    def call(self, id: Any, method: str, /, **params: Any) -> None:
        self.send(jsonrpc="2.0", id=id, method=method, params=params)

    def line(self) -> bytes:
        """The next one; b"" at the end."""
        if self._lines is None:
            self._lines = queue.SimpleQueue()
            threading.Thread(target=_read, args=(self.output, self._lines), daemon=True).start()
        return self._lines.get(timeout=PATIENCE)

    def receive(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.line())
        return message

    def answer(self, id: str) -> list[dict[str, Any]]:
        """The events of this stream up to its end; there may be no others."""
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] not in ("done", "error", "stream.end"):
            events.append(self.receive())
        assert {event["id"] for event in events} == {id}
        return events

    def rest(self) -> list[dict[str, Any]]:
        """All that still comes."""
        return [json.loads(line) for line in iter(self.line, b"")]

    def exit_code(self) -> int:
        return self.process.wait(PATIENCE)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        with contextlib.suppress(BrokenPipeError):
            self.input.close()


def _read(stream: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(b"")


@contextlib.contextmanager
def started(
    folder: Path, replay: ReplayServer, *options: str, extra: str = "", env: dict[str, str] | None = None
) -> Iterator[Child]:
    child = Child(folder, replay, extra, list(options), env or {})
    try:
        yield child
    finally:
        child.end()


@pytest.fixture(scope="module")
def shared(replay: ReplayServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Child]:
    """One that many tests talk to, one after the other: whatever they say, it goes on."""
    with started(tmp_path_factory.mktemp("stdio"), replay) as child:
        yield child


# --- messages as on a WebSocket -------------------------------------------------------------------------------------


@pytest.mark.parametrize("script", ["text", "reasoning", "parallel-tools", "unicode", "refusal"])
@pytest.mark.parametrize("dialect", ["messages", "json-rpc"])
def test_the_events_are_those_of_http(shared: Child, gateway: LiveGateway, script: str, dialect: str) -> None:
    model = f"as-openai/{script}"
    if dialect == "messages":
        shared.ask("a", model)
        events = shared.answer("a")
    else:
        shared.call(1, "chat", model=model, messages=USER)
        events, answer = rpc_answer(shared, 1)
        last = comparable(events)[-1]
        assert comparable([answer["result"]]) == [{k: v for k, v in last.items() if k not in ("type", "seq")}]
        assert answer["result"]["usage"]["completion_tokens"] > 0
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert comparable(events) == comparable(over_http(gateway, model))


def rpc_answer(child: Child, id: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The events of a chat, and its answer; there may be no others."""
    events = []
    while "method" in (message := child.receive()):
        assert message == {"jsonrpc": "2.0", "method": "chat.event", "params": message["params"]}
        assert message["params"]["id"] == id
        events.append(message["params"]["event"])
    assert message["jsonrpc"] == "2.0"
    assert message["id"] == id
    assert ("result" in message) != ("error" in message)
    return events, message


def test_many_streams_share_the_pipe(shared: Child) -> None:
    waiting: set[Any] = set()
    for number in range(40):
        if number % 2:
            shared.ask(f"m{number}", "as-anthropic/parallel-tools")
            waiting.add(f"m{number}")
        else:
            shared.call(number, "chat", model="as-openai/text", messages=USER)
            waiting.add(number)
    seen: dict[Any, list[int]] = {}
    while waiting:
        message = shared.receive()
        if "result" in message:
            waiting.discard(message["id"])
        elif "params" in message:
            seen.setdefault(message["params"]["id"], []).append(message["params"]["event"]["seq"])
        else:
            seen.setdefault(message["id"], []).append(message["seq"])
            if message["type"] == "done":
                waiting.discard(message["id"])
    assert len(seen) == 40
    assert all(numbers == list(range(len(numbers))) for numbers in seen.values())


@pytest.mark.parametrize("dialect", ["messages", "json-rpc"])
def test_cancelling_one_stream_ends_its_provider(shared: Child, replay: ReplayServer, dialect: str) -> None:
    aborted = replay.aborted
    if dialect == "messages":
        shared.ask("gone", "as-openai/text?silence=3")
        while shared.receive()["type"] != "delta":
            pass
        shared.send(type="cancel", id="gone")
        error = shared.answer("gone")[-1]["data"]
    else:
        shared.call("gone", "chat", model="as-openai/text?silence=3", messages=USER)
        while shared.receive()["params"]["event"]["type"] != "delta":
            pass
        shared.call(2, "cancel", id="gone")
        messages = [shared.receive()]
        while messages[-1].get("id") != 2:
            messages.append(shared.receive())
        assert messages[-1] == {"jsonrpc": "2.0", "id": 2, "result": {"cancelled": True}}
        (failure,) = (message for message in messages if "error" in message)
        assert failure["id"] == "gone"
        assert failure["error"]["code"] == -32010
        error = failure["error"]["data"]
        shared.call(3, "cancel", id="gone")  # it has ended
        assert shared.receive()["result"] == {"cancelled": False}
    assert error["code"] == "cancelled"
    assert eventually(lambda: replay.aborted == aborted + 1)


FAILURES = [
    ({"model": "nobody/nothing"}, "model_not_found", -32003),
    ({"model": "as-openai/text?status=429"}, "provider_rate_limited", -32006),
    ({"model": "as-openai/text", "messages": "x"}, "invalid_request", -32602),
    ({"model": "as-openai/text", "temperature": "warm"}, "invalid_request", -32602),
    ({"model": "as-openai/text?cut=3"}, "provider_unavailable", -32007),
]


@pytest.mark.parametrize(("fields", "code", "number"), FAILURES)
def test_failures(shared: Child, fields: dict[str, Any], code: str, number: int) -> None:
    shared.send(**{"type": "request", "id": "a", "messages": USER, **fields})
    events = shared.answer("a")
    assert [events[0]["type"], events[-1]["type"]] == ["start", "error"]
    assert events[-1]["data"]["code"] == code
    for stream in (True,) if "cut" in fields["model"] else (True, False):
        shared.call(7, "chat", **{"messages": USER, "stream": stream, **fields})
        told, answer = rpc_answer(shared, 7)
        assert answer["error"]["code"] == number
        assert answer["error"]["data"]["code"] == code
        assert answer["error"]["message"] == answer["error"]["data"]["message"]
        assert bool(told) == stream


def test_a_whole_answer(shared: Child) -> None:
    shared.call("w", "chat", model="as-anthropic/parallel-tools", messages=USER, stream=False)
    events, answer = rpc_answer(shared, "w")
    assert events == []
    (choice,) = answer["result"]["choices"]
    assert choice["message"]["tool_calls"]
    shared.ask("a", "as-openai/text", stream=False)
    assert shared.answer("a")[-1]["data"]["param"] == "stream"


def test_the_list_of_models(shared: Child) -> None:
    shared.call(1, "models")
    result = shared.receive()["result"]
    assert result["object"] == "list"


@pytest.mark.parametrize(
    ("line", "number", "words"),
    [
        (b"{", -32700, "no JSON"),
        (b"\xff\xfe", -32700, "no JSON"),
        (b"[" * 100_000, -32600, "Batches"),
        (b'[{"jsonrpc":"2.0","id":1,"method":"models"}]', -32600, "Batches"),
        (b"17", -32700, "must be a JSON object"),
        (b'{"type": "dance", "id": "a"}', -32600, "type must be one of"),
        (b'{"type": "request"}', -32600, "id must be"),
        (b'{"type": "cancel", "id": 7}', -32600, "id must be"),
        (b"{}", -32600, "type must be one of"),
    ],
)
def test_lines_that_are_no_messages(shared: Child, line: bytes, number: int, words: str) -> None:
    shared.send(type="cancel", id="nobody")  # these are the words used last
    shared.write(line + b"\n")
    error = shared.receive()
    assert error["type"] == "error"
    assert "id" not in error
    assert words in error["data"]["message"]
    shared.send(jsonrpc="2.0", method="cancel", params={"id": 1})  # a notification: no answer
    if b'"type"' in line or line == b"{}":
        return
    shared.write(line + b"\n")
    answer = shared.receive()
    assert answer["id"] is None
    assert answer["error"]["code"] == number


@pytest.mark.parametrize(
    ("message", "id", "number"),
    [
        ({"id": 1, "method": "dance"}, 1, -32601),
        ({"id": 1, "method": "chat", "params": [1]}, 1, -32602),
        ({"id": 1, "method": 3}, 1, -32600),
        ({"id": 1}, 1, -32600),
        ({"jsonrpc": "1.0", "id": "x", "method": "models"}, "x", -32600),
        ({"id": {"a": 1}, "method": "models"}, None, -32600),
        ({"id": True, "method": "models"}, None, -32600),
        ({"id": 2, "method": "cancel", "params": {}}, 2, -32602),
        ({"id": 2, "method": "chat", "params": {}}, 2, -32602),
    ],
)
def test_bad_calls(shared: Child, message: dict[str, Any], id: Any, number: int) -> None:
    shared.send(**{"jsonrpc": "2.0", **message})
    while "error" not in (answer := shared.receive()):
        assert answer["method"] == "chat.event"
    assert answer["id"] == id
    assert answer["error"]["code"] == number
    assert answer["error"]["message"]


def test_notifications_have_no_answer(shared: Child, replay: ReplayServer) -> None:
    asked = len(replay.requests)
    shared.send(jsonrpc="2.0", method="chat", params={"model": "as-openai/text", "messages": USER})
    shared.send(jsonrpc="2.0", method="dance")
    shared.send(jsonrpc="2.0", method="models")
    shared.send(jsonrpc="2.0", method="cancel", params={})
    shared.call("after", "cancel", id="none")
    assert shared.receive()["id"] == "after"
    assert len(replay.requests) == asked


def test_an_id_in_use(shared: Child) -> None:
    shared.call(5, "chat", model="as-openai/text?silence=3", messages=USER)
    shared.call(5, "chat", model="as-openai/text", messages=USER)
    while "error" not in (answer := shared.receive()):
        pass
    assert answer["id"] is None, "the id is the other one's"
    assert "still runs" in answer["error"]["message"]
    shared.send(jsonrpc="2.0", method="cancel", params={"id": 5})
    while "error" not in (answer := shared.receive()):
        pass
    assert answer["error"]["data"]["code"] == "cancelled"


def test_pause_and_resume(shared: Child) -> None:
    shared.ask("a", "as-openai/long")
    shared.send(type="pause", id="a")
    shared.ask("b", "as-openai/text")
    while (event := shared.receive())["id"] != "b" or event["type"] != "done":
        pass
    shared.send(type="resume", id="a")
    while (event := shared.receive())["type"] != "done":
        pass
    assert event["id"] == "a"


# --- what ends it ---------------------------------------------------------------------------------------------------


def test_the_events_of_the_draft(replay: ReplayServer, tmp_path: Path) -> None:
    with started(tmp_path, replay, "--format", "llm-stream") as child:
        child.ask("a", "as-anthropic/text", version="1.0")
        events = child.answer("a")
        assert [events[0]["type"], events[-1]["type"]] == ["stream.start", "stream.end"]
        child.call(1, "chat", version="1.0", model="as-openai/text", messages=USER)
        told, answer = rpc_answer(child, 1)
        assert told[-1]["type"] == "stream.end"
        assert answer["result"]["usage"]["output_tokens"] > 0, answer
        child.call(2, "chat", version="1.0", model="as-openai/text?status=429", messages=USER)
        error = rpc_answer(child, 2)[1]["error"]
        assert error["code"] == -32006
        assert error["data"]["code"] == "rate_limited"
        child.input.close()
        assert child.exit_code() == 0


def test_streams_outlive_the_input(replay: ReplayServer, tmp_path: Path) -> None:
    with started(tmp_path, replay) as child:
        child.ask("a", "as-openai/text?delay=0.2")
        child.ask("p", "as-openai/long")
        child.send(type="pause", id="p")  # who could resume it?
        child.write(b'{"jsonrpc":"2.0","id":1,"method":"models"}')  # without a line end
        child.input.close()
        messages = child.rest()
        assert child.exit_code() == 0
    assert sorted(m["id"] for m in messages if m.get("type") == "done") == ["a", "p"]
    assert any("result" in message for message in messages)
    assert "Traceback" not in child.log


def test_nothing_said_nothing_done(replay: ReplayServer, tmp_path: Path) -> None:
    with started(tmp_path, replay) as child:
        child.input.close()
        assert child.rest() == []
        assert child.exit_code() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_streams(replay: ReplayServer, tmp_path: Path, number: int) -> None:
    aborted, asked = replay.aborted, len(replay.requests)
    with started(tmp_path, replay) as child:
        child.ask("a", "as-openai/text?silence=3")
        while child.receive()["type"] != "delta":
            pass
        child.call(1, "chat", model="as-anthropic/text?hang=1", messages=USER, stream=False)
        assert eventually(lambda: len(replay.requests) == asked + 2)
        child.process.send_signal(number)
        messages = child.rest()
        assert child.exit_code() == 0
    assert {message["id"] for message in messages} >= {"a", 1}
    (error,) = (message for message in messages if message.get("type") == "error")
    assert error["data"]["code"] == "cancelled"
    assert "shutting down" in error["data"]["message"]
    assert eventually(lambda: replay.aborted == aborted + 2)
    assert "Traceback" not in child.log


def test_a_reader_who_leaves(replay: ReplayServer, tmp_path: Path) -> None:
    aborted = replay.aborted
    with started(tmp_path, replay) as child:
        child.ask("a", "as-openai/long?speed=1")
        assert child.output.readline()
        child.output.close()
        assert child.exit_code() == 1
        assert eventually(lambda: replay.aborted == aborted + 1)
    assert "Traceback" not in child.log
    assert "BrokenPipe" not in child.log


def test_a_reader_who_does_not_read(flood: ReplayServer, tmp_path: Path) -> None:  # noqa: F811
    """Reading from the provider pauses; nothing is lost, and memory stays within its bounds."""
    extra = "limits: {stream_buffer_bytes: 64KiB}"
    with started(tmp_path, flood, extra=extra) as child:
        child.ask("a", "as-openai/flood")
        first = child.output.readline()
        assert json.loads(first)["type"] == "start"
        before = resident(child.process.pid)
        for _ in range(10):
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.process.wait(0.1)  # let everything come that would come
        assert child.process.poll() is None
        assert flood.active == 1
        assert resident(child.process.pid) - before < 8 * 1024 * 1024 < DELTAS * len(DELTA)
        text = "".join(event["data"]["content"] for event in child.answer("a") if event["type"] == "delta")
        assert text == DELTA * DELTAS
        child.input.close()
        assert child.exit_code() == 0


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def test_a_reader_who_never_reads(flood: ReplayServer, tmp_path: Path) -> None:  # noqa: F811
    aborted = flood.aborted
    extra = "limits: {stream_buffer_bytes: 64KiB}\ntimeouts: {slow_consumer: 300ms}"
    with started(tmp_path, flood, extra=extra) as child:
        child.ask("a", "as-openai/flood")
        assert child.exit_code() == 1
        assert eventually(lambda: flood.aborted == aborted + 1)
    assert "nobody reads" in child.log


def test_a_paused_stream_is_given_up(replay: ReplayServer, tmp_path: Path) -> None:
    with started(tmp_path, replay, extra="timeouts: {slow_consumer: 300ms}") as child:
        child.call(1, "chat", model="as-openai/long", messages=USER)
        child.call(2, "pause", id=1)
        messages = [child.receive()]
        while "error" not in messages[-1]:
            messages.append(child.receive())
        assert messages[-1]["id"] == 1
        assert messages[-1]["error"]["code"] == -32009
        assert messages[-2]["params"]["event"]["data"]["code"] == "consumer_too_slow"


def test_a_line_over_the_limit(replay: ReplayServer, tmp_path: Path) -> None:
    with started(tmp_path, replay, extra="limits: {body_bytes: 16KiB}") as child:
        child.ask("a", "as-openai/text", user="x" * 300_000)
        assert "longer than the limit" in child.receive()["data"]["message"]
        child.ask("b", "as-openai/text")
        assert (end := child.answer("b")[-1])["type"] == "done", end


def test_a_flood_of_nonsense_is_not_answered_out_of_memory(replay: ReplayServer, tmp_path: Path) -> None:
    """Who asks and does not read is read from no more: the pipe fills up, which is how the writer learns it."""
    with started(tmp_path, replay) as child:
        child.write(b"{}\n")
        assert child.output.readline()
        os.set_blocking(child.input.fileno(), False)
        taken, stuck = 0, 0
        while stuck < 50 and taken < 64 * 1024 * 1024:
            try:
                taken += os.write(child.input.fileno(), b"{}\n" * 4096)
                stuck = 0
            except BlockingIOError:
                stuck += 1
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.process.wait(0.02)
        assert stuck == 50
        assert taken < 8 * 1024 * 1024


# --- keys, usage ----------------------------------------------------------------------------------------------------


def test_keys_and_usage(replay: ReplayServer, tmp_path: Path) -> None:
    _, secret = KeyFile(tmp_path / "keys.json").create("stdio", now=datetime.datetime.now(datetime.UTC))
    usage = tmp_path / "usage.jsonl"
    extra = f"keys_file: {tmp_path / 'keys.json'}\nusage: {{file: {usage}}}"
    with started(tmp_path, replay, extra=extra) as child:
        child.ask("a", "as-openai/text")
        assert child.receive()["data"]["code"] == "unauthenticated"
        child.call(1, "models")
        assert child.receive()["error"]["code"] == -32001
        child.call(2, "auth", key="hr-wrong")
        assert child.receive()["error"]["code"] == -32001
        child.send(type="auth", key=secret)
        child.ask("a", "as-openai/text", metadata={"tenant": "by-stdio"})
        assert child.answer("a")[-1]["type"] == "done"
        child.input.close()
        assert child.exit_code() == 0
    (record,) = map(json.loads, usage.read_text().splitlines())
    assert record["attribution"]["tenant"] == "by-stdio"
    assert secret not in child.log


def test_the_key_of_the_environment(replay: ReplayServer, tmp_path: Path) -> None:
    _, secret = KeyFile(tmp_path / "keys.json").create("stdio", now=datetime.datetime.now(datetime.UTC))
    extra = f"keys_file: {tmp_path / 'keys.json'}"
    with started(tmp_path, replay, extra=extra, env={"HEADRACE_KEY": secret}) as child:
        child.ask("a", "as-openai/text")
        assert child.answer("a")[-1]["type"] == "done"
    with started(tmp_path, replay, extra=extra, env={"HEADRACE_KEY": "hr-wrong"}) as child:
        assert child.exit_code() == 1
        assert "HEADRACE_KEY" in child.log


def test_bad_options_and_configurations(replay: ReplayServer, tmp_path: Path) -> None:
    with started(tmp_path, replay, "--format", "morse") as child:
        assert child.exit_code() == 2
    with started(tmp_path, replay, extra="nonsense: 1") as child:
        assert child.exit_code() == 4
        assert child.rest() == []


def test_files_instead_of_pipes(tmp_path: Path) -> None:
    """Input from a file, output to one."""
    request = {"type": "request", "id": "a", "model": "replay/text", "messages": USER}
    (tmp_path / "in").write_text(json.dumps(request))
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as target:
        done = subprocess.run(
            COMMAND,
            stdin=source,
            stdout=target,
            stderr=subprocess.PIPE,
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path)},
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert events[-1]["type"] == "done"
