"""The stream reader: OpenAI's own sequences, then every dialect's deviations, one by one."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.base import ReaderOptions
from headrace.formats.openai_chat import FORMAT
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Media, Opaque, Reasoning, RedactedReasoning, Text, ToolCall
from headrace.model.errors import ErrorCode, ProtocolError
from headrace.model.events import BlockKind as K
from headrace.model.stop import StopReason as S

from .helpers import DONE, HEAD, answer, calls, checked, chunk, error_of, frame, function, read, summary, usage_chunk

STOP = chunk(finish="stop")


def test_the_canonical_text_stream() -> None:
    events = read(
        [
            chunk({"role": "assistant", "content": "", "refusal": None}, usage=None),
            chunk({"content": "Hi"}, usage=None),
            chunk({"content": " there"}, usage=None),
            chunk({}, finish="stop", usage=None),
            usage_chunk(prompt_tokens=5, completion_tokens=2, total_tokens=7),
            DONE,
        ]
    )
    usage = events[-1].usage  # type: ignore[attr-defined]
    assert events == [
        ev.Start(id="chatcmpl-1", model="m", created=7),
        ev.BlockStart(block=0, type=K.TEXT),
        ev.TextDelta(0, "Hi"),
        ev.TextDelta(0, " there"),
        ev.BlockStop(0),
        ev.Finish(reason=S.END_TURN, raw="stop"),
        ev.UsageReport(usage),
        ev.End(usage=usage),
    ]
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (5, 2, 7)


def test_the_canonical_parallel_tool_calls() -> None:
    events = read(
        [
            chunk({"role": "assistant", "content": None}),
            calls(function("f", "", index=0, id="a", type="function")),
            calls(function(None, '{"x":', index=0)),
            calls(function(None, "1}", index=0)),
            calls(function("g", "", index=1, id="b", type="function")),
            calls(function(None, "{}", index=1)),
            chunk({}, finish="tool_calls"),
            DONE,
        ]
    )
    assert events[1:-1] == [
        ev.BlockStart(block=0, type=K.TOOL_CALL, id="a", name="f"),
        ev.ToolDelta(0, '{"x":'),
        ev.ToolDelta(0, "1}"),
        ev.BlockStart(block=1, type=K.TOOL_CALL, id="b", name="g"),
        ev.ToolDelta(1, "{}"),
        ev.BlockStop(0),
        ev.BlockStop(1),
        ev.Finish(reason=S.TOOL_USE, raw="tool_calls"),
    ]


def test_interleaved_fragments_go_to_their_calls() -> None:
    response = answer(
        [
            calls(
                function("f", "", index=0, id="a", type="function"), function("g", "", index=1, id="b", type="function")
            ),
            calls(function(None, '{"x"', index=1)),
            calls(function(None, '{"y"', index=0)),
            calls(function(None, ":1}", index=1), function(None, ":2}", index=0)),
            chunk({}, finish="tool_calls"),
            DONE,
        ]
    )
    assert summary(response)[0]["calls"] == [("a", "f", {"y": 2}), ("b", "g", {"x": 1})]


# What servers do to tool calls: fragments (one list a chunk) -> (id, name, arguments), in order.
F = "function"
TOOL_DIALECTS: dict[str, tuple[list[list[dict[str, Any]]], list[tuple[Any, str, Any]]]] = {
    "no index, whole calls with ids": (
        [[function("f", '{"p":"a"}', id="1")], [function("f", '{"p":"b"}', id="2")]],
        [("1", "f", {"p": "a"}), ("2", "f", {"p": "b"})],
    ),
    "no index and no id, whole calls in one chunk": (
        [[function("f", '{"p":"a"}'), function("f", '{"p":"b"}')]],
        [(None, "f", {"p": "a"}), (None, "f", {"p": "b"})],
    ),
    "no index and no id, whole calls in two chunks": (
        [[function("f", '{"p":"a"}')], [function("f", '{"p":"b"}')]],
        [(None, "f", {"p": "a"}), (None, "f", {"p": "b"})],
    ),
    "no index, fragments that go on": (
        [[function("f", '{"p"', id="1")], [function(None, ':"a"}')], [function("g", "{}", id="2")]],
        [("1", "f", {"p": "a"}), ("2", "g", {})],
    ),
    "no index, id on every fragment": (
        [
            [function("f", '{"p"', id="1")],
            [function("g", "{", id="2")],
            [function(None, ":1}", id="1")],
            [function(None, "}", id="2")],
        ],
        [("1", "f", {"p": 1}), ("2", "g", {})],
    ),
    "index always 0, new ids": (
        [
            [function("f", "{}", id="1", index=0)],
            [function("g", '{"x"', id="2", index=0)],
            [function(None, ":1}", index=0)],
        ],
        [("1", "f", {}), ("2", "g", {"x": 1})],
    ),
    "index always 0, two calls in one chunk": (
        [[function("f", "{}", id="1", index=0), function("g", "{}", id="2", index=0)]],
        [("1", "f", {}), ("2", "g", {})],
    ),
    "index and id never vary": (
        [[function("f", '{"p":1}', id="x", index=0)], [function("f", '{"p":2}', id="x", index=0)]],
        [("x", "f", {"p": 1}), ("x-1", "f", {"p": 2})],
    ),
    "same id at another index": (
        [[function("f", "{}", id="x", index=0)], [function("g", "{}", id="x", index=1)]],
        [("x", "f", {}), ("x-1", "g", {})],
    ),
    "index starts at 1": ([[function("f", "", id="1", index=1)], [function(None, "{}", index=1)]], [("1", "f", {})]),
    "id and name on every fragment": (
        [
            [function("f", "", id="1", index=0)],
            [function("f", '{"x":', id="1", index=0)],
            [function("f", "1}", id="1", index=0)],
        ],
        [("1", "f", {"x": 1})],
    ),
    "empty id and name on continuations": (
        [[function("f", "", id="1", index=0)], [function("", '{"x":1}', id="", index=0)]],
        [("1", "f", {"x": 1})],
    ),
    "null id and name on continuations": (
        [
            [function("f", "", id="1", index=0)],
            [{"index": 0, "id": None, "function": {"name": None, "arguments": "{}"}}],
        ],
        [("1", "f", {})],
    ),
    "arguments as an object": (
        [[function("f", {"x": {"y": [1, 1.0]}}, id="1", index=0)]],
        [("1", "f", {"x": {"y": [1, 1.0]}})],
    ),
    "arguments null": ([[{"index": 0, "id": "1", "function": {"name": "f", "arguments": None}}]], [("1", "f", {})]),
    "no arguments at all": ([[{"index": 0, "id": "1", "function": {"name": "f"}}]], [("1", "f", {})]),
    "empty arguments": ([[function("f", "", id="1", index=0)]], [("1", "f", {})]),
    "name after the arguments have begun": (
        [[function(None, '{"x"', id="1", index=0)], [function("f", ":1}", index=0)]],
        [("1", "f", {"x": 1})],
    ),
    "id after the name": (
        [[function("f", "", index=0)], [function(None, "{}", id="late", index=0)]],
        [(None, "f", {})],
    ),
    "no wrapper": ([[{"index": 0, "id": "1", "name": "f", "arguments": "{}"}]], [("1", "f", {})]),
    "an empty fragment first": ([[{}], [function("f", "{}", id="1", index=0)]], [("1", "f", {})]),
}


@pytest.mark.parametrize("case", TOOL_DIALECTS)
@pytest.mark.parametrize("finish", ["tool_calls", "stop"])
def test_tool_calls_of_every_dialect(case: str, finish: str) -> None:
    lists, told = TOOL_DIALECTS[case]
    response = answer([*(calls(*fragments) for fragments in lists), chunk({}, finish=finish), DONE])
    (said,) = summary(response)
    assert [(name, arguments) for _, name, arguments in said["calls"]] == [call[1:] for call in told]
    ids = [id for id, _, _ in said["calls"]]
    assert len(set(ids)) == len(ids)
    assert all(ids)
    assert [id for id, (wanted, _, _) in zip(ids, told, strict=True) if wanted is not None] == [
        wanted for wanted, _, _ in told if wanted is not None
    ]
    assert said["stop"] is S.TOOL_USE
    assert response.choices[0].raw_stop == finish


def test_tool_calls_as_one_object() -> None:
    response = answer([chunk({"tool_calls": function("f", {"x": 1}, index=0, id="1")}), STOP, DONE])
    assert summary(response)[0]["calls"] == [("1", "f", {"x": 1})]


def test_argument_text_is_not_rewritten() -> None:
    text = '{ "n": 12345678901234567890, "f": 1.0, "a": 1, "a": 2 }'
    (part,) = answer([calls(function("f", text, index=0, id="1")), STOP, DONE]).choices[0].parts
    assert isinstance(part, ToolCall)
    assert part.arguments == text


@pytest.mark.parametrize(
    ("finish", "arguments", "complete"),
    [
        ("length", '{"x":', False),
        ("length", '{"x":1}', True),
        ("content_filter", '{"x', False),
        ("tool_calls", '{"x":', True),
    ],
)
def test_a_call_that_was_cut_is_not_complete(finish: str, arguments: str, complete: bool) -> None:
    response = answer(
        [
            calls(function("f", "{}", index=0, id="1")),
            calls(function("g", arguments, index=1, id="2")),
            chunk({}, finish=finish),
            DONE,
        ]
    )
    assert [p.complete for p in response.choices[0].parts if isinstance(p, ToolCall)] == [True, complete]


def test_legacy_function_calls() -> None:
    response = answer(
        [
            chunk({"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}}),
            chunk({"function_call": {"arguments": '{"x":1}'}}),
            chunk({}, finish="function_call"),
            DONE,
        ]
    )
    (said,) = summary(response)
    assert [call[1:] for call in said["calls"]] == [("f", {"x": 1})]
    assert said["calls"][0][0]
    assert said["stop"] is S.TOOL_USE


def test_extra_content_of_a_call_travels_with_it() -> None:
    fragment = function("f", "{}", index=0, id="1", extra_content={"google": {"thought_signature": "abc="}})
    (part,) = answer([calls(fragment), STOP, DONE]).choices[0].parts
    assert isinstance(part, ToolCall)
    assert part.extensions == {"google": {"thought_signature": "abc="}}


# Reasoning: the deltas of a stream -> (reasoning, text).
REASONING: dict[str, tuple[list[dict[str, Any]], tuple[str, str]]] = {
    "reasoning_content": (
        [{"reasoning_content": "a"}, {"reasoning_content": "b", "content": None}, {"content": "t"}],
        ("ab", "t"),
    ),
    "reasoning": ([{"reasoning": "a"}, {"reasoning": "b"}, {"content": "t"}], ("ab", "t")),
    "reasoning_text": ([{"reasoning_text": "a"}, {"content": "t"}], ("a", "t")),
    "both names, same text": ([{"reasoning": "a", "reasoning_content": "a"}, {"content": "t"}], ("a", "t")),
    "details and text": (
        [
            {"content": "", "reasoning": "a", "reasoning_details": [{"type": "reasoning.text", "text": "a"}]},
            {"content": "t"},
        ],
        ("a", "t"),
    ),
    "details alone": (
        [{"content": "", "reasoning_details": [{"type": "reasoning.text", "text": "a"}]}, {"content": "t"}],
        ("a", "t"),
    ),
    "summaries": (
        [{"reasoning_details": [{"type": "reasoning.summary", "summary": "a"}]}, {"content": "t"}],
        ("a", "t"),
    ),
    "null and empty": ([{"reasoning_content": None}, {"reasoning_content": ""}, {"content": "t"}], ("", "t")),
    "Mistral's arrays": (
        [
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}]},
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "b"}]},
                    {"type": "text", "text": "t"},
                ]
            },
            {"content": "u"},
        ],
        ("ab", "tu"),
    ),
    "thinking_blocks": (
        [
            {"reasoning_content": "a", "thinking_blocks": [{"type": "thinking", "thinking": "a", "signature": "s"}]},
            {"content": "t"},
        ],
        ("a", "t"),
    ),
}


@pytest.mark.parametrize("case", REASONING)
def test_reasoning_under_every_name_once(case: str) -> None:
    said, (reasoning, text) = REASONING[case]
    (told,) = summary(answer([*map(chunk, said), STOP, DONE]))
    assert (told["reasoning"], told["text"]) == (reasoning, text)


def test_signatures_and_encrypted_items() -> None:
    item = {"type": "reasoning.text", "format": "f-v1", "index": 0}
    response = answer(
        [
            chunk({"reasoning_details": [{**item, "text": "a"}]}),
            chunk({"reasoning_details": [{**item, "text": "", "signature": "sig"}]}),
            chunk({"reasoning_details": [{**item, "text": "b", "index": 1}]}),
            chunk(
                {"reasoning_details": [{"type": "reasoning.encrypted", "data": "xyz", "format": "f-v1", "id": "r1"}]}
            ),
            chunk({"content": "t"}),
            STOP,
            DONE,
        ],
        vendor="router",
    )
    own = {"router": {"format": "f-v1"}}
    assert response.choices[0].parts == [
        Reasoning(text="a", signature="sig", vendor="router", extensions=own),
        Reasoning(text="b", vendor="router", extensions=own),
        RedactedReasoning(data="xyz", vendor="router", extensions={"router": {"format": "f-v1", "id": "r1"}}),
        Text(text="t"),
    ]


def test_opaque_reasoning_of_copilot_is_kept() -> None:
    response = answer([chunk({"reasoning_text": "a"}), chunk({"reasoning_opaque": "op"}), STOP, DONE])
    assert response.choices[0].parts == [Reasoning(text="a", signature="op", vendor="openai")]


@pytest.mark.parametrize(
    ("pieces", "quirk", "reasoning", "text"),
    [
        (["<think>a</think>b"], True, "a", "b"),
        (["<th", "ink>a", "b</thi", "nk>c", "d"], True, "ab", "cd"),
        (["\n <think>", "a < b </", "think", ">c"], True, "a < b ", "c"),
        (["a</think>b"], "open", "a", "b"),
        (["no tags", " here"], True, "", "no tags here"),
        (["say <think> to it"], True, "", "say <think> to it"),
        (["<think>a</think>b<think>c</think>"], True, "a", "b<think>c</think>"),
        (["<thin", "g>"], True, "", "<thing>"),
        (["<th"], True, "", "<th"),
        (["<think>a</th"], True, "a</th", ""),
        (["<think>a</think>b"], None, "", "<think>a</think>b"),
    ],
)
def test_think_tags(pieces: list[str], quirk: Any, reasoning: str, text: str) -> None:
    frames = [*(chunk({"content": piece}) for piece in pieces), STOP, DONE]
    (told,) = summary(answer(frames, quirks={"think_tags": quirk}))
    assert (told["reasoning"], told["text"]) == (reasoning, text)


@given(st.text(alphabet="<>/thinkab ", max_size=40), st.lists(st.integers(0, 40), max_size=6))
def test_think_tags_do_not_depend_on_the_cuts(text: str, cuts: list[int]) -> None:
    edges = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[a:b] for a, b in pairwise(edges)]
    quirks = {"think_tags": True}
    whole = answer([chunk({"content": text}), STOP, DONE], quirks=quirks)
    assert summary(answer([*(chunk({"content": piece}) for piece in pieces), STOP, DONE], quirks=quirks)) == summary(
        whole
    )


def test_choices_are_kept_apart() -> None:
    response = answer(
        [
            chunk({"role": "assistant", "content": ""}, index=0),
            chunk({"role": "assistant", "content": ""}, index=1),
            chunk({"content": "a"}, index=0),
            chunk({"content": "b"}, index=1),
            calls(function("f", '{"x"', index=0, id="1"), index=1),
            calls(function("g", '{"y"', index=0, id="2"), index=0),
            calls(function(None, ":1}", index=0), index=1),
            calls(function(None, ":2}", index=0), index=0),
            chunk({}, finish="tool_calls", index=1),
            chunk({}, finish="tool_calls", index=0),
            DONE,
        ]
    )
    assert [choice.index for choice in response.choices] == [0, 1]
    first, second = summary(response)
    assert (first["text"], first["calls"]) == ("a", [("2", "g", {"y": 2})])
    assert (second["text"], second["calls"]) == ("b", [("1", "f", {"x": 1})])


def test_choices_in_one_chunk() -> None:
    both = frame(
        {**HEAD, "choices": [{"index": i, "delta": {"content": str(i)}, "finish_reason": "stop"} for i in (1, 0)]}
    )
    assert [said["text"] for said in summary(answer([both, DONE]))] == ["0", "1"]


def test_refusals() -> None:
    tokens = [{"token": "No", "logprob": -1.0, "bytes": None, "top_logprobs": []}]
    events = read(
        [
            chunk({"role": "assistant", "content": None, "refusal": ""}),
            chunk({"refusal": "No"}, choice={"logprobs": {"content": None, "refusal": tokens}}),
            STOP,
            DONE,
        ]
    )
    assert events[1:5] == [
        ev.BlockStart(block=0, type=K.REFUSAL),
        ev.RefusalDelta(0, "No", tokens),
        ev.BlockStop(0),
        ev.Finish(reason=S.REFUSAL, raw="stop"),
    ]


def test_no_empty_text_block_before_a_tool_call() -> None:
    events = read(
        [chunk({"role": "assistant", "content": ""}), calls(function("f", "{}", index=0, id="1")), STOP, DONE]
    )
    assert [e.type for e in events if isinstance(e, ev.BlockStart)] == [K.TOOL_CALL]


def test_kinds_that_change_close_and_open_blocks() -> None:
    said = [
        {"reasoning": "r"},
        {"content": "a"},
        {"tool_calls": [function("f", "{}", index=0, id="1")]},
        {"content": "b"},
    ]
    response = answer([*map(chunk, said), chunk({"content": "c"}, finish="stop"), DONE])
    assert [type(part).__name__ for part in response.choices[0].parts] == ["Reasoning", "Text", "ToolCall", "Text"]
    assert response.choices[0].parts[-1] == Text(text="bc")


def test_audio() -> None:
    (part,) = (
        answer(
            [
                chunk({"role": "assistant", "audio": {"id": "au1", "transcript": "Hel"}}),
                chunk({"audio": {"data": "AAAA"}}),
                chunk({"audio": {"data": "BBBB", "transcript": "lo"}}),
                chunk({"audio": {"expires_at": 99}}),
                STOP,
                DONE,
            ]
        )
        .choices[0]
        .parts
    )
    assert part == Media(
        type="audio",
        media_type="audio/pcm",
        data="AAAABBBB",
        transcript="Hello",
        extensions={"openai": {"id": "au1", "expires_at": 99}},
    )


def test_images() -> None:
    images = [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]
    response = answer([chunk({"content": "see"}), chunk({"images": images}), STOP, DONE])
    assert response.choices[0].parts == [
        Text(text="see"),
        Media(type="image", media_type="image/png", data="AAAA"),
        Media(type="image", media_type="image/*", url="https://example.com/a.png"),
    ]


def test_parts_nobody_knows_are_kept_whole() -> None:
    part = {"type": "hologram", "data": "x"}
    response = answer([chunk({"content": [part, {"type": "text", "text": "t"}]}), STOP, DONE])
    assert response.choices[0].parts == [Opaque(vendor="openai", payload=part), Text(text="t")]


def test_blank_metadata_is_waited_for() -> None:
    blank = frame({"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": [1]})
    events = read([blank, chunk({"role": "assistant"}), chunk({"content": "a"}), STOP, DONE])
    assert events[0] == ev.Start(
        id="chatcmpl-1", model="m", created=7, extensions={"openai": {"prompt_filter_results": [1]}}
    )


def test_what_comes_late_is_told_at_the_end() -> None:
    events = read([chunk({"content": "a"}, citations=["u"]), chunk({}, finish="stop", timings={"n": 1}), DONE])
    assert events[0].extensions == {"openai": {"citations": ["u"]}}  # type: ignore[attr-defined]
    assert events[-1].extensions == {"openai": {"timings": {"n": 1}}}  # type: ignore[attr-defined]


EMPTY = [
    frame({**HEAD, "choices": []}),
    frame(HEAD),
    frame({**HEAD, "choices": None}),
    chunk(None, choice={"delta": None}),
    frame({**HEAD, "choices": [{"index": 0, "content_filter_results": {}, "content_filter_offsets": {}}]}),
    chunk({"content": None, "refusal": None, "tool_calls": None, "function_call": None, "reasoning_details": None}),
    chunk({"content": "", "tool_calls": []}),
    Frame(b""),
    Frame(b"  "),
    frame({**HEAD, "choices": [], "moderation": {"flagged": False}}),
]


@pytest.mark.parametrize("position", range(4))
@pytest.mark.parametrize("empty", EMPTY)
def test_chunks_that_say_nothing_may_come_anywhere(empty: Frame, position: int) -> None:
    frames = [chunk({"content": "a"}), chunk({"content": "b"}), STOP]
    frames.insert(position, empty)
    (said,) = summary(answer([*frames, DONE]))
    assert (said["text"], said["stop"]) == ("ab", S.END_TURN)


def test_an_empty_finish_reason_is_none() -> None:
    events = read([chunk({"content": "a"}, finish=""), chunk({"content": "b"}, finish=""), STOP, DONE])
    assert [type(e) for e in events].count(ev.Finish) == 1


def test_two_finish_reasons_are_one_and_late_content_is_named() -> None:
    events = read([chunk({"content": "a"}), STOP, STOP, chunk({"content": "late"}), DONE])
    assert [type(e) for e in events].count(ev.Finish) == 1
    (late,) = [e for e in events if isinstance(e, ev.Opaque)]
    assert late.content


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("stop", S.END_TURN),
        ("length", S.MAX_TOKENS),
        ("tool_calls", S.TOOL_USE),
        ("function_call", S.TOOL_USE),
        ("content_filter", S.CONTENT_FILTER),
        ("eos_token", S.END_TURN),
        ("STOP", S.END_TURN),
        ("model_length", S.CONTEXT_WINDOW),
        ("sensitive", S.CONTENT_FILTER),
        ("something_new", S.OTHER),
    ],
)
def test_finish_reasons(raw: str, reason: S) -> None:
    (choice,) = answer([chunk({"content": "a"}, finish=raw), DONE]).choices
    assert (choice.stop, choice.raw_stop) == (reason, raw)


@pytest.mark.parametrize("raw", ["insufficient_system_resource", "network_error", "abort", "error"])
def test_finish_reasons_that_are_failures(raw: str) -> None:
    error = error_of(read([chunk({"content": "a"}), chunk({}, finish=raw), DONE]))
    assert (error.code, error.type) == (ErrorCode.PROVIDER_UNAVAILABLE, raw)


def test_the_stop_sequence_of_vllm() -> None:
    (choice,) = answer([chunk({"content": "a"}, finish="stop", choice={"stop_reason": "END"}), DONE]).choices
    assert (choice.stop, choice.stop_sequence) == (S.STOP_SEQUENCE, "END")
    (choice,) = answer([chunk({"content": "a"}, finish="stop", choice={"stop_reason": 128001}), DONE]).choices
    assert (choice.stop, choice.extensions) == (S.END_TURN, {"openai": {"stop_reason": 128001}})


# Where usage may stand: the frames after the first -> what it comes to.
USAGE = {"prompt_tokens": 10, "completion_tokens": 4, "total_tokens": 14}
USAGE_PLACES = {
    "last chunk": [STOP, usage_chunk(**USAGE)],
    "finish chunk": [chunk({}, finish="stop", usage=USAGE)],
    "x_groq": [chunk({}, finish="stop", x_groq={"usage": USAGE})],
    "in the choice": [chunk({}, finish="stop", choice={"usage": USAGE})],
    "twice": [chunk({}, finish="stop", usage=USAGE, x_groq={"usage": USAGE}), usage_chunk(**USAGE)],
    "every chunk, running": [
        chunk({"content": "b"}, usage={"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}),
        chunk({}, finish="stop", usage=USAGE),
    ],
    "zeros afterwards": [
        chunk({}, finish="stop", usage=USAGE),
        usage_chunk(prompt_tokens=0, completion_tokens=0, total_tokens=0),
    ],
}


@pytest.mark.parametrize("place", USAGE_PLACES)
def test_usage_wherever_it_stands_is_merged_not_added(place: str) -> None:
    usage = answer([chunk({"content": "a"}), *USAGE_PLACES[place], DONE]).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (10, 4)


def test_usage_comes_before_the_other_events_of_its_frame() -> None:
    events = read([chunk({"content": "a"}), chunk({"content": "b"}, finish="stop", usage=USAGE), DONE])
    kinds = [type(e) for e in events]
    assert kinds.index(ev.UsageReport) < kinds.index(ev.BlockStop)
    assert read([chunk({"content": "a"}, usage=USAGE), STOP, DONE])[0].usage is not None  # type: ignore[attr-defined]


def test_progress_of_the_prompt() -> None:
    first = frame(
        {
            **HEAD,
            "choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}],
            "prompt_progress": {"total": 200, "processed": 50, "cache": 0},
        }
    )
    events = read([first, chunk({"content": "a"}), STOP, DONE])
    assert [e.percent for e in events if isinstance(e, ev.Progress)] == [25.0]


# The end.


def test_nothing_after_the_end_is_read() -> None:
    reader = FORMAT.stream_reader(ReaderOptions())
    events = reader.read(
        [chunk({"content": "a"}), STOP, Frame(b" [DONE] trailing"), chunk({"content": "b"}), DONE, Frame(b"{")]
    )
    assert isinstance(checked(events)[-1], ev.End)
    assert reader.eof(b"anything") == []


def test_choices_without_a_finish_reason_end_at_the_marker() -> None:
    events = read([chunk({"content": "a"}), chunk({"content": "b"}, index=1), chunk({}, finish="stop", index=1), DONE])
    assert [(e.choice, e.reason, e.raw) for e in events if isinstance(e, ev.Finish)] == [
        (1, S.END_TURN, "stop"),
        (0, S.OTHER, None),
    ]
    (said,) = summary(answer([calls(function("f", "{}", index=0, id="1")), DONE]))
    assert said["stop"] is S.TOOL_USE


@pytest.mark.parametrize("frames", [[DONE], [frame({**HEAD, "choices": []}), DONE]])
def test_an_end_without_any_choice_is_an_error(frames: list[Frame]) -> None:
    assert error_of(read(frames)).type == "empty_response"


def test_eof_without_the_marker_is_an_error_with_blocks_open() -> None:
    events = read([chunk({"content": "a"}), calls(function("f", '{"x', index=0, id="1"))])
    assert error_of(events).type == "upstream_truncated"
    assert [e.block for e in events if isinstance(e, ev.BlockStop)] == [0]
    assert error_of(read([chunk({"content": "a"}), STOP])).type == "upstream_truncated"
    assert error_of(read([])).code is ErrorCode.PROVIDER_UNAVAILABLE


def test_a_profile_without_the_marker() -> None:
    quirks = {"done_marker": False}
    assert summary(answer([chunk({"content": "a"}), STOP], quirks=quirks))[0]["stop"] is S.END_TURN
    unfinished = [chunk({"content": "a"}), STOP, chunk({"content": "b"}, index=1)]
    assert error_of(read(unfinished, quirks=quirks)).type == "upstream_truncated"
    assert error_of(read([], quirks=quirks)).type == "upstream_truncated"


def test_what_is_left_at_eof() -> None:
    started = [chunk({"content": "a"}), STOP]
    assert isinstance(read(started, leftover=b"data: [DONE]\n")[-1], ev.End)
    bare = read([], leftover=b'{"error": {"message": "overloaded", "type": "server_error", "code": 503}}\n')
    assert error_of(bare).message == "overloaded"
    assert error_of(read(started, leftover=b"<html>no</html>")).type == "upstream_truncated"
    last = STOP.data
    assert isinstance(read(started[:1], leftover=b"data:" + last, quirks={"done_marker": False})[-1], ev.End)


def test_a_whole_body_in_place_of_a_stream() -> None:
    message = {"role": "assistant", "content": "a", "tool_calls": [function("f", "{}", id="1", type="function")]}
    body = {
        **HEAD,
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": USAGE,
    }
    events = read([], leftover=json.dumps(body, indent=2).encode())
    assert isinstance(events[-1], ev.End)
    (said,) = summary(assemble(events))
    assert (said["text"], said["calls"]) == ("a", [("1", "f", {})])


# What is no chunk at all.


@pytest.mark.parametrize(
    "data",
    [
        b"{",
        b"nonsense",
        b"[]",
        b"1",
        b"null",
        b'{"choices":{}}',
        b'{"choices":[1]}',
        b'{"choices":[{"index":"0"}]}',
        b'{"choices":[{"index":-1}]}',
        b'{"choices":[{"index":100000}]}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_bad_frames_raise_and_the_stream_can_go_on(data: bytes) -> None:
    reader = FORMAT.stream_reader(ReaderOptions())
    with pytest.raises(ProtocolError) as caught:
        reader.read([chunk({"content": "a"}), Frame(data), chunk({"content": "never"})])
    assert caught.value.consumed == 2
    events = caught.value.events + reader.read([chunk({"content": "b"}), STOP, DONE])
    assert summary(assemble(checked(events)))[0]["text"] == "ab"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "index",
                    "content",
                    "tool_calls",
                    "function",
                    "name",
                    "arguments",
                    "id",
                    "type",
                    "usage",
                    "finish_reason",
                    "logprobs",
                    "refusal",
                    "reasoning",
                    "reasoning_details",
                    "audio",
                    "images",
                    "image_url",
                    "annotations",
                    "error",
                    "text",
                    "url",
                    "message",
                    "x_groq",
                    "object",
                    "prompt_progress",
                    "function_call",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(st.lists(st.one_of(st.binary(max_size=30), JSON), max_size=6), st.booleans())
def test_anything_gives_events_or_a_protocol_error(payloads: list[Any], passthrough: bool) -> None:
    reader = FORMAT.stream_reader(ReaderOptions(passthrough=passthrough))
    events: list[ev.Event] = []
    for payload in payloads:
        said = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        try:
            events += reader.read([Frame(said)])
        except ProtocolError as error:
            events += error.events
    checked(events + reader.eof())


DELTAS = st.fixed_dictionaries(
    {},
    optional={
        "content": st.text(max_size=5) | st.none(),
        "reasoning_content": st.text(max_size=5),
        "refusal": st.text(max_size=3),
        "role": st.just("assistant"),
        "tool_calls": st.lists(
            st.builds(
                function,
                st.sampled_from([None, "", "f", "g"]),
                st.sampled_from([None, "", "{}", '{"x"', ":1}"]),
                index=st.sampled_from([None, 0, 1]),
                id=st.sampled_from([None, "", "a", "b"]),
            ),
            max_size=2,
        ),
    },
)


@given(
    st.lists(
        st.tuples(DELTAS, st.integers(0, 1), st.sampled_from([None, None, None, "", "stop", "length"])), max_size=20
    )
)
def test_any_deltas_give_a_legal_stream_and_templates_change_nothing(said: list[tuple[Any, int, Any]]) -> None:
    frames = [chunk(delta, index=index, finish=finish) for delta, index, finish in said]
    for passthrough in (False, True):
        short = read([*frames, DONE], passthrough=passthrough)
        with patch("headrace.formats.openai_chat.template.Templates.learn", return_value=None):
            assert read([*frames, DONE], passthrough=passthrough) == short
