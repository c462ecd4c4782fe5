"""Providers that misbehave in ways a replay cannot: scripted byte by byte, towards every caller's format."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.config import loads
from tests.gateway.client import Answer, post
from tests.gateway.test_serving import CALLERS
from tests.live import LiveGateway, LoopThread, live_gateway

SECRET = "sk-secret-1234567890abcdef"
SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def chunk(delta: dict[str, Any] | None, finish: str | None = None, **members: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **members}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def call(index: Any, id: str = "c", name: str = "f") -> bytes:
    function = {"name": name, "arguments": "{}"}
    return chunk({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})


def whole(status: str, headers: str, body: bytes) -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}content-length: {len(body)}\r\n\r\n".encode() + body


END = chunk({}, "stop") + b"data: [DONE]\n\n"
HI = chunk({"content": "a"})
REFUSAL = json.dumps({"error": {"message": f"Incorrect API key provided: {SECRET}", "code": "invalid_api_key"}})

FINE: dict[str, bytes] = {
    # odd, but an answer
    "lone surrogate": SSE + b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n' + END,
    "two lone surrogates": SSE + b'data: {"choices":[{"index":0,"delta":{"content":"a\\ud83d"}}]}\n\n' * 3 + END,
    "NUL in the event's name": SSE + b"event: x\0\n" + HI + END,
    "tool index negative": SSE + call(-1) + END,
    "tool index huge": SSE + call(10**18) + END,
    "tool index a string": SSE + call("a") + END,
    "tool index null": SSE + call(None) + END,
    "line ends in names and ids": SSE + call(0, "c\n\nevent: evil\ndata: {}\n\n", "f\r\nevent: evil") + END,
    "line end in the model": SSE + chunk({"content": "a"}, model="m\nevent: evil") + END,
    "usage of strings": SSE + HI + chunk(None, usage={"prompt_tokens": "5"}) + END,
    "usage negative": SSE + HI + chunk(None, usage={"prompt_tokens": -5}) + END,
    "usage huge": SSE + HI + chunk(None, usage={"prompt_tokens": 10**30}) + END,
    "usage a list": SSE + HI + chunk(None, usage=[]) + END,
    "finish twice": SSE + chunk({"content": "a"}, "stop") + END,
    "text after the finish": SSE + chunk({"content": "a"}, "stop") + HI + b"data: [DONE]\n\n",
    "more after the end": SSE + HI + END + HI + END,
    "null delta": SSE + b'data: {"choices":[{"index":null,"delta":null}]}\n\n' + HI + END,
    "three thousand calls": SSE + b"".join(call(i, f"c{i}") for i in range(3000)) + END,
}
BROKEN: dict[str, tuple[bytes, int]] = {
    "HTML": (whole("200 OK", "content-type: text/html\r\n", b"<html>"), 503),
    "compressed": (whole("200 OK", "content-type: text/event-stream\r\ncontent-encoding: gzip\r\n", b"x"), 503),
    "redirect": (whole("301 Moved", "location: http://127.0.0.1:1/\r\n", b""), 503),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", 503),
    "no HTTP": (b"\0\1\2 nonsense\r\n\r\n", 503),
    "endless headers": (b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000, 503),
    "the key quoted": (whole("401 Unauthorized", "content-type: application/json\r\n", REFUSAL.encode()), 401),
    "invalid UTF-8": (SSE + b'data: {"choices":[{"index":0,"delta":{"content":"\xff"}}]}\n\n' + END, 503),
    "choices of null": (SSE + b'data: {"choices":[null]}\n\n' + END, 503),
    "a number": (SSE + b"data: 5\n\n" + END, 503),
    "deep nesting": (SSE + b"data: " + b"[" * 100_000 + b"]" * 100_000 + b"\n\n" + END, 503),
    "a frame without end": (SSE + b"data: " + b"x" * 2_000_000, 503),
}


@pytest.fixture(scope="module")
def misled(servers: LoopThread) -> Iterator[LiveGateway]:
    """A gateway whose provider `p` answers what FINE and BROKEN hold under the model's name."""
    answers = {**FINE, **{name: data for name, (data, _) in BROKEN.items()}}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            writer.write(answers[json.loads(await reader.readexactly(length))["model"]])
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the gateway has seen enough
        finally:
            writer.close()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.1", 0)

    async def stop(server: asyncio.Server) -> None:
        server.close()
        await server.wait_closed()

    server = servers.call(start())
    port = server.sockets[0].getsockname()[1]
    text = f"""
providers: {{p: {{format: openai_chat, base_url: 'http://127.0.0.1:{port}/v1', api_key_env: KEY}}}}
limits: {{frame_bytes: 1MiB}}
"""
    env = {"KEY": SECRET}
    with live_gateway(servers, loads(text, filename="t.yaml", env=env), env) as gateway:
        yield gateway
    servers.call(stop(server))


def ask(gateway: LiveGateway, caller: str, model: str) -> Answer:
    path, content_type, body = CALLERS[caller]
    return post(gateway.port, path, {"model": f"p/{model}", "stream": True, **body}, content_type=content_type)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("model", FINE)
def test_odd_answers_are_answers(misled: LiveGateway, caller: str, model: str) -> None:
    answer = ask(misled, caller, model)
    assert answer.status == 200, answer.body[:300]
    assert answer.complete
    last = answer.sse()[-1]
    assert last[1] == "[DONE]" or last[0] in ("message_stop", "stream.end", "done")
    assert not any(name.startswith("evil") for name, _ in answer.sse())
    assert "error" not in [name for name, _ in answer.sse()]


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("model", BROKEN)
def test_what_is_no_answer_is_a_plain_error(misled: LiveGateway, caller: str, model: str) -> None:
    answer = ask(misled, caller, model)
    assert answer.status == BROKEN[model][1], answer.body[:300]
    assert answer.json()["error"]["message"]
    assert int(answer.headers["content-length"]) == len(answer.body)
    assert SECRET.encode() not in answer.body
    assert b"Traceback" not in answer.body
