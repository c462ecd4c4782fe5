"""Whole bodies."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.json import decode_payload, encode
from headrace.model.assemble import Assembler, explode
from headrace.model.errors import GatewayError
from headrace.model.response import Response

from .reader import CohereStreamReader
from .words import error_in
from .writer import DONE, CohereStreamWriter, message_of

_OBJECT = msgspec.json.Decoder(dict[str, Any])


def read_response(body: bytes, options: ReaderOptions) -> Response:
    """Raises ProtocolError, and GatewayError where the body is an error in disguise or says that the answer broke off."""
    parsed = decode_payload(body, _OBJECT, "The provider's answer")
    if isinstance(parsed.get("message"), str):
        raise GatewayError(error_in(parsed, provider=options.provider))
    assembler = Assembler()
    assembler.feed(CohereStreamReader(options).read_body(parsed))
    if assembler.error is not None:
        raise GatewayError(assembler.error)
    response = assembler.response()
    response.provider = options.provider
    response.origin = body if options.passthrough else None
    return response


def write_response(response: Response, options: WriterOptions) -> bytes:
    if options.passthrough and isinstance(response.origin, bytes):
        return response.origin
    writer = CohereStreamWriter(msgspec.structs.replace(options, passthrough=False))
    whole = [part.complete for choice in response.choices[:1] for part in choice.parts if hasattr(part, "complete")]
    frames = [frame for frame in writer.write(list(explode(response))) if frame.data != DONE]
    message, end = message_of([_OBJECT.decode(frame.data) for frame in frames])
    calls = message.get("tool_calls")
    if calls and not all(whole):
        kept = [call for call, complete in zip(calls, whole, strict=False) if complete]
        message = {**message, "tool_calls": kept} if kept else {k: v for k, v in message.items() if k != "tool_calls"}
    body = {"id": response.id or options.request_id, "finish_reason": end["finish_reason"], "message": message}
    return encode({**body, "usage": end["usage"]} if "usage" in end else body)
