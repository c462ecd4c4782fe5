"""Whole bodies: a line with everything in it and `done`, which the stream's reader reads and the one assembler folds."""

from __future__ import annotations

from typing import Any

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.json import encode
from headrace.framing.frame import Frame
from headrace.model.assemble import Assembler
from headrace.model.content import Media, Reasoning, Refusal, Text, ToolCall
from headrace.model.errors import GatewayError, ProtocolError
from headrace.model.response import Choice, Response

from .arguments import json_object
from .lines import Dialect
from .reader import OllamaStreamReader
from .words import write_counts, write_stop, write_time
from .writer import own_fields


def read_response(body: bytes, options: ReaderOptions) -> Response:
    """Raises ProtocolError, and GatewayError where the body is an error in disguise."""
    assembler = Assembler()
    assembler.feed(OllamaStreamReader(options).read([Frame(body)]))
    if assembler.error is not None:
        raise GatewayError(assembler.error)
    if not assembler.ended:
        raise ProtocolError("The provider's answer is not `done`")
    response = assembler.response()
    response.provider = options.provider
    response.origin = body if options.passthrough else None
    return response


def write_response(dialect: Dialect, response: Response, options: WriterOptions) -> bytes:
    """The body in one of the two dialects. Of several choices, the first."""
    if options.passthrough and isinstance(response.origin, bytes):
        return response.origin
    choice = next((choice for choice in response.choices if choice.index == 0), Choice())
    text: list[str] = []
    thinking: list[str] = []
    images: list[str] = []
    calls: list[dict[str, Any]] = []
    logprobs: list[Any] = []
    for part in choice.parts:
        if isinstance(part, Text | Refusal):
            text.append(part.text)
            logprobs += part.logprobs or []
        elif isinstance(part, Reasoning):
            thinking.append(part.text)
        elif isinstance(part, ToolCall):
            arguments = json_object(part.arguments) if part.complete else None
            if arguments is not None:
                id = part.id or f"call_{options.request_id}_{len(calls)}"
                calls.append({"id": id, "function": {"index": len(calls), "name": part.name, "arguments": arguments}})
        elif isinstance(part, Media) and part.type == "image" and part.data:
            images.append(part.data)
    said = {"thinking": "".join(thinking), "images": images, "tool_calls": calls}
    body = {
        "model": response.model or options.model,
        "created_at": write_time(response.created or options.created),
        **dialect.content("".join(text), **said),
        "done": True,
        "done_reason": write_stop(choice.stop),
        **write_counts(response.usage, own_fields(choice.extensions)),
    }
    if logprobs:
        body["logprobs"] = logprobs
    return encode(body)
