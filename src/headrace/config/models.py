"""From the model name in a request to the provider that answers.

Rule: a name means one thing or is refused; nothing is guessed. In this order:

1. `provider/model`, where the part before the first slash is a provider (the rest may hold slashes);
2. the name of a route;
3. a model that exactly one provider claims by its full name;
4. a model that exactly one provider claims by a prefix (`gpt-*`).

So a route may take over a name that providers claim too.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TypeAlias

import msgspec

from headrace.config.errors import quoted
from headrace.config.settings import REPLAY, Config, Provider, Route

_LONGEST_SUGGESTED_FOR = 200
"""Beyond this many characters a name gets no suggestions: comparing takes time that grows with its square."""


class UnknownModel(Exception):
    """No provider and no route knows `name`. `suggestions` are names that look like it, the likeliest first."""

    def __init__(self, name: str, suggestions: Iterable[str] = ()) -> None:
        self.name = name
        self.suggestions = tuple(suggestions)
        message = f"there is no model {quoted(name)}"
        if self.suggestions:
            message += f"; did you mean {' or '.join(self.suggestions)}?"
        super().__init__(message)


class AmbiguousModel(Exception):
    """More than one of the `providers` (their names) claims `name`."""

    def __init__(self, name: str, providers: Iterable[str]) -> None:
        self.name = name
        self.providers = tuple(providers)
        choices = " or ".join(f"{provider}/{name}" for provider in self.providers)
        super().__init__(f"model {quoted(name)} is claimed by {' and '.join(self.providers)}; write {quoted(choices)}")


class Resolved(msgspec.Struct, frozen=True):
    """One provider answers: `model` as the provider knows it."""

    provider_name: str
    provider: Provider
    model: str


class RoutedTo(msgspec.Struct, frozen=True):
    """A route says who may answer."""

    name: str
    route: Route


class ModelEntry(msgspec.Struct, frozen=True):
    """One line of the list of models. `id` is what a caller may write; `owned_by` the vendor."""

    id: str
    provider: str
    owned_by: str


_Entries: TypeAlias = list[ModelEntry]
_Claims: TypeAlias = dict[str, list[str]]


class Catalogue:
    """All names under which a configuration has models. `replay_streams`: what the embedded provider can replay."""

    def __init__(self, config: Config, *, replay_streams: Iterable[str] = ()) -> None:
        self._providers = config.providers
        self._routes = config.routes
        self._exact: _Claims = {}
        self._prefixes: _Claims = {}
        for name, provider in config.providers.items():
            for claim in dict.fromkeys(provider.models):
                table, key = (self._prefixes, claim[:-1]) if claim.endswith("*") else (self._exact, claim)
                table.setdefault(key, []).append(name)
        self._entries = self._list(replay_streams)

    def resolve(self, name: str) -> Resolved | RoutedTo:
        """Who answers for `name`. Raises UnknownModel or AmbiguousModel."""
        left, slash, rest = name.partition("/")
        if slash and rest and left in self._providers:
            return Resolved(left, self._providers[left], rest)
        route = self._routes.get(name)
        if route is not None:
            return RoutedTo(name, route)
        owners = self._exact.get(name) or self._prefix_owners(name)
        if not owners:
            raise UnknownModel(name, self._suggestions(name))
        if len(owners) > 1:
            raise AmbiguousModel(name, owners)
        return Resolved(owners[0], self._providers[owners[0]], name)

    def list(self) -> _Entries:
        """The names that can be listed: routes, models claimed by their full name, streams of the embedded provider."""
        return [*self._entries]

    def _prefix_owners(self, name: str) -> tuple[str, ...]:
        found = (owner for prefix, owners in self._prefixes.items() if name.startswith(prefix) for owner in owners)
        return tuple(dict.fromkeys(found)) if name else ()

    def _list(self, replay_streams: Iterable[str]) -> _Entries:
        entries = [ModelEntry(name, route.candidates[0].provider, "headrace") for name, route in self._routes.items()]
        for name, provider in self._providers.items():
            models = replay_streams if name == REPLAY and provider.embedded else provider.models
            exact = (model for model in dict.fromkeys(models) if not model.endswith("*"))
            owner = "headrace" if provider.embedded else provider.vendor
            entries += [ModelEntry(f"{name}/{model}", name, owner) for model in exact]
        return entries

    def _suggestions(self, name: str) -> tuple[str, ...]:
        if len(name) > _LONGEST_SUGGESTED_FOR:
            return ()
        known = [*dict.fromkeys([*self._routes, *self._exact, *(entry.id for entry in self._entries)])]
        left, slash, rest = name.partition("/")
        if slash and rest:
            known += [f"{near}/{rest}" for near in difflib.get_close_matches(left, self._providers, n=1)]
        return tuple(difflib.get_close_matches(name, known, n=3))
