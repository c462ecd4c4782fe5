"""Every kind of request, from every caller's format to every provider's, and read back there.

Three things are asserted of each case: all callers' bodies mean the same; what a provider of any format reads is that, less
what its format cannot carry (REQUEST_CANNOT), each loss named in `lost`; and a caller of the provider's own format has its
body arrive as it was, down to fields that nobody knows.
"""

from __future__ import annotations

import json
import re
from copy import deepcopy
from typing import Any

import msgspec
import pytest

from headrace.formats import FORMATS
from headrace.formats.base import Target, WireRequest
from headrace.model.content import Reasoning, RedactedReasoning, ToolResult
from headrace.model.errors import InvalidRequest
from headrace.model.request import Request

from .cannot_requests import REQUEST_CANNOT
from .columns import COLUMNS
from .pipes import ALL
from .request_limits import drop, is_reasoning, parts_of
from .requests import CASES, Case, body_of

PAIRS = [
    pytest.param(case, caller, provider, id=f"{case.id}: {caller} to {provider}")
    for case in CASES
    for caller in case.bodies
    for provider in ALL
]


def target_of(provider: str, vendor: str = "") -> Target:
    return Target(model="their-model", vendor=vendor or FORMATS[provider].vendor)


def arriving(wire: WireRequest, provider: str) -> Request:
    """The request as a provider of that format reads it."""
    column = COLUMNS.get(provider)
    if column is not None and column.arriving is not None:
        return column.arriving(wire)
    assert json.loads(wire.body)["model"] == "their-model"
    return FORMATS[provider].read_request(wire.body)


def meaning(request: Request) -> dict[str, Any]:
    """What a request says, in plain objects; arguments parsed, since Anthropic has them as objects."""
    said = msgspec.to_builtins(request)
    for name in ("model", "stream", "include_usage", "metadata", "budget", "extensions", "lost", "format", "origin"):
        del said[name]
    for message in said["messages"]:
        for part in message["parts"]:
            if part["kind"] == "tool_call":
                part["arguments"] = json.loads(part["arguments"])
            if part["kind"] == "tool_result":
                del part["name"]  # the call says it, too
    return dict(said)


# What callers can say.


def _caller_limits(name: str, request: Request) -> Request:
    """The case's request as this caller's format can say it."""
    said = deepcopy(request)
    if name == "openai_chat":
        for part in parts_of(said):
            if isinstance(part, ToolResult):
                part.is_error = False
    if name == "anthropic" and said.max_tokens is None:
        said.max_tokens = 4096  # required there
    if name in COLUMNS:
        COLUMNS[name].caller_limits(said)
    return said


@pytest.mark.parametrize(
    ("case", "caller"),
    [pytest.param(case, name, id=f"{case.id}: {name}") for case in CASES for name in case.bodies],
)
def test_every_caller_is_understood(case: Case, caller: str) -> None:
    request = FORMATS[caller].read_request(body_of(case, caller))
    assert meaning(request) == meaning(_caller_limits(caller, case.request))
    assert (request.model, request.stream, request.format) == ("m", True, caller)
    assert request.origin == json.loads(body_of(case, caller))
    assert request.budget == case.request.budget
    assert request.metadata == case.request.metadata or caller == "anthropic"


# What providers can be told.


