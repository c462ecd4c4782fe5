"""The SignalR hub over real sockets: @microsoft/signalr in Node and in Chromium, plain WebSockets for what it never says."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import logging
import queue
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from headrace.access.keys import KeyFile
from headrace.tape import ReplayServer
from tests.gateway.client import Answer, Connection, get, post
from tests.gateway.test_life import DELTA, DELTAS, eventually, flood, flood_config  # noqa: F401  # a fixture
from tests.live import LiveGateway, LoopThread, gateway_config, live_gateway
from tests.serve.process import serving

from .browser import served, visiting
from .test_websocket import JS, USER, comparable, over_http

PATIENCE = 60.0
TRANSPORTS = {"websockets": 1, "events": 2, "polling": 4}
RS = "\x1e"


@pytest.fixture(scope="module")
def guarded(
    servers: LoopThread, replay: ReplayServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LiveGateway, str]]:
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    _, secret = KeyFile(file).create("hub", now=datetime.datetime.now(datetime.UTC))
    with live_gateway(servers, gateway_config(replay.base_url, f"keys_file: {file}")) as gateway:
        yield gateway, secret


# --- Microsoft's client, in Node ------------------------------------------------------------------------------------


class Node:
    """js/signalr.mjs, connected, or with the reason why not in `hello`."""

    def __init__(self, url: str, transport: str, token: str | None = None) -> None:
        if not (JS / "node_modules").exists():
            pytest.skip("the JavaScript packages are not installed: run make test")
        command = ["node", "signalr.mjs", url, str(TRANSPORTS[transport]), *([token] if token is not None else [])]
        self.process = subprocess.Popen(command, cwd=JS, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_read, args=(self.process.stdout, self._lines), daemon=True).start()
        self.hello = self._outcome()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()

    def ask(self, do: str, **job: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **job}).encode() + b"\n")
        self.process.stdin.flush()

    def do(self, do: str, **job: Any) -> Any:
        self.ask(do, **job)
        return self._outcome()

    def stream(self, model: str, **more: Any) -> Any:
        return self.do("stream", request={"model": model, "messages": USER, **more})

    def _outcome(self) -> Any:
        line = self._lines.get(timeout=PATIENCE)
        assert line, "node has ended; see its stderr"
        return json.loads(line)


def _read(stream: IO[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(b"")


@pytest.fixture(scope="module", params=TRANSPORTS)
def node(request: pytest.FixtureRequest, gateway: LiveGateway) -> Iterator[Node]:
    with Node(gateway.url, request.param) as connected:
        assert connected.hello == {"state": "Connected"}
        yield connected


@pytest.mark.parametrize("script", ["text", "reasoning", "parallel-tools", "unicode", "refusal"])
def test_the_items_are_the_events_of_http(node: Node, gateway: LiveGateway, script: str) -> None:
    found = node.stream(f"as-openai/{script}")
    assert found["completed"]
    assert found["error"] is None
    assert [item["seq"] for item in found["items"]] == list(range(len(found["items"])))
    assert comparable(found["items"]) == comparable(over_http(gateway, f"as-openai/{script}"))


def test_many_streams_share_a_connection(node: Node) -> None:
    models = ["as-openai/text", "as-anthropic/parallel-tools"] * 10
    found = node.do("many", requests=[{"model": model, "messages": USER} for model in models])
    assert len(found) == 20
    for stream in found:
        assert stream["completed"]
        assert [item["seq"] for item in stream["items"]] == list(range(len(stream["items"])))


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"model": "nobody/nothing"}, "model_not_found"),
        ({"model": "as-openai/text?status=429"}, "provider_rate_limited"),
        ({"model": "as-openai/text", "messages": "x"}, "invalid_request"),
        ({"model": "as-openai/text", "stream": False}, "invalid_request"),
        ({"model": "as-openai/text?cut=3"}, "provider_unavailable"),
        ({"model": "as-anthropic/text?error=3"}, "provider_unavailable"),
    ],
)
def test_a_failed_stream(node: Node, request_: dict[str, Any], code: str) -> None:
    found = node.do("stream", request={"messages": USER, **request_})
    assert not found["completed"]
    assert [found["items"][0]["type"], found["items"][-1]["type"]] == ["start", "error"]
    error = found["items"][-1]["data"]
    assert error["code"] == code
    assert found["error"] == f"{code}: {error['message']}"
    again = node.stream("as-openai/text")
    assert again["completed"], "the connection is as good as new"


def test_disposing_of_a_stream_cancels_its_provider(node: Node, replay: ReplayServer, gateway: LiveGateway) -> None:
    aborted = replay.aborted
    found = node.do("cancel", request={"model": "as-openai/text?silence=3", "messages": USER})
    assert found["disposed"]
    assert eventually(lambda: replay.aborted == aborted + 1)
    assert eventually(lambda: not gateway.application.live)
    assert node.stream("as-openai/text")["completed"]


def test_results(node: Node, gateway: LiveGateway) -> None:
    listed = json.loads(get(gateway.port, "/v1/models").body)["data"]
    assert node.do("invoke", target="ListModels", arguments=[])["result"] == listed
    request = {"model": "as-anthropic/parallel-tools", "messages": USER}
    result = node.do("invoke", target="ChatOnce", arguments=[request])["result"]
    whole = post(gateway.port, "/v1/chat", {**request, "stream": False}).json()
    assert result["choices"] == whole["choices"]
    assert result["usage"] == whole["usage"]


@pytest.mark.parametrize(
    ("target", "given", "words"),
    [
        ("Dance", [], "Unknown hub method 'Dance'"),
        ("Chat", [{}], "Chat is a stream: use stream()"),
        ("ChatOnce", [], "takes one argument"),
        ("ChatOnce", [{"model": "nobody/nothing", "messages": USER}], "model_not_found: "),
        ("ChatOnce", [{"model": "as-openai/text?status=503", "messages": USER}], "provider_unavailable: "),
        ("ChatOnce", [{"model": "as-openai/text", "messages": 1}], "invalid_request: "),
        ("ChatOnce", [{"model": "as-openai/text", "messages": USER, "stream": True}], "invalid_request: "),
        ("ListModels", [1], "takes no arguments"),
    ],
)
def test_invocations_that_fail(node: Node, target: str, given: list[Any], words: str) -> None:
    outcome = node.do("invoke", target=target, arguments=given)
    assert words in outcome["error"]
    assert "is no stream: use invoke()" in node.do("wrong_kind")["error"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_keys(guarded: tuple[LiveGateway, str], transport: str) -> None:
    gateway, secret = guarded
    with Node(gateway.url, transport, secret) as node:
        assert node.stream("as-openai/text")["completed"]
        assert node.do("invoke", target="ListModels", arguments=[])["result"]
    for token in (None, "hr-wrong"):
        with Node(gateway.url, transport, token) as node:
            assert "401" in node.hello["error"]


def test_the_client_connects_again(servers: LoopThread, replay: ReplayServer) -> None:
    with (
        live_gateway(servers, gateway_config(replay.base_url)) as gateway,
        Node(gateway.url, "websockets") as node,
    ):
        assert node.stream("as-openai/text")["completed"]
        node.ask("reconnected")

        async def cut() -> None:
            for connection in list(gateway._server.server_state.connections):
                connection.transport.abort()

        servers.call(cut())
        assert node._outcome() == {"state": "Connected"}
        assert node.stream("as-openai/text")["completed"]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_end_of_the_server(servers: LoopThread, replay: ReplayServer, transport: str) -> None:
    """What runs ends with an error event, the client is told that it may come again, and finds nobody."""
    with live_gateway(servers, gateway_config(replay.base_url)) as gateway, Node(gateway.url, transport) as node:
        node.ask("stream", request={"model": "as-openai/text?silence=3", "messages": USER})
        assert eventually(lambda: bool(gateway.application.live))
        started = time.monotonic()
        gateway.stop()
        assert time.monotonic() - started < 20
        found = node._outcome()
        assert found["items"][-1]["type"] == "error"
        assert "shutting down" in found["error"]
        assert node.do("closed") == {"state": "Disconnected"}


# --- Microsoft's client, in Chromium --------------------------------------------------------------------------------

BUNDLE = JS / "node_modules/@microsoft/signalr/dist/browser/signalr.min.js"
PAGE = """
const found = {};
const ended = (stream, next) => new Promise((resolve) => {
  const subscription = stream.subscribe({
    next: (item) => next(item, subscription, resolve), complete: () => resolve('completed'), error: (e) => resolve(e.message),
  });
});
for (const transport of [1, 2, 4]) {
  const connection = new signalR.HubConnectionBuilder()
    .withUrl(%(url)s, {transport, accessTokenFactory: %(token)s}).configureLogging(signalR.LogLevel.None).build();
  const seen = found[transport] = {text: '', reasoning: '', tools: 0};
  try {
    await connection.start();
    seen.ended = await ended(connection.stream('Chat', {model: 'as-openai/text', messages: %(user)s}), (item) => {
      if (item.type === 'delta') seen.text += item.data.content;
    });
    await ended(connection.stream('Chat', {model: 'as-anthropic/reasoning', messages: %(user)s}), (item) => {
      if (item.type === 'reasoning') seen.reasoning += item.data.content;
    });
    await ended(connection.stream('Chat', {model: 'as-openai/parallel-tools', messages: %(user)s}), (item) => {
      if (item.type === 'tool_call' && item.data.complete) seen.tools += 1;
    });
    seen.failed = await ended(connection.stream('Chat', {model: 'nobody/nothing', messages: %(user)s}), () => {});
    seen.disposed = await ended(
      connection.stream('Chat', {model: 'as-openai/text?silence=3', messages: %(user)s}),
      (item, subscription, resolve) => { if (item.type === 'delta') { subscription.dispose(); resolve(true); } },
    );
    await connection.stop();
  } catch (error) {
    seen.error = error.message;
  }
}
report(found);
"""


def page_of(url: str, token: str | None) -> str:
    if not BUNDLE.exists():
        pytest.skip("the JavaScript packages are not installed: run make test")
    factory = "undefined" if token is None else f"() => {json.dumps(token)}"
    return (
        BUNDLE.read_text() + "\n" + PAGE % {"url": json.dumps(f"{url}/hub"), "token": factory, "user": json.dumps(USER)}
    )


def test_a_browser_with_a_key(guarded: tuple[LiveGateway, str], replay: ReplayServer, tmp_path: Path) -> None:
    gateway, secret = guarded
    aborted = replay.aborted
    with served(page_of(gateway.url, secret)) as page, visiting(page, tmp_path):
        found = page.report()
    for seen in found.values():
        assert "error" not in seen, seen
        assert seen["ended"] == "completed"
        assert seen["text"]
        assert seen["reasoning"]
        assert seen["tools"] >= 2
        assert seen["failed"].startswith("model_not_found: ")
        assert seen["disposed"] is True
    assert set(found) == {"1", "2", "4"}
    assert eventually(lambda: replay.aborted == aborted + 3)


def test_a_browser_page_of_strangers(gateway: LiveGateway, tmp_path: Path) -> None:
    with served(page_of(gateway.url, None)) as page, visiting(page, tmp_path):
        found = page.report()
    assert all(seen["error"] for seen in found.values())
    assert len(found) == 3


def test_a_browser_page_that_is_allowed(servers: LoopThread, replay: ReplayServer, tmp_path: Path) -> None:
    config = gateway_config(replay.base_url, "server: {allowed_origins: ['*']}")
    with (
        live_gateway(servers, config) as gateway,
        served(page_of(gateway.url, None)) as page,
        visiting(page, tmp_path),
    ):
        found = page.report()
    assert [seen["ended"] for seen in found.values()] == ["completed"] * 3


# --- a plain WebSocket ----------------------------------------------------------------------------------------------


@contextlib.contextmanager
def connected(
    gateway: LiveGateway, query: str = "", *, shake: bool = True, **headers: str
) -> Iterator[ClientConnection]:
    url = f"{gateway.url.replace('http', 'ws')}/hub{query}"
    with connect(url, additional_headers=headers, open_timeout=20, max_queue=1) as socket:
        if shake:
            socket.send('{"protocol":"json","version":1}' + RS)
            assert socket.recv(timeout=20) == "{}" + RS
        yield socket


def records(socket: ClientConnection) -> Iterator[dict[str, Any]]:
    while True:
        *found, rest = str(socket.recv(timeout=20)).split(RS)
        assert rest == ""
        yield from map(json.loads, found)


def send(socket: ClientConnection, **record: Any) -> None:
    socket.send(json.dumps(record) + RS)


def chat(socket: ClientConnection, id: str, model: str) -> None:
    send(socket, type=4, invocationId=id, target="Chat", arguments=[{"model": model, "messages": USER}])


def test_a_cancelled_stream_is_still_completed(gateway: LiveGateway, replay: ReplayServer) -> None:
    aborted = replay.aborted
    with connected(gateway) as socket:
        incoming = records(socket)
        chat(socket, "kept", "as-openai/text?silence=3")
        while next(incoming)["item"]["type"] != "delta":
            pass
        chat(socket, "gone", "as-openai/text?silence=3")
        while (record := next(incoming))["invocationId"] != "gone" or record["item"]["type"] != "delta":
            pass
        send(socket, type=5, invocationId="gone")
        rest = [next(incoming)]
        while rest[-1]["type"] != 3:
            rest.append(next(incoming))
        assert rest[-2]["item"]["data"]["code"] == "cancelled"
        assert rest[-1] == {"type": 3, "invocationId": "gone", "error": rest[-1]["error"]}
        assert rest[-1]["error"].startswith("cancelled: ")
        assert eventually(lambda: replay.aborted == aborted + 1)
        assert len(gateway.application.live) == 1
        send(socket, type=5, invocationId="gone")  # they have crossed
        chat(socket, "gone", "as-openai/text")  # the id is free again
        while (record := next(incoming))["type"] != 3:
            assert record["invocationId"] == "gone"
        assert record == {"type": 3, "invocationId": "gone"}
    assert eventually(lambda: replay.aborted == aborted + 2), "closing the connection cancels what runs"
    assert eventually(lambda: not gateway.application.live)


def closing(socket: ClientConnection) -> dict[str, Any]:
    """The Close that comes last, after whatever."""
    record: dict[str, Any] = {}
    with contextlib.suppress(ConnectionClosed):
        for record in records(socket):  # noqa: B007  # the last one counts
            pass
    return record


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ("{" + RS, "no JSON"),
        ("[" * 50_000 + RS, "no JSON"),
        ("7" + RS, "JSON object"),
        (RS, "not SignalR"),
        ('{"type":"x"}' + RS, "type, which is a number"),
        ('{"type":4,"target":"Chat","arguments":[{}]}' + RS, "invocationId must be"),
    ],
)
def test_what_is_unclear_closes_the_connection(gateway: LiveGateway, sent: str, words: str) -> None:
    with connected(gateway) as socket:
        socket.send(sent)
        close = closing(socket)
    assert close["type"] == 7
    assert words in close["error"]
    assert close["allowReconnect"] is False


def test_an_id_in_use(gateway: LiveGateway, replay: ReplayServer) -> None:
    with connected(gateway) as socket:
        chat(socket, "a", "as-openai/text?silence=3")
        chat(socket, "a", "as-openai/text")
        assert "still runs" in closing(socket)["error"]
    assert eventually(lambda: not gateway.application.live)


def test_records_may_be_cut_anywhere_and_share_a_message(gateway: LiveGateway) -> None:
    request = {"model": "as-openai/text", "messages": USER}
    whole = json.dumps({"type": 4, "invocationId": "ß", "target": "chat", "arguments": [request]}, ensure_ascii=False)
    with connected(gateway, shake=False) as socket:
        text = '{"protocol":"json","version":1}' + RS + '{"type":6}' + RS + whole + RS
        for start in range(0, len(text), 7):
            socket.send(text[start : start + 7])
        incoming = records(socket)
        assert next(incoming) == {}
        while (record := next(incoming))["type"] != 3:
            assert record["invocationId"] == "ß"
    assert "error" not in record


@pytest.mark.parametrize("handshake", ['{"protocol":"messagepack","version":1}', "GET / HTTP/1.1", "{}"])
def test_a_handshake_that_is_refused(gateway: LiveGateway, handshake: str) -> None:
    with connected(gateway, shake=False) as socket:
        socket.send(handshake + RS)
        (answer,) = json.loads(str(socket.recv(timeout=20)).rstrip(RS)).items()
        assert answer[0] == "error"
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1000


def test_binary_messages_and_large_ones(servers: LoopThread, replay: ReplayServer) -> None:
    config = gateway_config(replay.base_url, "limits: {body_bytes: 2KiB}")
    with live_gateway(servers, config) as small:
        with connected(small) as socket, pytest.raises(ConnectionClosed) as closed:  # noqa: PT012
            socket.send("x" * 3000)
            socket.recv(timeout=20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
        with connected(small) as socket:
            socket.send("x" * 1500)
            socket.send("x" * 1500)  # one record
            assert "larger than the limit of 2048 bytes" in closing(socket)["error"]
        with connected(small) as socket, pytest.raises(ConnectionClosed) as closed:  # noqa: PT012
            socket.send(b"\x06\x00")
            socket.recv(timeout=20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1003


def test_who_asks_and_does_not_read_is_read_from_no_more(gateway: LiveGateway) -> None:
    """Each of these has an answer; all of them would be more than a connection may pile up."""
    record = json.dumps({"type": 1, "invocationId": "i" * 200, "target": "Nope", "arguments": []}) + RS
    message = record * 200
    with connected(gateway) as socket:
        socket.socket.settimeout(0.5)
        taken = 0
        with pytest.raises((TimeoutError, ConnectionClosed)):  # noqa: PT012  # how often it can be sent is what counts
            while taken < 64 * 1024 * 1024:
                socket.send(message)
                taken += len(message)
        assert taken < 64 * 1024 * 1024
        socket.socket.close()


def test_reading_from_the_provider_pauses_while_a_caller_is_slow(
    servers: LoopThread,
    flood: ReplayServer,  # noqa: F811
) -> None:
    with live_gateway(servers, flood_config(flood, "60s")) as gateway, connected(gateway) as socket:
        chat(socket, "a", "as-openai/flood")
        assert eventually(lambda: bool(gateway.application.live))
        (driver,) = gateway.application.live
        assert eventually(lambda: driver.stream._blocked_at is not None)
        assert driver.stream.buffered < 64 * 1024 + 2 * 256 * 1024
        assert flood.active == 1
        text = []
        for record in records(socket):
            if record["type"] == 3:
                break
            if record["item"]["type"] == "delta":
                text.append(record["item"]["data"]["content"])
    assert "".join(text) == DELTA * DELTAS
    assert "error" not in record


def test_a_caller_who_never_reads_is_given_up(servers: LoopThread, flood: ReplayServer) -> None:  # noqa: F811
    aborted = flood.aborted
    with live_gateway(servers, flood_config(flood, "300ms")) as gateway, connected(gateway) as socket:
        chat(socket, "a", "as-openai/flood")
        assert eventually(lambda: flood.aborted == aborted + 1)
        assert eventually(lambda: not gateway.application.live)
        socket.socket.close()


# --- negotiation, and who may connect -------------------------------------------------------------------------------


def negotiate(gateway: LiveGateway, query: str = "?negotiateVersion=1", **headers: str) -> Answer:
    return post(gateway.port, f"/hub/negotiate{query}", b"", content_type=None, headers=headers)


@pytest.mark.parametrize(
    ("query", "version"),
    [
        ("", 0),
        ("?negotiateVersion=0", 0),
        ("?negotiateVersion=1", 1),
        ("?negotiateVersion=9", 1),
        ("?negotiateVersion=x", 0),
    ],
)
def test_negotiation(gateway: LiveGateway, query: str, version: int) -> None:
    found = negotiate(gateway, query).json()
    assert found["negotiateVersion"] == version
    assert {entry["transport"] for entry in found["availableTransports"]} == {
        "WebSockets",
        "ServerSentEvents",
        "LongPolling",
    }
    assert all(entry["transferFormats"] == ["Text"] for entry in found["availableTransports"])
    id = found["connectionToken"] if version else found["connectionId"]
    assert version or "connectionToken" not in found
    assert id != found["connectionId"] or not version
    with connected(gateway, f"?id={id}") as socket:
        send(socket, type=1, invocationId="1", target="ListModels", arguments=[])
        assert next(records(socket))["result"]
        with pytest.raises(InvalidStatus) as refused, connected(gateway, f"?id={id}"):
            pass
        assert refused.value.response.status_code == 409
    with pytest.raises(InvalidStatus) as refused, connected(gateway, "?id=made-up"):
        pass
    assert refused.value.response.status_code == 404
    assert "negotiate" in json.loads(refused.value.response.body or b"")["error"]["message"]


def test_the_key_in_the_address_is_never_logged(
    guarded: tuple[LiveGateway, str], caplog: pytest.LogCaptureFixture
) -> None:
    gateway, secret = guarded
    with caplog.at_level(logging.DEBUG):
        with connected(gateway, f"?access_token={secret}") as socket:
            chat(socket, "a", "as-openai/text")
            while (record := next(records(socket)))["type"] != 3:
                pass
            assert "error" not in record
        with connected(gateway, authorization=f"Bearer {secret}"):
            pass
        token = negotiate(gateway, f"?negotiateVersion=1&access_token={secret}").json()["connectionToken"]
        assert get(gateway.port, f"/hub?id={token}&access_token={secret}").status == 200
        for query in ("", "?access_token=", "?access_token=hr-wrong", "?access_token=%00%0d%0a"):
            with pytest.raises(InvalidStatus) as refused, connected(gateway, query):
                pass
            assert refused.value.response.status_code == 401
            assert negotiate(gateway, query).status == 401
        assert get(gateway.port, f"/hub?id={token}").status == 401
    logged = [entry for entry in caplog.records if not entry.name.startswith("websockets.client")]
    assert any("path=/hub" in entry.getMessage() for entry in logged)
    assert not any(secret in entry.getMessage() for entry in logged)


def test_origins(servers: LoopThread, replay: ReplayServer, gateway: LiveGateway) -> None:
    with pytest.raises(InvalidStatus) as refused, connected(gateway, origin="https://evil.example"):
        pass
    assert refused.value.response.status_code == 403
    stranger = negotiate(gateway, origin="https://evil.example")
    assert stranger.status == 403
    assert "access-control-allow-origin" not in stranger.headers
    assert negotiate(gateway, origin="http://test").status == 200  # the host that it is asked for by
    config = gateway_config(replay.base_url, "server: {allowed_origins: ['https://app.example']}")
    with live_gateway(servers, config) as allowing:
        asked = {"origin": "https://app.example", "access-control-request-headers": "x-signalr-user-agent"}
        preflight = get(allowing.port, "/hub/negotiate", asked, method="OPTIONS")
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-origin"] == "https://app.example"
        assert preflight.headers["access-control-allow-headers"] == "x-signalr-user-agent"
        answer = negotiate(allowing, origin="https://app.example")
        assert answer.headers["access-control-allow-origin"] == "https://app.example"
        with connected(allowing, origin="https://app.example"):
            pass


def test_several_workers_offer_only_what_does_not_depend_on_which_one_answers(tmp_path: Path) -> None:
    with serving(tmp_path, workers=2) as process:
        for _ in range(8):
            answer = post(process.port, "/hub/negotiate?negotiateVersion=1", b"", content_type=None).json()
            assert [entry["transport"] for entry in answer["availableTransports"]] == ["WebSockets"]
            url = f"ws://127.0.0.1:{process.port}/hub?id={answer['connectionToken']}"
            with connect(url, open_timeout=20) as socket:
                socket.send('{"protocol":"json","version":1}' + RS)
                assert socket.recv(timeout=20) == "{}" + RS
        assert get(process.port, "/hub?id=x", {"accept": "text/event-stream"}).status == 404


# --- without a WebSocket --------------------------------------------------------------------------------------------


class Polling:
    """A connection by long polling, or by an event stream, its handshake done."""

    def __init__(self, gateway: LiveGateway, *, shake: bool = True) -> None:
        self.port = gateway.port
        self.path = f"/hub?id={negotiate(gateway).json()['connectionToken']}"
        self.first = self.poll()
        if shake:
            assert self.send({"protocol": "json", "version": 1}).status == 200
            assert self.poll().body == b"{}\x1e"

    def poll(self) -> Answer:
        return get(self.port, self.path)

    def send(self, *said: dict[str, Any]) -> Answer:
        body = "".join(json.dumps(record) + RS for record in said).encode()
        return post(self.port, self.path, body, content_type="text/plain")

    def chat(self, model: str) -> None:
        request = {"model": model, "messages": USER}
        assert self.send({"type": 4, "invocationId": "a", "target": "Chat", "arguments": [request]}).status == 200

    def records(self) -> Iterator[dict[str, Any]]:
        while (answer := self.poll()).status == 200:
            for record in answer.body.decode().split(RS)[:-1]:
                yield json.loads(record)


def test_long_polling_by_hand(gateway: LiveGateway) -> None:
    caller = Polling(gateway)
    assert (caller.first.status, caller.first.body) == (200, b"")
    caller.chat("as-openai/text")
    found = []
    for record in caller.records():
        found.append(record)
        if record["type"] == 3:
            break
    assert found[-1] == {"type": 3, "invocationId": "a"}
    assert [record["item"]["seq"] for record in found[:-1]] == list(range(len(found) - 1))
    assert get(caller.port, caller.path, method="DELETE").status == 202
    assert caller.poll().status == 204
    assert caller.poll().status == 404
    assert caller.send({"type": 6}).status == 404


def test_a_poll_gives_way_to_another(gateway: LiveGateway) -> None:
    caller = Polling(gateway)
    with Connection(gateway.port) as first, Connection(gateway.port) as second:
        first.send(caller.path, b"", method="GET")
        assert eventually(lambda: _polls(gateway, caller) == 2)
        second.send(caller.path, b"", method="GET")
        assert first.answer().status == 204
        caller.send({"type": 1, "invocationId": "1", "target": "ListModels", "arguments": []})
        assert b'"result":[' in second.answer().body
    get(caller.port, caller.path, method="DELETE")


def _polls(gateway: LiveGateway, caller: Polling) -> int:
    return gateway.application.hubs._connections[caller.path.partition("id=")[2]]._polls


def test_a_poll_that_is_left_loses_nothing(gateway: LiveGateway) -> None:
    caller = Polling(gateway)
    with Connection(gateway.port) as left:
        left.send(caller.path, b"", method="GET")
        assert eventually(lambda: _polls(gateway, caller) == 2)
    caller.send({"type": 1, "invocationId": "1", "target": "ListModels", "arguments": []})
    assert next(caller.records())["result"]
    get(caller.port, caller.path, method="DELETE")


def test_nobody_polls_any_more(servers: LoopThread, gateway: LiveGateway, replay: ReplayServer) -> None:
    """The clock of the hub is turned: it is the one that decides."""
    aborted = replay.aborted
    caller = Polling(gateway)
    caller.chat("as-openai/text?silence=3")
    assert eventually(lambda: bool(gateway.application.live))
    connection = gateway.application.hubs._connections[caller.path.partition("id=")[2]]

    async def later() -> None:
        connection.hub.tick(asyncio.get_running_loop().time() + 31)

    servers.call(later())
    assert eventually(lambda: replay.aborted == aborted + 1)
    *_, close = caller.records()
    assert close["type"] == 7
    assert "Nothing was heard" in close["error"]
    assert caller.poll().status == 404


def test_bad_requests(gateway: LiveGateway, servers: LoopThread, replay: ReplayServer) -> None:
    assert get(gateway.port, "/hub").status == 400
    assert get(gateway.port, "/hub?id=made-up").status == 404
    assert get(gateway.port, "/hub?id=made-up", {"accept": "text/event-stream"}).status == 404
    assert post(gateway.port, "/hub", b"x").status == 400
    assert post(gateway.port, "/hub?id=made-up", b"x").status == 404
    assert get(gateway.port, "/hub?id=made-up", method="DELETE").status == 404
    for path, method, allowed in (("/hub/negotiate", "GET", "POST"), ("/hub", "PUT", "GET, POST, DELETE")):
        answer = get(gateway.port, path, method=method)
        assert answer.status == 405
        assert answer.headers["allow"] == allowed
    config = gateway_config(replay.base_url, "limits: {body_bytes: 2KiB}")
    with live_gateway(servers, config) as small:
        caller = Polling(small)
        assert post(small.port, caller.path, b"x" * 3000, content_type="text/plain").status == 413
        assert caller.send({"type": 1, "invocationId": "1", "target": "ListModels", "arguments": []}).status == 200
    caller = Polling(gateway, shake=False)
    assert post(gateway.port, caller.path, b"nonsense\x1e", content_type="text/plain").status == 200
    assert b'"error"' in caller.poll().body
    assert caller.poll().status == 204


def test_what_is_not_read_is_not_added_to(gateway: LiveGateway) -> None:
    caller = Polling(gateway)
    nonsense = {"type": 1, "invocationId": "i" * 200, "target": "Nope", "arguments": []}
    for _ in range(100):
        if (answer := caller.send(*[nonsense] * 200)).status != 200:
            break
    assert answer.status == 429
    assert sum(len(record["error"]) for record in _until(caller, caller.send)) > 0
    assert caller.send(nonsense).status == 200
    get(caller.port, caller.path, method="DELETE")


def _until(caller: Polling, send: Any) -> Iterator[dict[str, Any]]:
    """What waits, in one poll."""
    for record in caller.poll().body.decode().split(RS)[:-1]:
        yield json.loads(record)


@contextlib.contextmanager
def event_stream(gateway: LiveGateway) -> Iterator[tuple[Connection, str]]:
    path = f"/hub?id={negotiate(gateway).json()['connectionToken']}"
    with Connection(gateway.port) as connection:
        connection.send(path, b"", {"accept": "text/event-stream"}, method="GET")
        status, headers = connection.head()
        assert status == 200
        assert headers["content-type"] == "text/event-stream"
        shaken = post(gateway.port, path, b'{"protocol":"json","version":1}\x1e', content_type="text/plain")
        assert shaken.status == 200
        yield connection, path


def test_a_slow_reader_of_an_event_stream(servers: LoopThread, flood: ReplayServer) -> None:  # noqa: F811
    request = {"model": "as-openai/flood", "messages": USER}
    record = json.dumps({"type": 4, "invocationId": "a", "target": "Chat", "arguments": [request]}) + RS
    with live_gateway(servers, flood_config(flood, "60s")) as gateway, event_stream(gateway) as (connection, path):
        assert get(gateway.port, path, {"accept": "text/event-stream"}).status == 409
        assert get(gateway.port, path).status == 409
        post(gateway.port, path, record.encode(), content_type="text/plain")
        assert eventually(lambda: bool(gateway.application.live))
        (driver,) = gateway.application.live
        assert eventually(lambda: driver.stream._blocked_at is not None)
        (held,) = gateway.application.hubs._connections.values()
        assert driver.stream.buffered + held.waiting < 2 * 1024 * 1024
        data = b""
        for piece in connection.chunks({}):
            data += piece
            if b'"type":3' in piece[-100:]:
                break
        assert data.count(DELTA.encode()) == DELTAS
    aborted = flood.aborted
    with live_gateway(servers, flood_config(flood, "300ms")) as gateway, event_stream(gateway) as (connection, path):
        post(gateway.port, path, record.encode(), content_type="text/plain")
        assert eventually(lambda: flood.aborted == aborted + 1)
        assert eventually(lambda: not gateway.application.hubs._connections)
        with pytest.raises(ConnectionError):
            for _ in connection.chunks({}):
                pass


def test_leaving_an_event_stream_cancels_what_runs(gateway: LiveGateway, replay: ReplayServer) -> None:
    aborted = replay.aborted
    request = {"model": "as-openai/text?silence=3", "messages": USER}
    record = json.dumps({"type": 4, "invocationId": "a", "target": "Chat", "arguments": [request]}) + RS
    with event_stream(gateway) as (_, path):
        post(gateway.port, path, record.encode(), content_type="text/plain")
        assert eventually(lambda: bool(gateway.application.live))
    assert eventually(lambda: replay.aborted == aborted + 1)
    assert eventually(lambda: post(gateway.port, path, b"x").status == 404)
