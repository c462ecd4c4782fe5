"""The template of frames that differ in one text: it must read what the long way reads, or nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.openai_chat.template import Templates

from .helpers import HEAD

BEFORE = {**HEAD, "service_tier": "default"}


def payload(text: str, padding: str | None = None, *, ascii: bool = True, spaces: bool = False, **more: Any) -> bytes:
    body: dict[str, Any] = {
        **BEFORE,
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
        **more,
    }
    if padding is not None:
        body["obfuscation"] = padding
    separators = (", ", ": ") if spaces else (",", ":")
    return json.dumps(body, ensure_ascii=ascii, separators=separators).encode()


def learned(data: bytes, text: str, field: Any = "content") -> Any:
    return Templates().learn(data, field, text, "target")


@given(st.text(), st.text(), st.booleans(), st.booleans())
def test_any_text_is_read(first: str, second: str, ascii: bool, spaces: bool) -> None:
    template = learned(payload(first, ascii=ascii, spaces=spaces), first)
    assert template.match(payload(second, ascii=ascii, spaces=spaces)) == second


@given(st.text(), st.text(), st.text(max_size=9), st.text(max_size=9))
def test_random_padding_is_allowed_for(first: str, second: str, padding: str, other: str) -> None:
    template = learned(payload(first, padding), first)
    assert template.match(payload(second, other)) == second


OTHERS = [
    payload("x", usage={"prompt_tokens": 1}),
    payload("x", id="other"),
    payload("x").replace(b'"x"', b'"x","refusal":"no"'),
    payload("x").replace(b'"x"', b"null"),
    payload("x").replace(b'"x"', b"[]"),
    payload("x").replace(b'"x"', b'"\\ud83d"'),
    payload("x").replace(b'"x"', b'"x'),
    payload("x").replace(b'"x"', b'"x\xff"'),
    payload("x").replace(b'"x"', b'"x\n"'),
    payload("x")[:-1],
    b"",
    b"[DONE]",
]


@pytest.mark.parametrize("data", OTHERS)
def test_frames_of_another_structure_do_not_match(data: bytes) -> None:
    assert learned(payload("abc"), "abc").match(data) is None


def test_text_that_looks_like_the_frame_itself() -> None:
    nasty = '"},"finish_reason":null}],"obfuscation":"zzz"}'
    template = learned(payload("a", "pad"), "a")
    assert template.match(payload(nasty, "pad2")) == nasty
    assert learned(payload(nasty, nasty), nasty).match(payload("b", "c")) == "b"


def test_the_same_text_elsewhere_is_not_the_text() -> None:
    body = {**HEAD, "note": {"content": "a"}, "choices": [{"index": 0, "delta": {"content": "a"}}]}
    template = learned(json.dumps(body).encode(), "a")
    body["choices"] = [{"index": 0, "delta": {"content": "b"}}]
    assert template.match(json.dumps(body).encode()) == "b"
    body["note"] = {"content": "c"}
    assert template.match(json.dumps(body).encode()) is None


def test_a_key_that_comes_twice_is_not_learned() -> None:
    doubled = payload("a").replace(b'"content":"a"', b'"content":"a","content":"b"')
    assert learned(doubled, "b").match(doubled.replace(b'"b"', b'"c"')) == "c"
    assert learned(doubled, "b").match(doubled.replace(b'"a"', b'"c"')) is None


def test_servers_that_never_repeat_themselves_cost_little() -> None:
    templates = Templates()
    tries = sum(templates.learn(payload("a", id=str(i)), "content", "a", None) is not None for i in range(500))
    assert tries < 20
