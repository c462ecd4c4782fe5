"""The connection's state machine, fed by hand: no socket, so every cut of the bytes can be tried."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.upstream import Headers, UpstreamError
from headrace.upstream.connection import MAX_DRY_BYTES, MAX_HEAD_BYTES, SMALL_BODY_BYTES, Connection
from headrace.upstream.pool import Route

ROUTE = Route(tls=False, host="provider.test", port=80, proxy=None, ssl_context=None)
REQUEST = b"POST / HTTP/1.1\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.writes: list[list[bytes]] = []
        self.aborted = False
        self.paused = False
        self.unsent = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append([bytes(data)])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.writes.append([bytes(data) for data in list_of_data])

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False


class Fake:
    """Owner, exchange and handler of one connection, recording what the connection says to each."""

    def __init__(self, *, used: bool = False, body: bytes = b"", raises: str = "") -> None:
        self.transport = FakeTransport()
        self.status = 0
        self.headers = Headers()
        self.body = b""
        self.calls: list[str] = []
        self.error: UpstreamError | None = None
        self.free = 0
        self.retries = 0
        self.detached = 0
        self.raises = raises
        self.connection = Connection(self, ROUTE)
        self.connection.connection_made(self.transport)
        self.start(body)
        if used:
            self.connection.data_received(OK + b"Content-Length: 0\r\n\r\n")
            assert self.free == 1
            self.calls.clear()
            self.start(body)

    def start(self, body: bytes = b"") -> None:
        self.connection.begin(self, self, REQUEST, body, paused=False)

    def feed(self, data: bytes, size: int = 0) -> Fake:
        """Feed `data` in reads of `size` bytes (0: all at once) until the connection is closed."""
        for start in range(0, len(data), size or len(data)):
            if not self.transport.aborted:
                self.connection.data_received(data[start : start + (size or len(data))])
        return self

    def connection_free(self, connection: Connection) -> None:
        assert connection is self.connection
        assert self.calls[-1:] != ["ended"], "the connection is free before the handler hears of the end"
        self.free += 1

    def connection_closed(self, connection: Connection) -> None:
        self.calls.append("closed")

    def response_begun(self) -> None:
        pass

    def detach(self) -> None:
        self.detached += 1

    def retry(self) -> None:
        self.retries += 1

    def _called(self, name: str) -> None:
        self.calls.append(name)
        if name == self.raises:
            raise RuntimeError("a " + "prompt")  # so that no line of this source holds the text

    def response_started(self, status: int, headers: Headers) -> None:
        self.status, self.headers = status, headers
        self._called("started")

    def data_received(self, data: bytes) -> None:
        self.body += data
        self._called("data")

    def response_ended(self) -> None:
        self._called("ended")

    def response_failed(self, error: UpstreamError) -> None:
        self.error = error
        self._called("failed")


ANSWERS = {
    "length": (OK + b"Content-Length: 5\r\n\r\nhello", 200, b"hello", True),
    "chunked": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;ext=1\r\nlo\r\n0\r\n\r\n",
        200,
        b"hello",
        True,
    ),
    "trailers": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\nContent-Encoding: gzip\r\n\r\n",
        200,
        b"hello",
        True,
    ),
    "interim answers": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
        + OK
        + b"Content-Length: 2\r\n\r\nok",
        200,
        b"ok",
        True,
    ),
    "empty": (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", 404, b"", True),
    "empty chunked": (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200, b"", True),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", True),
    "304 with a length": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, b"", True),
    "no reason phrase": (b"HTTP/1.1 500\r\nContent-Length: 1\r\n\r\nx", 500, b"x", True),
    "close": (OK + b"Connection: close\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    "1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", False),
    "1.0 keep-alive": (
        b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok",
        200,
        b"ok",
        True,
    ),
    "explicit identity": (OK + b"Content-Encoding: identity\r\nContent-Length: 2\r\n\r\nok", 200, b"ok", True),
}


@pytest.mark.parametrize("size", [0, 1, 2, 7])
@pytest.mark.parametrize(("data", "status", "body", "reusable"), ANSWERS.values(), ids=ANSWERS)
def test_an_answer_is_the_same_however_it_is_cut(
    data: bytes, status: int, body: bytes, reusable: bool, size: int
) -> None:
    fake = Fake().feed(data, size)
    assert (fake.status, fake.body) == (status, body)
    assert fake.calls[0] == "started"
    assert fake.calls[-1] == "ended"
    assert fake.calls.count("started") == fake.calls.count("ended") == fake.detached == 1
    assert (fake.free, fake.transport.aborted) == ((1, False) if reusable else (0, True))


@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(1, 150), max_size=8))
def test_random_cuts_give_the_same_answer(name: str, cuts: list[int]) -> None:
    data, status, body, _ = ANSWERS[name]
    fake = Fake()
    edges = [0, *sorted(cut for cut in set(cuts) if cut < len(data)), len(data)]
    for start, end in itertools.pairwise(edges):
        fake.connection.data_received(data[start:end])
    assert (fake.status, fake.body, fake.calls[-1]) == (status, body, "ended")


def test_one_read_is_one_call() -> None:
    fake = Fake()
    fake.feed(OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n3\r\ndef\r\n")
    fake.feed(b"1\r\ng\r\n2\r\nhi\r\n")
    fake.feed(b"1\r\n")
    fake.feed(b"j\r\n0\r\n\r\n")
    assert fake.calls == ["started", "data", "data", "data", "ended"]
    assert fake.body == b"abcdefghij"


def test_headers_are_a_multi_map_without_case() -> None:
    fake = Fake().feed(OK + b"X-A: 1\r\nx-a: 2\r\nEmpty:\r\nName: \xe9\r\nContent-Length: 0\r\n\r\n")
    headers = fake.headers
    assert headers.get("X-a") == "1"
    assert headers.get_all("X-A") == ["1", "2"]
    assert headers.get("empty") == ""
    assert headers.get("name") == "é"
    assert headers.get("absent") is None
    assert "EMPTY" in headers
    assert "absent" not in headers
    assert next(iter(headers)) == ("x-a", "1")
    assert len(headers) == 5
    assert "é" not in repr(headers)


@pytest.mark.parametrize("size", [0, 1])
@pytest.mark.parametrize(
    ("data", "calls", "message"),
    [
        (b"220 mail.example ESMTP\r\n", ["failed"], "not a valid HTTP/1.1 answer"),
        (b"\x15\x03\x01\x00\x02\x02\x16", ["failed"], "not a valid HTTP/1.1 answer"),
        (b"HTTP/2.0 200 OK\r\n\r\n", ["failed"], "HTTP version 2.0"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", ["failed"], "status 101"),
        (b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n", ["failed"], "status 99"),
        (OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\na", ["failed"], "Content-Length"),
        (OK + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", ["failed"], "Transfer-Encoding"),
        (OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n1\r\na\r\n", ["failed"], "gzip, chunked"),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\na", ["failed"], "only identity was asked for"),
        (OK + b"A: b\r\n folded\r\n\r\n", ["failed"], "not a valid"),
        (
            OK + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\nzz\r\n",
            ["started", "data", "failed"],
            "chunk size",
        ),
    ],
)
def test_a_broken_answer_fails_after_what_was_whole(data: bytes, calls: list[str], message: str, size: int) -> None:
    fake = Fake().feed(data, size)
    assert fake.calls == calls
    assert fake.error is not None
    assert (fake.error.kind, fake.error.bytes_received) == ("protocol", True)
    assert message in fake.error.message
    assert "provider.test:80" in fake.error.message
    assert fake.transport.aborted
    assert fake.detached == 1


@pytest.mark.parametrize("size", [0, 1000])
@pytest.mark.parametrize(
    ("data", "started"),
    [
        (OK + b"A: " + b"x" * MAX_HEAD_BYTES + b"\r\nContent-Length: 0\r\n\r\n", False),
        (OK + b"A: " + b"x" * (MAX_DRY_BYTES + 1000), False),
        (OK + b"A: 1\r\n" * (MAX_HEAD_BYTES // 5), False),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_DRY_BYTES // 20), False),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"x" * (MAX_DRY_BYTES + 2000), True),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: 1\r\n" * (MAX_HEAD_BYTES // 5), True),
    ],
    ids=["long field", "endless field", "many fields", "interim", "chunk extension", "trailers"],
)
def test_bytes_without_a_body_are_bounded(data: bytes, started: bool, size: int) -> None:
    fake = Fake().feed(data, size).feed(b"x")
    assert fake.calls == (["started", "failed"] if started else ["failed"])
    assert fake.error is not None
    assert fake.error.kind == "protocol"
    assert "more than" in fake.error.message


def test_a_head_within_the_bound_is_taken() -> None:
    fake = Fake().feed(OK + b"A: " + b"x" * (MAX_HEAD_BYTES - 100) + b"\r\nContent-Length: 0\r\n\r\n", 1000)
    assert fake.calls == ["started", "ended"]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "reset"),
        (b"HTT", "truncated"),
        (OK + b"Content-Length: 5\r\n", "truncated"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "truncated"),
        (OK + b"Content-Length: 5\r\n\r\nhell", "truncated"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel", "truncated"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "truncated"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n", "truncated"),
    ],
)
def test_eof_before_the_end_is_a_failure(data: bytes, kind: str) -> None:
    fake = Fake()
    if data:
        fake.feed(data)
    fake.connection.eof_received()
    fake.connection.connection_lost(None)
    assert fake.error is not None
    assert (fake.error.kind, fake.error.bytes_received) == (kind, bool(data))
    assert fake.calls.count("failed") == 1
    assert "ended" not in fake.calls


def test_eof_ends_a_body_without_length() -> None:
    fake = Fake().feed(OK + b"\r\nabc").feed(b"def")
    fake.connection.eof_received()
    fake.connection.connection_lost(None)
    assert fake.calls == ["started", "data", "data", "ended", "closed"]
    assert fake.body == b"abcdef"
    assert fake.free == 0


def test_a_reset_does_not_end_a_body_without_length() -> None:
    fake = Fake().feed(OK + b"\r\nabc")
    fake.connection.connection_lost(ConnectionResetError("peer"))
    assert fake.calls == ["started", "data", "failed", "closed"]
    assert fake.error is not None
    assert (fake.error.kind, fake.error.bytes_received) == ("reset", True)


@pytest.mark.parametrize("cause", [None, ConnectionResetError("peer"), BrokenPipeError("pipe")])
def test_a_stale_connection_asks_for_a_retry(cause: Exception | None) -> None:
    fake = Fake(used=True)
    fake.connection.connection_lost(cause)
    assert (fake.retries, fake.calls) == (1, ["closed"])


@pytest.mark.parametrize("cause", [None, ConnectionResetError("peer")])
def test_no_retry_after_a_byte(cause: Exception | None) -> None:
    fake = Fake(used=True).feed(b"H")
    fake.connection.connection_lost(cause)
    assert (fake.retries, fake.calls) == (0, ["failed", "closed"])


def test_no_retry_on_a_fresh_connection() -> None:
    fake = Fake()
    fake.connection.connection_lost(ConnectionResetError("peer"))
    assert (fake.retries, fake.calls) == (0, ["failed", "closed"])


@pytest.mark.parametrize(
    "excess", [b"x", OK + b"Content-Length: 3\r\n\r\nbad", b"HTTP/1.1 408 Timeout\r\n\r\n", b"\x00"]
)
def test_bytes_after_the_end_poison_the_connection(excess: bytes) -> None:
    together = Fake().feed(OK + b"Content-Length: 2\r\n\r\nok" + excess)
    assert (together.calls, together.body) == (["started", "data", "ended"], b"ok")
    assert (together.free, together.transport.aborted) == (0, True)

    later = Fake().feed(OK + b"Content-Length: 2\r\n\r\nok")
    assert (later.free, later.transport.aborted) == (1, False)
    later.connection.data_received(excess)
    assert later.transport.aborted
    assert later.calls == ["started", "data", "ended"]


def test_an_answer_before_the_request_was_sent_spoils_the_connection() -> None:
    fake = Fake()
    fake.transport.unsent = 1
    fake.feed(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
    assert fake.calls == ["started", "ended"]
    assert (fake.free, fake.transport.aborted) == (0, True)


def test_head_and_small_body_are_one_write() -> None:
    assert Fake(body=b"b" * (SMALL_BODY_BYTES - 1)).transport.writes == [[REQUEST + b"b" * (SMALL_BODY_BYTES - 1)]]
    assert Fake(body=b"b" * SMALL_BODY_BYTES).transport.writes == [[REQUEST, b"b" * SMALL_BODY_BYTES]]


def test_pause_and_resume_are_idempotent_and_a_free_connection_is_not_paused() -> None:
    fake = Fake()
    for _ in range(2):
        fake.connection.pause_reading()
    assert fake.transport.paused
    for _ in range(2):
        fake.connection.resume_reading()
    fake.connection.pause_reading()
    fake.feed(OK + b"Content-Length: 0\r\n\r\n")
    assert (fake.free, fake.transport.paused) == (1, False)


@pytest.mark.parametrize(
    ("raises", "calls"),
    [
        ("started", ["started", "failed"]),
        ("data", ["started", "data", "failed"]),
        ("ended", ["started", "data", "ended"]),
    ],
)
def test_a_handler_that_raises_costs_its_connection_only(
    raises: str, calls: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    fake = Fake(raises=raises)
    with caplog.at_level(logging.DEBUG):
        fake.feed(OK + b"Transfer-Encoding: chunked\r\n\r\n").feed(b"2\r\nok\r\n").feed(b"0\r\n\r\n")
    assert fake.calls == calls
    assert fake.detached == 1
    assert fake.transport.aborted == (raises != "ended")  # after the end, the connection has no part in it
    assert "a response handler raised RuntimeError" in caplog.text
    assert "test_connection.py" in caplog.text  # the place
    assert "a prompt" not in caplog.text


def test_a_handler_that_raises_on_failure_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    fake = Fake(raises="failed").feed(b"garbage")
    assert fake.calls == ["failed"]
    assert "raised RuntimeError" in caplog.text
