"""Reading JSON bodies: one place where untrusted bytes become typed objects or a clear InvalidRequest.

msgspec's own messages name the path of a wrong field ("... - at `$.messages[0].role`"); this turns them, and everything
else that can go wrong with bytes from strangers (encoding, nesting, duplicates of a whole other type), into one exception.
"""

from __future__ import annotations

import json as stdlib_json
import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from headrace.model.errors import InvalidRequest, ProtocolError

T = TypeVar("T")

Positive = Annotated[int, msgspec.Meta(ge=1, le=2**53)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""Whole numbers of requests: no larger than every JSON reader on the way can hold exactly."""

encode = msgspec.json.Encoder().encode
"""Model or plain object -> compact JSON bytes."""

_decode_any = msgspec.json.Decoder().decode
_PATH = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")


def decode_object(body: bytes) -> dict[str, Any]:
    """A caller's body as a JSON object. Raises InvalidRequest."""
    try:
        value = _decode_any(body)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The body is not valid JSON: {error}", type="invalid_json") from None
    except UnicodeDecodeError:
        raise InvalidRequest("The body is not valid UTF-8", type="invalid_json") from None
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply", type="invalid_json") from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"The body must be a JSON object, got {_json_type(value)}", type="invalid_json")
    return value


def count_of(value: Any) -> int | None:
    """A provider's count, which some send as a float; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return None
    return int(value)


def convert(value: Any, type: type[T]) -> T:
    """An untyped object as `type`. Raises InvalidRequest with the path of the field that does not fit."""
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        message, path = split_path(str(error))
        raise InvalidRequest(f"{path}: {message}" if path else message, param=path) from None
    except RecursionError:
        raise InvalidRequest("The body is nested too deeply", type="invalid_json") from None


def merged(body: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """`body` with `fields` laid over it: objects within objects are merged, all else is replaced. Neither is changed."""
    result = dict(body)
    for name, value in fields.items():
        known = result.get(name)
        result[name] = merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return result


def split_path(message: str) -> tuple[str, str]:
    """msgspec's message -> (message without the path, path like `messages[0].role`)."""
    found = _PATH.search(message)
    if found is None:
        return message, ""
    return message[: found.start()], found["path"]


def decode_payload(data: bytes, decoder: msgspec.json.Decoder[T], what: str) -> T:
    """A provider's frame as the decoder's type. Raises ProtocolError, which never quotes the content."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise ProtocolError(f"{what}: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        mended = _without_lone_surrogates(data)
        if mended is not None:
            return decode_payload(mended, decoder, what)
        raise ProtocolError(f"{what} is not valid JSON ({len(data)} bytes)") from None
    except RecursionError:
        raise ProtocolError(f"{what} is nested too deeply") from None


def _without_lone_surrogates(data: bytes) -> bytes | None:
    """The payload with unpaired \\uD8xx escapes as U+FFFD, or None where these are not what is wrong with it.

    Providers that cut UTF-16 text between two deltas send them; msgspec rightly refuses them, the standard library
    reads them. Each half becomes one replacement character: the deltas cannot be joined any more.
    """
    if b"\\ud" not in data.lower():
        return None
    try:
        text = stdlib_json.dumps(stdlib_json.loads(data), ensure_ascii=False)
    except (ValueError, RecursionError):
        return None
    mended = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    return mended if mended != data else None


def _json_type(value: Any) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(value), "null")
