"""Whole bodies. A response is what the last event of a stream holds, so the stream's reader and writer do both."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.json import decode_payload, encode
from headrace.formats.openai_chat.errors import error_info, find_error
from headrace.model.assemble import Assembler, explode
from headrace.model.errors import GatewayError
from headrace.model.response import Response

from .reader import ResponsesStreamReader
from .writer import ResponsesStreamWriter

_OBJECT = msgspec.json.Decoder(dict[str, Any])


def read_response(body: bytes, options: ReaderOptions) -> Response:
    """Raises ProtocolError, and GatewayError where the body is an error or a response that failed."""
    parsed = decode_payload(body, _OBJECT, "The provider's answer")
    if "output" not in parsed and "status" not in parsed:
        error = find_error(parsed)
        if error is not None:
            raise GatewayError(error_info(error, provider=options.provider or None))
    assembler = Assembler()
    assembler.feed(ResponsesStreamReader(options).read_body(parsed))
    if assembler.error is not None:
        raise GatewayError(assembler.error)
    response = assembler.response()
    response.provider = options.provider
    response.origin = body if options.passthrough else None
    return response


def write_response(response: Response, options: WriterOptions) -> bytes:
    if options.passthrough and isinstance(response.origin, bytes):
        return response.origin
    writer = ResponsesStreamWriter(msgspec.structs.replace(options, passthrough=False))
    frames = writer.write(list(explode(response)))
    return encode(msgspec.json.decode(frames[-1].data)["response"])
