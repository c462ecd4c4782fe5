"""A whole answer: the gateway format's body, its A2UI messages taken out of the text into a list `a2ui`.

What was wrong with others is in `a2ui_errors`. Both lists are always there. Only the first choice is looked through.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats.base import WriterOptions
from headrace.formats.gateway import response as gateway
from headrace.formats.json import encode
from headrace.model.content import Part, Text
from headrace.model.response import Choice, Response

from .messages import Problem, Sifter, Surfaces

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def write_response(response: Response, options: WriterOptions) -> bytes:
    """The body of a whole answer."""
    surfaces = Surfaces(options.check)
    messages: list[msgspec.Raw] = []
    problems: list[dict[str, str]] = []

    def sifted(part: Part) -> Part | None:
        if not isinstance(part, Text):
            return part
        sifter = Sifter(surfaces)
        texts: list[str] = []
        for one in (*sifter.feed(part.text), *sifter.end()):
            if isinstance(one, str):
                texts.append(one)
            elif isinstance(one, Problem):
                problems.append(one.fields())
            else:
                messages.append(msgspec.Raw(one))
        text = "".join(texts)
        return msgspec.structs.replace(part, text=text) if text or not part.text else None

    choices = [
        choice
        if choice.index
        else msgspec.structs.replace(
            choice, parts=[kept for part in choice.parts if (kept := sifted(part)) is not None]
        )
        for choice in response.choices or [Choice()]
    ]
    body = gateway.write_response(msgspec.structs.replace(response, choices=choices), options)
    return encode({**_decode(body), "a2ui": messages, "a2ui_errors": problems})
