"""Which format a URL stands for, and what it says of the request: the routes of all formats as one table. Pure.

Gateway and replay ask it alike. Paths without a variable part are looked up; the others are tried in turn, those with
more fixed characters first. A route that needs a query parameter goes before the same path without one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import parse_qsl

from headrace.formats.base import IN_THE_BODY, Format, Located, Route


class Place(NamedTuple):
    """A route that a URL fits, whose it is, and what the URL says."""

    format: Format
    route: Route
    located: Located


_MODEL = "{model}"


class Locator:
    """The routes of these formats. `anywhere`: they may follow any prefix, and leave out a `/v1` of their own, as paths
    behind a provider's base URL do."""

    def __init__(self, formats: Iterable[Format], *, anywhere: bool = False) -> None:
        routes = [
            (fmt, route, route.path.removeprefix("/v1") if anywhere else route.path)
            for fmt in formats
            for route in fmt.routes
        ]
        routes.sort(key=lambda entry: (-_fixed(entry[2]), entry[1].query is None))  # stable: registry order else
        self.paths = sorted({route.path for _, route, _ in routes})
        """All paths, for messages."""
        self._exact: dict[str, list[Place]] = {}
        self._patterns: list[tuple[re.Pattern[str], Format, Route]] = []
        for fmt, route, path in routes:
            if anywhere or _MODEL in path:
                self._patterns.append((_pattern(path, anywhere), fmt, route))
            else:
                located = IN_THE_BODY if route.stream is None else Located(stream=route.stream)
                self._exact.setdefault(path, []).append(Place(fmt, route, located))

    def find(self, path: str, query: str = "") -> list[Place]:
        """Every format that this URL may stand for, the best first. `path` is percent-decoded, `query` is not."""
        found = self._exact.get(path)
        if found is None:
            found = [
                Place(fmt, route, Located(match.groupdict().get("model", ""), route.stream))
                for pattern, fmt, route in self._patterns
                if (match := pattern.fullmatch(path))
            ]
        if all(place.route.query is None for place in found):
            return found
        given = parse_qsl(query, keep_blank_values=True)
        return [place for place in found if place.route.query is None or place.route.query in given]


def _fixed(path: str) -> int:
    return len(path.replace(_MODEL, ""))


def _pattern(path: str, anywhere: bool) -> re.Pattern[str]:
    text = re.escape(path).replace(re.escape(_MODEL), "(?P<model>.+)")
    return re.compile((".*" if anywhere else "") + text, re.DOTALL)
