"""The stream writer: OpenAI's own shape, any legal events, every ending; then passing frames on among written ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from headrace.formats.base import WriterOptions
from headrace.formats.openai_chat import FORMAT
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Citation, Media, Reasoning, RedactedReasoning, Text, ToolCall
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.events import BlockKind as K
from headrace.model.stop import StopReason as S
from headrace.model.usage import Usage
from tests.strategies import legal_events

from .helpers import DONE, bodies, calls, chunk, deltas, frame, function, read, summary, usage_chunk, write

START = ev.Start(id="x", model="m", created=5)
HEAD = {"id": "x", "object": "chat.completion.chunk", "created": 5, "model": "m"}
ROLE = {"role": "assistant", "content": "", "refusal": None}


def block(kind: K, number: int = 0, **fields: Any) -> ev.BlockStart:
    return ev.BlockStart(block=number, type=kind, **fields)


def finish(reason: S = S.END_TURN, **fields: Any) -> ev.Finish:
    return ev.Finish(reason=reason, **fields)


def test_the_canonical_text_stream() -> None:
    usage = Usage(input_tokens=10, output_tokens=3, cached_tokens=4, reasoning_tokens=1)
    events = [START, block(K.TEXT), ev.TextDelta(0, 'Hi "é"\n'), ev.BlockStop(0), finish(), ev.End(usage=usage)]
    base = {**HEAD, "usage": None}
    assert bodies(write(events)) == [
        {**base, "choices": [{"index": 0, "delta": ROLE, "logprobs": None, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {"content": 'Hi "é"\n'}, "logprobs": None, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}]},
        {
            **HEAD,
            "choices": [],
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 3,
                "total_tokens": 13,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 1},
            },
        },
        "[DONE]",
    ]
    without = bodies(write(events, include_usage=False))
    assert len(without) == 4
    assert not any("usage" in body for body in without[:-1])


def test_tool_calls_are_dense_and_their_ids_come_once() -> None:
    events = [
        START,
        block(K.TEXT),
        ev.TextDelta(0, "t"),
        block(K.TOOL_CALL, 1, id="a", name="f"),
        block(K.TOOL_CALL, 2, id="b", name="g"),
        ev.ToolDelta(2, '{"x"'),
        ev.ToolDelta(1, '{"y":1}'),
        ev.ToolDelta(2, ":2}"),
        ev.BlockStop(0),
        ev.BlockStop(2),
        ev.BlockStop(1),
        finish(S.TOOL_USE),
        ev.End(),
    ]
    said = [delta["tool_calls"][0] for delta in deltas(write(events)) if "tool_calls" in delta]
    assert said == [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": ""}},
        {"index": 1, "function": {"arguments": '{"x"'}},
        {"index": 0, "function": {"arguments": '{"y":1}'}},
        {"index": 1, "function": {"arguments": ":2}"}},
    ]


def test_a_call_without_arguments_gets_an_empty_object_unless_it_was_cut() -> None:
    whole = [START, block(K.TOOL_CALL, id="a", name="f"), ev.ToolDelta(0, ""), ev.BlockStop(0), finish(), ev.End()]
    assert deltas(write(whole))[-2] == {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
    cut = [START, block(K.TOOL_CALL, id="a", name="f"), ev.BlockStop(0, False), finish(), ev.End()]
    assert not any("{}" in json.dumps(delta) for delta in deltas(write(cut))[:-1])


def test_choices_each_with_role_and_finish() -> None:
    events = [
        START,
        block(K.TEXT),
        block(K.TOOL_CALL, 1, choice=1, id="a", name="f"),
        ev.TextDelta(0, "t"),
        ev.ToolDelta(1, "{}"),
        ev.BlockStop(1),
        ev.BlockStop(0),
        ev.Finish(choice=1, reason=S.TOOL_USE),
        finish(),
        ev.End(),
    ]
    frames = write(events)
    assert deltas(frames, 0) == [ROLE, {"content": "t"}, {}]
    assert deltas(frames, 1)[0] == ROLE
    assert deltas(frames, 1)[1]["tool_calls"][0]["index"] == 0
    ends = [(c["index"], c["finish_reason"]) for b in bodies(frames)[:-1] for c in b["choices"] if c["finish_reason"]]
    assert ends == [(1, "tool_calls"), (0, "stop")]


def test_a_blocked_prompt_is_still_a_whole_message() -> None:
    frames = write([START, finish(S.CONTENT_FILTER), ev.End()])
    assert deltas(frames) == [ROLE, {}]
    assert bodies(frames)[1]["choices"][0]["finish_reason"] == "content_filter"


def test_reasoning_signature_and_redacted_reasoning_can_be_sent_back() -> None:
    events = [
        START,
        block(K.REASONING, vendor="anthropic"),
        ev.ReasoningDelta(0, "th"),
        ev.ReasoningDelta(0, "ink"),
        ev.SignatureDelta(0, "si"),
        ev.SignatureDelta(0, "g="),
        ev.BlockStop(0),
        block(K.REDACTED_REASONING, 1, data="zzz", vendor="anthropic"),
        ev.BlockStop(1),
        finish(),
        ev.End(),
    ]
    frames = write(events)
    assert deltas(frames)[1:-1] == [
        {"reasoning_content": "th"},
        {"reasoning_content": "ink"},
        {
            "reasoning_details": [
                {"type": "reasoning.text", "text": "", "signature": "sig=", "format": "anthropic", "index": 0}
            ]
        },
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "zzz", "format": "anthropic", "index": 1}]},
    ]
    assert assemble(read(frames, vendor="anthropic")).choices[0].parts == [
        Reasoning(text="think", signature="sig=", vendor="anthropic"),
        RedactedReasoning(data="zzz", vendor="anthropic", extensions={"anthropic": {"format": "anthropic"}}),
    ]


def test_logprobs_and_refusals() -> None:
    token = {"token": "t", "logprob": -1.5, "bytes": [116], "top_logprobs": []}
    events = [
        START,
        block(K.TEXT),
        ev.TextDelta(0, "t", [token]),
        ev.BlockStop(0),
        block(K.REFUSAL, 1),
        ev.RefusalDelta(1, "n", [token]),
        ev.BlockStop(1),
        finish(S.REFUSAL),
        ev.End(),
    ]
    frames = write(events)
    choices = [body["choices"][0] for body in bodies(frames)[1:4]]
    assert choices[0]["logprobs"] == {"content": [token], "refusal": None}
    assert choices[1]["delta"] == {"refusal": "n"}
    assert choices[1]["logprobs"] == {"content": None, "refusal": [token]}
    assert choices[2]["finish_reason"] == "stop"


def test_citations() -> None:
    own = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 1, "end_index": 2}}
    web = {"type": "web_search_result_location", "url": "v", "title": "w", "cited_text": "c", "encrypted_index": "e"}
    place = {"type": "page_location", "document_index": 0}
    writer = FORMAT.stream_writer(WriterOptions())
    said = [ev.CitationDelta(0, Citation("x", payload)) for payload in (own, web, place)]
    frames = writer.write([START, block(K.TEXT), *said])
    assert deltas(frames)[1:] == [
        {"annotations": [{**own, "index": 0}]},
        {
            "annotations": [
                {
                    "type": "url_citation",
                    "url_citation": {"url": "v", "title": "w", "start_index": 0, "end_index": 0, "content": "c"},
                    "index": 1,
                }
            ]
        },
    ]
    assert writer.lost == {"citations"}


def test_media() -> None:
    own = {"openai": {"id": "au"}}
    events = [
        START,
        block(K.MEDIA, media_type="audio/pcm", extensions=own),
        ev.MediaDelta(0, "AAAA", "Hel"),
        ev.MediaDelta(0, "BBBB", "lo", extensions={"openai": {"id": "au", "expires_at": 9}}),
        ev.BlockStop(0),
        block(K.MEDIA, 1, media_type="image/png"),
        ev.MediaDelta(1, "CC"),
        ev.MediaDelta(1, "CC"),
        ev.BlockStop(1),
        finish(),
        ev.End(),
    ]
    frames = write(events)
    assert deltas(frames)[1:-1] == [
        {"audio": {"id": "au", "data": "AAAA", "transcript": "Hel"}},
        {"audio": {"data": "BBBB", "transcript": "lo", "expires_at": 9}},
        {"images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,CCCC"}, "index": 0}]},
    ]
    audio, image = assemble(read(frames)).choices[0].parts
    assert isinstance(audio, Media)
    assert (audio.data, audio.transcript) == ("AAAABBBB", "Hello")
    assert image == Media(type="image", media_type="image/png", data="CCCC")


def test_what_cannot_be_said_is_named() -> None:
    writer = FORMAT.stream_writer(WriterOptions())
    writer.write(
        [
            START,
            block(K.OPAQUE, vendor="anthropic", role="server_tool_call", payload={"type": "web_search"}),
            ev.OpaqueDelta(0, {}, "input", "{}"),
            ev.BlockStop(0),
            ev.Progress(message="working"),
            ev.Opaque(vendor="anthropic", name="ping"),
            ev.Opaque(vendor="anthropic", name="strange", content=True),
            block(K.MEDIA, 1, media_type="video/mp4"),
            ev.MediaDelta(1, "AAAA"),
            ev.BlockStop(1),
            finish(S.STOP_SEQUENCE, stop_sequence="END"),
            ev.End(),
        ]
    )
    assert writer.lost == {"server_tool_call: web_search", "progress", "strange", "video", "stop_sequence"}


@pytest.mark.parametrize(
    ("reason", "raw", "word", "native"),
    [
        (S.END_TURN, "end_turn", "stop", None),
        (S.MAX_TOKENS, "MAX_TOKENS", "length", None),
        (S.CONTEXT_WINDOW, "model_context_window_exceeded", "length", "model_context_window_exceeded"),
        (S.STOP_SEQUENCE, "stop_sequence", "stop", "stop_sequence"),
        (S.PAUSE, "pause_turn", "stop", "pause_turn"),
        (S.REFUSAL, "refusal", "content_filter", "refusal"),
        (S.OTHER, "novel", "stop", "novel"),
        (S.OTHER, None, "stop", None),
        (S.TOOL_USE, "tool_use", "tool_calls", None),
        (S.MALFORMED_TOOL_CALL, "MALFORMED_FUNCTION_CALL", "stop", "MALFORMED_FUNCTION_CALL"),
    ],
)
def test_finish_reasons(reason: S, raw: str | None, word: str, native: str | None) -> None:
    choice = bodies(write([START, finish(reason, raw=raw), ev.End()]))[1]["choices"][0]
    assert (choice["finish_reason"], choice.get("native_finish_reason")) == (word, native)


def test_ids_are_ours_where_the_provider_gave_none() -> None:
    first = bodies(write([ev.Start(), block(K.TOOL_CALL, name="f")]))
    assert (first[0]["id"], first[0]["created"], first[0]["model"]) == ("chatcmpl-r1", 9, "asked")
    assert first[1]["choices"][0]["delta"]["tool_calls"][0]["id"] == "call_r1_0"


def test_the_providers_fingerprint_is_shown() -> None:
    start = ev.Start(id="x", extensions={"openai": {"system_fingerprint": "fp", "service_tier": "default", "other": 1}})
    body = bodies(write([start, finish(), ev.End()]))[0]
    assert (body["system_fingerprint"], body["service_tier"]) == ("fp", "default")
    assert "other" not in body


def test_an_error_leaves_blocks_open_and_invents_nothing() -> None:
    error = ev.Error(ErrorInfo(code=ErrorCode.TIMEOUT, message="too slow"))
    events = [START, block(K.TOOL_CALL, id="a", name="f"), ev.ToolDelta(0, '{"x'), error]
    said = bodies(write(events))
    assert said[-2:] == [
        {"error": {"message": "too slow", "type": "server_error", "param": None, "code": "timeout"}},
        "[DONE]",
    ]
    assert not any(c["finish_reason"] for body in said[:-2] for c in body["choices"])
    assert bodies(write([error])) == said[-2:]


@given(legal_events())
def test_any_legal_events_give_a_well_formed_stream(events: list[ev.Event]) -> None:
    frames = write(events)
    said = bodies(frames)
    assert said.count("[DONE]") == 1
    assert said[-1] == "[DONE]"
    finished: list[int] = []
    roles: list[int] = []
    heads = set()
    for body in said[:-1]:
        assert ("choices" in body) != ("error" in body)
        if "error" in body:
            assert body is said[-2]
            continue
        heads.add((body["id"], body["created"], body["model"]))
        for choice in body["choices"]:
            index = choice["index"]
            assert index not in finished
            if "role" in choice["delta"]:
                assert index not in roles
                roles.append(index)
            assert index in roles
            if choice["finish_reason"] is not None:
                finished.append(index)
        if not body["choices"]:
            assert body is said[-2]
            assert body["usage"]
    assert len(heads) <= 1
    assert finished == [e.choice for e in events if isinstance(e, ev.Finish)]


PLAIN: dict[str, Any] = {"errors_allowed": False, "finish_always": True, "abandon": False, "extensions": False}


@given(
    legal_events(kinds=(K.TEXT, K.REASONING, K.REFUSAL, K.TOOL_CALL), side_by_side=False, **PLAIN)
    | legal_events(kinds=(K.TOOL_CALL,), **PLAIN)  # only calls can interleave: there is one text in a message
)
def test_written_and_read_again_says_the_same(events: list[ev.Event]) -> None:
    before, after = assemble(events), assemble(read(write(events)))
    for old, new in zip(summary(before), summary(after), strict=True):
        for field in ("text", "refusal", "reasoning", "calls"):
            assert new[field] == old[field]


# Passing on.


def both(frames: list[Frame], **options: Any) -> list[Frame]:
    return write(read(frames, passthrough=True), passthrough=True, **options)


STREAM = [
    chunk({"role": "assistant", "content": ""}, usage=None, custom="kept"),
    chunk({"content": "a"}, usage=None, obfuscation="zz"),
    frame({"id": "chatcmpl-1", "choices": [], "moderation": {"x": 1}}),
    calls(function("f", "", index=0, id="1", type="function")),
    calls(function(None, "{}", index=0)),
    chunk({}, finish="tool_calls", choice={"content_filter_results": {"x": 1}}),
]
USAGE = usage_chunk(prompt_tokens=1, completion_tokens=2, total_tokens=3, queue_time=0.5)


def test_frames_go_on_byte_for_byte() -> None:
    frames = [*STREAM, USAGE, DONE]
    assert both(frames) == frames
    assert all(out is frame for out, frame in zip(both(frames), frames, strict=True))


def test_usage_that_nobody_asked_for_is_taken_out() -> None:
    assert both([*STREAM, USAGE, DONE], include_usage=False) == [*STREAM, DONE]
    counts = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    more: dict[str, Any] = {"time_info": {"t": 1.0}, "citations": ["u"], "x_groq": {"id": "g"}}
    with_usage = chunk({}, finish="tool_calls", usage=counts, **{**more, "x_groq": {"id": "g", "usage": counts}})
    written = both([*STREAM[:-1], with_usage, DONE], include_usage=False)
    assert written == [*STREAM[:-1], chunk({}, finish="tool_calls", **more), DONE]


def test_usage_in_the_first_chunk_that_nobody_asked_for() -> None:
    first = chunk(
        {"role": "assistant", "content": "a"}, usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    )
    written = both([first, chunk({}, finish="stop"), DONE], include_usage=False)
    assert all("usage" not in body for body in bodies(written)[:-1])
    assert summary(assemble(read(written)))[0]["text"] == "a"


# What is mended: frames in -> the deltas and finish reasons that come out.
MENDED: dict[str, tuple[list[Frame], list[tuple[Any, Any]]]] = {
    "the finish reason after calls": (
        [calls(function("f", "{}", index=0, id="1", type="function")), chunk({}, finish="stop")],
        [({"tool_calls": [function("f", "{}", index=0, id="1", type="function")]}, None), ({}, "tool_calls")],
    ),
    "an empty finish reason": ([chunk({"content": "a"}, finish="")], [(ROLE, None), ({"content": "a"}, None)]),
    "id and name on every fragment": (
        [
            calls(function("f", "", index=0, id="1", type="function")),
            calls(function("f", "{}", index=0, id="1", type="function")),
        ],
        [
            ({"tool_calls": [function("f", "", index=0, id="1", type="function")]}, None),
            ({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}, None),
        ],
    ),
    "content as an array": (
        [chunk({"content": [{"type": "text", "text": "a"}]})],
        [(ROLE, None), ({"content": "a"}, None)],
    ),
    "a second finish reason": ([chunk({}, finish="stop"), chunk({}, finish="stop")], [({}, "stop")]),
    "empty data": ([Frame(b""), chunk({"content": "a"})], [({"content": "a"}, None)]),
}


@pytest.mark.parametrize("case", MENDED)
def test_what_would_break_a_client_is_mended(case: str) -> None:
    frames, told = MENDED[case]
    written = both([*frames, DONE])
    said = [(c["delta"], c["finish_reason"]) for b in bodies(written)[:-1] for c in b["choices"]]
    assert said[: len(told)] == told


def test_every_call_gets_an_index_of_its_own() -> None:
    frames = [
        calls(function("f", '{"p":1}', index=0, id="1", type="function")),
        calls(function("g", '{"p":2}', index=0, id="2", type="function")),
        calls(function("h", {"p": 3}, id="3")),
        chunk({}, finish="stop"),
        DONE,
    ]
    written = both(frames)
    assert written[0] == frames[0]
    said = [call for delta in deltas(written) for call in delta.get("tool_calls", [])]
    assert [(call["index"], call.get("id")) for call in said if "id" in call] == [(0, "1"), (1, "2"), (2, "3")]
    assert [c[2] for c in summary(assemble(read(written)))[0]["calls"]] == [{"p": 1}, {"p": 2}, {"p": 3}]
    assert deltas(written).count({"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}) == 0


def test_a_stream_of_legacy_completions_becomes_one_of_chat() -> None:
    text = [
        {
            "id": "cmpl",
            "object": "text_completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "text": t, "finish_reason": f}],
        }
        for t, f in (("a", None), ("b", "length"))
    ]
    usage = {
        "id": "cmpl",
        "object": "text_completion",
        "choices": [],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    written = both([*map(frame, [*text, usage]), DONE])
    assert {body["object"] for body in bodies(written)[:-1]} == {"chat.completion.chunk"}
    assert summary(assemble(read(written)))[0]["text"] == "ab"


def test_a_missing_finish_reason_is_added_at_the_end_marker() -> None:
    frames = [chunk({"role": "assistant", "content": "a"}), DONE]
    written = both(frames)
    assert (written[0], written[-1]) == (frames[0], DONE)
    assert bodies(written)[-2]["choices"][0]["finish_reason"] == "stop"


def test_assembled_parts_of_a_passed_stream() -> None:
    parts = assemble(read([*STREAM, USAGE, DONE], passthrough=True)).choices[0].parts
    assert parts == [Text(text="a"), ToolCall(id="1", name="f", arguments="{}")]
