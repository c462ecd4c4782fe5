from __future__ import annotations

import pytest

from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Media, Reasoning, Text, ToolCall, ToolResult
from headrace.model.errors import ErrorCode
from headrace.model.grammar import Grammar
from headrace.model.request import Message, Request, Tool
from headrace.model.response import Response
from headrace.model.stop import StopReason
from headrace.tape.library import Library
from headrace.tape.script import Script, ScriptError

USER = Message(role="user", parts=[Text(text="How high is the water?")])
TOOL_RESULT = Message(role="tool", parts=[ToolResult(tool_call_id="1", parts=[Text(text="42 cm")])])

REQUESTS = {
    "plain": Request(model="m", messages=[USER]),
    "tools": Request(model="m", messages=[USER], tools=[Tool(name="gauge")]),
    "tool result": Request(model="m", messages=[USER, TOOL_RESULT], tools=[Tool(name="gauge")]),
}


def script(name: str) -> Script:
    found = Library.builtin().get(name)
    assert isinstance(found, Script)
    return found


def play(name: str, request: str = "plain") -> Response:
    return assemble(event for _, event in script(name).events(REQUESTS[request], "acme"))


def texts(response: Response) -> str:
    return "".join(part.text for part in response.choices[0].parts if isinstance(part, Text))


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("name", Library.builtin().names)
def test_every_script_is_legal_deterministic_and_described(name: str, request_name: str) -> None:
    request = REQUESTS[request_name]
    grammar = Grammar()
    last = 0.0
    timed = list(script(name).events(request, "acme"))
    for at, event in timed:
        grammar.accept(event)
        assert at >= last
        last = at
    assert grammar.ended
    assert timed == list(script(name).events(request, "acme"))
    assert script(name).description


def test_long_is_long() -> None:
    response = play("long")
    assert 1_400 < len(texts(response).split()) < 1_800
    assert sum(isinstance(event, ev.TextDelta) for _, event in script("long").events(REQUESTS["plain"], "")) > 1_400


def test_reasoning_carries_the_signature_of_the_vendor_it_plays() -> None:
    first = play("reasoning").choices[0].parts[0]
    assert isinstance(first, Reasoning)
    assert first.vendor == "acme"
    assert first.signature


@pytest.mark.parametrize("name", ["parallel-tools", "interleaved-tools"])
def test_two_tool_calls(name: str) -> None:
    response = play(name)
    calls = [part for part in response.choices[0].parts if isinstance(part, ToolCall)]
    assert [(call.id, call.arguments) for call in calls] == [
        ("call_vienna", '{"city": "Vienna", "unit": "celsius"}'),
        ("call_graz", '{"city": "Graz", "unit": "celsius"}'),
    ]
    assert response.choices[0].stop is StopReason.TOOL_USE


def test_interleaved_fragments_take_turns() -> None:
    deltas = [
        e.block for _, e in script("interleaved-tools").events(REQUESTS["plain"], "") if isinstance(e, ev.ToolDelta)
    ]
    assert deltas[:4] == [0, 1, 0, 1]


def test_zero_arguments_are_never_sent() -> None:
    events = [event for _, event in script("zero-argument-tool").events(REQUESTS["plain"], "")]
    assert not any(isinstance(event, ev.ToolDelta) for event in events)
    assert play("zero-argument-tool").choices[0].parts == [ToolCall(id="call_gates", name="list_gates", arguments="{}")]


def test_arguments_that_stop_half_way_are_marked() -> None:
    call = play("broken-tool").choices[0].parts[0]
    assert isinstance(call, ToolCall)
    assert not call.complete
    assert play("broken-tool").choices[0].stop is StopReason.MAX_TOKENS


def test_tool_round_trip() -> None:
    assert "Declare a tool" in texts(play("tool-round-trip"))
    call = play("tool-round-trip", "tools").choices[0].parts[-1]
    assert isinstance(call, ToolCall)
    assert call.name == "gauge"
    assert texts(play("tool-round-trip", "tool result")) == "The tool says: 42 cm"


