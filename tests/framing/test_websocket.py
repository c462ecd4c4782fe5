"""Text messages as RFC 6455 has them: the websockets package reads what the encoder writes."""

from __future__ import annotations

import json

import pytest
from websockets.client import ClientProtocol
from websockets.frames import Frame as Message
from websockets.frames import Opcode
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from headrace.framing import Frame
from headrace.framing.websocket import MessageEncoder


def read(data: bytes) -> list[str]:
    client = ClientProtocol(parse_uri("ws://localhost/"), state=OPEN, max_size=None)
    client.receive_data(data)
    texts = []
    for message in client.events_received():
        assert isinstance(message, Message)
        assert message.opcode is Opcode.TEXT
        assert message.fin
        texts.append(bytes(message.data).decode())
    return texts


@pytest.mark.parametrize("size", [0, 1, 100, 110, 125, 126, 127, 65_000, 65_535, 65_536, 200_000])
def test_sizes(size: int) -> None:
    payload = b'{"text":"' + b"x" * size + b'"}'
    (text,) = read(MessageEncoder("a").encode([Frame(payload)]))
    assert json.loads(text) == {"id": "a", "text": "x" * size}


def test_every_message_has_the_id_once() -> None:
    encoder = MessageEncoder('q"ä')
    frames = [Frame(b'{"type":"start","id":"resp_1","model":"m"}'), Frame(b"{}"), Frame(b' {\n"seq":1}')]
    texts = read(encoder.encode(frames[:1])) + read(encoder.encode(frames[1:]))
    assert [json.loads(text) for text in texts] == [
        {"id": 'q"ä', "type": "start", "answer_id": "resp_1", "model": "m"},
        {"id": 'q"ä'},
        {"id": 'q"ä', "seq": 1},
    ]
    assert all(text.count('"id"') == 1 for text in texts)


def test_what_is_no_object_is_refused() -> None:
    encoder = MessageEncoder("a")
    encoder.encode([Frame(b"{}")])
    with pytest.raises(ValueError, match="object"):
        encoder.encode([Frame(b"[1]")])
