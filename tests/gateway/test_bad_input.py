"""Bad input: a clear 4xx in the caller's format, at once, and the server goes on."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from headrace.config import Config, loads
from tests.gateway.client import Connection, get, post
from tests.gateway.test_serving import CALLERS, LLM_REQUEST, USER
from tests.live import LiveGateway, LoopThread, live_gateway


def error_of(caller: str, body: Any) -> tuple[str, str]:
    """(message, everything else as text) of an error body, by the caller's format; fails where the shape is another's."""
    if caller == "anthropic":
        assert body["type"] == "error"
        return body["error"]["message"], json.dumps(body["error"])
    error = body["error"]
    if caller == "openai":
        assert {"message", "type", "param", "code"} <= set(error)
    else:
        assert {"code", "message"} <= set(error)
    return error["message"], json.dumps(error)


def valid(caller: str) -> dict[str, Any]:
    return {"model": "as-openai/text", "stream": True, **CALLERS[caller][2]}


def changed(caller: str, **changes: Any) -> bytes:
    body = valid(caller)
    for name, value in changes.items():
        if value is ...:
            body.pop(name, None)
        else:
            body[name] = value
    return json.dumps(body).encode()


def message(**fields: Any) -> list[dict[str, Any]]:
    return [*USER, fields]


BAD: dict[str, Any] = {
    # name: (body of a caller -> bytes, text that the error holds)
    "no JSON": (lambda c: b"{", ""),
    "empty": (lambda c: b"", ""),
    "an array": (lambda c: b"[]", "object"),
    "a string": (lambda c: b'"x"', "object"),
    "null": (lambda c: b"null", "object"),
    "invalid UTF-8": (lambda c: b'{"model":"\xff\xfe"}', "UTF-8"),
    "deep nesting": (lambda c: b"[" * 5_000_000 + b"]" * 5_000_000, ""),
    "deep nesting in a field": (
        lambda c: b'{"model":"as-openai/text","messages":' + b'{"a":' * 200_000 + b"1" + b"}" * 200_001,
        "",
    ),
    "model missing": (lambda c: changed(c, model=...), "model"),
    "model a number": (lambda c: changed(c, model=5), "model"),
    "messages missing": (lambda c: changed(c, messages=...), "messages"),
    "messages empty": (lambda c: changed(c, messages=[]), "messages"),
    "messages a string": (lambda c: changed(c, messages="hi"), "messages"),
    "message a string": (lambda c: changed(c, messages=["hi"]), "messages[0]"),
    "unknown role": (lambda c: changed(c, messages=message(role="wizard", content="x")), "messages[1]"),
    "role a number": (lambda c: changed(c, messages=message(role=1, content="x")), "messages[1]"),
    "content a number": (lambda c: changed(c, messages=message(role="user", content=5)), "messages[1].content"),
    "part without type": (lambda c: changed(c, messages=message(role="user", content=[{"text": "x"}])), "messages[1]"),
    "text part without text": (
        lambda c: changed(c, messages=message(role="user", content=[{"type": "text"}])),
        "messages[1].content[0]",
    ),
    "text part with a number": (
        lambda c: changed(c, messages=message(role="user", content=[{"type": "text", "text": 5}])),
        "messages[1].content[0]",
    ),
    "stream a string": (lambda c: changed(c, stream="yes"), "stream"),
    "temperature a string": (
        lambda c: changed(
            c, **({"parameters": {"temperature": "hot"}} if c == "llm-stream" else {"temperature": "hot"})
        ),
        "temperature",
    ),
    "max_tokens negative": (
        lambda c: changed(c, **({"parameters": {"max_tokens": -1}} if c == "llm-stream" else {"max_tokens": -1})),
        "max_tokens",
    ),
    "max_tokens beyond any integer": (
        lambda c: changed(
            c, **({"parameters": {"max_tokens": 10**40}} if c == "llm-stream" else {"max_tokens": 10**40})
        ),
        "",
    ),
    "number out of range": (lambda c: changed(c)[:-1] + b',"temperature":1e999,"parameters":{"top_p":1e999}}', ""),
    "tools a string": (lambda c: changed(c, tools="all"), "tools"),
    "tool without name": (
        lambda c: changed(
            c, tools=[{"input_schema": {}} if c == "anthropic" else {"type": "function", "function": {}}]
        ),
        "tools[0]",
    ),
}


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("case", BAD)
def test_bad_bodies(gateway: LiveGateway, caller: str, case: str) -> None:
    make, place = BAD[case]
    path, content_type, _ = CALLERS[caller]
    answer = post(gateway.port, path, make(caller), content_type=content_type)
    expected = {"model missing": (400, 404)}.get(case, (400,))
    assert answer.status in expected, answer.body[:300]
    assert answer.headers["content-type"] == "application/json"
    text, everything = error_of(caller, answer.json())
    assert text
    assert place in everything
    assert len(answer.body) < 2000
    assert get(gateway.port, "/healthz").status == 200


TOOL_MESSAGE = {"role": "tool", "content": "24 degrees"}
SPECIAL: dict[str, tuple[str, bytes, int, str]] = {
    # name: (caller, body, status, text in the error)
    "tool message without tool_call_id, openai": (
        "openai", changed("openai", messages=[*USER, TOOL_MESSAGE]), 400, "tool_call_id"
    ),
    "tool message without tool_call_id, llm-stream": (
        "llm-stream", changed("llm-stream", messages=[*USER, TOOL_MESSAGE]), 400, "tool_call_id"
    ),
    "tool message without tool_call_id, gateway": (
        "gateway", changed("gateway", messages=[*USER, TOOL_MESSAGE]), 400, "tool_call_id"
    ),
    "tool_result without tool_use_id": (
        "anthropic",
        changed("anthropic", messages=message(role="user", content=[{"type": "tool_result", "content": "x"}])),
        400,
        "tool_use_id",
    ),
    "version 2.0": ("llm-stream", changed("llm-stream", version="2.0"), 400, "version"),
    "version missing": ("llm-stream", changed("llm-stream", version=...), 400, "version"),
    "no base64, llm-stream": (
        "llm-stream",
        changed(
            "llm-stream",
            messages=message(role="user", content=[{"type": "image", "media_type": "image/png", "data": "%%%"}]),
        ),
        400,
        "messages[1].content[0].data",
    ),
    "no base64, openai": (
        "openai",
        changed(
            "openai",
            messages=message(
                role="user",
                content=[{"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}}],
            ),
        ),
        400,
        "messages[1].content[0].image_url.url",
    ),
    "no base64, anthropic": (
        "anthropic",
        changed(
            "anthropic",
            messages=message(
                role="user",
                content=[{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "%%%"}}],
            ),
        ),
        400,
        "messages[1].content[0].source",
    ),
    "max_tokens missing, anthropic": ("anthropic", changed("anthropic", max_tokens=...), 400, "max_tokens"),
    "unknown model": ("openai", changed("openai", model="nobody/knows"), 404, "nobody/knows"),
    "unknown model, anthropic": ("anthropic", changed("anthropic", model="unheard-of"), 404, "unheard-of"),
    "unknown extension key": (
        "llm-stream", changed("llm-stream", extensions={"openai": {}}), 400, "extensions"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SPECIAL)
def test_special_cases(gateway: LiveGateway, case: str) -> None:
    caller, body, status, place = SPECIAL[case]
    path, content_type, _ = CALLERS[caller]
    answer = post(gateway.port, path, body, content_type=content_type)
    assert answer.status == status, answer.body[:300]
    _, everything = error_of(caller, answer.json())
    assert place in everything


@pytest.mark.parametrize("caller", CALLERS)
def test_nul_is_text_like_any_other(gateway: LiveGateway, caller: str) -> None:
    path, content_type, _ = CALLERS[caller]
    body = changed(caller, model="as-openai/echo", messages=[{"role": "user", "content": "a\0b"}])
    answer = post(gateway.port, path, body, content_type=content_type)
    assert answer.status == 200
    assert b"a\\u0000b" in answer.body


@pytest.mark.parametrize(
    ("path", "content_type", "status"),
    [
        ("/v1/chat", "text/plain", 415),
        ("/v1/chat/completions", "application/x-www-form-urlencoded", 415),
        ("/v1/messages", "application/xml", 415),
        ("/v1/chat", "application/llm-request+json; version=2.0", 415),
        ("/v1/chat", "application/json; charset=utf-16", 415),
        ("/v1/chat", 'application/json; profile="nobody"', 415),
    ],
)
def test_content_types_that_are_not_served(gateway: LiveGateway, path: str, content_type: str, status: int) -> None:
    answer = post(gateway.port, path, valid("openai"), content_type=content_type)
    assert answer.status == status
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize("accept", ["text/html", "application/xml", 'text/event-stream; profile="nobody"', "image/*"])
@pytest.mark.parametrize("caller", CALLERS)
def test_accept_that_cannot_be_met(gateway: LiveGateway, caller: str, accept: str) -> None:
    path, content_type, _ = CALLERS[caller]
    answer = post(gateway.port, path, valid(caller), content_type=content_type, accept=accept)
    assert answer.status == 406
    error_of(caller, answer.json())


@pytest.fixture(scope="module")
def small(servers: LoopThread) -> Any:
    text = """