def test_echo_says_what_it_was_sent() -> None:
    request = Request(
        model="m",
        messages=[
            Message(role="system", parts=[Text(text="Be brief.")]),
            USER,
            TOOL_RESULT,
            Message(
                role="user",
                parts=[
                    Text(text="$model and $5, "),
                    Media(type="image", data="aGk="),
                    Media(type="document", data="aGk="),
                    Text(text="please"),
                ],
            ),
        ],
        tools=[Tool(name="a"), Tool(name="b")],
    )
    answer = texts(assemble(event for _, event in script("echo").events(request, "")))
    assert answer == (
        "$model and $5, please\n"
        "[system: Be brief.; messages: 4; images: 1; documents: 1; audio: 0; tool results: 1; tools: a, b]"
    )


def test_an_error_ends_the_script() -> None:
    source = "steps: [{text: a b}, {error: {code: timeout, message: Late}}, {text: never}]"
    events = [event for _, event in Script.parse("x", source).events(REQUESTS["plain"], "")]
    last = events[-1]
    assert isinstance(last, ev.Error)
    assert last.error.code is ErrorCode.TIMEOUT
    assert [event.text for event in events if isinstance(event, ev.TextDelta)] == ["a ", "b"]


def test_rhythm() -> None:
    source = "gap: 0.25\nsteps: [{pause: 1}, {text: a b}, {pause: 2}, {text: c}]"
    timed = list(Script.parse("x", source).events(REQUESTS["plain"], ""))
    assert timed[0] == (1.0, ev.Start(model="m", usage=timed[0][1].usage))  # type: ignore[attr-defined]  # a Start
    assert [at for at, event in timed if isinstance(event, ev.TextDelta)] == [1.25, 1.5, 3.75]


def test_a_script_of_pauses_is_an_empty_answer() -> None:
    timed = list(Script.parse("x", "steps: [{pause: 1}]").events(REQUESTS["plain"], ""))
    assert [(at, type(event)) for at, event in timed] == [
        (1.0, ev.Start),
        (1.0, ev.Finish),
        (1.0, ev.UsageReport),
        (1.0, ev.End),
    ]


def test_usage_and_stop_can_be_stated() -> None:
    source = "steps: [{text: a}, {usage: {input_tokens: 7, output_tokens: 9}}, {stop: stop_sequence}]"
    response = assemble(event for _, event in Script.parse("x", source).events(REQUESTS["plain"], ""))
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (7, 9)
    assert response.choices[0].stop is StopReason.STOP_SEQUENCE


def test_a_request_that_no_variant_fits() -> None:
    fussy = Script.parse("fussy", "variants: [{when: {tools: true}, steps: [{text: a}]}]")
    with pytest.raises(ScriptError, match="fussy"):
        fussy.events(REQUESTS["plain"], "")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{", "not valid YAML"),
        ("- a", "Expected `object`"),
        ("{}", "either `steps` or `variants`"),
        ("{steps: [], variants: []}", "either `steps` or `variants`"),
        ("{steps: []}", "a variant has no steps"),
        ("{variants: []}", "no variants"),
        ("{steps: [{}]}", "step 1 must have exactly one of text"),
        ("{steps: [{text: a}, {text: a, json: {}}]}", "step 2 must have exactly one of"),
        ("{steps: [{text: a, signature: b}]}", "a signature belongs to reasoning"),
        ("{steps: [{json: {a: 2024-01-01}}]}", "step 1: not an object that JSON can hold"),
        ("{steps: [{tool_call: {name: a, arguments: {b: .nan}}}]}", "step 1: not an object that JSON can hold"),
        ("{steps: [{text: 2024-99-99}]}", "month must be in 1..12"),
        ("{steps: [{txt: a}]}", "unknown field `txt` - at `$.steps[0]`"),
        ("{steps: [{pause: -1}]}", "$.steps[0].pause"),
        ("{steps: [{stop: soon}]}", "$.steps[0].stop"),
        ("{steps: [{error: {code: nope, message: x}}]}", "$.steps[0].error.code"),
    ],
)
def test_what_is_wrong_with_a_script(source: str, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        Script.parse("mine", source)
    assert str(caught.value).startswith("script mine: ")
    assert message in str(caught.value)
