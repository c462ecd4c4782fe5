"""A small, strict HTTP/1.1 client over a plain socket, so that tests see bytes and their times, not a library's view."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

TIMEOUT = 20.0


class Answer:
    """Status, lower-cased headers, and the de-chunked body; `pieces` are (seconds since the request, bytes)."""

    def __init__(self, status: int, headers: dict[str, str], pieces: list[tuple[float, bytes]], complete: bool) -> None:
        self.status = status
        self.headers = headers
        self.pieces = pieces
        self.complete = complete
        """Whether the body ended as HTTP says (last chunk, or content-length reached)."""

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    def json(self) -> Any:
        return json.loads(self.body)

    def sse(self) -> list[tuple[str, str]]:
        """(event name, data) of each event. Independent of the code under test, and as simple as the format allows."""
        events = []
        for block in self.body.decode().split("\n\n"):
            name, data = "", []
            for line in block.split("\n"):
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    data.append(line[6:])
            if data:
                events.append((name, "\n".join(data)))
        return events

    def sse_json(self) -> list[Any]:
        return [json.loads(data) for _, data in self.sse() if data != "[DONE]"]


class Connection:
    """One socket to 127.0.0.1:port."""

    def __init__(self, port: int) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port), TIMEOUT)
        self._buffer = b""

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, path: str, body: bytes, headers: Mapping[str, str] | None = None, method: str = "POST") -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: test", f"content-length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)

    def head(self) -> tuple[int, dict[str, str]]:
        while b"\r\n\r\n" not in self._buffer:
            data = self.sock.recv(65536)
            if not data:
                raise ConnectionError(f"closed before the response head, after {self._buffer!r}")
            self._buffer += data
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        headers = {}
        for line in rest:
            name, _, value = line.partition(":")
            headers[name.strip().lower()] = value.strip()
        return int(first.split(" ")[1]), headers

    def chunks(self, headers: Mapping[str, str]) -> Iterator[bytes]:
        """The body's pieces as they arrive; raises ConnectionError when it is cut."""
        if "content-length" in headers:
            left = int(headers["content-length"])
            while left:
                piece = self._buffer[:left] or self._receive()[:left]
                self._buffer = self._buffer[len(piece) :] if self._buffer else b""
                left -= len(piece)
                yield piece
            return
        while True:
            while b"\r\n" not in self._buffer:
                self._buffer += self._receive()
            size_line, _, self._buffer = self._buffer.partition(b"\r\n")
            size = int(size_line, 16)
            while len(self._buffer) < size + 2:
                self._buffer += self._receive()
            piece, self._buffer = self._buffer[:size], self._buffer[size + 2 :]
            if not size:
                return
            yield piece

    def _receive(self) -> bytes:
        data = self.sock.recv(65536)
        if not data:
            raise ConnectionError("closed inside the body")
        return data

    def answer(self) -> Answer:
        started = time.monotonic()
        status, headers = self.head()
        pieces = []
        complete = True
        try:
            for piece in self.chunks(headers) if status != 204 else ():
                pieces.append((time.monotonic() - started, piece))  # noqa: PERF401  # a cut must not lose the pieces before
        except ConnectionError:  # the pieces before the cut are kept
            complete = False
        return Answer(status, headers, pieces, complete)


def post(
    port: int,
    path: str,
    body: Any,
    *,
    content_type: str | None = "application/json",
    accept: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """One request on a connection of its own. `body`: bytes as they are, anything else as JSON."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = dict(headers or {})
    if content_type is not None:
        named["content-type"] = content_type
    if accept is not None:
        named["accept"] = accept
    with Connection(port) as connection:
        connection.send(path, sent, named)
        return connection.answer()


def get(port: int, path: str, headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
    with Connection(port) as connection:
        connection.send(path, b"", headers, method)
        return connection.answer()
