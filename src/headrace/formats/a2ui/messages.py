"""A2UI v0.9 messages: what one looks like, which surfaces are there, and the check by the protocol's own package.

The rule: a message goes out as the model wrote it or not at all. Its envelope is checked here; what stands in it by
`WriterOptions.check`, which whoever has the official package hands in, since that does more than protocol code may.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from headrace.formats.base import MessageCheck
from headrace.model.errors import InvalidRequest

from .extract import ACTIONS, Broken, Extractor, Piece, Plain

VERSIONS = frozenset({"v0.9", "v0.9.1"})
_decode = msgspec.json.Decoder().decode


class Problem(NamedTuple):
    """Why a message was left out: the fields of A2UI's own error, and of the event that tells it."""

    message: str
    path: str = ""
    surface: str = ""

    def fields(self) -> dict[str, str]:
        named = {"path": self.path, "surfaceId": self.surface}
        known = {name: value for name, value in named.items() if value}
        return {"code": "VALIDATION_FAILED", "message": self.message, **known}


class Surfaces:
    """The messages of one answer, all its texts together. `catalogs`: those of the surfaces that it has created."""

    def __init__(self, check: MessageCheck | None) -> None:
        self._check = check
        self._catalogs: dict[str, str] = {}

    def sift(self, pieces: list[Piece]) -> Iterator[str | bytes | Problem]:
        """Text as str, messages as bytes on one line, what is wrong as Problem."""
        for piece in pieces:
            if isinstance(piece, Plain):
                yield piece.text
            elif isinstance(piece, Broken):
                yield Problem(piece.what)
            else:
                yield self._judge(piece.json, piece.tagged)

    def _judge(self, text: str, tagged: bool) -> str | bytes | Problem:
        try:
            message = _decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            message = None
        if not isinstance(message, dict):
            if not tagged and not any(f'"{action}"' in text for action in ACTIONS):
                return text
            return Problem("a message is not valid JSON")
        if not tagged and not message.keys() & set(ACTIONS):
            return text  # JSON that is part of what the model says
        problem = self._problem(message)
        if problem is not None:
            return problem
        return text.replace("\r", " ").replace("\n", " ").encode()

    def _problem(self, message: dict[str, Any]) -> Problem | None:
        problem = check_envelope(message)
        if problem is not None:
            return problem
        action = next(name for name in ACTIONS if name in message)
        body = message[action]
        surface = body["surfaceId"]
        if action == "createSurface" and surface in self._catalogs:
            return Problem("the surface exists already: it has to be deleted first", "createSurface.surfaceId", surface)
        if self._check is not None:
            try:
                self._check(message, self._catalogs)
            except InvalidRequest as error:
                return Problem(error.info.message, error.info.param or "", surface)
        if action == "createSurface":
            self._catalogs[surface] = body["catalogId"]
        elif action == "deleteSurface":
            self._catalogs.pop(surface, None)
        return None


def check_envelope(message: dict[str, Any]) -> Problem | None:
    """What is wrong with a message's outermost two levels (A2UI v0.9, "Message types")."""
    actions = [name for name in message if name in ACTIONS]
    version = message.get("version")
    if version not in VERSIONS:
        return Problem(f"version must be one of {', '.join(sorted(VERSIONS))}", "version")
    if len(actions) != 1:
        return Problem(f"a message must have exactly one of {', '.join(ACTIONS)}")
    (action,) = actions
    if len(message) != 2:
        return Problem(f"a message has no other members than version and {action}")
    body = message[action]
    if not isinstance(body, dict):
        return Problem(f"{action} must be an object", action)
    surface = body.get("surfaceId")
    if not isinstance(surface, str) or not surface:
        return Problem("surfaceId must be a string that is not empty", f"{action}.surfaceId")
    if action == "createSurface" and not isinstance(body.get("catalogId"), str):
        return Problem("catalogId must be a string", "createSurface.catalogId", surface)
    if action == "updateComponents":
        return _check_components(body.get("components"), surface)
    return None


def _check_components(components: Any, surface: str) -> Problem | None:
    path = "updateComponents.components"
    if not isinstance(components, list) or not components:
        return Problem("components must be a list of at least one component", path, surface)
    for number, component in enumerate(components):
        for name in ("id", "component"):
            if not isinstance(component, dict) or not isinstance(component.get(name), str):
                return Problem(f"a component must have a string {name}", f"{path}[{number}].{name}", surface)
    return None


class Sifter:
    """One block of text: fragments in; text, messages and problems out."""

    def __init__(self, surfaces: Surfaces) -> None:
        self._surfaces = surfaces
        self._extractor = Extractor()

    def feed(self, text: str) -> Iterator[str | bytes | Problem]:
        return self._surfaces.sift(self._extractor.feed(text))

    def end(self) -> Iterator[str | bytes | Problem]:
        return self._surfaces.sift(self._extractor.end())

    def held(self) -> str:
        """Text that had come when a stream broke off, and was not sent yet."""
        return self._extractor.held()
