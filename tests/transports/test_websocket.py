"""WebSocket over real sockets: the websockets package, Node's ws and Chromium as callers."""

from __future__ import annotations

import contextlib
import datetime
import http.client
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from headrace.access.keys import KeyFile
from headrace.tape import ReplayServer
from tests.gateway.client import Connection
from tests.gateway.test_life import eventually
from tests.live import LiveGateway, LoopThread, gateway_config, live_gateway

from .browser import served, visiting

USER = [{"role": "user", "content": "What is a headrace?"}]
JS = Path(__file__).parents[1] / "sdks" / "js"


@contextlib.contextmanager
def connected(gateway: LiveGateway, *offers: str, **headers: str) -> Iterator[ClientConnection]:
    url = gateway.url.replace("http", "ws") + "/v1/ws"
    with connect(url, subprotocols=offers or None, additional_headers=headers, open_timeout=20) as socket:  # type: ignore[arg-type]  # plain strings will do
        yield socket


def send(socket: ClientConnection, **message: Any) -> None:
    socket.send(json.dumps(message))


def ask(socket: ClientConnection, id: str, model: str, **more: Any) -> None:
    send(socket, type="request", id=id, model=model, messages=USER, **more)


def receive(socket: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(socket.recv(timeout=20))
    return message


TERMINAL = {"done", "error", "stream.end"}


def answer(socket: ClientConnection, id: str) -> list[dict[str, Any]]:
    """The events of one stream up to its end; there may be no others."""
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] not in TERMINAL:
        events.append(receive(socket))
    assert {event["id"] for event in events} == {id}
    return events


def over_http(gateway: LiveGateway, model: str) -> list[dict[str, Any]]:
    with Connection(gateway.port) as connection:
        body = json.dumps({"model": model, "stream": True, "messages": USER}).encode()
        connection.send("/v1/chat", body, {"content-type": "application/json"})
        return connection.answer().sse_json()


