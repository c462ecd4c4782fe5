"""Recorded streams on disk -> recordings: single files, folders, and collections with an index.tsv.

The rule: nothing is guessed that would be played as something else. A file's format is what the index says, else what
its own first frame shows, else what the caller says; a file that is not understood is listed with the reason, and does
not keep the others from being served. Files hold no times, so their rhythm is `DEFAULT_GAP`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headrace.formats import PROVIDED
from headrace.framing import FRAMINGS, Frame, FramingError, SSEDecoder
from headrace.tape.record import is_recording, read_recording
from headrace.tape.recording import DEFAULT_GAP, Piece, Recording, RecordingError

MAX_FILE_BYTES = 256 * 1024 * 1024

_FORMAT_NAMES = {
    "anthropic.messages": "anthropic",
    "openai.chat": "openai_chat",
    "cohere.v2": "cohere",
    "mistral.chat": "mistral",
}
"""What an index calls the formats; ours are known as well, and so are dialects (`openai.chat.groq`)."""

_TERMINAL = dict.fromkeys(("openai_chat", "cohere", "mistral"), b"[DONE]")
"""Terminal frames that are not JSON, which collections of payloads leave out."""

_EVENT_FIELD = dict.fromkeys(("anthropic", "llm_stream", "gateway", "cohere"), "type")
"""Formats whose SSE events are named, and the payload's field that repeats the name."""

_BLANK_LINE = re.compile(rb"(?:\r\n|\n|\r(?!\n)){2,}")


class Row(NamedTuple):
    """What is known of a file before it is read; "" where nothing is."""

    format: str = ""
    framing: str = ""
    description: str = ""


def read_index(folder: Path) -> dict[str, Row] | None:
    """The rows of the folder's index.tsv by file name; None where there is no index. Raises RecordingError."""
    path = folder / "index.tsv"
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        missing = {"file", "format", "framing"} - set(rows.fieldnames or ())
        if missing:
            raise RecordingError(f"{path}: the columns {', '.join(sorted(missing))} are missing")
        return {row["file"]: Row(row["format"] or "", row["framing"] or "", row.get("shows") or "") for row in rows}


def read_file(path: Path, name: str, row: Row, format: str | None) -> Recording:
    """One file as a recording. `format` is the caller's word for files that do not show their own. Raises RecordingError
    with the reason, without the file's name."""
    listed = _format_name(row.format) if row.format else None
    framing = row.framing or _by_extension(path)
    reader = _READERS.get(framing)
    if reader is None:
        raise RecordingError(f"its framing is {framing}, and only {', '.join(_READERS)} can be played")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise RecordingError(f"it is larger than {MAX_FILE_BYTES} bytes")
    data = path.read_bytes()
    if framing == "jsonl-payloads" and is_recording(data):
        return read_recording(data, name)
    try:
        pieces, leftover, carrier = reader(data)
    except FramingError as error:
        raise RecordingError(f"it is not {framing}: {error}") from None
    known = listed or _sniff(pieces) or format
    if known is None:
        raise RecordingError(f"its format is not known: say which of {', '.join(PROVIDED)} it is")
    if carrier == "payloads":
        pieces, carrier = _with_envelope(pieces, known), "sse"
    return Recording(name, known, tuple(pieces), carrier, row.description, leftover)


def _format_name(word: str) -> str:
    if word in PROVIDED:
        return word
    for prefix, name in _FORMAT_NAMES.items():
        if word == prefix or word.startswith(prefix + "."):
            return name
    raise RecordingError(f"its format is {word}, and only {', '.join(PROVIDED)} can be played")


def _by_extension(path: Path) -> str:
    framing = _EXTENSIONS.get(path.suffix.lower())
    if framing is None:
        raise RecordingError(f"files named *{path.suffix} are not known (known are {', '.join(_EXTENSIONS)})")
    return framing


_EXTENSIONS = {
    ".sse": "sse-raw",
    ".txt": "sse-raw",
    ".jsonl": "jsonl-payloads",
    ".ndjson": "ndjson-raw",
    ".json": "json-array-raw",
}

_Read = tuple[list[Piece], bytes, str]
"""(pieces, leftover, framing); the framing "payloads" says that the file holds none."""


def _read_sse(data: bytes) -> _Read:
    decoder = FRAMINGS["sse"].decoder(extra_fields=frozenset({"error"}))
    pieces: list[Piece] = []
    for block in _blocks(data):
        frames = decoder.feed(block)
        at = len(pieces) * DEFAULT_GAP
        if frames:
            pieces += [Piece(at, frame, b"" if index else block) for index, frame in enumerate(frames)]
        else:
            pieces.append(Piece(at, None, block))
    decoder.eof()
    leftover = decoder.leftover() if isinstance(decoder, SSEDecoder) else b""
    return pieces, leftover, "sse"


def _blocks(data: bytes) -> Iterator[bytes]:
    """The body cut after each run of blank lines."""
    start = 0
    for found in _BLANK_LINE.finditer(data):
        yield data[start : found.end()]
        start = found.end()
    if start < len(data):
        yield data[start:]


def _read_payloads(data: bytes) -> _Read:
    return _decoded("ndjson", data), b"", "payloads"


def _read_ndjson(data: bytes) -> _Read:
    return _decoded("ndjson", data), b"", "ndjson"


def _read_json_array(data: bytes) -> _Read:
    return _decoded("json_array", data), b"", "json_array"


def _decoded(framing: str, data: bytes) -> list[Piece]:
    decoder = FRAMINGS[framing].decoder()
    frames = [*decoder.feed(data), *decoder.eof()]
    return [Piece(index * DEFAULT_GAP, frame) for index, frame in enumerate(frames)]


_READERS: dict[str, Callable[[bytes], _Read]] = {
    "sse-raw": _read_sse,
    "sse-lines": _read_sse,
    "jsonl-payloads": _read_payloads,
    "jsonl-sdk-parsed": _read_payloads,
    "ndjson-raw": _read_ndjson,
    "json-array-raw": _read_json_array,
}


def _with_envelope(pieces: list[Piece], format: str) -> list[Piece]:
    """Bare payloads as they were sent: with event names and terminal frame, where the format has such."""
    field = _EVENT_FIELD.get(format)
    named = [
        Piece(piece.at, Frame(piece.frame.data, _field(piece.frame.data, field) if field else ""))
        for piece in pieces
        if piece.frame is not None
    ]
    terminal = _TERMINAL.get(format)
    if terminal is not None and (not named or named[-1].frame != Frame(terminal)):
        named.append(Piece(len(named) * DEFAULT_GAP, Frame(terminal)))
    return named


def _field(data: bytes, name: str) -> str:
    value = _object(data).get(name)
    return value if isinstance(value, str) else ""


def _object(data: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


_SIGNS: tuple[tuple[str, Callable[[dict[str, Any]], bool]], ...] = (
    # what the first JSON frame of a stream of the format shows
    ("openai_chat", lambda payload: payload.get("object") == "chat.completion.chunk"),
    ("anthropic", lambda payload: payload.get("type") in ("message_start", "ping")),
    ("cohere", lambda payload: payload.get("type") == "message-start"),
    ("llm_stream", lambda payload: payload.get("type") == "stream.start"),
    ("gateway", lambda payload: payload.get("type") == "start" and "provider" in payload),
)


def _sniff(pieces: list[Piece]) -> str | None:
    first = next((payload for piece in pieces if piece.frame and (payload := _object(piece.frame.data))), {})
    return next((name for name, shows in _SIGNS if shows(first)), None)
