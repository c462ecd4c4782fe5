"""HTTP/1.1 as its corners are: requests in pieces and in a row, HTTP/1.0, Expect, upgrades that are not served."""

from __future__ import annotations

import json
import socket

import pytest

from tests.gateway.client import Connection
from tests.gateway.test_life import eventually
from tests.live import LiveGateway

BODY = json.dumps({"model": "as-openai/text", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
HEAD = b"POST /v1/chat HTTP/1.1\r\nhost: t\r\ncontent-type: application/json\r\ncontent-length: %d\r\n" % len(BODY)


def request(*more: bytes) -> bytes:
    return HEAD + b"".join(line + b"\r\n" for line in more) + b"\r\n" + BODY


def everything(port: int, data: bytes) -> bytes:
    """What the gateway sends until it closes."""
    with socket.create_connection(("127.0.0.1", port), 20) as sock:
        sock.sendall(data)
        received = b""
        while piece := sock.recv(65536):
            received += piece
        return received


def test_a_request_byte_by_byte(gateway: LiveGateway) -> None:
    with Connection(gateway.port) as connection:
        for place in range(len(request())):
            connection.sock.sendall(request()[place : place + 1])
        assert connection.answer().sse_json()[-1]["type"] == "done"
        connection.sock.sendall(request())  # the connection is as good as new
        assert connection.answer().sse_json()[-1]["type"] == "done"


def test_a_body_that_comes_after_its_head(gateway: LiveGateway) -> None:
    with Connection(gateway.port) as connection:
        head, _, body = request().partition(b"\r\n\r\n")
        connection.sock.sendall(head + b"\r\n\r\n" + body[:10])
        connection.sock.sendall(body[10:])
        assert connection.answer().sse_json()[-1]["type"] == "done"


def test_pipelined_requests_are_answered_in_order(gateway: LiveGateway) -> None:
    models = b"GET /v1/models HTTP/1.1\r\nhost: t\r\n\r\n"
    with Connection(gateway.port) as connection:
        connection.sock.sendall(request() + models + request() + request())
        assert connection.answer().sse_json()[-1]["type"] == "done"
        assert connection.answer().json()["object"] == "list"
        assert connection.answer().sse_json()[-1]["type"] == "done"
        assert connection.answer().sse_json()[-1]["type"] == "done"
    assert eventually(lambda: not gateway.application.live)


def test_the_caller_of_pipelined_requests_leaves(gateway: LiveGateway) -> None:
    silent = BODY.replace(b"as-openai/text", b"as-openai/text?silence=3")
    head = HEAD.replace(b"content-length: %d" % len(BODY), b"content-length: %d" % len(silent))
    with Connection(gateway.port) as connection:
        connection.sock.sendall(head + b"\r\n" + silent + request())
        connection.head()
    assert eventually(lambda: not gateway.application.live)


@pytest.mark.parametrize("how", [b"connection: close", b"Connection: Close"])
def test_connection_close(gateway: LiveGateway, how: bytes) -> None:
    received = everything(gateway.port, request(how))
    assert b"connection: close" in received
    assert received.endswith(b"0\r\n\r\n")


def test_http_1_0_gets_no_chunks(gateway: LiveGateway) -> None:
    received = everything(gateway.port, request().replace(b"HTTP/1.1", b"HTTP/1.0", 1))
    head, _, body = received.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert body.startswith(b"event: start\n")
    assert body.rstrip().rpartition(b"\n\n")[2].startswith(b"event: done")


def test_expect_100_continue(gateway: LiveGateway) -> None:
    with Connection(gateway.port) as connection:
        connection.sock.sendall(HEAD + b"expect: 100-continue\r\n\r\n")
        assert connection.head()[0] == 100
        connection.sock.sendall(BODY)
        assert connection.answer().sse_json()[-1]["type"] == "done"


def test_expect_100_continue_of_what_is_refused(gateway: LiveGateway) -> None:
    head = HEAD.replace(b"application/json", b"text/plain")
    with Connection(gateway.port) as connection:
        connection.sock.sendall(head + b"expect: 100-continue\r\n\r\n")
        assert connection.answer().status == 415


@pytest.mark.parametrize("path", [b"/v1/chat?x=1", b"/v1/%63hat", b"http://t/v1/chat", b"/v1/chat#f"])
def test_forms_of_a_path(gateway: LiveGateway, path: bytes) -> None:
    with Connection(gateway.port) as connection:
        connection.sock.sendall(request().replace(b"/v1/chat", path, 1))
        assert connection.answer().sse_json()[-1]["type"] == "done"


def test_an_upgrade_that_is_not_served(gateway: LiveGateway) -> None:
    """A POST to a WebSocket's place is no handshake."""
    received = everything(gateway.port, request(b"connection: upgrade", b"upgrade: websocket"))
    assert received.startswith((b"HTTP/1.1 4", b""))
    assert not gateway.application.live
