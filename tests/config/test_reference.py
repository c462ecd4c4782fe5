"""docs/configuration.md: its tables are current, its example is complete and works."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from headrace.config import (
    Aws,
    Breaker,
    Candidate,
    Catalogue,
    Config,
    Grpc,
    Limits,
    Price,
    Provider,
    Redis,
    Retry,
    Route,
    Server,
    Timeouts,
    Usage,
    json_schema,
    load,
)
from headrace.config.kinds import CONNECTION_HEADERS
from headrace.config.reference import DOCUMENT, document_text, main

from .helpers import REPOSITORY, problems, resolved
from .validator import is_valid

TEXT = (REPOSITORY / DOCUMENT).read_text("utf-8")
ENV = {
    "OPENAI_API_KEY": "k1",
    "ANTHROPIC_API_KEY": "k2",
    "LOCAL_TOKEN": "k3",
    "PROXY_USER": "u",
    "PROXY_PASSWORD": "k4",
    "REDIS_PASSWORD": "k5",
    "LEDGER_PASSWORD": "k6",
    "EU_ACCESS_KEY": "k7",
    "EU_SECRET_KEY": "k8",
    "EU_SESSION_TOKEN": "k9",
}


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The worked example as a file, with the files beside it that it names."""
    match = re.search(r"```yaml\n(server:\n.*?)```", TEXT, re.DOTALL)
    assert match
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "local").write_text("k5")
    for name in ("internal-ca.pem", "grpc.pem", "grpc.key"):
        (tmp_path / "keys" / name).write_text("")
    file = tmp_path / "headrace.yaml"
    file.write_text(match[1])
    return file


def test_the_tables_are_current() -> None:
    assert document_text(TEXT) == TEXT, "run: python -m headrace.config.reference"
    assert TEXT.count("<!-- keys: ") == 14


def test_the_example_works(example: Path) -> None:
    result = load(example, ENV)
    assert result.warnings == ()
    assert set(result.providers) == {"openai", "anthropic", "bedrock", "bedrock-eu", "local", "gpu-box", "replay"}
    catalogue = Catalogue(result)
    assert resolved(catalogue, "gpt-5") == ("openai", "gpt-5", None)
    assert resolved(catalogue, result.default_route or "") == ("local", "llama-3.3-70b", "fast")
    assert result.providers["anthropic"].timeouts == Timeouts(first_token=60.0)
    assert is_valid(yaml.safe_load(example.read_text()), json_schema(), json_schema())


@pytest.mark.parametrize(
    "struct",
    [Config, Server, Grpc, Provider, Aws, Route, Candidate, Retry, Breaker, Redis, Usage, Price, Limits, Timeouts],
)
def test_the_example_shows_every_key(example: Path, struct: type[msgspec.Struct]) -> None:
    text = example.read_text()
    for name in struct.__struct_fields__:
        if (struct, name) not in ((Config, "warnings"), (Provider, "embedded")):
            assert re.search(rf"(^|[ {{]){name}:", text, re.MULTILINE), name


def test_the_quoted_problems_are_real() -> None:
    quoted = re.search(r"```\n(headrace\.yaml:.*?)```", TEXT, re.DOTALL)
    assert quoted
    text = """\
        # Three mistakes.

        server:
          prot: 9000

        providers:
          acme:
            format: openai_chat
            api_key: sk-12345
            base_url: http://acme.test
          openai: {format: openai_chat, base_url: 'http://o.test'}

        routes:
          fast:
            candidates:
              - opnai/gpt-5
        """
    assert "\n".join(map(str, problems(text))) + "\n" == quoted[1]


def test_main_rewrites_both_files(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "schema").mkdir()
    (tmp_path / DOCUMENT).write_text("a\n<!-- keys: Route -->\nold\n<!-- end -->\nb\n")
    main(tmp_path)
    text = (tmp_path / DOCUMENT).read_text()
    assert text.startswith("a\n<!-- keys: Route -->\n| key |")
    assert "old" not in text
    assert text.endswith("|\n<!-- end -->\nb\n")
    assert (tmp_path / "schema" / "headrace.schema.json").read_bytes() == (
        REPOSITORY / "schema" / "headrace.schema.json"
    ).read_bytes()


def test_no_header_that_the_upstream_client_keeps_for_itself_can_be_configured() -> None:
    headers = pytest.importorskip("headrace.upstream.headers", reason="the upstream client is not installed")
    assert headers.RESERVED <= CONNECTION_HEADERS
