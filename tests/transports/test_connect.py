"""Connect, Connect with JSON and gRPC-Web over real sockets: connect-node (also over gRPC), raw HTTP, and connectrpc."""

from __future__ import annotations

import base64
import gzip
import json
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc_tools
import pytest
from connectrpc.client import ConnectClientSync
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.protocol import ProtocolType
from grpc_tools import protoc

from headrace.tape import ReplayServer
from headrace.v1 import gateway_pb2 as pb
from headrace.v1.generate import PROTO, SOURCE
from tests.gateway.client import Answer, post
from tests.gateway.test_life import eventually
from tests.live import LiveGateway, LoopThread, gateway_config, live_gateway
from tests.transports.browser import served, visiting
from tests.transports.test_grpc import GRPC, address
from tests.transports.test_websocket import JS

CHAT, ONCE = "/headrace.v1.LlmGateway/Chat", "/headrace.v1.LlmGateway/ChatOnce"
ASKED = {"model": "as-openai/text", "messages": [{"role": "user", "content": "What?"}]}


@pytest.fixture(scope="module")
def both(servers: LoopThread, replay: ReplayServer) -> Iterator[LiveGateway]:
    with live_gateway(servers, gateway_config(replay.base_url, GRPC)) as live:
        yield live


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What protoc makes of the .proto for callers in any language, in base64."""
    target = tmp_path_factory.mktemp("descriptors") / "gateway.binpb"
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    folders = [f"-I{SOURCE}", f"-I{well_known}"]
    assert protoc.main(["protoc", *folders, "--include_imports", f"--descriptor_set_out={target}", PROTO]) == 0
    return base64.b64encode(target.read_bytes())


@pytest.mark.parametrize(
    ("protocol", "codec"), [("connect", "proto"), ("connect", "json"), ("grpc", "proto"), ("grpc-web", "proto")]
)
def test_connect_node(both: LiveGateway, replay: ReplayServer, descriptors: bytes, protocol: str, codec: str) -> None:
    aborted = replay.aborted
    url = f"http://{address(both)}" if protocol == "grpc" else both.url
    ran = subprocess.run(
        ["node", "connect.mjs", url, protocol, codec],
        cwd=JS,
        input=descriptors,
        capture_output=True,
        timeout=90,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    found = json.loads(ran.stdout)
    for name in ("text", "tools", "reasoning", "llmStream"):
        assert found[name]["seqs"] == list(range(len(found[name]["seqs"]))), found[name]
        assert "code" not in found[name]
    assert found["text"]["kinds"][0] == "start"
    assert found["text"]["kinds"][-1] == "done"
    assert found["text"]["text"]
    assert len(found["tools"]["calls"]) > 1
    assert found["reasoning"]["reasoning"]
    assert set(found["llmStream"]["kinds"]) == {"llmStream"}
    assert found["early"]["kinds"] == []
    assert found["early"]["details"]
    assert found["late"]["kinds"][-1] == "error"
    assert found["late"]["details"]
    assert found["unknown"]["code"] == "NotFound"
    assert found["unknown"]["details"] == ["model_not_found"]
    assert found["once"]
    assert found["onceUnknown"] == {"code": "NotFound", "details": ["model_not_found"]}
    assert found["deadline"]["code"] == "DeadlineExceeded"
    assert found["cancelled"] == "Canceled"
    assert eventually(lambda: replay.aborted == aborted + 2)
    assert eventually(lambda: not both.application.live)


def framed(data: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BI", flags, len(data)) + data


def frames(body: bytes) -> list[tuple[int, bytes]]:
    found = []
    while body:
        flags, size = struct.unpack_from(">BI", body)
        found.append((flags, body[5 : 5 + size]))
        body = body[5 + size :]
    return found


def connect_json(gateway: LiveGateway, body: bytes, **headers: str) -> Answer:
    return post(gateway.port, CHAT, body, content_type="application/connect+json", headers=headers)


def test_a_stream_as_bytes(both: LiveGateway) -> None:
    answer = connect_json(both, framed(json.dumps(ASKED).encode()))
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/connect+json"
    *events, end = frames(answer.body)
    assert end == (2, b"{}")
    assert {flags for flags, _ in events} == {0}
    assert "start" in json.loads(events[0][1])
    squeezed = connect_json(both, framed(gzip.compress(json.dumps(ASKED).encode()), 1))
    assert len(frames(squeezed.body)) == len(events) + 1


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "one message"),
        (framed(b"{}") * 2, "one message"),
        (framed(b"{}")[:-1], "inside an envelope"),
        (framed(b"{}", 0x80), "flags"),
        (framed(b"x", 1), "gzip"),
        (framed(b"{"), "headrace.v1.ChatRequest"),
        (framed(b'{"nonsense": 1}'), "nonsense"),
        (framed(b'{"model": "as-openai/text"}'), "messages"),
    ],
)
def test_bad_bodies(both: LiveGateway, body: bytes, message: str) -> None:
    ((flags, end),) = frames(connect_json(both, body).body)
    assert flags == 2
    error = json.loads(end)["error"]
    assert error["code"] == "invalid_argument"
    assert message in error["message"]
    assert error["details"][0]["type"] == "headrace.v1.Error"


def test_what_is_not_served(both: LiveGateway) -> None:
    assert post(both.port, CHAT, b"", content_type="application/json").status == 415
    assert post(both.port, ONCE, b"", content_type="application/connect+proto").status == 415
    grpc_here = post(both.port, CHAT, b"", content_type="application/grpc")
    assert (grpc_here.status, "server.grpc" in grpc_here.json()["message"]) == (415, True)
    assert post(both.port, "/headrace.v1.LlmGateway/Nothing", b"").status == 404
    late = post(both.port, ONCE, ASKED, headers={"connect-timeout-ms": "soon"})
    assert (late.status, late.json()["code"]) == (400, "invalid_argument")


def test_a_body_beyond_the_limit(servers: LoopThread, replay: ReplayServer) -> None:
    with live_gateway(servers, gateway_config(replay.base_url, "limits: {body_bytes: 4KiB}\n")) as live:
        large = json.dumps({**ASKED, "user": "x" * 9000}).encode()
        answer = post(live.port, ONCE, large)
        assert (answer.status, answer.json()["code"]) == (429, "resource_exhausted")
        bomb = post(live.port, ONCE, gzip.compress(large), headers={"content-encoding": "gzip"})
        assert (bomb.status, bomb.json()["code"]) == (429, "resource_exhausted")
        ((_, end),) = frames(connect_json(live, framed(gzip.compress(large), 1)).body)
        assert json.loads(end)["error"]["code"] == "resource_exhausted"


def test_origins(servers: LoopThread, replay: ReplayServer) -> None:
    config = gateway_config(replay.base_url, 'server: {allowed_origins: ["https://app.example"]}\n')
    with live_gateway(servers, config) as live:
        good = post(live.port, ONCE, ASKED, headers={"origin": "https://app.example"})
        assert good.headers["access-control-allow-origin"] == "https://app.example"
        assert "grpc-status" in good.headers["access-control-expose-headers"]
        bad: Any = post(live.port, ONCE, ASKED, headers={"origin": "https://evil.example"})
        assert (bad.status, bad.json()["code"]) == (403, "permission_denied")
        assert "access-control-allow-origin" not in bad.headers


IMPORTS = {
    "@bufbuild/protobuf": "@bufbuild/protobuf/dist/esm/index.js",
    "@bufbuild/protobuf/wkt": "@bufbuild/protobuf/dist/esm/wkt/index.js",
    "@bufbuild/protobuf/wire": "@bufbuild/protobuf/dist/esm/wire/index.js",
    "@bufbuild/protobuf/reflect": "@bufbuild/protobuf/dist/esm/reflect/index.js",
    "@bufbuild/protobuf/codegenv2": "@bufbuild/protobuf/dist/esm/codegenv2/index.js",
    "@connectrpc/connect": "@connectrpc/connect/dist/esm/index.js",
    "@connectrpc/connect/protocol": "@connectrpc/connect/dist/esm/protocol/index.js",
    "@connectrpc/connect/protocol-connect": "@connectrpc/connect/dist/esm/protocol-connect/index.js",
    "@connectrpc/connect/protocol-grpc-web": "@connectrpc/connect/dist/esm/protocol-grpc-web/index.js",
    "@connectrpc/connect-web": "@connectrpc/connect-web/dist/esm/index.js",
}
PAGE = """
import { fromBinary, createFileRegistry } from '@bufbuild/protobuf';
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt';
import { createClient, Code, ConnectError } from '@connectrpc/connect';
import { createConnectTransport, createGrpcWebTransport } from '@connectrpc/connect-web';
const files = createFileRegistry(
  fromBinary(FileDescriptorSetSchema, Uint8Array.from(atob('DESCRIPTORS'), (c) => c.charCodeAt(0))));
