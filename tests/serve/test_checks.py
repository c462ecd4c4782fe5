"""Checks of A2UI messages: the quick check says what the official package's `validate_payload` says."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from a2ui.core import A2uiError, link_catalogs
from a2ui.core.basic_catalog.v0_9 import BasicCatalog
from a2ui.utils.validation import validate_payload
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from headrace.formats import FORMATS
from headrace.formats.a2ui.messages import check_envelope
from headrace.model.errors import InvalidRequest
from headrace.serve.checks import load_check, message_check
from tests.fixtures import fixture_bytes, requires_fixtures

A2UI = FORMATS["a2ui"]
CATALOGS = link_catalogs([BasicCatalog()])
BASIC = CATALOGS[0].catalog_id
KNOWN = {"s": BASIC, "contact_form_1": BASIC}


def taken(message: dict[str, Any]) -> bool:
    check = load_check(A2UI)
    assert check is not None
    try:
        check(message, KNOWN)
    except InvalidRequest:
        return False
    return True


def official(message: dict[str, Any]) -> bool:
    try:
        validate_payload(CATALOGS, [message], surface_catalog_ids=KNOWN)
    except (A2uiError, ValidationError):
        return False
    return True


def components(*components: dict[str, Any]) -> dict[str, Any]:
    return {"version": "v0.9", "updateComponents": {"surfaceId": "s", "components": list(components)}}


def data(value: Any, path: str | None = None) -> dict[str, Any]:
    body = {"surfaceId": "s", "value": value, **({} if path is None else {"path": path})}
    return {"version": "v0.9", "updateDataModel": body}


def text(id: str, said: Any = "x", **more: Any) -> dict[str, Any]:
    return {"id": id, "component": "Text", "text": said, **more}


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


def chain(length: int) -> list[dict[str, Any]]:
    return [{"id": f"c{n}", "component": "Card", "child": f"c{n + 1}"} for n in range(length)]


CALL = {"call": "formatString", "args": {"value": "x"}}
CASES: dict[str, tuple[dict[str, Any], bool]] = {
    "a text": (components(text("root")), True),
    "another version of the version": ({**components(text("root")), "version": "v0.9.1"}, True),
    "children that are not there yet": (components({"id": "a", "component": "Column", "children": ["b"]}), True),
    "a call": (components(text("a", CALL)), True),
    "a call of an unknown function": (components(text("a", {"call": "nope", "args": {}})), False),
    "a call with a wrong argument": (
        components(text("a", {"call": "formatString", "args": {"value": 1, "x": 2}})),
        False,
    ),
    "a call in a call": (components(text("a", {"call": "formatString", "args": {"value": {"call": "x"}}})), False),
    "a component without its property": (components({"id": "a", "component": "Text"}), False),
    "an additional property": (components(text("a", extra=1)), False),
    "an unknown component": (components({"id": "a", "component": "Nope"}), False),
    "an empty id": (components(text("")), False),
    "an id twice": (components(text("a"), text("a")), False),
    "another catalog": (components(text("a", catalogId="https://example.com")), False),
    "a component in itself": (components({"id": "a", "component": "Card", "child": "a"}), False),
    "a circle": (
        components(
            {"id": "a", "component": "Card", "child": "b"},
            {"id": "b", "component": "Card", "child": "a"},
        ),
        False,
    ),
    "a long chain": (components(*chain(49)), True),
    "a chain too long": (components(*chain(60)), False),
    "a bad path": (components(text("a", {"path": "/a~2"})), False),
    "data": (data({"a": [1, None, {"b": "c"}]}), True),
    "data at a path": (data(1, "/a/0/b"), True),
    "data at an index too high": (data(1, "/a/99999999"), False),
    "data at a bad path": (data(1, "/a~3"), False),
    "deep data": (data(nested(40)), True),
    "data too deep": (data(nested(60)), False),
    "additional members": ({"version": "v0.9", "updateDataModel": {"surfaceId": "s", "value": 1, "x": 1}}, False),
    "a theme": (
        {
            "version": "v0.9",
            "createSurface": {"surfaceId": "n", "catalogId": BASIC, "theme": {"primaryColor": "#00ff00"}},
        },
        True,
    ),
    "a wrong theme": (
        {
            "version": "v0.9",
            "createSurface": {"surfaceId": "n", "catalogId": BASIC, "theme": {"primaryColor": "green"}},
        },
        False,
    ),
    "the end of a surface": ({"version": "v0.9", "deleteSurface": {"surfaceId": "s"}}, True),
}


@pytest.mark.parametrize(("message", "due"), CASES.values(), ids=list(CASES))
def test_it_says_what_the_package_says(message: dict[str, Any], due: bool) -> None:
    assert (taken(message), official(message)) == (due, due)


PLACES = 12
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 2), st.text("a/~0", max_size=3), st.just([]), st.just({}), st.just(CALL),
    st.just({"path": "/x"}), st.just({"path": "x~"}), st.just("root"), st.just([{"id": "a"}]),
)  # fmt: skip


def changed(value: Any, places: list[int], by: Any) -> Any:
    """A copy of `value`, in which what these places lead to (the how manieth member, from the outside in) is `by`."""
    if not places:
        return by
    if not isinstance(value, dict | list) or not value:
        return by
    keys = list(value) if isinstance(value, dict) else list(range(len(value)))
    key = keys[places[0] % len(keys)]
    inner = changed(value[key], places[1:], by)
    if isinstance(value, dict):
        return {**value, key: inner}
    return [*value[:key], inner, *value[key + 1 :]]


@requires_fixtures
@settings(max_examples=400, deadline=None)
@given(st.integers(1, 2), st.lists(st.integers(0, PLACES), min_size=2, max_size=7), VALUES)
def test_it_says_the_same_of_any_change(line: int, places: list[int], by: Any) -> None:
    recorded = fixture_bytes("a2ui/contact_form_example.jsonl").decode().splitlines()
    message = changed(json.loads(recorded[line]), [1, *places], by)
    if check_envelope(message) is not None:
        return
    assert taken(message) == official(message)


@pytest.mark.parametrize("action", ["createSurface", "updateComponents", "updateDataModel", "deleteSurface"])
@pytest.mark.parametrize("body", [{"surfaceId": 5}, {"surfaceId": "s", "components": [[]]}, {"surfaceId": "s"}])
def test_it_raises_nothing_else(action: str, body: Any) -> None:
    taken({"version": "v0.9", action: body})


async def test_only_a2ui_is_checked_and_loaded_once() -> None:
    assert [await message_check(fmt) for fmt in FORMATS.values() if fmt is not A2UI] == [None] * (len(FORMATS) - 1)
    assert await message_check(A2UI) is load_check(A2UI)


def test_nobody_loads_it_who_does_not_ask() -> None:
    """The package stays out of a gateway until a caller wants A2UI, and one without it says what to install."""
    program = """
import sys
import headrace.serve.app
from headrace.formats import FORMATS
from headrace.model.errors import GatewayError
from headrace.serve.checks import load_check
assert not [name for name in sys.modules if name.partition(".")[0] == "a2ui"]
sys.modules["a2ui"] = None
try:
    load_check(FORMATS["a2ui"])
except GatewayError as error:
    print(error.info.http_status, error.info.message)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.startswith("501 ")
    assert "pip install 'headrace[a2ui]'" in ran.stdout
