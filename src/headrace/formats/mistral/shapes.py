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
    message.pop("refusal", None)
    if not text:
        return message
    content = message.get("content")
    chunks = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    return {**message, "content": [thinking(text), *chunks]}


def without_thinking(message: Any) -> Any:
    """A caller's message in OpenAI's dialect: thinking chunks become reasoning beside the content."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return message
    thoughts = [chunk for chunk in content if isinstance(chunk, dict) and chunk.get("type") == "thinking"]
    if not thoughts:
        return message
    others = [chunk for chunk in content if chunk not in thoughts]
    return {**message, "content": others or None, "reasoning_content": "".join(map(thought, thoughts))}
