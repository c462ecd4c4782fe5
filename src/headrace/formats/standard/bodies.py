"""What the whole (non-streaming) bodies of both formats share: reading a provider's JSON object without trusting it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from headrace.formats.json import decode_payload
from headrace.model.content import Part
from headrace.model.errors import ErrorInfo, GatewayError, InvalidRequest, ProtocolError

from .fields import read_as
from .parts import AnyPart, make_part

T = TypeVar("T")
_decoder = msgspec.json.Decoder(dict[str, Any])


def read_body(body: bytes, provider: str) -> dict[str, Any]:
    """The body's object. Raises ProtocolError."""
    return decode_payload(body, _decoder, f"the answer of {provider or 'the provider'}")


def body_as(fields: Any, type: type[T], provider: str) -> T:
    """An object of the body as `type`. Raises ProtocolError."""
    try:
        return read_as(fields, type)
    except InvalidRequest as error:
        raise ProtocolError(f"the answer of {provider or 'the provider'} is not in its format: {error}") from None


def parts_as(parts: list[AnyPart], provider: str) -> list[Part]:
    """The model's parts. Raises ProtocolError."""
    try:
        return [make_part(part, f"content[{number}]") for number, part in enumerate(parts)]
    except InvalidRequest as error:
        raise ProtocolError(f"the answer of {provider or 'the provider'} is not in its format: {error}") from None


def refuse(info: ErrorInfo, provider: str) -> GatewayError:
    """The exception for a body that is an error in disguise."""
    info.provider = info.provider or provider or None
    return GatewayError(info)
