"""How each kind of scalar value is written in the file: its pattern, its checks, what the schema says of it.

Rule: one table, `KINDS`, serves the reader, the JSON Schema and the reference. A value that came from the environment
is never quoted in a message: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import inspect

from headrace.config.credentials import Secret
from headrace.config.errors import Invalid, quoted
from headrace.config.references import VARIABLE, Expanded


class Scalar(msgspec.Struct, frozen=True):
    """A scalar of the file with its references replaced.

    `type` is what YAML takes it for: str, int, float, bool. `secretive` says that the kind of value may be a secret.
    """

    text: str
    type: str
    expanded: Expanded
    secretive: bool = False

    def __str__(self) -> str:
        """How messages name the value."""
        if self.secretive:
            return "this value"
        if self.expanded.names:
            return "the value of " + " and ".join(f"${{{name}}}" for name in self.expanded.names)
        return quoted(self.text) if self.type == "str" else self.text


Read = Callable[[Scalar, inspect.Type], object]


class Kind(msgspec.Struct, frozen=True):
    """One kind of scalar.

    `noun` names it in messages and in the reference. Strings have a `pattern` (of the whole text), `rule` says it in
    words, and `check` looks further and may change the text. Other kinds have `read`; `also` are the `FORMS` in which
    they may be written besides their plain type. Both functions raise Invalid. `secretive` values are never quoted in a
    message.
    """

    noun: str
    pattern: str = ""
    rule: str = ""
    hint: str = ""
    check: Callable[[Scalar], str] | None = None
    read: Read | None = None
    also: tuple[str, ...] = ()
    secretive: bool = False

    def value(self, scalar: Scalar, expected: inspect.Type) -> object:
        """The value of a scalar that is to be of this kind and of the type `expected`. Raises Invalid."""
        if self.read is not None:
            return self.read(scalar, expected)
        text = _string(scalar)
        if self.rule and not re.fullmatch(self.pattern, text):
            raise Invalid(f"{scalar} {self.rule}", self.hint)
        return self.check(scalar) if self.check else text


_INTEGER = re.compile(r"[-+]?[0-9]{1,18}\Z")
_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][-+]?[0-9]{1,2})?\Z")
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]+)\Z")
_HOST = re.compile(r"[A-Za-z0-9._:%-]+")
_BREAK = re.compile(r"[\r\n]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")

SECOND_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
BYTE_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


# -- numbers, durations, sizes ---------------------------------------------------------------------------------------


def _integer(scalar: Scalar, expected: inspect.Type) -> object:
    if not _is_number(scalar, _INTEGER):
        raise _mismatch("a whole number", scalar)
    return _within(int(scalar.text), expected, scalar)


def _decimal(scalar: Scalar, expected: inspect.Type) -> object:
    if not _is_number(scalar, _NUMBER):
        raise _mismatch("a number", scalar)
    return _within(float(scalar.text), expected, scalar)


def _duration(scalar: Scalar, expected: inspect.Type) -> object:
    hint = 'write seconds as a number (2.5), or a string with its unit: "500ms", "2s", "1m", "1h"'
    if _is_number(scalar, _NUMBER):
        seconds = float(scalar.text)
    else:
        seconds = _quantity(scalar, SECOND_UNITS, "a duration", hint)
    if seconds <= 0:
        raise Invalid(f"a duration has to be longer than zero, found {scalar}", hint)
    return _within(seconds, expected, scalar, "seconds (a day)")


def _size(scalar: Scalar, expected: inspect.Type) -> object:
    hint = 'write bytes as a number (65536), or a string with its unit: "64KiB", "8MiB", "10MB"'
    if _is_number(scalar, _INTEGER):
        size: float = int(scalar.text)
    else:
        size = _quantity(scalar, BYTE_UNITS, "a size", hint)
    if size != int(size):
        raise Invalid(f"{scalar} is not a whole number of bytes", hint)
    return _within(int(size), expected, scalar, "bytes")


def _is_number(scalar: Scalar, pattern: re.Pattern[str]) -> bool:
    # What a variable holds is text; there the quotes around the reference say nothing.
    written_as_number = scalar.type in ("int", "float") or bool(scalar.expanded.names)
    return written_as_number and pattern.match(scalar.text) is not None


def _quantity(scalar: Scalar, units: dict[str, Any], noun: str, hint: str) -> float:
    match = _QUANTITY.match(scalar.text)
    if match is None:
        raise _mismatch(noun, scalar, hint)
    factor = units.get(match[2])
    if factor is None:
        raise Invalid(f"{quoted(match[2])} is not a unit of {noun.removeprefix('a ')}", hint)
    return round(float(match[1]) * float(factor), 9)


def _within(value: float, expected: inspect.Type, scalar: Scalar, unit: str = "") -> float:
    low, high = getattr(expected, "ge", None), getattr(expected, "le", None)
    if low is not None and value < low:
        raise Invalid(f"has to be {low:g} {unit}".rstrip() + f" or more, found {scalar}")
    if high is not None and value > high:
        raise Invalid(f"has to be {high:.10g} {unit}".rstrip() + f" or less, found {scalar}")
    return value


# -- booleans, choices -----------------------------------------------------------------------------------------------


def _boolean(scalar: Scalar, expected: inspect.Type) -> object:
    text = scalar.text.lower()
    if text in ("true", "false") and (scalar.type == "bool" or scalar.expanded.names):
        return text == "true"
    raise _mismatch("true or false", scalar, "write true or false, without quotes")


def _flag(scalar: Scalar, expected: inspect.Type) -> object:
    return _boolean(scalar, expected) if scalar.type == "bool" else _string(scalar)


def _plain(scalar: Scalar, expected: inspect.Type) -> object:
    """Whatever YAML takes it for."""
    if scalar.type == "bool":
        return scalar.text.lower() == "true"
    if scalar.type == "int" and _INTEGER.match(scalar.text):
        return int(scalar.text)
    if scalar.type == "float" and _NUMBER.match(scalar.text):
        return float(scalar.text)
    return _string(scalar)


def _choice(scalar: Scalar, expected: inspect.Type) -> object:
    assert isinstance(expected, inspect.LiteralType)
    if scalar.text in expected.values:
        return scalar.text
    raise Invalid(f"expected one of {', '.join(map(str, expected.values))}; found {scalar}")


# -- strings ---------------------------------------------------------------------------------------------------------


def _string(scalar: Scalar) -> str:
    if scalar.type != "str" and not scalar.expanded.names:
        raise _mismatch("a string", scalar, "put it in quotes")
    if _BREAK.search(scalar.text):
        raise Invalid("holds a line break, which is not allowed here", "write it on one line")
    if _CONTROL.search(scalar.text):
        raise Invalid("holds a control character or an invalid one, which is not allowed here")
    return scalar.text


def _url(scalar: Scalar, noun: str) -> Any:
    """The URL in parts, with the checks that every URL here has to pass."""
    hint = "https://api.example.com/v1, for example"
    if not re.fullmatch(r"[!-~]+", scalar.text):
        raise Invalid(f"{noun} holds white space or non-ASCII characters", "write such a host name in punycode (xn--)")
    try:
        parts = urlsplit(scalar.text)
        port = parts.port
    except ValueError:
        raise Invalid(f"{noun} has a malformed host or port", hint) from None
    if parts.scheme not in ("http", "https"):
        raise Invalid(f"{noun} has to start with http:// or https://", hint)
    if not _HOST.fullmatch(parts.hostname or ""):
        raise Invalid(f"{noun} names no host" if not parts.hostname else f"{noun} has a malformed host", hint)
    if port == 0:
        raise Invalid(f"{noun} has port 0", hint)
    if parts.query or parts.fragment or scalar.text.endswith(("?", "#")):
        raise Invalid(f"{noun} may not hold a query or a fragment", "a query can stand in `path`")
    return parts


def _base_url(scalar: Scalar) -> str:
    if "@" in _url(scalar, "the URL").netloc:
        raise Invalid("the URL may not hold credentials", "use api_key_env, api_key_file or headers")
    return scalar.text.rstrip("/")


def _proxy(scalar: Scalar) -> str:
    parts = _url(scalar, "the proxy's URL")
    if parts.path not in ("", "/"):
        raise Invalid("the proxy's URL may not hold a path", "http://proxy.example.com:3128, for example")
    # As the file has it; where the whole URL is one reference there is no password in the file.
    userinfo, at, _ = scalar.expanded.raw.rpartition("@")
    in_file = at and "${" not in userinfo.partition("://")[2].partition(":")[2]
    if parts.password and (in_file or scalar.expanded.defaults):
        raise Invalid("a password in the file is refused", "refer to a variable: http://${USER}:${PASSWORD}@proxy:3128")
    return scalar.text.rstrip("/")


def _header_name(scalar: Scalar) -> str:
    if scalar.text.lower() in CONNECTION_HEADERS:
        raise Invalid(f"header {quoted(scalar.text)} is set by Headrace itself", "remove it")
    return scalar.text


CONNECTION_HEADERS = frozenset(
    (
        "accept-encoding",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Headers that describe the connection or the body, which would contradict what is really sent."""


