"""Framings: bytes to frames and back, one module a framing, all of them without I/O.

The rule: a framing knows nothing of what frames mean, and every format works over every framing. `FRAMINGS` names them;
a new framing is one new module and one line there.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headrace.framing.connect import EnvelopeDecoder, EnvelopeEncoder
from headrace.framing.eventstream import EventStreamDecoder, EventStreamEncoder
from headrace.framing.frame import MAX_FRAME_BYTES, Decoder, Encoder, Frame, FramingError
from headrace.framing.json_array import JSONArrayDecoder, JSONArrayEncoder
from headrace.framing.ndjson import NDJSONDecoder, NDJSONEncoder
from headrace.framing.signalr import SignalRDecoder, SignalREncoder
from headrace.framing.sse import SSEDecoder, SSEEncoder

__all__ = [
    "FRAMINGS",
    "MAX_FRAME_BYTES",
    "Decoder",
    "Encoder",
    "EnvelopeDecoder",
    "EnvelopeEncoder",
    "EventStreamDecoder",
    "EventStreamEncoder",
    "Frame",
    "Framing",
    "FramingError",
    "JSONArrayDecoder",
    "JSONArrayEncoder",
    "NDJSONDecoder",
    "NDJSONEncoder",
    "SSEDecoder",
    "SSEEncoder",
    "SignalRDecoder",
    "SignalREncoder",
]


class Framing(msgspec.Struct, frozen=True):
    """One framing: its name in configuration and registry, its media type, and what makes its two machines."""

    name: str
    media_type: str
    make_decoder: Callable[[int, frozenset[str]], Decoder]
    make_encoder: Callable[[], Encoder]

    def decoder(self, max_frame: int = MAX_FRAME_BYTES, *, extra_fields: frozenset[str] = frozenset()) -> Decoder:
        """A decoder for one stream. `max_frame` bounds a frame, in bytes.

        `extra_fields` are the format's non-standard field names (see `SSEDecoder`); framings without fields ignore
        them.
        """
        return self.make_decoder(max_frame, extra_fields)

    def encoder(self) -> Encoder:
        """An encoder for one stream."""
        return self.make_encoder()


FRAMINGS: dict[str, Framing] = {
    framing.name: framing
    for framing in (
        Framing(
            "sse",
            "text/event-stream",
            lambda max_frame, extra_fields: SSEDecoder(max_frame, extra_fields=extra_fields),
            SSEEncoder,
        ),
        Framing(
            "ndjson",
            "application/x-ndjson",
            lambda max_frame, extra_fields: NDJSONDecoder(max_frame),
            NDJSONEncoder,
        ),
        Framing(
            "json_array",
            "application/json",
            lambda max_frame, extra_fields: JSONArrayDecoder(max_frame),
            JSONArrayEncoder,
        ),
        Framing(
            "eventstream",
            "application/vnd.amazon.eventstream",
            lambda max_frame, extra_fields: EventStreamDecoder(max_frame),
            EventStreamEncoder,
        ),
        Framing(
            "signalr",
            "application/x-signalr+json",  # nobody's but ours: a hub speaks over a WebSocket, which has no Content-Type
            lambda max_frame, extra_fields: SignalRDecoder(max_frame),
            SignalREncoder,
        ),
        Framing(
            "connect_proto",
            "application/connect+proto",
            lambda max_frame, extra_fields: EnvelopeDecoder(max_frame),
            EnvelopeEncoder,
        ),
        Framing(
            "connect_json",
            "application/connect+json",
            lambda max_frame, extra_fields: EnvelopeDecoder(max_frame),
            EnvelopeEncoder,
        ),
    )
}
"""The framings, by name."""
