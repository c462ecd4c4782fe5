"""The hub protocol without a connection: records in, records out, and a clock that the test turns."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import GatewayError
from headrace.serve.calls import Calls
from headrace.serve.hub import HANDSHAKE_SECONDS, PING_EVERY, SILENCE_SECONDS, Hub
from headrace.serve.hub_http import MAX_NEGOTIATED, NEGOTIATED_SECONDS, Negotiations

HANDSHAKE = b'{"protocol":"json","version":1}\x1e'


class Wire:
    """A pipe that keeps what is written, and the hub on it. Nothing here begins a request."""

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        self.write_paused = False
        self.written = b""
        self.closed = 0
        calls = Calls(self, None, "/hub", self._over)  # type: ignore[arg-type]  # no request, no service
        self.hub = Hub(calls, most=1000, close=self._close, now=0.0)

    def _over(self) -> None:
        self.hub.close_when_idle()

    def _close(self) -> None:
        self.closed += 1

    def frame(self, message: bytes) -> bytes:
        return message

    def write(self, data: bytes) -> None:
        assert not self.closed
        self.written += data

    def abort(self) -> None:
        raise AssertionError("nothing is cut here")

    def said(self) -> list[Any]:
        """The records written since the last call."""
        *records, rest = self.written.split(b"\x1e")
        assert rest == b""
        self.written = b""
        return [json.loads(record) for record in records]


@pytest.fixture
def wire() -> Wire:
    made = Wire()
    made.hub.receive(HANDSHAKE, 0.0)
    assert made.said() == [{}]
    return made


def test_the_handshake_may_share_its_bytes_with_what_follows() -> None:
    wire = Wire()
    data = HANDSHAKE + b'{"type":6}\x1e{"type":1,"invocationId":"1","target":"Nope","arguments":[]}\x1e'
    for byte in data:
        wire.hub.receive(bytes([byte]), 0.0)
    first, second = wire.said()
    assert first == {}
    assert second["type"] == 3
    assert second["invocationId"] == "1"


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b'{"protocol":"messagepack","version":1}\x1e', "'messagepack' is not available"),
        (b'{"protocol":"json","version":7}\x1e', "Version 7"),
        (b'{"protocol":"json","version":true}\x1e', "Version True"),
        (b"{}\x1e", "None' is not available"),
        (b'"hello"\x1e', "JSON object"),
        (b"GET / HTTP/1.1\r\n\x1e", "no JSON"),
    ],
)
def test_a_handshake_that_is_refused(sent: bytes, words: str) -> None:
    wire = Wire()
    wire.hub.receive(sent + b'{"type":6}\x1e', 0.0)
    (answer,) = wire.said()
    assert words in answer["error"]
    assert wire.closed == 1


def test_a_handshake_that_does_not_come() -> None:
    wire = Wire()
    wire.hub.receive(HANDSHAKE[:-1], 1.0)  # its separator is missing
    wire.hub.tick(HANDSHAKE_SECONDS - 1)
    assert wire.closed == 0
    wire.hub.tick(HANDSHAKE_SECONDS)
    (answer,) = wire.said()
    assert "No handshake came" in answer["error"]
    assert wire.closed == 1


def test_pings_go_out_by_the_clock_and_are_never_answered(wire: Wire) -> None:
    pings = 0
    for second in range(1, 4 * int(PING_EVERY) + 1):
        wire.hub.receive(b'{"type":6}\x1e', float(second))
        assert wire.said() == []
        wire.hub.tick(float(second))
        pings += wire.said() == [{"type": 6}]
    assert pings == 4
    assert wire.closed == 0


def test_no_ping_joins_the_bytes_that_nobody_reads(wire: Wire) -> None:
    wire.write_paused = True
    wire.hub.tick(PING_EVERY)
    assert wire.said() == []
    wire.write_paused = False
    wire.hub.tick(PING_EVERY + 1)
    assert wire.said() == [{"type": 6}]


def test_a_silent_caller_has_gone(wire: Wire) -> None:
    wire.hub.receive(b'{"type":6}\x1e', 10.0)
    wire.hub.tick(10.0 + SILENCE_SECONDS - 1)
    wire.said()
    wire.hub.heard(30.0)  # a poll, say
    wire.hub.tick(30.0 + SILENCE_SECONDS - 1)
    assert wire.closed == 0
    wire.said()
    wire.hub.tick(30.0 + SILENCE_SECONDS)
    (close,) = wire.said()
    assert close["type"] == 7
    assert close["allowReconnect"] is True
    assert "Nothing was heard" in close["error"]
    assert wire.closed == 1
    wire.hub.tick(1000.0)
    wire.hub.receive(b'{"type":6}\x1e', 1000.0)
    assert wire.said() == []


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (b"{\x1e", "no JSON"),
        (b"\xff\xff\x1e", "no JSON"),
        (b"[" * 900 + b"\x1e", "no JSON"),
        (b"[]\x1e", "JSON object"),
        (b"{}\x1e", "type, which is a number"),
        (b'{"type":"1"}\x1e', "type, which is a number"),
        (b'{"type":true}\x1e', "type, which is a number"),
        (b"\x1e", "not SignalR"),
        (b"x" * 1001, "larger than the limit of 1000 bytes"),
        (b'{"type":4,"target":"Chat","arguments":[{}]}\x1e', "invocationId must be"),
        (b'{"type":4,"invocationId":1,"target":"Chat","arguments":[{}]}\x1e', "invocationId must be"),
        (b'{"type":4,"invocationId":"","target":"Chat","arguments":[{}]}\x1e', "invocationId must be"),
        (b'{"type":1,"invocationId":"1","arguments":[{}]}\x1e', "has a target"),
        (b'{"type":1,"target":7}\x1e', "has a target"),
        (b'{"type":5}\x1e', "invocationId must be"),
    ],
)
def test_what_is_unclear_closes_the_connection(wire: Wire, sent: bytes, words: str) -> None:
    wire.hub.receive(b'{"type":1,"invocationId":"good","target":"x"}\x1e' + sent, 1.0)
    good, close = wire.said()
    assert good["invocationId"] == "good"
    assert close["type"] == 7
    assert close["allowReconnect"] is False
    assert words in close["error"]
    assert wire.closed == 1


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"type": 1, "target": "Nope", "arguments": []}, "Unknown hub method 'Nope'"),
        ({"type": 4, "target": "Nope", "arguments": []}, "Unknown hub method 'Nope'"),
        ({"type": 1, "target": "Chat", "arguments": [{}]}, "Chat is a stream"),
        ({"type": 4, "target": "chatonce", "arguments": [{}]}, "chatonce is no stream"),
        ({"type": 4, "target": "Chat"}, "Chat takes one argument"),
        ({"type": 4, "target": "Chat", "arguments": []}, "Chat takes one argument"),
        ({"type": 4, "target": "Chat", "arguments": ["hi"]}, "Chat takes one argument"),
        ({"type": 4, "target": "Chat", "arguments": [{}, {}]}, "Chat takes one argument"),
        ({"type": 1, "target": "ChatOnce", "arguments": {}}, "ChatOnce takes one argument"),
        ({"type": 1, "target": "ListModels", "arguments": [1]}, "ListModels takes no arguments"),
        ({"type": 4, "target": "Chat", "arguments": [{}], "streamIds": ["1"]}, "Chat takes no streams"),
    ],
)
def test_what_cannot_be_carried_out_is_completed_with_an_error(wire: Wire, record: dict[str, Any], words: str) -> None:
    wire.hub.receive(json.dumps({"invocationId": "i", **record}).encode() + b"\x1e", 1.0)
    (completion,) = wire.said()
    assert completion["type"] == 3
    assert completion["invocationId"] == "i"
    assert "result" not in completion
    assert words in completion["error"]
    assert wire.closed == 0


@pytest.mark.parametrize(
    "record",
    [
        {"type": 2, "invocationId": "1", "item": 1},
        {"type": 3, "invocationId": "1", "result": 1},
        {"type": 5, "invocationId": "unknown"},
        {"type": 8, "sequenceId": 1},
        {"type": 9, "sequenceId": 1},
        {"type": 99},
        {"type": 1, "target": "ListModels", "arguments": []},
        {"type": 1, "target": "Nope", "arguments": []},
    ],
)
def test_what_needs_no_answer_gets_none(wire: Wire, record: dict[str, Any]) -> None:
    wire.hub.receive(json.dumps(record).encode() + b"\x1e", 1.0)
    assert wire.said() == []
    assert wire.closed == 0


def test_the_caller_may_close(wire: Wire) -> None:
    wire.hub.receive(b'{"type":7}\x1e{"type":1,"invocationId":"1","target":"late"}\x1e', 1.0)
    assert wire.said() == []
    assert wire.closed == 1


def test_the_end_of_the_process_invites_to_come_again(wire: Wire) -> None:
    wire.hub.shutdown()
    (close,) = wire.said()
    assert close == {"type": 7, "error": "The gateway is shutting down", "allowReconnect": True}
    assert wire.closed == 1


_words = st.sampled_from(["type", "invocationId", "target", "arguments", "protocol", "version", "streamIds", "item"])
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 10) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=4),
    max_leaves=8,
)
_records = st.dictionaries(_words, _values, max_size=5).map(lambda record: json.dumps(record).encode() + b"\x1e")


@given(st.lists(_records | st.binary(max_size=40), max_size=6), st.booleans())
def test_whatever_comes_is_answered_or_passed_over(pieces: list[bytes], shaken: bool) -> None:
    wire = Wire()
    if shaken:
        wire.hub.receive(HANDSHAKE, 0.0)
    for piece in pieces:
        if b"arguments" in piece and b"hat" in piece:  # nothing here can carry out a chat
            continue
        wire.hub.receive(piece, 0.0)
    assert wire.closed <= 1
    assert all(isinstance(record, dict) for record in wire.said())


# --- ids that were given out ----------------------------------------------------------------------------------------


def refused(negotiations: Negotiations, id: str, now: float) -> int:
    with pytest.raises(GatewayError) as error:
        negotiations.use(id, now)
    return error.value.info.http_status


def test_an_id_is_good_once_and_not_for_long() -> None:
    negotiations = Negotiations(shared=False)
    id, late = negotiations.give(0.0), negotiations.give(0.0)
    assert refused(negotiations, "made-up", 1.0) == 404
    negotiations.use("", 1.0)
    negotiations.use("", 1.0)
    negotiations.use(id, 1.0)
    assert refused(negotiations, id, 1.0) == 409
    negotiations.release(id)
    assert refused(negotiations, id, 1.0) == 404
    assert refused(negotiations, late, NEGOTIATED_SECONDS) == 404


def test_ids_that_nobody_uses_do_not_pile_up() -> None:
    negotiations = Negotiations(shared=False)
    ids = [negotiations.give(0.0) for _ in range(MAX_NEGOTIATED + 1)]
    assert len(set(ids)) == len(ids)
    assert refused(negotiations, ids[0], 1.0) == 404
    negotiations.use(ids[1], 1.0)
    negotiations.give(NEGOTIATED_SECONDS)
    assert len(negotiations._waiting) == 1


def test_one_of_several_workers_knows_not_all_ids() -> None:
    negotiations = Negotiations(shared=True)
    negotiations.use("of another worker", 0.0)
    assert refused(negotiations, "of another worker", 0.0) == 409