@pytest.mark.parametrize(("case", "caller", "provider"), PAIRS)
def test_every_provider_is_told(case: Case, caller: str, provider: str) -> None:
    request = FORMATS[caller].read_request(body_of(case, caller))
    due = deepcopy(request)
    lost: set[str] = set()
    if caller != provider:
        for limit in REQUEST_CANNOT[provider]:
            limit.change(due, lost)
    elif provider == "openai_chat":  # OpenAI itself has no place for reasoning and rejects it
        for number, message in enumerate(due.messages):
            if any(isinstance(part, Reasoning | RedactedReasoning) for part in message.parts):
                lost.add(rf"messages\[{number}\]\.reasoning_\w+")
            message.parts = [part for part in message.parts if not isinstance(part, Reasoning | RedactedReasoning)]
    elif provider in ("openai_responses", "gemini"):  # what was sealed for others is nothing to them
        for message in due.messages:
            if any(isinstance(part, Reasoning | RedactedReasoning) for part in message.parts):
                lost.add(r"(input|contents)\[\d+\]: reasoning of another vendor")
            message.parts = [part for part in message.parts if not isinstance(part, Reasoning | RedactedReasoning)]
    elif provider in COLUMNS and COLUMNS[provider].seals:  # what is sealed there is for another vendor
        drop("reasoning.*", is_reasoning)(due, lost)
        lost = {pattern.replace(r"\.parts", r"\.content") for pattern in lost}
    if not due.messages:
        with pytest.raises(InvalidRequest, match="nothing is left"):
            FORMATS[provider].write_request(request, target_of(provider))
        return
    wire = FORMATS[provider].write_request(request, target_of(provider))
    arrived = arriving(wire, provider)
    assert meaning(arrived) == meaning(due)
    assert arrived.stream is True
    for pattern in lost:
        assert any(re.fullmatch(pattern, name) for name in wire.lost), f"nothing in {wire.lost} names {pattern}"
    strays = [name for name in wire.lost if not any(re.fullmatch(pattern, name) for pattern in lost)]
    assert not strays


@pytest.mark.parametrize(
    ("case", "name"),
    [
        pytest.param(case, name, id=f"{case.id}: {name}")
        for case in CASES
        for name in case.bodies
        # Where reasoning is sealed there, seals are opened or what they hold is left out.
        if not (case.id == "reasoning sent back" and name in COLUMNS and COLUMNS[name].seals)
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_the_same_format_changes_nothing_but_model_and_stream(case: Case, name: str, stream: bool) -> None:
    body = body_of(case, name, stream=stream)
    if "reasoning" in case.id and name in ("openai_chat", "openai_responses", "gemini", "anthropic"):
        vendor = "anthropic"  # whose signatures they are
    else:
        vendor = FORMATS[name].vendor
    target = Target(model="their-model", vendor=vendor, stream=stream)
    wire = FORMATS[name].write_request(FORMATS[name].read_request(body), target)
    sent, given = json.loads(wire.body), json.loads(body)
    changed = {"model", "modelId", "stream", "stream_options"}
    kept = {key: value for key, value in given.items() if key not in changed and key not in ("budget", "extensions")}
    if name in ("llm_stream", "gateway"):
        kept = {key: value for key, value in given.items() if key not in changed}
    if vendor == "anthropic" and name == "openai_chat":
        kept.pop("metadata", None)
    assert {key: value for key, value in sent.items() if key not in changed} == kept
    column = COLUMNS.get(name)
    if column is not None and column.arriving is not None:
        arrived = column.arriving(wire)
        assert (arrived.model, arrived.stream) == ("their-model", stream)
    else:
        assert sent["model"] == "their-model"
        assert bool(sent.get("stream")) is stream


UNKNOWN: dict[str, dict[str, Any]] = {
    # a body with fields that nobody knows, at every depth
    "openai_chat": {
        "x_top": {"deep": [1, {"deeper": None}]},
        "messages": [
            {
                "role": "user",
                "x_message": 1,
                "content": [{"type": "text", "text": "Hi", "x_part": {"a": [0.10]}}, {"type": "x_kind", "x": 1}],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "c",
                        "type": "function",
                        "x_call": True,
                        "function": {"name": "f", "arguments": "{}", "x_function": []},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "", "x_result": "r"},
        ],
        "tools": [{"type": "function", "x_tool": 1, "function": {"name": "f", "x_function": {"y": 2}}}],
        "response_format": {"type": "x_grammar", "grammar": "root ::= x"},
        "service_tier": "flex",
    },
    "anthropic": {
        "max_tokens": 5,
        "x_top": {"deep": [1, {"deeper": None}]},
        "system": [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "x_message": 1,
                "content": [
                    {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
                    {"type": "x_kind", "x": {"y": [None]}},
                ],
            },
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {"n": 1.0}, "caller": {"type": "x"}}],
            },
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object", "x": 1}, "eager_input_streaming": True}],
        "metadata": {"user_id": "u", "x": 1},
        "mcp_servers": [{"url": "https://example.com"}],
    },
    "llm_stream": {
        "x_top": {"deep": [1, {"deeper": None}]},
        "messages": [
            {"role": "user", "x_message": 1, "content": [{"type": "text", "text": "Hi", "x_part": {"a": [0.10]}}]}
        ],
        "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}, "x_tool": 1}],
        "parameters": {"x_knob": 3},
        "metadata": {"x": {"y": 1}},
        "extensions": {"vendor:elsewhere": {"a": {"b": 1}}, "other:name": {"c": 2}},
    },
    "gateway": {
        "x_top": {"deep": [1, {"deeper": None}]},
        "messages": [
            {"role": "user", "x_message": 1, "content": [{"type": "text", "text": "Hi", "x_part": {"a": [0.10]}}]}
        ],
        "tools": [{"name": "f", "description": "d", "parameters": {"type": "object"}, "x_tool": 1}],
        "metadata": {"x": {"y": 1}},
        "extensions": {"vendor:elsewhere": {"a": {"b": 1}}, "other:name": {"c": 2}},
    },
}