# -- special forms ---------------------------------------------------------------------------------------------------

_KEY_HINT = "set an environment variable and write ${NAME}, or use api_key_env or api_key_file"


def _secret(scalar: Scalar, expected: inspect.Type) -> object:
    if not scalar.expanded.alone:
        raise Invalid("a key in the file is refused", _KEY_HINT)
    if scalar.expanded.defaults:
        raise Invalid("a default would be a key in the file, which is refused", _KEY_HINT)
    if not _string(scalar).strip():
        raise Invalid(f"environment variable {scalar.expanded.names[0]} is empty", "set it to the key")
    return Secret(scalar.text.strip())


def _candidate(scalar: Scalar, expected: inspect.Type) -> object:
    provider, slash, model = _string(scalar).partition("/")
    if not (provider and slash and model):
        raise Invalid(f"{scalar} is not provider/model", "openai/gpt-5, for example")
    return {"provider": provider, "model": model}


def _mismatch(noun: str, scalar: Scalar, hint: str = "") -> Invalid:
    return Invalid(f"expected {noun}, found {scalar}", hint)


_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]*"
_NAME_RULE = "has to be letters, digits, dots, underscores and dashes, and start with a letter or digit"


FORMS: dict[str, dict[str, str]] = {
    "reference": {
        "description": "The value of an environment variable: ${NAME}, or ${NAME:-default}.",
        "pattern": rf"\$\{{{VARIABLE.pattern}",
    },
    "duration": {
        "description": 'A duration with its unit: "500ms", "2s", "1m", "1h".',
        "pattern": rf"^[0-9]+(\.[0-9]+)? ?({'|'.join(SECOND_UNITS)})$",
    },
    "size": {
        "description": 'A size with its unit: "64KiB", "8MiB", "10MB".',
        "pattern": rf"^[0-9]+(\.[0-9]+)? ?({'|'.join(BYTE_UNITS)})$",
    },
    "shorthand": {"description": "A model of a provider: provider/model.", "pattern": "^[^/]+/.+$"},
}
"""Strings that stand for something else than a string, as JSON Schema describes them."""