def comparable(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without what differs from request to request, and from transport to transport."""
    kept = []
    for event in events:
        event = {
            name: value for name, value in event.items() if name not in ("id", "answer_id", "request_id", "created")
        }
        if "routing" in event:
            event["routing"] = {name: value for name, value in event["routing"].items() if name != "tried"}
        kept.append(event)
    return kept


@pytest.mark.parametrize("script", ["text", "reasoning", "parallel-tools", "unicode", "refusal"])
def test_the_events_are_those_of_http(gateway: LiveGateway, script: str) -> None:
    with connected(gateway) as socket:
        ask(socket, "a", f"as-openai/{script}")
        events = answer(socket, "a")
    assert [event["seq"] for event in events] == list(range(len(events)))
    assert comparable(events) == comparable(over_http(gateway, f"as-openai/{script}"))


def test_llm_stream_by_subprotocol(gateway: LiveGateway) -> None:
    with connected(gateway, "llm-stream-1.0") as socket:
        assert socket.subprotocol == "llm-stream-1.0"
        send(socket, type="request", id="ß", version="1.0", model="as-anthropic/text", messages=USER)
        events = answer(socket, "ß")
    assert [events[0]["type"], events[-1]["type"]] == ["stream.start", "stream.end"]
    assert [event["seq"] for event in events] == list(range(len(events)))


def test_many_requests_share_a_connection(gateway: LiveGateway) -> None:
    with connected(gateway) as socket:
        ids = [f"r{n}" for n in range(50)]
        for id in ids:
            ask(socket, id, "as-openai/text" if int(id[1:]) % 2 else "as-anthropic/parallel-tools")
        seen: dict[str, list[dict[str, Any]]] = {id: [] for id in ids}
        while not all(events and events[-1]["type"] == "done" for events in seen.values()):
            event = receive(socket)
            seen[event["id"]].append(event)
    for events in seen.values():
        assert [event["seq"] for event in events] == list(range(len(events)))


def test_cancelling_one_stream_ends_its_provider_and_no_other(gateway: LiveGateway, replay: ReplayServer) -> None:
    aborted = replay.aborted
    with connected(gateway) as socket:
        ask(socket, "kept", "as-openai/text?silence=3", metadata={"request_id": "ws-kept"})
        while receive(socket)["type"] != "delta":
            pass
        ask(socket, "gone", "as-anthropic/text?silence=5", metadata={"request_id": "ws-gone"})
        while receive(socket)["id"] != "gone":
            pass
        send(socket, type="cancel", id="gone")
        rest = [receive(socket)]
        while rest[-1]["type"] != "error":
            rest.append(receive(socket))
        assert rest[-1]["id"] == "gone"
        assert rest[-1]["data"]["code"] == "cancelled"
        assert eventually(lambda: replay.aborted == aborted + 1)
        assert len(gateway.application.live) == 1
        send(socket, type="cancel", id="gone")  # it has ended: nothing happens
        send(socket, type="cancel", id="never")
        ask(socket, "next", "as-openai/text")
        assert answer(socket, "next")[-1]["type"] == "done"
    assert eventually(lambda: replay.aborted == aborted + 2), "closing the connection cancels what runs"
    assert eventually(lambda: not gateway.application.live)


def test_a_cancelled_stream_before_its_first_token(gateway: LiveGateway, replay: ReplayServer) -> None:
    aborted, asked = replay.aborted, len(replay.requests)
    with connected(gateway) as socket:
        ask(socket, "a", "as-openai/text?hang=1")
        assert eventually(lambda: len(replay.requests) > asked)
        send(socket, type="cancel", id="a")
        events = answer(socket, "a")
    assert [event["type"] for event in events] == ["start", "error"]
    assert events[-1]["data"]["code"] == "cancelled"
    assert eventually(lambda: replay.aborted == aborted + 1)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"model": "nobody/nothing"}, "model_not_found"),
        ({"model": "as-openai/text?status=429"}, "provider_rate_limited"),
        ({"model": "as-openai/text", "messages": "x"}, "invalid_request"),
        ({"model": "as-openai/text", "stream": False}, "invalid_request"),
        ({"model": "as-openai/text", "temperature": "warm"}, "invalid_request"),
    ],
)
def test_failures_are_events_of_their_stream(gateway: LiveGateway, fields: dict[str, Any], code: str) -> None:
    with connected(gateway) as socket:
        send(socket, **{"type": "request", "id": "a", "messages": USER, **fields})
        events = answer(socket, "a")
        assert [event["type"] for event in events] == ["start", "error"]
        assert events[-1]["data"]["code"] == code
        assert events[-1]["data"]["message"]
        ask(socket, "a", "as-openai/text")  # the id is free again, the connection as good as new
        assert answer(socket, "a")[-1]["type"] == "done"


@pytest.mark.parametrize(
    ("sent", "code", "words"),
    [
        (b"\x00\x01", 1003, "text frames"),
        ("{", 1007, "no JSON"),
        ("[]", 1007, "JSON object"),
        ('{"id": "a"}', 1008, "type must be one of"),
        ('{"type": ["request"], "id": "a"}', 1008, "type must be one of"),
        ('{"type": "request"}', 1008, "id must be"),
        ('{"type": "cancel", "id": 7}', 1008, "id must be"),
        (json.dumps({"type": "cancel", "id": "x" * 201}), 1008, "id must be"),
        ("[" * 100_000, 1007, "no JSON"),
    ],
)
def test_bad_messages_close_the_connection_with_a_reason(
    gateway: LiveGateway, sent: str | bytes, code: int, words: str
) -> None:
    with connected(gateway) as socket:
        socket.send(sent)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code
    assert words in closed.value.rcvd.reason


def test_an_id_in_use(gateway: LiveGateway, replay: ReplayServer) -> None:
    aborted = replay.aborted
    with connected(gateway) as socket:
        ask(socket, "a", "as-openai/text?silence=3")
        ask(socket, "a", "as-openai/text")
        with pytest.raises(ConnectionClosed) as closed:  # noqa: PT012  # events come first
            while True:
                socket.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1008
    assert eventually(lambda: not gateway.application.live)
    assert replay.aborted <= aborted + 1


def test_a_message_over_the_limit(servers: LoopThread, replay: ReplayServer) -> None:
    with (
        live_gateway(servers, gateway_config(replay.base_url, "limits: {body_bytes: 2KiB}")) as small,
        connected(small) as socket,
    ):
        ask(socket, "a", "as-openai/text", user="x" * 3000)
        with pytest.raises(ConnectionClosed) as closed:
            socket.recv(timeout=20)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1009


def test_fragments_and_pings(gateway: LiveGateway) -> None:
    with connected(gateway) as socket:
        assert socket.ping("alive?").wait(20)
        whole = json.dumps({"type": "request", "id": "a", "model": "as-openai/text", "messages": USER})
        socket.send(iter([whole[:10], whole[10:30], whole[30:]]))
        assert answer(socket, "a")[-1]["type"] == "done"


def test_a_paused_stream_waits_and_the_others_go_on(servers: LoopThread, replay: ReplayServer) -> None:
    config = gateway_config(replay.base_url, "timeouts: {slow_consumer: 300ms}")
    with live_gateway(servers, config) as gateway, connected(gateway) as socket:
        ask(socket, "slow", "as-openai/text?silence=3")
        while receive(socket)["type"] != "delta":
            pass
        send(socket, type="cancel", id="slow")
        assert answer(socket, "slow")[-1]["type"] == "error"

        send(socket, type="request", id="paused", model="as-openai/long", messages=USER)
        send(socket, type="pause", id="paused")
        ask(socket, "other", "as-openai/text")
        events: list[dict[str, Any]] = []
        while not events or events[-1]["type"] != "done":
            events.append(receive(socket))
        assert events[-1]["id"] == "other"
        while events[-1]["type"] != "error":
            events.append(receive(socket))
        assert events[-1]["id"] == "paused"
        assert events[-1]["data"]["code"] == "consumer_too_slow"
        assert eventually(lambda: not gateway.application.live)


def test_a_paused_stream_goes_on(gateway: LiveGateway) -> None:
    with connected(gateway) as socket:
        send(socket, type="request", id="a", model="as-openai/long", messages=USER)
        send(socket, type="pause", id="a")
        ask(socket, "b", "as-openai/text")
        while (event := receive(socket))["id"] != "b" or event["type"] != "done":
            pass
        send(socket, type="resume", id="a")
        while (event := receive(socket))["type"] != "done":
            pass
        assert event["id"] == "a"


# Who may connect.


@pytest.fixture(scope="module")
def guarded(
    servers: LoopThread, replay: ReplayServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[LiveGateway, str]]:
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    _, secret = KeyFile(file).create("ws", now=datetime.datetime.now(datetime.UTC), concurrent_streams=1)
    with live_gateway(servers, gateway_config(replay.base_url, f"keys_file: {file}")) as gateway:
        yield gateway, secret


@pytest.mark.parametrize("way", ["header", "subprotocol", "message"])
def test_keys(guarded: tuple[LiveGateway, str], way: str) -> None:
    gateway, secret = guarded
    headers = {"x-api-key": secret} if way == "header" else {}
    offers = ("headrace-gateway-1.0", f"headrace-key.{secret}") if way == "subprotocol" else ()
    with connected(gateway, *offers, **headers) as socket:
        if way == "message":
            send(socket, type="auth", key=secret)
        request_id = f"ws-{way}"
        ask(socket, "a", "as-openai/text", metadata={"request_id": request_id})
        events = answer(socket, "a")
        assert events[-1]["type"] == "done", events[-1]
        assert socket.subprotocol in (None, "headrace-gateway-1.0")
        ask(socket, "first", "as-openai/text?silence=3")
        while receive(socket)["type"] != "delta":
            pass
        ask(socket, "second", "as-openai/text")
        while (event := receive(socket))["id"] != "second" or event["type"] != "error":
            pass
        assert event["data"]["code"] == "quota_exceeded"
    assert eventually(lambda: not gateway.application.live)


def test_without_a_key_nothing_is_served(guarded: tuple[LiveGateway, str]) -> None:
    gateway, _ = guarded
    for message in ({"type": "auth", "key": "hr-wrong"}, {"type": "auth"}, {"type": "cancel", "id": "a"}):
        with connected(gateway) as socket:
            send(socket, **message)
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(timeout=20)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
    with pytest.raises(InvalidStatus) as refused, connected(gateway, authorization="Bearer wrong"):
        pass
    assert refused.value.response.status_code == 401
    assert json.loads(refused.value.response.body or b"")["error"]["message"]


def test_pages_of_strangers(servers: LoopThread, replay: ReplayServer, gateway: LiveGateway) -> None:
    with pytest.raises(InvalidStatus) as refused, connected(gateway, origin="https://evil.example"):
        pass
    assert refused.value.response.status_code == 403
    with connected(gateway, origin=gateway.url) as socket:
        ask(socket, "a", "as-openai/text")
        assert answer(socket, "a")[-1]["type"] == "done"
    config = gateway_config(replay.base_url, "server: {allowed_origins: ['https://app.example']}")
    with live_gateway(servers, config) as open_gateway, connected(open_gateway, origin="https://app.example") as socket:
        ask(socket, "a", "as-openai/text")
        assert answer(socket, "a")[-1]["type"] == "done"


def test_other_paths_and_offers(gateway: LiveGateway) -> None:
    with pytest.raises(InvalidStatus) as refused, connect(gateway.url.replace("http", "ws") + "/v1/chat"):
        pass
    assert refused.value.response.status_code == 404
    with pytest.raises(InvalidStatus) as refused, connected(gateway, "graphql-ws"):
        pass
    assert refused.value.response.status_code == 400
    plain = http.client.HTTPConnection("127.0.0.1", gateway.port)
    plain.request("GET", "/v1/ws")
    assert plain.getresponse().status in (404, 426)
    plain.close()


def test_the_end_of_the_server(servers: LoopThread, replay: ReplayServer) -> None:
    with live_gateway(servers, gateway_config(replay.base_url)) as gateway:
        events = []
        with connected(gateway) as socket:
            ask(socket, "a", "as-openai/text?silence=3")
            while receive(socket)["type"] != "delta":
                pass
            gateway.stop()
            with pytest.raises(ConnectionClosed) as closed:  # noqa: PT012  # events come first
                while True:
                    events.append(receive(socket))
    assert events[-1]["type"] == "error"
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001


# Other clients.


def test_node(gateway: LiveGateway) -> None:
    if not (JS / "node_modules").exists():
        pytest.skip("the JavaScript packages are not installed: run make test")
    command = ["node", "websocket.mjs", gateway.url.replace("http", "ws") + "/v1/ws"]
    done = subprocess.run(command, cwd=JS, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["text"] == "".join(
        event["data"]["content"] for event in over_http(gateway, "as-openai/text") if event["type"] == "delta"
    )
    assert found["cancelled"] == "cancelled"


PAGE = """
const socket = new WebSocket(%s, %s);
let text = '';
socket.onopen = () => socket.send(JSON.stringify({type: 'request', id: 'a', model: 'as-openai/text', messages: %s}));
socket.onclose = (event) => report({closed: event.code, reason: event.reason});
socket.onmessage = ({data}) => {
  const event = JSON.parse(data);
  if (event.type === 'delta') text += event.data.content;
  if (event.type === 'error') report(event);
  if (event.type === 'done') report({text, usage: event.usage, protocol: socket.protocol});
};
"""


def test_a_browser_with_a_key(guarded: tuple[LiveGateway, str], tmp_path: Path) -> None:
    gateway, secret = guarded
    url = gateway.url.replace("http", "ws") + "/v1/ws"
    offers = ["headrace-gateway-1.0", f"headrace-key.{secret}"]
    with served(PAGE % (json.dumps(url), json.dumps(offers), json.dumps(USER))) as page, visiting(page, tmp_path):
        found = page.report()
    assert found["protocol"] == "headrace-gateway-1.0"
    assert "headrace" in found["text"].lower() or found["text"]
    assert found["usage"]["completion_tokens"] > 0


def test_a_browser_page_of_strangers(gateway: LiveGateway, tmp_path: Path) -> None:
    url = gateway.url.replace("http", "ws") + "/v1/ws"
    with served(PAGE % (json.dumps(url), "[]", json.dumps(USER))) as page, visiting(page, tmp_path):
        assert page.report()["closed"] == 1006