const messages = [{ role: 'user', content: 'What is a headrace?' }];
const found = {};
for (const [name, make] of [['connect', createConnectTransport], ['grpcWeb', createGrpcWebTransport]]) {
  const transport = make({ baseUrl: 'URL' });
  const client = createClient(files.getService('headrace.v1.LlmGateway'), transport);
  const one = found[name] = { kinds: [], text: '' };
  for await (const event of client.chat({ model: 'as-openai/text', messages })) {
    one.kinds.push(event.event.case);
    if (event.event.case === 'delta') one.text += event.event.value.content;
  }
  try {
    for await (const event of client.chat({ model: 'as-openai/error', messages })) one.last = event.event.case;
  } catch (error) { one.late = ConnectError.from(error).findDetails(files.getMessage('headrace.v1.Error'))[0].code; }
  try { await client.chatOnce({ model: 'no/no', messages }); } catch (error) { one.code = Code[error.code]; }
  const abort = new AbortController();
  try {
    for await (const event of client.chat({ model: 'as-openai/text?silence=3', messages }, { signal: abort.signal }))
      abort.abort();
  } catch (error) { one.cancelled = Code[ConnectError.from(error).code]; }
}
report(found);
"""


def test_connect_web_in_chromium(servers: LoopThread, replay: ReplayServer, descriptors: bytes, tmp_path: Path) -> None:
    aborted = replay.aborted
    config = gateway_config(replay.base_url, 'server: {allowed_origins: ["*"]}\n')
    with live_gateway(servers, config) as live:
        script = PAGE.replace("DESCRIPTORS", descriptors.decode()).replace("URL", live.url)
        with served(script, JS / "node_modules", IMPORTS) as page, visiting(page, tmp_path):
            found = page.report()
        assert set(found) == {"connect", "grpcWeb"}, found
        for name, one in found.items():
            assert one["kinds"][0] == "start", name
            assert one["kinds"][-1] == "done", name
            assert one["text"], name
            assert (one["last"], bool(one["late"])) == ("error", True), name
            assert one["code"] == "NotFound", name
            assert one["cancelled"] == "Canceled", name
        assert eventually(lambda: replay.aborted == aborted + 2)


def test_a_page_of_another_origin_is_not_let_in(gateway: LiveGateway, descriptors: bytes, tmp_path: Path) -> None:
    script = (
        f"try {{ await fetch('{gateway.url}{ONCE}', {{method: 'POST', headers: {{'content-type': 'application/json'}},"
        "body: '{}'}); report('let in'); } catch (error) { report('refused'); }"
    )
    with served(script) as page, visiting(page, tmp_path):
        assert page.report() == "refused"


class MessageCodec:
    """connectrpc's clients bring their own messages; this lets them send and read those of google.protobuf."""

    def name(self) -> str:
        return "proto"

    def encode(self, message: Any) -> bytes:
        data: bytes = message.SerializeToString()
        return data

    def decode(self, data: bytes | bytearray, message_class: Any) -> Any:
        return message_class.FromString(bytes(data))


@pytest.mark.parametrize("protocol", [ProtocolType.CONNECT, ProtocolType.GRPC_WEB])
def test_connectrpc(both: LiveGateway, protocol: ProtocolType) -> None:
    """Python's client of Connect; it compresses its requests with gzip."""
    client = ConnectClientSync(both.url, codec=MessageCodec(), protocol=protocol)
    method: Any = MethodInfo(
        name="Chat",
        service_name="headrace.v1.LlmGateway",
        input=pb.ChatRequest,
        output=pb.ChatEvent,
        stream_type=StreamType.SERVER_STREAM,
        idempotency_level=IdempotencyLevel.UNKNOWN,
    )
    asked = pb.ChatRequest(model="as-openai/text", messages=[pb.Message(role="user", content="What?")])
    events: list[Any] = list(client.execute_server_stream(request=asked, method=method, timeout_ms=20_000))
    assert [event.seq for event in events] == list(range(len(events)))
    assert events[-1].HasField("done")
    asked.model = "nobody/none"
    with pytest.raises(ConnectError) as caught:
        list(client.execute_server_stream(request=asked, method=method, timeout_ms=20_000))
    assert caught.value.code is Code.NOT_FOUND