KINDS: dict[str, Kind] = {
    "integer": Kind("integer", read=_integer, also=("reference",)),
    "number": Kind("number", read=_decimal, also=("reference",)),
    "boolean": Kind("boolean", read=_boolean, also=("reference",)),
    "choice": Kind("choice", read=_choice, also=("reference",)),
    "duration": Kind("duration", read=_duration, also=("duration", "reference")),
    "size": Kind("size", read=_size, also=("size", "reference")),
    "flag": Kind("boolean or string", read=_flag),
    "value": Kind("any value", read=_plain),
    "redis_url": Kind(
        "URL",
        pattern=r"(?:rediss?|unix)://\S+",
        rule="is not the URL of a Redis server",
        hint="redis://127.0.0.1:6379/0, for example; a password comes from a reference: redis://:${REDIS_PASSWORD}@host",
        secretive=True,
    ),
    "ledger_url": Kind(
        "URL",
        pattern=r"(?:sqlite:///.+|postgres(?:ql)?://\S+)",
        rule="is not the URL of a ledger",
        hint="sqlite:///usage.db or postgresql://user:${PASSWORD}@host/database, for example",
        secretive=True,
    ),
    "secret": Kind("reference", read=_secret, pattern=rf"\$\{{{VARIABLE.pattern}\}}", secretive=True),
    "candidate": Kind("provider/model", read=_candidate, also=("shorthand",)),
    "text": Kind("string", pattern=r".+", rule="may not be empty"),
    "host": Kind("host name or address", pattern=r"[^\s/\[\]]+", rule="is not a host name or an IP address"),
    "origin": Kind(
        "origin of web pages",
        pattern=r"\*|[a-z][a-z0-9+.-]*://[^\s/]+",
        rule="is not an origin",
        hint="scheme, host and port, without a path: https://app.example.com",
    ),
    "word": Kind("string", pattern=_NAME, rule=_NAME_RULE),
    "provider_name": Kind("string", pattern=_NAME, rule=_NAME_RULE),
    "model": Kind("string", pattern=r"\S(?:.*\S)?", rule="may not be empty or start or end with a space"),
    "claim": Kind(
        "string",
        pattern=r"\*|[^\s*](?:[^*]*[^\s*])?\*?",
        rule="has to be a model's name, or the beginning of names with * at the end",
    ),
    "variable": Kind(
        "name of a variable",
        pattern=VARIABLE.pattern,
        rule="is not the name of an environment variable",
        hint="the name alone, OPENAI_API_KEY for example, without $; not the key itself",
        secretive=True,
    ),
    "file": Kind("file", pattern=r".+", rule="may not be empty"),
    "url_path": Kind(
        "URL path",
        pattern=r'/[!"$-~]*',
        rule="has to start with / and hold no white space and no #",
        hint="/v1/chat/completions, for example",
        secretive=True,
    ),
    "base_url": Kind("URL", pattern=r"https?://[^/?#@]+(?:/[^?#]*)?", check=_base_url),
    "proxy": Kind("URL", pattern=r"https?://[^/?#]+/?", check=_proxy, secretive=True),
    "header_name": Kind(
        "string",
        pattern=r"[!#$%&'*+.^_`|~0-9A-Za-z-]+",
        rule="is not the name of a header",
        hint="letters, digits and dashes",
        check=_header_name,
    ),
    "header_value": Kind(
        "string",
        pattern=r"(?:[!-~](?:[ -~]*[!-~])?)?",
        rule="holds characters that a header may not carry",
        hint="printable ASCII, no white space at either end",
        secretive=True,
    ),
}