limits: {body_bytes: 2KiB, head_bytes: 1KiB}
timeouts: {request_body: 300ms, request_head: 300ms}
"""
    config: Config = loads(text, filename="small.yaml", env={})
    with live_gateway(servers, config) as gateway:
        yield gateway


@pytest.mark.parametrize("caller", CALLERS)
def test_body_over_the_limit(small: LiveGateway, caller: str) -> None:
    path, content_type, _ = CALLERS[caller]
    answer = post(small.port, path, b" " * 3000, content_type=content_type)
    assert answer.status == 413
    text, _ = error_of(caller, answer.json())
    assert "2048" in text


def test_chunked_body_over_the_limit(small: LiveGateway) -> None:
    with Connection(small.port) as connection:
        head = b"POST /v1/messages HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n"
        connection.sock.sendall(head + b"400\r\n" + b" " * 1024 + b"\r\n")
        connection.sock.sendall((b"400\r\n" + b" " * 1024 + b"\r\n") * 2)
        assert connection.answer().status == 413


@pytest.mark.parametrize("at_once", [True, False])
def test_head_over_the_limit(small: LiveGateway, at_once: bool) -> None:
    with Connection(small.port) as connection:
        head = b"POST /v1/messages HTTP/1.1\r\nhost: t\r\nx-long: " + b"x" * 1500
        connection.sock.sendall(head + (b"\r\ncontent-length: 0\r\n\r\n" if at_once else b""))
        answer = connection.answer()
        assert answer.status == 431
        assert answer.json()["error"]["message"]


def test_slow_head(small: LiveGateway) -> None:
    with Connection(small.port) as connection:
        connection.sock.sendall(b"POST /v1/messages HTTP/1.1\r\nhost")
        assert connection.answer().status == 408


def test_a_connection_that_says_nothing_is_closed(small: LiveGateway) -> None:
    with Connection(small.port) as connection:
        assert connection.sock.recv(100) == b""


@pytest.mark.parametrize("caller", CALLERS)
def test_slow_body(small: LiveGateway, caller: str) -> None:
    path, content_type, _ = CALLERS[caller]
    with Connection(small.port) as connection:
        head = f"POST {path} HTTP/1.1\r\nhost: t\r\ncontent-type: {content_type}\r\ncontent-length: 100\r\n\r\n"
        connection.sock.sendall(head.encode() + b'{"model"')
        answer = connection.answer()
    assert answer.status == 408
    error_of(caller, answer.json())


def test_broken_http(small: LiveGateway) -> None:
    with Connection(small.port) as connection:
        connection.sock.sendall(b"NOT HTTP AT ALL\r\n\r\n")
        answer = connection.answer()
    assert answer.status == 400
    assert answer.json()["error"]["type"] == "invalid_http"


def test_callers_who_leave_in_the_middle_of_a_request_harm_nobody(small: LiveGateway) -> None:
    for _ in range(20):
        sock = socket.create_connection(("127.0.0.1", small.port), 5)
        sock.sendall(b"POST /v1/messages HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\n{")
        sock.close()
    assert get(small.port, "/healthz").status == 200


def test_an_llm_request_is_understood_on_every_path(gateway: LiveGateway) -> None:
    body = {"version": "1.0", "stream": True, "model": "as-anthropic/text", "messages": USER}
    for path in ("/v1/chat", "/v1/chat/completions", "/v1/messages"):
        answer = post(gateway.port, path, body, content_type=LLM_REQUEST)
        assert answer.sse()[0][0] == "stream.start"
