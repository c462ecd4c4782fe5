"""JSON objects of the gateway format and llm-stream as the messages of gateway.proto, and back.

The rule: a field of a message has the name of its JSON field; what has no such field, or not of its type, goes into the
message's `more`, so nothing is lost. The trade-off: numbers in a Struct are doubles, so whole ones beyond 2**53 are not
exact there; whoever needs them sends the request as JSON.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct, Value

from headrace.v1 import gateway_pb2 as pb

_STRUCT, _VALUE = Struct.DESCRIPTOR.full_name, Value.DESCRIPTOR.full_name
_MORE = "more"


def fill(message: Message, fields: Mapping[str, Any]) -> None:
    """Set the message's fields from a JSON object. null is as good as absent. Raises ValueError where a word has no place."""
    setters = _setters(message.DESCRIPTOR)
    rest: dict[str, Any] = {}
    for name, value in _expanded(message, fields).items():
        if value is None:
            continue
        setter = setters.get(name)
        try:
            if setter is None:
                rest[name] = value
            else:
                setter(message, value)
        except (TypeError, ValueError, AttributeError):
            message.ClearField(name)
            rest[name] = value
    if rest:
        if _MORE not in message.DESCRIPTOR.fields_by_name:
            raise ValueError(f"{message.DESCRIPTOR.name} has no place for {', '.join(rest)}")
        json_format.ParseDict(rest, getattr(message, _MORE))


def plain(message: Message) -> dict[str, Any]:
    """The inverse: the JSON object of what is set."""
    fields: dict[str, Any] = {}
    more: dict[str, Any] = {}
    field: Any  # of either implementation of protobuf
    for field, value in message.ListFields():
        if field.name == _MORE:
            more = _struct(value)
        elif field.type != FieldDescriptor.TYPE_MESSAGE:
            fields[field.name] = _scalar(field, value)
        elif field.message_type.full_name == _STRUCT:
            fields[field.name] = _struct(value)
        elif field.is_repeated:
            fields[field.name] = [plain(item) for item in value]
        elif field.message_type.full_name == _VALUE:
            fields[field.name] = _whole(json_format.MessageToDict(value))
        else:
            fields[field.name] = plain(value)
    collapse = _COLLAPSE.get(type(message))
    fields = {**more, **fields}
    return fields if collapse is None else collapse(fields)


def _scalar(field: Any, value: Any) -> Any:
    if field.is_repeated:
        return list(value)
    return base64.b64encode(value).decode() if field.type == FieldDescriptor.TYPE_BYTES else value


def _struct(value: Any) -> dict[str, Any]:
    whole: dict[str, Any] = _whole(json_format.MessageToDict(value))
    return whole


def _whole(value: Any) -> Any:
    """Doubles that are whole numbers as such: many a provider takes 1024 and refuses 1024.0."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= 2**53 else value
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value


# --- setters, one a field -----------------------------------------------------------------------------------------

_Setter = Callable[[Any, Any], None]


@cache
def _setters(kind: Any) -> dict[str, _Setter]:
    """Of a message's descriptor."""
    return {field.name: _setter(field) for field in kind.fields if field.name != _MORE}


def _setter(field: Any) -> _Setter:
    name = field.name
    if field.type == FieldDescriptor.TYPE_BYTES:
        return lambda message, value: setattr(message, name, _unbase64(value))
    if field.type != FieldDescriptor.TYPE_MESSAGE:
        if field.is_repeated:
            return lambda message, value: getattr(message, name).extend(value)
        if field.type == FieldDescriptor.TYPE_BOOL:
            return lambda message, value: setattr(message, name, _boolean(value))
        return lambda message, value: setattr(message, name, value)
    if field.is_repeated:
        return lambda message, value: _fill_all(getattr(message, name), value)
    if field.message_type.full_name in (_STRUCT, _VALUE):
        return lambda message, value: _parse(value, getattr(message, name))
    return lambda message, value: _fill_one(getattr(message, name), value)


def _fill_one(message: Message, value: Any) -> None:
    message.SetInParent()
    fill(message, _object(value))


def _fill_all(messages: Any, value: Any) -> None:
    for item in value:
        fill(messages.add(), _object(item))


def _parse(value: Any, message: Message) -> None:
    message.SetInParent()
    json_format.ParseDict(value, message)


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError("no object")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("no boolean")
    return value


def _unbase64(value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None


# --- where JSON has one field of several types, and messages have several fields ------------------------------------


def _expanded(message: Message, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    expand = _EXPAND.get(type(message))
    return fields if expand is None else expand(fields)


def _expand_message(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    content = fields.get("content")
    if not isinstance(content, list):
        return fields
    return {**{name: value for name, value in fields.items() if name != "content"}, "parts": content}


def _expand_part(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    return {str(fields.get("type")): {name: value for name, value in fields.items() if name != "type"}}


def _collapse_message(fields: dict[str, Any]) -> dict[str, Any]:
    parts = fields.pop("parts", None)
    if parts is not None:
        fields["content"] = parts
    return fields


def _collapse_part(fields: dict[str, Any]) -> dict[str, Any]:
    return next(({"type": kind, **rest} for kind, rest in fields.items()), {})


_EXPAND: dict[type[Message], Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    pb.Message: _expand_message,
    pb.Part: _expand_part,
}
_COLLAPSE: dict[type[Message], Callable[[dict[str, Any]], dict[str, Any]]] = {
    pb.Message: _collapse_message,
    pb.Part: _collapse_part,
}
