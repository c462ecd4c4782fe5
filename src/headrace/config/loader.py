"""From a file, or from nothing, to a `Config`: the steps in their order.

Bytes -> text and nodes (`document`) -> plain values (`reader`) -> rules between them (`checks`) -> types (`settings`),
with the providers of the environment added. All problems that a step can find are raised together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from headrace.config import document
from headrace.config.checks import check, shared_claims
from headrace.config.environment import environment_providers, replay_provider
from headrace.config.errors import ConfigError, Problem
from headrace.config.presets import completed
from headrace.config.reader import ABSENT, Reader
from headrace.config.settings import REPLAY, Config, Provider


def load(path: Path | None, env: Mapping[str, str]) -> Config:
    """The configuration of the file at `path`; with None the defaults and the providers of the environment.

    Raises ConfigError with every problem found. `Config.warnings` holds what does not stop the start.
    """
    if path is None:
        return _with_providers(Config(), environment_providers(env))
    filename = os.fspath(path)
    try:
        with open(path, "rb") as file:
            data = file.read(document.MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([Problem(filename, 0, 0, "", "there is no such file")]) from None
    except IsADirectoryError:
        raise ConfigError([Problem(filename, 0, 0, "", "is a directory", "name a YAML file in it")]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([Problem(filename, 0, 0, "", f"cannot be read: {reason}")]) from None
    return loads(document.decode(data, filename), filename=filename, env=env)


def loads(text: str, *, filename: str, env: Mapping[str, str]) -> Config:
    """The configuration in `text`. `filename` is for messages, and its folder is where relative file names start.

    Raises ConfigError with every problem found.
    """
    root = document.compose(text, filename)
    reader = Reader(filename, env)
    plain: dict[str, Any] = {}
    if root is not None:
        read = reader.read(root, Config)
        plain = {} if read is ABSENT else read
    problems: list[Problem] = []
    environment: dict[str, Provider] = {}
    providers = plain.get("providers", {})
    presets = {provider.get("preset") for provider in providers.values()}
    for name, provider in providers.items():
        providers[name] = completed(provider, env)
    if plain.get("environment_providers", True):
        try:
            environment = environment_providers(env, without=presets)
        except ConfigError as error:
            problems = error.problems
    check(reader, plain, env, set(environment))
    problems += reader.problems
    if problems:
        raise ConfigError(problems)
    for provider in providers.values():
        if "timeouts" in provider:
            provider["timeouts"] = {**plain.get("timeouts", {}), **provider["timeouts"]}
    config = _with_providers(msgspec.convert(plain, Config), environment)
    return msgspec.structs.replace(config, warnings=tuple(shared_claims(reader, config, set(environment))))


def _with_providers(config: Config, environment: Mapping[str, Provider]) -> Config:
    providers = {**config.providers}
    for name, provider in environment.items():
        providers.setdefault(name, provider)
    providers[REPLAY] = replay_provider()
    return msgspec.structs.replace(config, providers=providers)