UNKNOWN |= {name: dict(column.unknown) for name, column in COLUMNS.items()}


@pytest.mark.parametrize("name", ALL)
def test_unknown_fields_survive_at_every_depth(name: str) -> None:
    case = Case("unknown", Request(model="m", messages=[]), {name: UNKNOWN[name]})
    wire = FORMATS[name].write_request(FORMATS[name].read_request(body_of(case, name)), target_of(name))
    sent = json.loads(wire.body)
    assert {key: sent[key] for key in UNKNOWN[name]} == UNKNOWN[name]


# Extensions.

EXTENSIONS: dict[str, dict[str, Any]] = {
    "vendor:openai": {"service_tier": "flex", "prediction": {"type": "content"}},
    "vendor:anthropic": {"service_tier": "standard_only", "context_management": {"edits": []}},
    "vendor:groq": {"service_tier": "on_demand"},
}
_EXTENDED = {
    "openai_chat": {"messages": [{"role": "user", "content": "Hi"}], "extensions": EXTENSIONS},
    "llm_stream": {"messages": [{"role": "user", "content": "Hi"}], "extensions": EXTENSIONS},
    "gateway": {"messages": [{"role": "user", "content": "Hi"}], "extensions": EXTENSIONS},
}


@pytest.mark.parametrize("caller", list(_EXTENDED))
@pytest.mark.parametrize("provider", ["openai_chat", "anthropic"])
@pytest.mark.parametrize("vendor", ["openai", "anthropic", "groq", "nobody"])
def test_extensions_are_merged_for_their_vendor_alone(caller: str, provider: str, vendor: str) -> None:
    case = Case("extended", Request(model="m", messages=[]), _EXTENDED)
    request = FORMATS[caller].read_request(body_of(case, caller))
    wire = FORMATS[provider].write_request(request, target_of(provider, vendor))
    sent = json.loads(wire.body)
    own = EXTENSIONS.get(f"vendor:{vendor}", {})
    assert {key: sent[key] for key in own} == own
    others = {key for fields in EXTENSIONS.values() for key in fields} - own.keys()
    assert not others & sent.keys()
    assert "extensions" not in sent
    assert "vendor:" not in wire.body.decode()


@pytest.mark.parametrize("provider", ["llm_stream", "gateway"])
@pytest.mark.parametrize("caller", list(_EXTENDED))
def test_our_own_formats_hand_extensions_on(caller: str, provider: str) -> None:
    case = Case("extended", Request(model="m", messages=[]), _EXTENDED)
    request = FORMATS[caller].read_request(body_of(case, caller))
    wire = FORMATS[provider].write_request(request, target_of(provider))
    assert json.loads(wire.body)["extensions"] == EXTENSIONS


def test_extensions_are_merged_deeply_and_win() -> None:
    body = {
        "version": "1.0",
        "model": "m",
        "stream": True,
        "messages": [{"role": "user", "content": "Hi"}],
        "parameters": {"temperature": 0.5},
        "extensions": {
            "vendor:openai": {"temperature": 0.9, "stream_options": {"include_obfuscation": False}},
        },
    }
    request = FORMATS["llm_stream"].read_request(json.dumps(body).encode())
    sent = json.loads(FORMATS["openai_chat"].write_request(request, target_of("openai_chat")).body)
    assert sent["temperature"] == 0.9
    assert sent["stream_options"] == {"include_usage": True, "include_obfuscation": False}


