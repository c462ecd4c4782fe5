"""A caller's messages -> the model's, each role and part checked, errors with the path in the caller's own terms.

What an assistant message holds is what an answer holds, under the same names, so that an answer can be sent back: also
`reasoning_content`, and `reasoning_details` whose `format` says which vendor a signature belongs to. Parts this format's
table does not know are kept whole, for a provider that does.
"""

from __future__ import annotations

from typing import Any

from headrace.model.content import (
    Media,
    Opaque,
    Part,
    Reasoning,
    RedactedReasoning,
    Refusal,
    ToolCall,
    ToolResult,
)
from headrace.model.request import Message

from .errors import VENDOR
from .fields import bad, base64_at, data_url_at, object_at, string_at
from .parts import PartReaders, read_audio, read_content, read_refusal, read_text
from .reasoning import reasoning_items

_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


def read_messages(raw: list[dict[str, Any]]) -> list[Message]:
    """Raises InvalidRequest."""
    return [_message(message, f"messages[{position}]") for position, message in enumerate(raw)]


def _message(raw: dict[str, Any], path: str) -> Message:
    said = raw.get("role")
    role = _ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        raise bad(f"{path}.role", f"Expected one of {', '.join(_ROLES)}")
    if role == "assistant":
        parts = _assistant(raw, path)
    elif role == "tool":
        parts = [_tool_result(raw, path, legacy=said == "function")]
    else:
        parts = read_content(raw.get("content"), f"{path}.content", _PARTS, VENDOR)
    name = raw.get("name")
    if name is not None and not isinstance(name, str):
        raise bad(f"{path}.name", "Expected `str`")
    return Message(role=role, parts=parts, name=None if role == "tool" else name)


def _tool_result(raw: dict[str, Any], path: str, *, legacy: bool) -> ToolResult:
    name = raw.get("name") if isinstance(raw.get("name"), str) else None
    id = raw.get("tool_call_id")
    if legacy:
        id = _legacy_id(string_at(raw.get("name"), f"{path}.name"))
    if not isinstance(id, str) or not id:
        raise bad(f"{path}.tool_call_id", "A tool message must name the tool call it answers")
    return ToolResult(
        tool_call_id=id, parts=read_content(raw.get("content"), f"{path}.content", _PARTS, VENDOR), name=name
    )


def _assistant(raw: dict[str, Any], path: str) -> list[Part]:
    parts: list[Part] = _reasoning(raw)
    if raw.get("content") is not None:
        parts += read_content(raw["content"], f"{path}.content", _PARTS, VENDOR)
    refusal = raw.get("refusal")
    if refusal is not None:
        parts.append(Refusal(text=string_at(refusal, f"{path}.refusal", empty=True)))
    if raw.get("audio") is not None:
        id = raw["audio"].get("id") if isinstance(raw["audio"], dict) else None
        parts.append(Media(type="audio", file_id=string_at(id, f"{path}.audio.id")))
    calls = raw.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list):
            raise bad(f"{path}.tool_calls", "Expected `array`")
        parts += [_tool_call(call, f"{path}.tool_calls[{index}]") for index, call in enumerate(calls)]
    legacy = raw.get("function_call")
    if legacy is not None:
        function = object_at(legacy, f"{path}.function_call")
        name = string_at(function.get("name"), f"{path}.function_call.name")
        arguments = string_at(function.get("arguments"), f"{path}.function_call.arguments", empty=True)
        parts.append(ToolCall(id=_legacy_id(name), name=name, arguments=arguments or "{}"))
    return parts


def _reasoning(raw: dict[str, Any]) -> list[Part]:
    """Text and signature of one item may come as two entries, as streamed: an entry without text belongs to the last."""
    parts: list[Part] = []
    for item in reasoning_items(raw):
        own = item.own.get("format")
        vendor = own if own and own != "unknown" else None
        if item.data:
            parts.append(RedactedReasoning(data=item.data, vendor=vendor or ""))
            continue
        last = parts[-1] if parts else None
        if isinstance(last, Reasoning) and not last.signature and (not item.text or not item.signature):
            last.text += item.text
            last.signature = item.signature or None
            last.vendor = last.vendor or vendor
        elif item.text or item.signature:
            parts.append(
                Reasoning(text=item.text, signature=item.signature or None, vendor=vendor, id=item.own.get("id"))
            )
    return parts


def _tool_call(raw: Any, path: str) -> Part:
    call = object_at(raw, path)
    kind = call.get("type", "function")
    id = string_at(call.get("id"), f"{path}.id")
    if kind != "function":
        string_at(kind, f"{path}.type")
        return Opaque(vendor=VENDOR, payload=call)
    function = object_at(call.get("function"), f"{path}.function")
    name = string_at(function.get("name"), f"{path}.function.name")
    arguments = string_at(function.get("arguments"), f"{path}.function.arguments", empty=True)
    extra = call.get("extra_content")
    return ToolCall(
        id=id, name=name, arguments=arguments or "{}", extensions=extra if isinstance(extra, dict) else None
    )


def _image(raw: dict[str, Any], path: str) -> Part:
    path = f"{path}.image_url"
    said = raw.get("image_url")
    if isinstance(said, str):  # several compatible servers take the URL bare
        said = {"url": said}
    image = object_at(said, path)
    url = string_at(image.get("url"), f"{path}.url")
    detail = image.get("detail")
    detail = None if detail is None else string_at(detail, f"{path}.detail")
    if not url.startswith("data:"):
        if not url.startswith(("http://", "https://")):
            raise bad(f"{path}.url", "Expected an http(s) URL or a base64 data URL")
        return Media(type="image", url=url, detail=detail)
    media_type, data = data_url_at(url, f"{path}.url")
    return Media(type="image", media_type=media_type, data=data, detail=detail)


def _file(raw: dict[str, Any], path: str) -> Part:
    file = object_at(raw.get("file"), f"{path}.file")
    title = file.get("filename")
    title = None if title is None else string_at(title, f"{path}.file.filename")
    if file.get("file_id") is not None:
        return Media(type="document", file_id=string_at(file["file_id"], f"{path}.file.file_id"), title=title)
    data = string_at(file.get("file_data"), f"{path}.file.file_data")
    if data.startswith(("http://", "https://")):
        return Media(type="document", url=data, title=title)
    media_type = "application/pdf"
    if data.startswith("data:"):
        media_type, data = data_url_at(data, f"{path}.file.file_data")
    else:
        data = base64_at(data, f"{path}.file.file_data")
    return Media(type="document", media_type=media_type, data=data, title=title)


_PARTS: PartReaders = {
    "text": read_text,
    "refusal": read_refusal,
    "image_url": _image,
    "input_audio": read_audio,
    "file": _file,
}


def _legacy_id(name: str) -> str:
    """Legacy function calls have no ids: the name stands in, on the call and on its result."""
    return f"function_{name}"
