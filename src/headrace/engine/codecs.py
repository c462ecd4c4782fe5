"""Choosing the machines of a stream: decoder and reader on the provider's side, writer and encoder on the caller's.

The rule: what a provider answers is read by what it says it is (its Content-Type), not by what it was asked for; a
JSON body in place of a stream, or a stream in place of a body, makes no difference to the caller.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.engine.settings import Caller, Limits, Upstream
from headrace.formats.base import StreamReader, StreamWriter, WriterOptions
from headrace.formats.whole import WholeReader, WholeWriter
from headrace.framing import FRAMINGS, Decoder, Encoder, Frame, SSEDecoder
from headrace.framing.whole import WholeDecoder, WholeEncoder

WHOLE = "whole"
"""The shape of a body that is no stream, beside the names of FRAMINGS."""

JSON = "application/json"

STREAM_TYPES: dict[str, str] = {
    # media type -> framing. JSON is missing: whether it is a body or an array that streams depends on what was asked.
    **{framing.media_type: name for name, framing in FRAMINGS.items() if framing.media_type != JSON},
    "application/ndjson": "ndjson",
    "application/jsonl": "ndjson",
    "application/x-jsonlines": "ndjson",
    "application/jsonlines": "ndjson",
}

VAGUE_TYPES = frozenset({"", "text/plain", "application/octet-stream"})
"""Media types of servers that do not care; what was asked for decides."""

SENTINELS = frozenset({b"[DONE]"})
"""Frames that are no JSON: OpenAI's mark of the end. Framings of JSON values end by themselves and leave it out."""

JSON_FRAMINGS = frozenset(FRAMINGS) - {"sse"}
"""Framings whose frames must be values (JSON, protobuf): all but SSE, whose data may be any text."""


def upstream_shape(upstream: Upstream, asked: bool, content_type: str) -> str | None:
    """How to read a provider's 2xx answer: a framing's name, WHOLE, or None where it is nothing we know.

    `asked`: a stream was asked for.
    """
    media_type = content_type.partition(";")[0].strip().lower()
    expected = upstream.framing if asked else WHOLE
    if asked and media_type == FRAMINGS[expected].media_type:
        return expected
    if media_type in STREAM_TYPES:
        return STREAM_TYPES[media_type]
    if media_type == JSON or media_type.endswith("+json"):
        return WHOLE
    return expected if media_type in VAGUE_TYPES else None


def upstream_codec(upstream: Upstream, shape: str, caller: Caller, limits: Limits) -> tuple[Decoder, StreamReader]:
    """Decoder and reader of a provider's answer of this shape.

    Frames can stand in the caller's answer unchanged only where its framing is the same, or where it carries less than
    theirs (SSE names events, the others do not); elsewhere passing through is switched off.
    """
    options = upstream.reader_options
    target = caller.framing if caller.stream else WHOLE
    if options.passthrough and shape != target and (shape != "sse" or target == WHOLE):
        options = replace(options, passthrough=False)
    if shape == WHOLE:
        return WholeDecoder(limits.body_bytes), WholeReader(upstream.format, options)
    decoder = FRAMINGS[shape].decoder(limits.frame_bytes, **upstream.format.framing_options)
    return decoder, upstream.format.stream_reader(options)


def caller_writer(caller: Caller, options: WriterOptions) -> StreamWriter:
    """Writer of the caller's answer."""
    return caller.format.stream_writer(options) if caller.stream else WholeWriter(caller.format, options)


def caller_encoder(caller: Caller) -> Encoder:
    """Encoder of the caller's answer."""
    if not caller.stream:
        return WholeEncoder()
    json_only, silent = caller.framing in JSON_FRAMINGS, not caller.format.signs_of_life
    if caller.encoder is not None:
        return _Narrowed(caller.encoder(), json_only=True, silent=silent)
    encoder = FRAMINGS[caller.framing].encoder()
    return _Narrowed(encoder, json_only=json_only, silent=silent) if json_only or silent else encoder


def caller_media_type(caller: Caller) -> str:
    """Content-Type of the caller's answer where it is no error."""
    return FRAMINGS[caller.framing].media_type if caller.stream else JSON


def remains(decoder: Decoder) -> tuple[list[Frame], bytes]:
    """What a decoder holds after its end: frames that lack only the blank line after them, and bytes that are none."""
    if isinstance(decoder, SSEDecoder):
        return decoder.unfinished(), decoder.leftover()
    return [], b""


class _Narrowed:
    """An encoder that leaves out the SENTINELS (`json_only`), and signs of life (`silent`)."""

    __slots__ = ("_encoder", "encode", "epilogue", "keepalive", "prologue")

    def __init__(self, encoder: Encoder, *, json_only: bool, silent: bool) -> None:
        self._encoder = encoder
        self.encode = self._encode_json if json_only else encoder.encode
        self.prologue = encoder.prologue
        self.keepalive = _nothing if silent else encoder.keepalive
        self.epilogue = encoder.epilogue

    def _encode_json(self, frames: Iterable[Frame]) -> bytes:
        return self._encoder.encode([frame for frame in frames if frame.data not in SENTINELS])


def _nothing() -> bytes:
    return b""
