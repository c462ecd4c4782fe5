"""What holds of both formats' streams, whatever legal sequence of events goes in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.formats.base import Format, ReaderOptions, WriterOptions
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.errors import ErrorCode, ProtocolError
from headrace.model.events import BlockKind, Event
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from tests.strategies import legal_events

from .helpers import FORMATS, OPTIONS, assembled, frames_of, parts_by_choice, payloads, read, write

both = pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.name)
TERMINAL = {"llm_stream": {"stream.end"}, "gateway": {"done", "error"}}
FIRST = {"llm_stream": "stream.start", "gateway": "start"}


@both
@given(events=legal_events())
def test_seq_has_no_gap_start_is_first_and_one_terminal_event_last(format: Format, events: list[Event]) -> None:
    frames = write(format, events)
    told = payloads(frames)
    assert [fields["seq"] for fields in told] == list(range(len(told)))
    assert [fields["type"] for fields in told] == [frame.event for frame in frames]
    assert [place for place, fields in enumerate(told) if fields["type"] == FIRST[format.name]] == [0]
    ends = [place for place, fields in enumerate(told) if fields["type"] in TERMINAL[format.name]]
    assert ends == [len(told) - 1]
    assert all(b"\n" not in frame.data and b"\r" not in frame.data for frame in frames)


@both
@given(events=legal_events(errors_allowed=False))
def test_what_is_written_is_read_back(format: Format, events: list[Event]) -> None:
    _assert_same(format, events, ordered=False)


@both
@given(events=legal_events(errors_allowed=False, side_by_side=False))
def test_what_is_written_in_order_is_read_back_in_order(format: Format, events: list[Event]) -> None:
    _assert_same(format, events, ordered=True)


def _assert_same(format: Format, events: list[Event], *, ordered: bool) -> None:
    expected = assembled(events).response()
    got = assembled(read(format, write(format, events))).response()
    assert parts_by_choice(got, ordered=ordered) == parts_by_choice(expected, ordered=ordered)
    choices = {choice.index: choice for choice in got.choices}
    for choice in expected.choices:
        if choice.stop is None:
            continue
        same = choices[choice.index]
        assert (same.stop, same.stop_sequence) == (choice.stop, choice.stop_sequence)
        assert (same.extensions or None) == (choice.extensions or None)
        if choice.raw_stop is not None:
            assert same.raw_stop == choice.raw_stop
    assert got.usage == expected.usage
    assert (got.id, got.model) == (expected.id, expected.model or OPTIONS.model)
    assert got.created == (expected.created or OPTIONS.created)
    assert (got.extensions or None) == (expected.extensions or None)
    if expected.routing is not None:
        assert got.routing == expected.routing


@both
@given(events=legal_events())
def test_events_one_by_one_or_all_at_once_give_the_same_frames(format: Format, events: list[Event]) -> None:
    assert format.stream_writer(OPTIONS).write(events) == write(format, events)


@both
@given(events=legal_events())
def test_an_error_is_read_back_and_the_text_before_it(format: Format, events: list[Event]) -> None:
    expected, got = assembled(events), assembled(read(format, write(format, events)))
    assert (expected.error is None) == (got.error is None)
    if expected.error is None or got.error is None:
        return
    assert got.error.code is expected.error.code
    if expected.error.message.strip():
        assert got.error.message == expected.error.message
    for name in ("type", "retry_after", "details", "is_retryable"):
        assert getattr(got.error, name) == getattr(expected.error, name)
    assert got.error.provider == (expected.error.provider or "up")
    assert _texts(got.response()) == _texts(expected.response())


def _texts(response: Any) -> dict[int, str]:
    told = {}
    for choice in response.choices:
        text = "".join(getattr(part, "text", "") or "" for part in choice.parts if hasattr(part, "text"))
        if text:
            told[choice.index] = text
    return told


@both
@given(events=legal_events(side_by_side=False, max_choices=1))
def test_passed_on_unchanged(format: Format, events: list[Event]) -> None:
    frames = write(format, events)
    reader = format.stream_reader(ReaderOptions(provider="up", passthrough=True))
    writer = format.stream_writer(WriterOptions(passthrough=True))
    passed = [frame for given in frames for frame in writer.write(reader.read([given]))]
    error = any(isinstance(event, ev.Error) for event in events)
    if error and format.name == "llm_stream":
        # What follows an error is written anew: stream.end.
        assert passed[:-1] == frames[:-1]
        assert json.loads(passed[-1].data)["type"] == "stream.end"
        assert json.loads(passed[-1].data)["seq"] == len(frames) - 1
    else:
        assert passed == frames


@both
@given(events=legal_events(side_by_side=False), cut=st.integers(0, 60))
def test_composed_frames_may_follow_passed_ones(format: Format, events: list[Event], cut: int) -> None:
    """The engine ends a passed stream with an error of its own: seq goes on, and there is one ending."""
    frames = write(format, events)[:-1]
    frames = frames[: 1 + cut % max(len(frames), 1)]
    reader = format.stream_reader(ReaderOptions(passthrough=True))
    writer = format.stream_writer(WriterOptions(passthrough=True))
    out = [frame for given in frames for frame in writer.write(reader.read([given]))]
    last = reader.eof()
    if not last:
        return
    out += writer.write(last)
    told = payloads(out)
    assert [fields["seq"] for fields in told] == list(range(len(told)))
    kinds = [fields["type"] for fields in told]
    assert kinds.count("error") == 1
    assert kinds[-1] in TERMINAL[format.name]
    # A tool call that was passed on is not told again.
    calls = [fields["id"] for fields in told if fields["type"] == "tool.call"]
    assert len(calls) == len(set(calls))


@both
def test_an_injected_event_shifts_the_seq_of_passed_frames(format: Format) -> None:
    frames = write(format, _answer())
    reader = format.stream_reader(ReaderOptions(passthrough=True))
    writer = format.stream_writer(WriterOptions(passthrough=True))
    out = writer.write(reader.read(frames[:3]))
    assert out == frames[:3]
    out += writer.write([ev.Progress(message="still there")])
    out += writer.write(reader.read(frames[3:]))
    told = payloads(out)
    assert [fields["seq"] for fields in told] == list(range(len(told)))
    assert len(out) == len(frames) + 1
    strip = [{**fields, "seq": None} for fields in told[:3] + told[4:]]
    assert strip == [{**fields, "seq": None} for fields in payloads(frames)]


@both
def test_unknown_fields_survive_and_a_missing_name_is_added(format: Format) -> None:
    frames = write(format, _answer())
    odd = json.dumps({**json.loads(frames[1].data), "from_the_future": [1, 2]}).encode()
    reader = format.stream_reader(ReaderOptions(passthrough=True))
    writer = format.stream_writer(WriterOptions(passthrough=True))
    out = writer.write(reader.read([Frame(frames[0].data), Frame(odd, id="7")]))
    assert out == [frames[0], Frame(odd, frames[1].event)]


@both
def test_a_frame_of_several_lines_is_written_anew_on_one(format: Format) -> None:
    frames = write(format, _answer())
    pretty = Frame(json.dumps(json.loads(frames[0].data), indent=2).encode(), frames[0].event)
    reader = format.stream_reader(ReaderOptions(passthrough=True))
    writer = format.stream_writer(WriterOptions(passthrough=True))
    out = writer.write(reader.read([pretty]))
    assert b"\n" not in out[0].data
    assert payloads(out) == payloads(frames[:1])


def _answer() -> list[Event]:
    return [
        ev.Start(model="m"),
        ev.BlockStart(block=0, type=BlockKind.TEXT),
        *(ev.TextDelta(0, text) for text in ("The", " weather", ' in "Vienna"\\ \u2028', " é🙂")),
        ev.BlockStop(0),
        ev.Finish(reason=StopReason.END_TURN),
        ev.End(usage=Usage(input_tokens=1, output_tokens=2)),
    ]


@both
@pytest.mark.parametrize("keep", range(7))
def test_cut_anywhere_is_an_error(format: Format, keep: int) -> None:
    frames = write(format, _answer())
    end = len(frames) - 1
    events = read(format, frames[: min(keep, end)])
    last = events[-1]
    assert isinstance(last, ev.Error)
    assert last.error.type == "upstream_truncated"
    assert last.error.code is ErrorCode.PROVIDER_UNAVAILABLE


@both
def test_nothing_counts_after_the_end(format: Format) -> None:
    frames = write(format, _answer())
    reader = format.stream_reader(ReaderOptions())
    events = reader.read(frames)
    assert isinstance(events[-1], ev.End)
    assert reader.read([*frames, Frame(b"rubbish")]) == []
    assert reader.eof() == []


@both
@given(texts=st.lists(st.text(), max_size=8), spaces=st.booleans())
def test_short_cut_and_long_way_agree(format: Format, texts: list[str], spaces: bool) -> None:
    events: list[Event] = [ev.Start(), ev.BlockStart(block=0, type=BlockKind.TEXT)]
    events += [ev.TextDelta(0, text) for text in texts]
    frames = write(format, [*events, ev.BlockStop(0), ev.End()])
    if spaces:
        frames = frames_of(*payloads(frames))
    quick, slow = format.stream_reader(ReaderOptions()), format.stream_reader(ReaderOptions())
    by_short_cut = quick.read(frames)
    by_long_way = []
    for frame in frames:
        slow.hot = -1  # type: ignore[attr-defined]  # keeps the template from being used
        by_long_way += slow.read([frame])
    assert by_short_cut == by_long_way
    assert "".join(event.text for event in by_short_cut if isinstance(event, ev.TextDelta)) == "".join(texts)


@both
@given(junk=st.binary(max_size=40) | st.text(max_size=40).map(str.encode))
def test_any_bytes_give_events_or_a_protocol_error(format: Format, junk: bytes) -> None:
    frames = write(format, _answer())
    reader = format.stream_reader(ReaderOptions())
    reader.read(frames[:3])
    message = ""
    try:
        reader.read([Frame(junk)])
    except ProtocolError as error:
        message = str(error)
    assert len(junk) < 8 or junk.decode("utf-8", "replace") not in message


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["text", "content", "part", "type", "media", "vendor:headrace"]), inner, max_size=2
        )
    ),
    max_leaves=6,
)


@both
@given(data=st.data())
def test_fields_of_any_type_give_events_or_a_protocol_error(format: Format, data: st.DataObject) -> None:
    """Each field of each event replaced by anything: no other exception, and what comes is legal."""
    frames = write(format, _rich())
    place = data.draw(st.integers(0, len(frames) - 1))
    fields = json.loads(frames[place].data)
    target = fields
    while True:
        name = data.draw(st.sampled_from(sorted(target)))
        if not isinstance(target[name], dict) or not target[name] or data.draw(st.booleans()):
            break
        target = target[name]
    target[name] = data.draw(JSON)
    odd = Frame(json.dumps(fields).encode(), frames[place].event)
    reader = format.stream_reader(ReaderOptions())
    for frame in [*frames[:place], odd, *frames[place + 1 :]]:
        try:
            reader.read([frame])
        except ProtocolError:
            return


def _rich() -> list[Event]:
    return [
        ev.Start(id="x", model="m", extensions={"openai": {"a": 1}}),
        ev.BlockStart(block=0, type=BlockKind.REASONING, vendor="anthropic", id="r"),
        ev.ReasoningDelta(0, "hm"),
        ev.SignatureDelta(0, "sig"),
        ev.BlockStop(0),
        ev.BlockStart(block=1, type=BlockKind.TEXT, choice=1),
        ev.TextDelta(1, "a", [{"token": "a"}]),
        ev.BlockStop(1),
        ev.BlockStart(block=2, type=BlockKind.OPAQUE, vendor="anthropic", payload={"x": 1}, role="other"),
        ev.OpaqueDelta(2, {"p": 1}, "query", "q"),
        ev.BlockStop(2),
        ev.BlockStart(block=3, type=BlockKind.MEDIA, media_type="audio/wav"),
        ev.MediaDelta(3, "aGk=", "hi"),
        ev.BlockStop(3),
        ev.BlockStart(block=4, type=BlockKind.TOOL_CALL, id="c", name="f"),
        ev.ToolDelta(4, '{"a":1}'),
        ev.BlockStop(4),
        ev.Progress(message="p", percent=3),
        ev.UsageReport(
            Usage(input_tokens=1, output_tokens=2, cost_usd=0.5, estimated=True, vendor={"openai": {"b": 1}})
        ),
        ev.Finish(reason=StopReason.STOP_SEQUENCE, raw="stop", stop_sequence="x", extensions={"openai": {"c": 1}}),
        ev.Finish(choice=1, reason=StopReason.END_TURN),
        ev.End(routing={"failovers": 0}, extensions={"openai": {"d": 1}}),
    ]


@both
@pytest.mark.parametrize("leftover", [b'{"error": {"code": "overloaded", "message": "later"}}', b'{"error": {}}'])
def test_a_bare_error_body_in_place_of_a_stream(format: Format, leftover: bytes) -> None:
    [event] = format.stream_reader(ReaderOptions(provider="up")).eof(leftover)
    assert isinstance(event, ev.Error)
    assert event.error.provider == "up"
    assert event.error.type != "upstream_truncated"


@both
def test_what_is_lost_is_named_in_the_terminal_event(format: Format) -> None:
    events = [
        ev.Start(),
        ev.Opaque(vendor="openai", name="odd", content=True),
        ev.Opaque(vendor="x", name="ping"),
        ev.End(),
    ]
    frames = write(format, events, WriterOptions(lost=("request.top_k",)))
    last = payloads(frames)[-1]
    lost = last["extensions"]["vendor:headrace"]["lost"] if format.name == "llm_stream" else last["lost"]
    assert lost == ["openai.odd", "request.top_k"]


@both
def test_the_callers_own_request_id_is_echoed(format: Format) -> None:
    from headrace.model.request import Request

    request = Request(model="m", messages=[], metadata={"request_id": "mine"})
    frames = write(format, _answer(), WriterOptions(request=request, request_id="gateways"))
    told = payloads(frames)
    assert told[0]["request_id"] == "mine"
    if format.name == "llm_stream":
        assert told[-1]["request_id"] == "mine"
