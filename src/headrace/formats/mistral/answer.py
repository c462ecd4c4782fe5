"""Answers and errors: what OpenAI's codecs read and write, in Mistral's shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headrace.formats import openai_chat
from headrace.formats.base import ReaderOptions, StreamReader, WriterOptions
from headrace.formats.json import encode
from headrace.formats.openai_chat.errors import write_error_object
from headrace.formats.openai_chat.reader import ChatStreamReader
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.errors import ErrorInfo
from headrace.model.events import BlockKind, Event
from headrace.model.response import Response

from .shapes import with_thinking

_decode = msgspec.json.Decoder().decode


def stream_reader(options: ReaderOptions) -> StreamReader:
    """OpenAI's, to which content in chunks is nothing strange."""
    return ChatStreamReader(options, chunked=True)


class MistralStreamWriter:
    """Writes one stream for a caller of this format. Tool calls go out whole, as Mistral's do; signatures have no place."""

    def __init__(self, options: WriterOptions) -> None:
        self._inner = openai_chat.FORMAT.stream_writer(options)
        self._passthrough = options.passthrough
        self._calls: dict[int, tuple[ev.BlockStart, list[str]]] = {}
        self._stops: dict[int, ev.BlockStop] = {}
        self._sealed: set[int] = set()
        self.lost: set[str] = self._inner.lost

    def write(self, events: Sequence[Event]) -> list[Frame]:
        frames: list[Frame] = []
        for event in events:
            self._write(event, frames)
        return frames

    def _write(self, event: Event, frames: list[Frame]) -> None:
        if self._passthrough and event.origin is not None:  # type: ignore[attr-defined]  # every event has one
            made = self._inner.write([event])
        elif isinstance(event, ev.BlockStart) and event.type is BlockKind.TOOL_CALL:
            self._calls[event.block] = event, []
            return
        elif isinstance(event, ev.SignatureDelta):
            self.lost.add("reasoning.signature")
            return
        elif isinstance(event, ev.BlockStart) and event.type is BlockKind.REDACTED_REASONING:
            self._sealed.add(event.block)
            self.lost.add("redacted_reasoning")
            return
        elif isinstance(event, ev.BlockStop) and event.block in self._sealed:
            return
        elif isinstance(event, ev.ToolDelta):
            self._calls[event.block][1].append(event.arguments)
            return
        elif isinstance(event, ev.BlockStop) and event.block in self._calls:
            self._stops[event.block] = event
            made = self._whole_calls(self._calls[event.block][0].choice)
        else:
            made = self._inner.write([event])
        if isinstance(event, ev.Error) and made and made[-1].data == _DONE:
            # Mistral's error object in place of OpenAI's, and no end marker: nothing has come to its end.
            made = made[:-1] if event.origin is not None else [Frame(write_error(event.error))]
        self.lost |= self._inner.lost
        frames += [_told(frame) if b'"reasoning_content"' in frame.data else frame for frame in made]

    def _whole_calls(self, choice: int) -> list[Frame]:
        """Calls of a choice that have stopped, in the order they began, up to the first that goes on."""
        frames: list[Frame] = []
        for block in [block for block, (start, _) in self._calls.items() if start.choice == choice]:
            if block not in self._stops:
                break
            frames += self._call(self._stops.pop(block), *self._calls.pop(block))
        return frames

    def _call(self, stop: ev.BlockStop, start: ev.BlockStart, pieces: list[str]) -> list[Frame]:
        if not stop.complete:
            self.lost.add("tool_call.incomplete")
            return []
        arguments = "".join(pieces) or "{}"
        frames = self._inner.write([start, ev.ToolDelta(start.block, arguments), stop])
        chunks = [_decode(frame.data) for frame in frames]
        first = next(n for n, chunk in enumerate(chunks) if _calls_of(chunk))
        _calls_of(chunks[first])[0]["function"]["arguments"] = arguments
        return [*frames[:first], Frame(encode(chunks[first]))]


_DONE = b"[DONE]"


def _calls_of(chunk: dict[str, Any]) -> list[Any]:
    calls: list[Any] = [call for choice in chunk["choices"] for call in choice["delta"].get("tool_calls") or ()]
    return calls


def _told(frame: Frame) -> Frame:
    chunk = _decode(frame.data)
    for choice in chunk.get("choices", ()):
        choice["delta"] = with_thinking(choice["delta"])
    return Frame(encode(chunk), frame.event, frame.id)


def write_response(response: Response, options: WriterOptions) -> bytes:
    body: dict[str, Any] = _decode(openai_chat.FORMAT.write_response(response, options))
    if options.passthrough and isinstance(response.origin, bytes):
        return response.origin
    for choice in body.get("choices", ()):
        choice["message"] = with_thinking(choice["message"])
    body.setdefault("usage", {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0})  # required there
    return encode(body)


def read_error(status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    """A provider's HTTP error. One of validation has a list of details, each with the path of a field, for a message.
    Never raises."""
    try:
        said = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        said = None
    fields: dict[str, Any] = said if isinstance(said, dict) else {}
    message = fields.get("message")
    details = message.get("detail") if isinstance(message, dict) else fields.get("detail")
    told = [found for one in details if (found := _detail(one))] if isinstance(details, list) else []
    if not told:
        return openai_chat.FORMAT.read_error(status, headers, body)
    text = "; ".join(f"{path}: {problem}" if path else problem for path, problem in told[:_MAX_DETAILS])
    plain = {"type": "invalid_request_error", **fields, "message": text, "param": told[0][0] or None}
    plain.pop("detail", None)
    return openai_chat.FORMAT.read_error(status, headers, encode(plain))


_MAX_DETAILS = 8


def _detail(one: Any) -> tuple[str, str] | None:
    """(path, problem) of one detail of a validation."""
    problem = one.get("msg") if isinstance(one, dict) else None
    if not isinstance(problem, str) or not problem:
        return None
    steps = one.get("loc")
    path = ""
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, int) and not isinstance(step, bool):
            path += f"[{step}]"
        elif isinstance(step, str) and (path or step != "body"):
            path += f".{step}" if path else step
    return path, problem


def write_error(info: ErrorInfo) -> bytes:
    """Mistral's error object, bare."""
    error = write_error_object(info)
    said = {name: error.get(name) for name in ("message", "type", "param", "code")}
    if not isinstance(said["message"], str) or not said["message"]:
        said["message"] = info.message
    return encode({"object": "error", **said})
