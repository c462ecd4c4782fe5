"""Every kind of mistake, with the exact place and words."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.config import Config, ConfigError, Problem, load, loads

from .helpers import config, problem, problems, provider

NOBODY = 65534
"""The user of whom no files are."""

ROUTE = provider() + "routes:\n  fast:\n    candidates: [{}]\n"

CASES: dict[str, tuple[str, int, int, str, str, str]] = {
    # name: (text, line, column, field, part of the message, part of the hint)
    "unknown key": ("server:\n  prot: 1\n", 2, 3, "server.prot", 'unknown key "prot"', 'did you mean "port"?'),
    "unknown key far from all": ("zzz: 1\n", 1, 1, "zzz", 'unknown key "zzz"', "known: server, providers"),
    "unknown key of a provider": (
        provider("baseUrl: http://x"),
        5,
        5,
        "providers.acme.baseUrl",
        'unknown key "baseUrl"',
        'did you mean "base_url"?',
    ),
    "merge key": (provider("<<: {verify: true}"), 5, 5, 'providers.acme["<<"]', 'unknown key "<<"', "known: format"),
    "embedded cannot be set": (provider("embedded: true"), 5, 5, "providers.acme.embedded", "unknown key", ""),
    "number for a string": (provider("models: [a, 4]"), 5, 17, "providers.acme.models[1]", "found 4", "in quotes"),
    "string for a number": ("server: {port: '80'}", 1, 16, "server.port", 'a whole number, found "80"', ""),
    "float for an integer": ("server: {port: 80.5}", 1, 16, "server.port", "a whole number, found 80.5", ""),
    "endless integer": ("server: {port: " + "9" * 5000 + "}", 1, 16, "server.port", "expected a whole number", ""),
    "port too high": ("server: {port: 65536}", 1, 16, "server.port", "65535 or less", ""),
    "port negative": ("server: {port: -1}", 1, 16, "server.port", "0 or more", ""),
    "old boolean": (
        "server: {access_log: yes}",
        1,
        22,
        "server.access_log",
        'true or false, found "yes"',
        "true or false",
    ),
    "quoted boolean": ("server: {access_log: 'true'}", 1, 22, "server.access_log", "expected true or false", "without"),
    "host with a path": ("server: {host: http://x}", 1, 16, "server.host", "is not a host name", ""),
    "list for a mapping": ("server: [1]\n", 1, 9, "server", "expected a mapping, found a list", ""),
    "scalar for a mapping": ("providers: x\n", 1, 12, "providers", "expected a mapping, found a single value", ""),
    "mapping for a list": (provider("models: {a: b}"), 5, 13, "providers.acme.models", "a list, found a mapping", ""),
    "mapping for a string": (provider("path: {a: b}"), 5, 11, "providers.acme.path", "a URL path, found a mapping", ""),
    "list for a candidate": (ROUTE.format("[a]"), 7, 18, "routes.fast.candidates[0]", "or a mapping, found a list", ""),
    "root is a list": ("- a\n", 1, 1, "", "expected a mapping, found a list", ""),
    "root is a scalar": ("hello\n", 1, 1, "", "expected a mapping, found a single value", ""),
    "value missing": ("server:\n  port:\n", 2, 8, "server.port", "has no value", "remove the line"),
    "quirk is a number": (
        provider("quirks: {a: 1}"),
        5,
        17,
        "providers.acme.quirks.a",
        "a string, found 1",
        "in quotes",
    ),
    "tag": ("server: {port: !!python/name:os.system x}", 1, 16, "server.port", "the YAML tag", "remove it"),
    "tag that lies": ("server: {port: !!int abc}", 1, 16, "server.port", "expected a whole number", ""),
    "tag on a mapping": ("server: !conf {port: 1}", 1, 9, "server", 'a mapping, found the YAML tag "!conf"', ""),
    "set": ("server: !!set {port}", 1, 9, "server", 'the YAML tag "set"', ""),
    "boolean that lies": (provider("quirks: {a: !!bool yes}"), 5, 17, "providers.acme.quirks.a", "true or false", ""),
    "path with a secret": (provider("path: v1?key=sk-secret"), 5, 11, "providers.acme.path", "this value has to", ""),
    "binary": (provider("vendor: !!binary aGk="), 5, 13, "providers.acme.vendor", 'the YAML tag "binary"', ""),
    "missing format": (
        "providers:\n  acme:\n    base_url: http://x\n",
        2,
        3,
        "providers.acme.format",
        '"format" is missing',
        "",
    ),
    "missing base_url": ("providers:\n  acme: {format: anthropic}", 2, 3, "providers.acme.base_url", "missing", ""),
    "missing candidates": ("routes:\n  fast: {}\n", 2, 3, "routes.fast.candidates", "missing", ""),
    "missing half of a candidate": (
        ROUTE.format("{provider: acme}"),
        7,
        18,
        "routes.fast.candidates[0].model",
        "missing",
        "",
    ),
    "no candidates": ("routes:\n  fast: {candidates: []}", 2, 22, "routes.fast.candidates", "is empty", "at least 1"),
    "bad choice": (
        "providers:\n  a: {format: openai, base_url: http://x}",
        2,
        15,
        "providers.a.format",
        'openai_responses; found "openai"',
        "",
    ),
    "duration without number": (
        "timeouts: {connect: fast}",
        1,
        21,
        "timeouts.connect",
        "expected a duration",
        '"500ms"',
    ),
    "duration in quotes": ("timeouts: {connect: '2'}", 1, 21, "timeouts.connect", 'a duration, found "2"', '"2s"'),
    "duration of a wrong unit": ("timeouts: {connect: 2sec}", 1, 21, "timeouts.connect", '"sec" is not a unit', '"2s"'),
    "duration zero": ("timeouts: {connect: 0}", 1, 21, "timeouts.connect", "longer than zero", ""),
    "duration zero with a unit": ("timeouts: {connect: 0ms}", 1, 21, "timeouts.connect", "longer than zero", ""),
    "duration negative": ("timeouts: {connect: -1}", 1, 21, "timeouts.connect", "longer than zero", ""),
    "duration in milliseconds": ("timeouts: {request: 120000}", 1, 21, "timeouts.request", "86400 seconds (a day)", ""),
    "duration infinite": ("timeouts: {request: .inf}", 1, 21, "timeouts.request", "expected a duration", ""),
    "duration not a number": ("timeouts: {request: .nan}", 1, 21, "timeouts.request", "expected a duration", ""),
    "duration overflowing": ("timeouts: {request: 1e999}", 1, 21, "timeouts.request", "expected a duration", ""),
    "duration a boolean": ("timeouts: {request: true}", 1, 21, "timeouts.request", "a duration, found true", ""),
    "size of a wrong unit": ("limits: {body_bytes: 8M}", 1, 22, "limits.body_bytes", '"M" is not a unit', '"8MiB"'),
    "size in lower case": ("limits: {body_bytes: 8mib}", 1, 22, "limits.body_bytes", '"mib" is not a unit', '"8MiB"'),
    "size with half a byte": (
        "limits: {body_bytes: 1024.5B}",
        1,
        22,
        "limits.body_bytes",
        "a whole number of bytes",
        "",
    ),
    "size too small": ("limits: {body_bytes: 3}", 1, 22, "limits.body_bytes", "1024 bytes or more, found 3", ""),
    "timeout of the server in a provider": (
        provider("timeouts:", "  request_head: 3"),
        6,
        7,
        "providers.acme.timeouts.request_head",
        "cannot be set here",
        "known: connect",
    ),
    "duplicate key": ("server:\n  port: 1\n  port: 2\n", 3, 3, "server.port", "given twice", "in line 2"),
    "duplicate provider": (
        provider() + "  acme: {}\n",
        5,
        3,
        "providers.acme",
        '"acme" is given twice',
        "in line 2; remove one",
    ),
    "quirk of another format": (
        "providers: {p: {format: anthropic, base_url: 'http://x', quirks: {done_marker: false}}}",
        1,
        67,
        "providers.p.quirks.done_marker",
        'format anthropic has no quirk "done_marker"',
        "input_includes_cache",
    ),
    "duplicate section": ("limits: {}\nserver: {}\nlimits: {}\n", 3, 1, "limits", "given twice", "line 1"),
    "duplicate header": (
        provider("headers:", "  X-A: b", "  x-a: c"),
        7,
        7,
        "providers.acme.headers.x-a",
        'the same header as "X-A"',
        "",
    ),
    "key is a number": ("routes:\n  4: {}\n", 2, 3, 'routes["?"]', "a key has to be a string", "in quotes"),
    "key is a list": ("? [a]\n: 1\n", 1, 3, '["?"]', "a key has to be a string", ""),
    "provider name with a slash": (
        'providers:\n  "a/b": {format: anthropic, base_url: http://x}',
        2,
        3,
        'providers["a/b"]',
        "has to be letters",
        "",
    ),
    "reserved name": (
        "providers:\n  replay: {format: anthropic, base_url: http://x}",
        2,
        3,
        "providers.replay",
        "embedded provider",
        "choose another",
    ),
    "unknown provider in a route": (
        ROUTE.format("acne/x"),
        7,
        18,
        "routes.fast.candidates[0]",
        'there is no provider "acne"',
        'did you mean "acme"?',
    ),
    "environment provider without variables": (
        ROUTE.format("openai/gpt-5"),
        7,
        18,
        "routes.fast.candidates[0]",
        'no provider "openai"',
        "set OPENAI_API_KEY, or define providers.openai",
    ),
    "bare candidate": (
        ROUTE.format("gpt-5"),
        7,
        18,
        "routes.fast.candidates[0]",
        "is not provider/model",
        "openai/gpt-5",
    ),
    "candidate without a model": (ROUTE.format("acme/"), 7, 18, "routes.fast.candidates[0]", "not provider/model", ""),
    "route behind a provider": (
        provider() + "routes:\n  acme/x: {candidates: [acme/y]}\n",
        6,
        3,
        'routes["acme/x"]',
        "always mean a model of provider acme",
        "",
    ),
    "unknown default route": (
        provider() + "routes:\n  fast: {candidates: [acme/y]}\ndefault_route: fst\n",
        7,
        16,
        "default_route",
        'there is no route "fst"',
        'did you mean "fast"?',
    ),
    "claim with * inside": (provider("models: [a*b]"), 5, 14, "providers.acme.models[0]", '"a*b" has to be', ""),
    "claim empty": (provider("models: ['']"), 5, 14, "providers.acme.models[0]", '"" has to be', ""),
    "literal key": (
        provider("api_key: sk-secret"),
        5,
        14,
        "providers.acme.api_key",
        "a key in the file is refused",
        "write ${NAME}, or use api_key_env or api_key_file",
    ),
    "key of numbers": (provider("api_key: 12345"), 5, 14, "providers.acme.api_key", "refused", "api_key_env"),
    "key half literal": (provider("api_key: sk-${K}"), 5, 14, "providers.acme.api_key", "refused", "api_key_env"),
    "key as a default": (
        provider("api_key: ${X:-sk-secret}"),
        5,
        14,
        "providers.acme.api_key",
        "a default would be",
        "",
    ),
    "key that is empty": (provider("api_key: ${EMPTY}"), 5, 14, "providers.acme.api_key", "EMPTY is empty", ""),
    "two keys": (
        provider("api_key: ${K}", "api_key_env: K"),
        6,
        5,
        "providers.acme.api_key_env",
        "api_key is given too",
        "keep one",
    ),
    "key variable not set": (provider("api_key_env: NOPE"), 5, 18, "providers.acme.api_key_env", "NOPE is not set", ""),
    "key variable empty": (provider("api_key_env: EMPTY"), 5, 18, "providers.acme.api_key_env", "EMPTY is empty", ""),
    "key in place of its variable": (
        provider("api_key_env: sk-secret"),
        5,
        18,
        "providers.acme.api_key_env",
        "this value is not the name of an environment variable",
        "not the key itself",
    ),
    "key file missing": (
        provider("api_key_file: no/such"),
        5,
        19,
        "providers.acme.api_key_file",
        "there is no file",
        "",
    ),
    "key file is a directory": (
        provider("api_key_file: /"),
        5,
        19,
        "providers.acme.api_key_file",
        "is a directory",
        "",
    ),
    "literal secret in a header": (
        provider("headers: {Authorization: Bearer sk-secret}"),
        5,
        30,
        "providers.acme.headers.Authorization",
        "a value in the file is refused",
        "Authorization: ${NAME}",
    ),
    "literal secret in another header": (
        provider("headers: {x-api-key: sk-secret}"),
        5,
        26,
        "providers.acme.headers.x-api-key",
        "a value in the file is refused",
        "",
    ),
    "literal secret as a header's default": (
        provider("headers: {x-api-key: '${X:-sk-secret}'}"),
        5,
        26,
        "providers.acme.headers.x-api-key",
        "a default would be a secret",
        "",
    ),
    "header name with a space": (
        provider("headers: {'a b': c}"),
        5,
        15,
        'providers.acme.headers["a b"]',
        "is not the name of a header",
        "",
    ),
    "header name with a line break": (
        provider('headers: {"a\\r\\nb": c}'),
        5,
        15,
        'providers.acme.headers["a\\r\\nb"]',
        "line break",
        "",
    ),
    "header value with a line break": (
        provider('headers: {x-a: "b\\r\\nX-Evil: 1"}'),
        5,
        20,
        "providers.acme.headers.x-a",
        "holds a line break",
        "on one line",
    ),
    "line break from the environment": (
        provider("headers: {x-a: '${CRLF}'}"),
        5,
        20,
        "providers.acme.headers.x-a",
        "holds a line break",
        "",
    ),
    "header value with NUL": (provider('headers: {x-a: "\\0"}'), 5, 20, "providers.acme.headers.x-a", "control", ""),
    "header value not ASCII": (
        provider("headers: {x-a: é}"),
        5,
        20,
        "providers.acme.headers.x-a",
        "characters that a header may not carry",
        "ASCII",
    ),
    "header of the connection": (
        provider("headers: {Content-Length: '3'}"),
        5,
        15,
        "providers.acme.headers.Content-Length",
        "is set by Headrace itself",
        "remove it",
    ),
    "lone surrogate": (provider('models: ["\\ud800"]'), 5, 14, "providers.acme.models[0]", "an invalid one", ""),
    "path without a slash": (provider("path: v1"), 5, 11, "providers.acme.path", "start with /", "for example"),
    "proxy with a literal password": (
        provider("proxy: http://u:sk-secret@p.test:1"),
        5,
        12,
        "providers.acme.proxy",
        "a password in the file is refused",
        "${PASSWORD}",
    ),
    "proxy with a reference and a literal password": (
        provider("proxy: http://${K}:sk-secret@p.test:1"),
        5,
        12,
        "providers.acme.proxy",
        "a password in the file is refused",
        "",
    ),
    "proxy of another kind": (provider("proxy: socks5://p"), 5, 12, "providers.acme.proxy", "start with http", ""),
    "variable not set": ("server:\n  host: ${NOPE}\n", 2, 9, "server.host", "NOPE is not set", "${NOPE:-default}"),
    "variables not set": ("server: {host: '${A}${B}${A}'}", 1, 16, "server.host", "variables A, B are not set", ""),
    "reference not closed": ("server: {host: '${NOPE'}", 1, 16, "server.host", "never closed", "$${"),
    "reference to no name": ("server: {host: '${1x}'}", 1, 16, "server.host", "does not hold the name", "$${"),
    "reference gives a wrong type": ("server: {port: '${K}'}", 1, 16, "server.port", "found the value of ${K}", ""),
    "reference gives a bad choice": (
        "providers: {a: {format: '${K}', base_url: http://x}}",
        1,
        25,
        "providers.a.format",
        "found the value of ${K}",
        "",
    ),
    "tab": ("server:\n\tport: 1\n", 2, 1, "", "'\\t'", "indent with spaces"),
    "colon in a value": ("server:\n  host: a: b\n", 2, 10, "", "mapping values are not allowed", "in quotes"),
    "bracket not closed": ("server: [1,\n", 2, 1, "", "expected the node content", ""),
    "reference in a flow mapping": ("server: {port: ${K}}", 1, 17, "", "YAML: expected ','", '"${NAME}"'),
    "quote not closed": ("server:\n  host: 'a\n", 3, 1, "", "that starts in line 2", "a quote is not closed"),
    "indentation": ("server:\n    port: 1\n  host: a\n", 3, 3, "", "expected <block end>", "indentation"),
    "two documents": ("a: 1\n---\nb: 2\n", 2, 1, "", "a single document", "remove the ---"),
    "starts with @": ("server:\n  host: @a\n", 2, 9, "", "'@'", "in quotes"),
    "control character": ("server:\n  host: a\x07b\n", 2, 10, "", "U+0007 is not allowed", "remove it"),
    "alias": ("server: &a {port: 1}\nlimits: *a\n", 2, 9, "", "aliases (*name) are not supported", ""),
    "escape of no character": ('server: {host: "\\UFFFFFFFF"}', 1, 19, "", "an escape in double quotes", ""),
    "deep nesting": ("[" * 100_000, 1, 33, "", "nested deeper than 32 levels", ""),
}

ENV = {"K": "sk-secret", "EMPTY": "", "CRLF": "a\r\nX-Evil: sk-secret"}


@pytest.mark.parametrize("name", CASES)
def test_one_mistake_is_one_problem_in_its_place(name: str) -> None:
    text, line, column, field, message, hint = CASES[name]
    found = problem(text, ENV)
    assert (found.line, found.column, found.field) == (line, column, field), str(found)
    assert message in found.message
    assert hint in found.hint
    assert "sk-secret" not in str(found)
    assert "\n" not in str(found)


URLS = {
    "acme.test": "start with http",
    "ftp://acme.test": "start with http",
    "http://": "names no host",
    "http:///v1": "names no host",
    "http://acme.test:99999": "malformed host or port",
    "http://acme.test:0": "port 0",
    "http://[::1": "malformed host or port",
    "http://a<b>": "malformed host",
    "http://u:sk-secret@acme.test": "may not hold credentials",
    "http://acme.test?x=1": "a query",
    "http://acme.test/v1#x": "a query or a fragment",
    "http://acme.test/?": "a query or a fragment",
    "http://a b": "white space",
    "http://b\u00fccher.test": "non-ASCII",
    "": "white space",
}


@pytest.mark.parametrize("url", URLS)
def test_bad_urls(url: str) -> None:
    found = problem(f"providers:\n  acme:\n    format: anthropic\n    base_url: '{url}'\n")
    assert (found.line, found.column, found.field) == (4, 15, "providers.acme.base_url")
    assert URLS[url] in found.message
    assert "sk-secret" not in str(found)


@pytest.mark.parametrize(
    "url", ["http://[::1]:80/v1", "https://a-b.test", "http://127.0.0.1:1", "HTTPS://A.test/x%20y"]
)
def test_good_urls(url: str) -> None:
    assert config(f"providers: {{a: {{format: anthropic, base_url: '{url}'}}}}").providers["a"].base_url == url


def test_all_problems_are_reported_in_the_order_of_the_file() -> None:
    found = problems(
        """\
        default_route: nowhere
        server:
          port: high
          hots: x
        providers:
          acme:
            format: openai
            api_key: sk-secret
            models: [1, 'a*b', fine]
        routes:
          fast:
            candidates: [acme/x, nobody/y, [], {provider: acme, modell: m}]
        timeouts: {connect: never}
        """
    )
    assert [(each.line, each.field) for each in found] == [
        (1, "default_route"),
        (3, "server.port"),
        (4, "server.hots"),
        (6, "providers.acme.base_url"),
        (7, "providers.acme.format"),
        (8, "providers.acme.api_key"),
        (9, "providers.acme.models[0]"),
        (9, "providers.acme.models[1]"),
        (12, "routes.fast.candidates[1]"),
        (12, "routes.fast.candidates[2]"),
        (12, "routes.fast.candidates[3].model"),
        (12, "routes.fast.candidates[3].modell"),
        (13, "timeouts.connect"),
    ]


def test_the_text_of_an_error_is_one_line_a_problem() -> None:
    with pytest.raises(ConfigError) as caught:
        config("server: {prot: 1}\nlimits: {body_bytes: 3}\n", filename="etc/headrace.yaml")
    assert str(caught.value) == (
        'etc/headrace.yaml:1:10: server.prot: unknown key "prot" (did you mean "port"?)\n'
        "etc/headrace.yaml:2:22: limits.body_bytes: has to be 1024 bytes or more, found 3"
    )
    assert caught.value.problems[0] == Problem(
        "etc/headrace.yaml", 1, 10, "server.prot", 'unknown key "prot"', 'did you mean "port"?'
    )


def test_strange_keys_are_printed_on_one_line_and_shortened() -> None:
    found = problem('"a\\n\\e[31m' + "x" * 200 + '": 1\n')
    assert found.field.startswith('["a\\n\\u001b[31mxxx')
    assert len(found.field) < 80


@pytest.mark.parametrize("length", [1, 4, 100])
def test_a_laughing_file_is_refused_at_its_first_alias(length: int) -> None:
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, length + 1)]
    found = problem("\n".join(lines))
    assert (found.line, found.column) == (2, 10)
    assert "aliases" in found.message


def test_an_alias_of_itself_is_refused() -> None:
    assert "aliases" in problem("providers: &p {a: *p}").message


@pytest.mark.parametrize(
    ("data", "line", "column"),
    [
        (b"server:\n  host: \xff\n", 2, 9),
        (b"\xef\xbb\xbfa\xff", 1, 2),
        ("é: ".encode() + b"\xe9", 1, 4),
        (b"\xff\xfea\0", 1, 1),
    ],
)
def test_not_utf8(tmp_path: Path, data: bytes, line: int, column: int) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    (found,) = caught.value.problems
    assert (found.file, found.line, found.column) == (str(file), line, column)
    assert found.message == "the file is not UTF-8 text"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.yaml", "there is no such file"),
        (".", "is a directory"),
        ("a\0b", "cannot be read"),
        ("x" * 300, "cannot be read"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / name, {})
    (found,) = caught.value.problems
    assert (found.file, found.line) == (str(tmp_path / name), 0)
    assert message in found.message
    assert str(found).startswith(f"{tmp_path / name}: ")


def test_a_file_without_permission(tmp_path: Path) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_text("")
    file.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)  # root may read every file
    try:
        with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
            load(file, {})
    finally:
        os.seteuid(user)


def test_a_huge_file_is_refused_unparsed(tmp_path: Path) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_bytes(b"#" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="larger than 1024 KiB"):
        load(file, {})


def test_one_model_claimed_twice_is_a_warning() -> None:
    other = "  other:\n    format: anthropic\n    base_url: http://o.test\n    models: [y, m]\n"
    (warning,) = config(provider("models: [m]") + other).warnings
    assert (warning.line, warning.column, warning.field) == (9, 17, "providers.other.models[1]")
    assert 'model "m" is claimed by acme and other' in warning.message


def test_a_claim_shared_with_an_environment_provider_is_a_warning_in_the_file() -> None:
    (warning,) = config(provider("models: ['gpt-*']"), {"OPENAI_API_KEY": "k"}).warnings
    assert (warning.line, warning.field) == (5, "providers.acme.models[0]")


EXAMPLE = textwrap.dedent(
    """\
    server: {port: 1, keepalive_interval: 15s}
    providers:
      acme:
        format: openai_chat
        base_url: "http://acme.test/v1"
        api_key: ${K}
        headers: {x-a: "b"}
        models: [m, 'n*']
        timeouts:
          connect: 1
    routes:
      fast: {candidates: [acme/m, {provider: acme, model: n1}]}
    limits: {body_bytes: 8MiB}
    """
)


def attempt(loading: Callable[[], Config]) -> list[Problem]:
    """The problems of a text that may have some. Any other exception fails the test."""
    try:
        loading()
    except ConfigError as error:
        return error.problems
    return []


@given(
    st.integers(0, len(EXAMPLE)),
    st.integers(0, 12),
    st.text(st.sampled_from("\t\n\r :,[]{}*&!|>'\"%@`#-?~$0aé\u2028\0"), max_size=6) | st.text(max_size=4),
)
@settings(deadline=None, max_examples=300)
def test_no_edit_of_a_file_gives_anything_but_a_config_or_problems(start: int, cut: int, put: str) -> None:
    text = EXAMPLE[:start] + put + EXAMPLE[start + cut :]
    lines = text.count("\n") + text.count("\r") + text.count("\u2028") + text.count("\u2029") + text.count("\x85") + 1
    found = attempt(lambda: loads(text, filename="f", env={"K": "sk-secret"}))
    for each in found:
        assert 1 <= each.line <= lines
        assert each.column >= 1
        assert each.message
        assert "sk-secret" not in str(each)


@given(st.binary(max_size=60))
@settings(deadline=None)
def test_no_bytes_give_anything_but_a_config_or_problems(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(data)
    for each in attempt(lambda: load(file, {})):
        assert each.file == str(file)
        assert each.message
