"""Whole answers: Anthropic's, but for errors in disguise, which are Bedrock's."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats import anthropic
from headrace.formats.base import ReaderOptions
from headrace.formats.bedrock.errors import error_in_body
from headrace.formats.json import decode_payload
from headrace.model.errors import GatewayError
from headrace.model.response import Response

_OBJECT = msgspec.json.Decoder(dict[str, Any])


def read_response(body: bytes, options: ReaderOptions) -> Response:
    """A provider's 200 body. Raises ProtocolError; GatewayError where it is an error in disguise."""
    payload = decode_payload(body, _OBJECT, "The answer")
    error = None if "content" in payload or "error" in payload else error_in_body(payload, options.provider)
    if error is not None:
        raise GatewayError(error)
    return anthropic.FORMAT.read_response(body, options)
