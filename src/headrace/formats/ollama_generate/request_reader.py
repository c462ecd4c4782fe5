"""A caller's body of POST /api/generate -> Request: a system prompt and one message of a user.

What makes it more than that (a text to come after the answer, a prompt without the model's template, an earlier answer's
`context`) no other format has; it stays in `origin`, and is named in `lost`.
"""

from __future__ import annotations

from typing import Any

from headrace.formats.base import IN_THE_BODY, Located
from headrace.formats.json import convert, decode_object
from headrace.formats.ollama.request_reader import OLLAMAS_OWN, Shared, read_images
from headrace.model.content import Part, Text
from headrace.model.errors import InvalidRequest
from headrace.model.request import Message, Request

NAME = "ollama_generate"
_GENERATES_OWN = (*OLLAMAS_OWN, "suffix", "raw", "context", "width", "height", "steps")


class _Body(Shared, kw_only=True):
    prompt: str | None = None
    system: str | None = None
    images: Any = None


def read_request(body: bytes, located: Located = IN_THE_BODY) -> Request:
    """Raises InvalidRequest with the path of the bad field."""
    origin = decode_object(body)
    if origin.get("model") is None:
        raise InvalidRequest("The field `model` is missing", param="model")
    said = convert(origin, _Body)
    parts: list[Part] = [Text(text=said.prompt)] if said.prompt else []
    parts += read_images(said.images, "images")
    if not parts:
        message = "prompt: Expected a text: models are loaded by their providers, not through a gateway"
        raise InvalidRequest(message, param="prompt")
    lost = [name for name in _GENERATES_OWN if origin.get(name) not in (None, "", False)]
    system = [Message(role="system", parts=[Text(text=said.system)])] if said.system else []
    return Request(
        messages=[*system, Message(role="user", parts=parts)],
        **said.fields(lost),
        lost=lost,
        format=NAME,
        origin=origin,
    )
