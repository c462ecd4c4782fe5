"""What the types cannot say: rules between values, and between the file and its surroundings.

Each check is one rule over the plain values that the reader made of the file; it looks at what is there and leaves
what is missing or wrong to the reader's own problems. Relative file names become absolute here, since only here it is
known that a text is a file's name.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from headrace.config.errors import Path, Problem, quoted
from headrace.config.presets import KEY_SOURCES, PRESETS
from headrace.config.reader import ABSENT, Reader, did_you_mean
from headrace.config.settings import REPLAY, Config
from headrace.formats import FORMATS

_SIGNED = ("bedrock", "bedrock_invoke")
_SECRET_WORDS = frozenset({"auth", "authorization", "cookie", "key", "password", "secret", "token"})


def check(reader: Reader, plain: dict[str, Any], env: Mapping[str, str], environment_names: set[str]) -> None:
    """Report what is wrong in `plain`, the content of the file. `environment_names`: the providers that come with it."""
    providers = plain.get("providers", {})
    for name, provider in providers.items():
        path: Path = ("providers", name)
        if name == REPLAY:
            reader.report(path, f"{quoted(REPLAY)} is the embedded provider's name", "choose another", at_key=True)
        _check_address(reader, path, provider)
        _check_key(reader, path, provider, env)
        _check_aws(reader, path, provider)
        _check_files(reader, path, provider, ("api_key_file", "ca_file"))
        _check_headers(reader, path, provider.get("headers", {}))
        _check_quirks(reader, path, provider)
    known = {*providers, *environment_names}
    _check_routes(reader, plain, known)
    _check_grpc(reader, plain.get("server", {}).get("grpc"))
    _locate_files(reader, plain)


def _check_address(reader: Reader, path: Path, provider: dict[str, Any]) -> None:
    preset = PRESETS.get(provider.get("preset", ""))
    if preset is not None and not preset.base_url and "base_url" not in provider:
        message = f"{quoted('base_url')} is missing: preset {provider['preset']} has no address of its own"
        reader.report((*path, "base_url"), message, "give it the address of your account's endpoint", at_key=True)


def _check_key(reader: Reader, path: Path, provider: dict[str, Any], env: Mapping[str, str]) -> None:
    given = [name for name in KEY_SOURCES if name in provider]
    for extra in given[1:]:
        reader.report((*path, extra), f"{given[0]} is given too", "keep one of them", at_key=True)
    variable = provider.get("api_key_env")
    if variable and not env.get(variable, "").strip():
        state = "is not set" if variable not in env else "is empty"
        reader.report((*path, "api_key_env"), f"environment variable {variable} {state}", "set it to the key")


def _check_aws(reader: Reader, path: Path, provider: dict[str, Any]) -> None:
    aws = provider.get("aws")
    if not isinstance(aws, dict):
        return
    path = (*path, "aws")
    if provider.get("format", "bedrock") not in _SIGNED:
        reader.report(path, f"requests of format {provider['format']} are not signed", "remove it", at_key=True)
    given = next((name for name in KEY_SOURCES if name in provider), None)
    if given is not None:
        reader.report(
            path, f"{given} is given too", "keep one of them: a key is sent, or requests are signed", at_key=True
        )
    pair = [name in aws for name in ("access_key_id", "secret_access_key")]
    if any(pair) and not all(pair):
        reader.report(path, "an access key and its secret belong together", "give both, or neither", at_key=True)
    if importlib.util.find_spec("botocore") is None:
        reader.report(
            path, "requests cannot be signed: botocore is not installed", "install headrace[aws]", at_key=True
        )


def _check_grpc(reader: Reader, grpc: dict[str, Any] | None) -> None:
    if not grpc:
        return
    path: Path = ("server", "grpc")
    _check_files(reader, path, grpc, ("cert_file", "key_file", "client_ca_file"))
    for given, missing in (("cert_file", "key_file"), ("key_file", "cert_file"), ("client_ca_file", "cert_file")):
        if given in grpc and missing not in grpc:
            reader.report((*path, given), f"{quoted(missing)} is missing", "TLS needs a certificate and its key")


def _check_files(reader: Reader, path: Path, holder: dict[str, Any], keys: Iterable[str]) -> None:
    for key in keys:
        if key not in holder:
            continue
        file = os.path.join(os.path.dirname(os.path.abspath(reader.filename)), holder[key])
        holder[key] = file
        if not os.path.exists(file):
            reader.report((*path, key), f"there is no file {quoted(file, limit=500)}")
        elif os.path.isdir(file):
            reader.report((*path, key), f"{quoted(file, limit=500)} is a directory")
        elif not os.access(file, os.R_OK):
            reader.report((*path, key), f"{quoted(file, limit=500)} may not be read", "check its permissions")


def _locate_files(reader: Reader, plain: dict[str, Any]) -> None:
    """Files that need not exist yet."""
    folder = os.path.dirname(os.path.abspath(reader.filename))
    usage = plain.get("usage", {})
    for holder, key in ((plain, "keys_file"), (usage, "folder"), (usage, "file")):
        if key in holder:
            holder[key] = os.path.join(folder, os.path.expanduser(holder[key]))
    if usage.get("redis_stream") and "redis" not in plain:
        reader.report(("usage", "redis_stream"), "there is no Redis server", "give `redis` a `url`")


def _check_headers(reader: Reader, path: Path, headers: dict[str, str]) -> None:
    seen: dict[str, str] = {}
    for name in headers:
        place = (*path, "headers", name)
        first = seen.setdefault(name.lower(), name)
        if first != name:
            hint = "case makes no difference in headers; remove one"
            reader.report(place, f"the same header as {quoted(first)}", hint, at_key=True)
        if _SECRET_WORDS.isdisjoint(re.split(r"[-_.]", name.lower())):
            continue
        reference = reader.references.get(place)
        hint = f"set an environment variable and refer to it: {name}: ${{NAME}}"
        if reference is None:
            reader.report(place, "this header usually holds a secret; a value in the file is refused", hint)
        elif reference.defaults:
            reader.report(place, "a default would be a secret in the file, which is refused", hint)


def _check_quirks(reader: Reader, path: Path, provider: dict[str, Any]) -> None:
    fmt = FORMATS.get(provider.get("format", ""))
    for name in provider.get("quirks", {}) if fmt is not None else ():
        if fmt is not None and name not in fmt.quirks:
            hint = f"it has {', '.join(fmt.quirks)}" if fmt.quirks else "it has none"
            reader.report((*path, "quirks", name), f"format {fmt.name} has no quirk {quoted(name)}", hint, at_key=True)


def _check_routes(reader: Reader, plain: dict[str, Any], known: set[str]) -> None:
    routes = plain.get("routes", {})
    for name, route in routes.items():
        left, slash, _ = name.partition("/")
        if slash and left in known | {REPLAY}:
            hint = "choose a name that does not start with a provider's name and a slash"
            message = f"{quoted(name)} would always mean a model of provider {left}"
            reader.report(("routes", name), message, hint, at_key=True)
        for index, candidate in enumerate(route.get("candidates", ())):
            if candidate is ABSENT or "provider" not in candidate:
                continue
            provider = candidate["provider"]
            if provider not in known and provider != REPLAY:
                path: Path = ("routes", name, "candidates", index)
                hint = _provider_hint(provider, known | {REPLAY}, plain.get("environment_providers", True))
                reader.report(path, f"there is no provider {quoted(provider)}", hint)
    default = plain.get("default_route")
    if default is not None and default not in routes:
        reader.report(("default_route",), f"there is no route {quoted(default)}", did_you_mean(default, routes))


def _provider_hint(name: str, known: set[str], from_environment: bool) -> str:
    preset = PRESETS.get(name)
    if preset is not None:
        return (
            f"set {preset.key_variable}, or define providers.{name}" if from_environment else f"define providers.{name}"
        )
    return did_you_mean(name, sorted(known))


def shared_claims(reader: Reader, config: Config, environment_names: set[str]) -> Iterator[Problem]:
    """Warnings: model names that more than one provider claims. They fail only when a caller uses one alone.

    No two providers of the environment share a claim, so one of the owners always stands in the file.
    """
    owners: dict[str, list[str]] = {}
    for name, provider in config.providers.items():
        for claim in dict.fromkeys(provider.models):
            owners.setdefault(claim, []).append(name)
    for claim, names in owners.items():
        if len(names) < 2:
            continue
        name = [owner for owner in names if owner not in environment_names][-1]
        path: Path = ("providers", name, "models", config.providers[name].models.index(claim))
        message = f"model {quoted(claim)} is claimed by {' and '.join(names)}"
        yield reader.problem(path, message, "callers have to write provider/model for it; or make it a route")
