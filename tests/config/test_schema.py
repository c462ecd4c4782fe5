"""The published JSON Schema: current, closed, and of one mind with the loader."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from headrace.config import json_schema
from headrace.config.reference import SCHEMA, schema_text

from .helpers import REPOSITORY, config, problems, provider
from .validator import is_valid

ENV = {"K": "k", "PORT": "1", "LOG": "false"}


def test_the_published_file_is_current() -> None:
    assert (REPOSITORY / SCHEMA).read_text("utf-8") == schema_text(), "run: python -m headrace.config.reference"
    assert json.loads((REPOSITORY / SCHEMA).read_text("utf-8")) == json_schema()


def objects(schema: Any) -> Iterator[dict[str, Any]]:
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema
        for value in schema.values():
            yield from objects(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from objects(value)


def test_every_object_is_closed_and_every_key_described() -> None:
    found = list(objects(json_schema()))
    assert len(found) == 15
    for each in found:
        assert each["additionalProperties"] is False
        for name, value in each["properties"].items():
            assert value["description"], name


def test_draft_and_references() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    used = set(json.dumps(schema).split('"#/$defs/'))
    names = {text.partition('"')[0] for text in used if not text.startswith("{")}
    assert names == set(schema["$defs"])


def test_what_the_file_cannot_set_is_not_in_it() -> None:
    schema = json_schema()
    assert "warnings" not in schema["properties"]
    assert "embedded" not in schema["$defs"]["Provider"]["properties"]
    assert "request_head" not in schema["$defs"]["ProviderTimeouts"]["properties"]


GOOD = [
    "{}",
    "server: {port: 0, keepalive_interval: 1.5, access_log: false, host: '::'}",
    "server: {port: '${PORT}', keepalive_interval: 500ms, access_log: '${LOG:-true}'}",
    provider(
        "api_key: ${K}", "models: [a, 'b*', '*']", "quirks: {top_k: true, think_tags: open}", "timeouts: {connect: 1}"
    ),
    provider("headers: {x-a: b, x-key: '${K}'}", "path: /a?b=c", "proxy: http://p.test:1", "timeouts:"),
    provider() + "routes: {f: {candidates: [acme/x, {provider: acme, model: y}]}}\ndefault_route: f",
    "limits: {body_bytes: 4096, head_bytes: 10 KB}\ntimeouts: {connect: 2 m}",
]
BAD = [
    "[]",
    "a: 1",
    "server: {port: 65536}",
    "server: {port: '1'}",
    "server: {access_log: 1}",
    "server: {host: a/b}",
    "timeouts: {connect: 0}",
    "timeouts: {connect: 90000}",
    "timeouts: {connect: 2sec}",
    "limits: {body_bytes: 1}",
    "limits: {body_bytes: 1 mb}",
    "providers: {'a/b': {format: anthropic, base_url: http://x}}",
    "providers: {a: {format: anthropic}}",
    "providers: {a: {format: nope, base_url: http://x}}",
    "providers: {a: {format: anthropic, base_url: ftp://x}}",
    "providers: {a: {format: anthropic, base_url: 'http://u@x'}}",
    provider("api_key: sk-1"),
    provider("api_key: '${K:-sk-1}'"),
    provider("embedded: true"),
    provider("models: ['a*b']"),
    provider("models: [1]"),
    provider("headers: {'a b': c}"),
    provider('headers: {a: "b\\nc"}'),
    provider("quirks: {a: 1}"),
    provider("path: x"),
    provider("timeouts: {request_body: 3}"),
    provider() + "routes: {f: {candidates: []}}",
    provider() + "routes: {f: {candidates: [x]}}",
    provider() + "routes: {f: {candidates: [{provider: acme}]}}",
]


@pytest.mark.parametrize("text", GOOD)
def test_schema_and_loader_accept(text: str) -> None:
    assert config(text, ENV)
    assert is_valid(yaml.safe_load(text), json_schema(), json_schema())


@pytest.mark.parametrize("text", BAD)
def test_schema_and_loader_refuse(text: str) -> None:
    assert problems(text, ENV)
    assert not is_valid(yaml.safe_load(text), json_schema(), json_schema())
