"""Where Mistral's JSON differs from OpenAI's, and the way between the two. Pure functions on decoded objects.

- Thinking is a chunk of the content (`{"type": "thinking", "thinking": [{"type": "text", ...}]}`), not a field beside it.
- The id of a tool call that is sent to Mistral has exactly nine letters and digits. Any other becomes nine of them, the
  same for the same id, so that call and result still belong together.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

Body = dict[str, Any]

_ID = re.compile(r"[a-zA-Z0-9]{9}").fullmatch
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def nine(id: str) -> str:
    """A tool call's id as Mistral takes it."""
    if _ID(id):
        return id
    number = int.from_bytes(hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()[:8], "big")
    letters = []
    for _ in range(9):
        number, rest = divmod(number, len(_ALPHABET))
        letters.append(_ALPHABET[rest])
    return "".join(letters)


def with_nine(message: Any) -> Any:
    """A caller's own message with ids as Mistral takes them: another provider may have given those of earlier turns."""
    if not isinstance(message, dict):
        return message
    calls, answered = message.get("tool_calls"), message.get("tool_call_id")
    if isinstance(calls, list):
        calls = [{**call, "id": nine(call["id"])} if _has_id(call) else call for call in calls]
        message = {**message, "tool_calls": calls}
    return {**message, "tool_call_id": nine(answered)} if isinstance(answered, str) else message


def _has_id(call: Any) -> bool:
    return isinstance(call, dict) and isinstance(call.get("id"), str)


def thinking(text: str) -> Body:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


def thought(chunk: Body) -> str:
    """The text of a thinking chunk."""
    held = chunk.get("thinking")
    if isinstance(held, str):
        return held
    texts = [one.get("text") for one in held if isinstance(one, dict)] if isinstance(held, list) else []
    return "".join([text for text in texts if isinstance(text, str)])


def with_thinking(message: Body) -> Body:
    """A message or a delta of OpenAI's dialect in Mistral's: reasoning becomes the first chunk of the content."""
    message = dict(message)
    text = message.pop("reasoning_content", None)
    message.pop("reasoning_details", None)
    if message.get("refusal") is None:
        message.pop("refusal", None)
    if not text:
        return message
    content = message.get("content")
    chunks = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    return {**message, "content": [thinking(text), *chunks]}


def in_openais_words(message: Any) -> Any:
    """A caller's message in OpenAI's dialect: thinking chunks become reasoning beside the content."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return message
    thoughts = [chunk for chunk in content if isinstance(chunk, dict) and chunk.get("type") == "thinking"]
    others = [_openais(chunk) for chunk in content if chunk not in thoughts]
    if not thoughts:
        return {**message, "content": others}
    return {**message, "content": others or None, "reasoning_content": "".join(map(thought, thoughts))}


def in_mistrals_words(message: Body) -> Body:
    """A message in OpenAI's dialect for Mistral."""
    written = with_thinking(message)
    calls = written.get("tool_calls")
    if isinstance(calls, list):
        written["tool_calls"] = [{**call, "id": nine(str(call.get("id", "")))} for call in calls]
    if written.get("tool_call_id") is not None:
        written["tool_call_id"] = nine(written["tool_call_id"])
    if isinstance(written.get("content"), list):
        written["content"] = [_mistrals(chunk) for chunk in written["content"]]
    return written


def _openais(chunk: Any) -> Any:
    kind = chunk.get("type") if isinstance(chunk, dict) else None
    if kind == "document_url":
        file = {"file_data": chunk.get("document_url")}
        name = chunk.get("document_name")
        return {"type": "file", "file": {**file, "filename": name} if name is not None else file}
    if kind == "input_audio" and isinstance(chunk.get("input_audio"), str):
        return {"type": "input_audio", "input_audio": {"data": chunk["input_audio"], "format": "wav"}}  # it is not said
    return chunk


def _mistrals(chunk: Any) -> Any:
    kind = chunk.get("type") if isinstance(chunk, dict) else None
    if kind == "file" and isinstance(chunk["file"].get("file_data"), str):
        file = chunk["file"]
        told = {"type": "document_url", "document_url": file["file_data"]}
        return {**told, "document_name": file["filename"]} if file.get("filename") else told
    if kind == "input_audio":
        return {"type": "input_audio", "input_audio": chunk["input_audio"]["data"]}
    return chunk
