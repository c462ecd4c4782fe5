"""`${NAME}` references."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.config.errors import Invalid
from headrace.config.references import expand

from .helpers import config, provider

ENV = {"A": "one", "_b2": "two", "EMPTY": "", "NEST": "${A}"}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("$A $ {A} A}", "$A $ {A} A}"),
        ("${A}", "one"),
        ("x${A}${_b2}y", "xonetwoy"),
        ("${EMPTY}", ""),
        ("${EMPTY:-d}", "d"),
        ("${NONE:-d}", "d"),
        ("${NONE:-}", ""),
        ("${NONE:-a:-b c}", "a:-b c"),
        ("${A:-d}", "one"),
        ("$${A}", "${A}"),
        ("$${A} ${A}", "${A} one"),
        ("$${", "${"),
        ("${NEST}", "${A}"),
        ("${NONE:-$${A}", "$${A"),
    ],
)
def test_expand(text: str, result: str) -> None:
    assert expand(text, ENV).text == result


@pytest.mark.parametrize("text", ["${", "a${A", "${}", "${ A}", "${A-b}", "${1}", "${A:b}", "${é}", "${A}${"])
def test_malformed(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        expand(text, ENV)
    assert "$${" in caught.value.hint


def test_malformed_references_are_not_quoted() -> None:
    with pytest.raises(Invalid) as caught:
        expand("${sk-secret}", ENV)
    assert "sk-secret" not in caught.value.message


@given(st.text(alphabet="ab$"))
def test_text_without_references_stays(text: str) -> None:
    assert expand(text, {}).text == text


@given(st.text())
def test_doubled_dollars_protect_any_text(text: str) -> None:
    if "$${" not in text and not text.endswith("$"):
        assert expand(text.replace("${", "$${"), {}).text == text


@pytest.mark.parametrize("quotes", ["{}", "'{}'", '"{}"'])
def test_a_reference_takes_the_type_of_its_key_whatever_the_quotes(quotes: str) -> None:
    env = {"PORT": "9", "LOG": "true", "WAIT": "2s", "SIZE": "4096", "FORMAT": "anthropic"}
    written = {name: quotes.format(f"${{{name}}}") for name in env}
    result = config(
        f"server:\n  port: {written['PORT']}\n  access_log: {written['LOG']}\n  keepalive_interval: {written['WAIT']}\n"
        f"limits:\n  body_bytes: {written['SIZE']}\n"
        f"providers:\n  a:\n    format: {written['FORMAT']}\n    base_url: http://x\n",
        env,
    )
    assert (result.server.port, result.server.access_log, result.server.keepalive_interval) == (9, True, 2.0)
    assert result.limits.body_bytes == 4096
    assert result.providers["a"].format == "anthropic"


@pytest.mark.parametrize("value", ["4", "true", "null", "x: y", "- [", "'", "#"])
def test_what_a_variable_holds_is_a_string_where_one_is_expected(value: str) -> None:
    assert config(provider("models: ['${V}']"), {"V": value}).providers["acme"].models == [value]


def test_a_quirk_is_a_boolean_only_without_quotes() -> None:
    quirks = (
        config(provider("quirks:", "  top_k: ${V}", "  think_tags: '${V}'"), {"V": "true"}).providers["acme"].quirks
    )
    assert quirks == {"top_k": True, "think_tags": "true"}


def test_keys_hold_no_references() -> None:
    assert "${V}" in config(provider() + "routes: {'${V}': {candidates: [acme/x]}}").routes