# What never leaves.


@pytest.mark.parametrize(
    ("caller", "provider"),
    # A provider of the caller's own format is another gateway, and may see them.
    [(caller, provider) for caller in ("llm_stream", "gateway") for provider in ALL if caller != provider],
)
def test_metadata_and_budget_stay_here(caller: str, provider: str) -> None:
    case = next(case for case in CASES if case.id == "metadata and budget")
    request = FORMATS[caller].read_request(body_of(case, caller))
    wire = FORMATS[provider].write_request(request, target_of(provider))
    assert b"tenant" not in wire.body
    if provider in ("openai_chat", "anthropic"):
        assert b"max_cost_usd" not in wire.body


# Reasoning of one vendor.

_SIGNED = next(case for case in CASES if case.id == "reasoning sent back")
_ITS_PARTS = [
    Reasoning(text="First", signature="sig+/=1", vendor="anthropic"),
    RedactedReasoning(data="sealed==", vendor="anthropic"),
    Reasoning(text="Second", signature="sig2", vendor="anthropic"),
]


# Callers whose format has a place for signatures.
@pytest.mark.parametrize("caller", list(_SIGNED.bodies))
def test_signatures_go_back_to_their_vendor(caller: str) -> None:
    """To Anthropic, whatever format the caller speaks: on the same part, in order, byte for byte."""
    request = FORMATS[caller].read_request(body_of(_SIGNED, caller))
    wire = FORMATS["anthropic"].write_request(request, target_of("anthropic"))
    assert json.loads(wire.body)["messages"][1]["content"] == [
        {"type": "thinking", "thinking": "First", "signature": "sig+/=1"},
        {"type": "redacted_thinking", "data": "sealed=="},
        {"type": "thinking", "thinking": "Second", "signature": "sig2"},
        {"type": "text", "text": "So."},
    ]
    assert wire.lost == ()


@pytest.mark.parametrize("caller", list(_SIGNED.bodies))
@pytest.mark.parametrize(("provider", "vendor"), [("openai_chat", "openai"), ("openai_chat", "groq")])
def test_signatures_go_to_nobody_else(caller: str, provider: str, vendor: str) -> None:
    request = FORMATS[caller].read_request(body_of(_SIGNED, caller))
    wire = FORMATS[provider].write_request(request, target_of(provider, vendor))
    assert b"sig" not in wire.body.replace(b"signature", b"")
    assert b"sealed" not in wire.body
    assert any("reasoning" in name for name in wire.lost)


@pytest.mark.parametrize("caller", list(_SIGNED.bodies))
def test_a_vendor_of_the_openai_family_gets_its_own_back(caller: str) -> None:
    """OpenRouter and the like hand out Anthropic's signatures under their own roof."""
    request = FORMATS[caller].read_request(body_of(_SIGNED, caller))
    wire = FORMATS["openai_chat"].write_request(request, target_of("openai_chat", "anthropic"))
    details = json.loads(wire.body)["messages"][1]["reasoning_details"]
    assert [(item.get("text"), item.get("signature"), item.get("data")) for item in details] == [
        ("First", "sig+/=1", None),
        (None, None, "sealed=="),
        ("Second", "sig2", None),
    ]


@pytest.mark.parametrize("caller", ["llm_stream", "gateway", "openai_chat"])
def test_what_another_vendor_signed_does_not_reach_anthropic(caller: str) -> None:
    body = (
        body_of(_SIGNED, caller)
        .replace(b"vendor:anthropic", b"vendor:gemini")
        .replace(b'"format": "anthropic"', b'"format": "gemini"')
    )
    request = FORMATS[caller].read_request(body)
    wire = FORMATS["anthropic"].write_request(request, target_of("anthropic"))
    assert json.loads(wire.body)["messages"][1]["content"] == "So."
    assert len([name for name in wire.lost if "reasoning of gemini" in name]) == 3
