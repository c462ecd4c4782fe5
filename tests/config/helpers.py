"""What the tests of the configuration share: loading a text, and the problems that it gives."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path

from headrace.config import Catalogue, Config, ConfigError, Problem, Resolved, loads

REPOSITORY = Path(__file__).resolve().parents[2]


def config(text: str, env: Mapping[str, str] | None = None, filename: str = "headrace.yaml") -> Config:
    return loads(textwrap.dedent(text), filename=filename, env=env or {})


def problems(text: str, env: Mapping[str, str] | None = None, filename: str = "headrace.yaml") -> list[Problem]:
    """The problems of a text that has some."""
    try:
        config(text, env, filename)
    except ConfigError as error:
        return error.problems
    raise AssertionError("the text was accepted")


def problem(text: str, env: Mapping[str, str] | None = None, filename: str = "headrace.yaml") -> Problem:
    """The only problem of a text."""
    found = problems(text, env, filename)
    assert len(found) == 1, [str(each) for each in found]
    return found[0]


def provider(*lines: str) -> str:
    """A file with one provider, `acme`, whose first own line is line 5."""
    head = ["providers:", "  acme:", "    format: openai_chat", "    base_url: http://acme.test/v1"]
    return "\n".join([*head, *(f"    {line}" for line in lines)]) + "\n"


def resolved(catalogue: Catalogue, name: str) -> tuple[str, str, str | None]:
    """Who answers (first) for a name: provider, model, route."""
    found = catalogue.resolve(name)
    if isinstance(found, Resolved):
        return found.provider_name, found.model, None
    first = found.route.candidates[0]
    return first.provider, first.model, found.name
