"""One line of Ollama's streams, which is also the whole body of an answer that is not streamed.

/api/chat and /api/generate differ in where the content stands: in `message`, or beside `response`. A line is read without
asking which it is; a `Dialect` says where the writer puts things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw, Struct

from headrace.formats.json import decode_payload
from headrace.model.errors import ProtocolError


class Function(Struct):
    name: str = ""
    arguments: Raw = Raw(b"")
    """An object; some servers send it as a string of JSON, as OpenAI does."""


class Call(Struct):
    id: str | None = None
    function: Function | None = None


class Message(Struct):
    content: str | None = None
    thinking: str | None = None
    tool_calls: list[Call] | None = None
    images: list[str] | None = None


class Line(Struct):
    """The fields that are understood, of either dialect."""

    model: str | None = None
    created_at: str | None = None
    message: Message | None = None
    response: str | None = None
    thinking: str | None = None
    tool_calls: list[Call] | None = None
    image: str | None = None
    done: bool | None = None
    done_reason: str | None = None
    logprobs: list[Any] | None = None
    error: Any = None
    total_duration: Any = None
    load_duration: Any = None
    prompt_eval_count: Any = None
    prompt_eval_cached_count: Any = None
    prompt_eval_duration: Any = None
    eval_count: Any = None
    eval_duration: Any = None
    completed: Any = None
    total: Any = None

    def content(self) -> Message:
        """What the line adds to the answer, wherever it stands."""
        if self.message is not None:
            return self.message
        images = [self.image] if self.image else None
        return Message(self.response, self.thinking, self.tool_calls, images)

    @property
    def answers(self) -> bool:
        """Whether it is a line of an answer at all."""
        return self.message is not None or self.response is not None or self.done is not None


_decoder = msgspec.json.Decoder(Line)
_anything = msgspec.json.Decoder(dict[str, Any])
_text = msgspec.json.Decoder(str)


def read_line(data: bytes, what: str = "A line of the stream") -> Line:
    """Raises ProtocolError."""
    return decode_payload(data, _decoder, what)


def error_fields(data: bytes) -> dict[str, Any]:
    """All fields of a line that is an error. Raises ProtocolError."""
    return decode_payload(data, _anything, "An error of the provider")


def arguments_of(call: Call) -> str:
    """A call's arguments as JSON text, as generated. Raises ProtocolError where they are neither object nor string."""
    raw = bytes(call.function.arguments) if call.function is not None else b""
    text = raw.decode("utf-8", "replace").strip()
    if text.startswith('"'):
        text = decode_payload(raw, _text, "The arguments of a tool call").strip()
    if text in ("", "null"):
        return "{}"
    if not text.startswith("{"):
        raise ProtocolError("The arguments of a tool call must be an object")
    return text


_LINE_ENDS = tuple((mark.encode(), b"\\u%04x" % ord(mark)) for mark in ("\x85", "\u2028", "\u2029"))


def on_one_line(data: bytes) -> bytes:
    """JSON without the characters that official clients take for the end of a line, as escapes. They can stand in strings
    alone, so the bytes may be replaced."""
    for mark, escape in _LINE_ENDS:
        if mark in data:
            data = data.replace(mark, escape)
    return data


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a line's content is written. `text` and `thinking` stand before a delta's JSON literal, `tail` after it."""

    text: bytes
    thinking: bytes
    tail: bytes
    nested: bool
    """Whether content stands in a `message`."""

    def content(self, text: str = "", **said: Any) -> dict[str, Any]:
        """The fields of a line with this content."""
        said = {name: value for name, value in said.items() if value}
        if self.nested:
            return {"message": {"role": "assistant", "content": text, **said}}
        images: Sequence[str] = said.pop("images", ())
        fields: Mapping[str, Any] = {"image": images[0]} if images else {}
        return {"response": text, **said, **fields}


CHAT = Dialect(
    text=b'"message":{"role":"assistant","content":',
    thinking=b'"message":{"role":"assistant","content":"","thinking":',
    tail=b'},"done":false}',
    nested=True,
)
GENERATE = Dialect(
    text=b'"response":',
    thinking=b'"response":"","thinking":',
    tail=b',"done":false}',
    nested=False,
)
