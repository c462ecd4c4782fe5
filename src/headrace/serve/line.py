"""The caller's side of one request: what an answer needs of the connection that it goes out on, whatever transport it is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from headrace.formats import Format
from headrace.framing import Encoder
from headrace.model.errors import ErrorInfo
from headrace.serve.driver import Message, Send

Headers = list[tuple[bytes, bytes]]


class Line(Protocol):
    """Where one answer goes."""

    def send(self, message: Message, /) -> Awaitable[None]:
        """As ASGI has it: one `http.response.start`, then `http.response.body` until one has no `more_body`."""

    def refuse(self, answer: Format, info: ErrorInfo, headers: Headers, /) -> Awaitable[None]:
        """Answer with nothing but an error, in this format."""

    @property
    def encoder(self) -> Callable[[], Encoder] | None:
        """What frames the events of a stream, where that is the transport's own business (see `engine.Caller`)."""

    @property
    def tells_status(self) -> bool:
        """Whether a transport with an encoder of its own has a status for failures before the first event, too."""

    @property
    def abort(self) -> Callable[[], object]:
        """Cut the connection at once."""

    @property
    def write(self) -> Callable[[bytes], bool] | None:
        """Take a piece of the body that has begun, without ado; False: only `send` can, nothing was taken."""

    @property
    def cork(self) -> Callable[[bool], None] | None:
        """Gather what is written between True and False into one packet."""


class AsgiLine:
    """What plain ASGI offers. Ending a request's task is how servers without our extension drop a connection."""

    __slots__ = ("abort", "send")

    write = None
    cork = None
    encoder = None
    tells_status = False

    def __init__(self, send: Send, extensions: Mapping[str, Any] | None = None) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.send = send
        self.abort: Callable[[], object] = (extensions or {}).get("headrace.abort") or task.cancel

    def refuse(self, answer: Format, info: ErrorInfo, headers: Headers) -> Awaitable[None]:
        return send_error(self.send, answer, info, headers)


class Kept:
    """A Line that keeps what it is given, and never waits for anybody."""

    write = None
    cork = None
    encoder = None
    tells_status = False

    def __init__(self, abort: Callable[[], object]) -> None:
        self.abort = abort
        self.status = 0
        self.headers: tuple[tuple[bytes, bytes], ...] = ()
        self.body: list[bytes] = []
        self.complete = asyncio.Event()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], tuple(message["headers"])
        else:
            self.body.append(message.get("body", b""))
            if not message.get("more_body", False):
                self.complete.set()

    def refuse(self, answer: Format, info: ErrorInfo, headers: Headers) -> Awaitable[None]:
        return send_error(self.send, answer, info, headers)


async def send_error(send: Send, answer: Format, info: ErrorInfo, headers: Headers) -> None:
    """A whole error answer in the caller's format."""
    body = answer.write_error(info)
    status = answer.error_status(info)
    extra = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.error_headers(info)]
    if info.retry_after is not None:
        extra.append((b"retry-after", b"%d" % max(1, round(info.retry_after))))
    if status == 401:
        extra.append((b"www-authenticate", b"Bearer"))
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", b"%d" % len(body)),
                *extra,
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body, "more_body": False})
