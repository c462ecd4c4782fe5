"""Formats for callers alone: every recording and every kind of answer through their writers, seen as a client sees it.

They have no readers, so what comes out is folded by clients in small, which refuse what the official ones refuse and know
nothing of how the writers work. Compared is what all of them carry: texts, reasoning, calls, the error.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from ag_ui.core.events import Event as AgUiEvent
from hypothesis import HealthCheck, given, settings
from pydantic import TypeAdapter

from headrace.formats import FORMATS
from headrace.formats.base import ReaderOptions
from headrace.framing import FRAMINGS, Frame
from headrace.model import events as ev
from headrace.model.assemble import Assembler, explode
from headrace.model.content import Refusal, Text
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.events import Event
from headrace.model.response import Response
from tests.fixtures import FixtureRow, requires_fixtures
from tests.strategies import legal_events

from .answers import ANSWERS
from .pipes import DONE, digest, format_of, options, parsed, read, recorded_bytes, recordings, response_of, write

CUT = ev.Error(ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, message="cut", type="upstream_truncated"))
AG_UI: TypeAdapter[Any] = TypeAdapter(AgUiEvent)


@dataclass
class Seen:
    """What a client shows of a stream."""

    text: str = ""
    """Refusals included, which only the gateway's own format tells apart."""
    reasoning: str = ""
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    """Those that became whole: id, name, arguments."""
    error: str | None = None
    ended: bool = False


def a2ui(frames: Sequence[Frame]) -> Seen:
    """In no recording is there any A2UI: it reads as the gateway format does, numbers included."""
    assert not [frame for frame in frames if frame.event.startswith("a2ui")]
    assert [json.loads(frame.data)["seq"] for frame in frames] == list(range(len(frames)))
    reader = FORMATS["gateway"].stream_reader(ReaderOptions())
    assembler = Assembler()
    assembler.feed(reader.read(frames))
    assembler.feed(reader.eof())
    kinds = [frame.event for frame in frames]
    assert kinds.count("done") + kinds.count("error") == 1
    assert kinds[-1] in ("done", "error")
    return seen_of(assembler.response(), assembler.error)


def seen_of(response: Response, error: ErrorInfo | None) -> Seen:
    answer = digest(response).answers.get(0)
    seen = Seen(error=error.message if error else None, ended=error is None)
    if answer is not None:
        parts = [part for choice in response.choices if not choice.index for part in choice.parts]
        seen.text = "".join([part.text for part in parts if isinstance(part, Text | Refusal)])
        seen.reasoning = answer.reasoning
        seen.calls = [(call.id, call.name, call.arguments) for call in answer.calls if call.complete]
    return seen


def vercel_ui(frames: Sequence[Frame]) -> Seen:
    """The AI SDK's reader throws at parts that were not started, or started twice."""
    seen = Seen()
    parts: dict[tuple[str, str], str] = {}
    calls: dict[str, tuple[str, list[str]]] = {}
    assert [frame.data for frame in frames].count(DONE) == 1
    assert frames[-1].data == DONE
    kinds: list[str] = []
    for frame in frames[:-1]:
        chunk = json.loads(frame.data)
        kind = chunk["type"]
        kinds.append(kind)
        word, _, step = kind.rpartition("-")
        if word in ("text", "reasoning"):
            key = (word, chunk["id"])
            assert (key in parts) == (step != "start")
            assert parts.setdefault(key, "open") == "open"
            if step == "delta":
                assert chunk["delta"]
                setattr(seen, word, getattr(seen, word) + chunk["delta"])
            elif step == "end":
                parts[key] = "ended"
        elif kind == "tool-input-start":
            assert chunk["toolCallId"] not in calls
            calls[chunk["toolCallId"]] = (chunk["toolName"], [])
        elif kind == "tool-input-delta":
            calls[chunk["toolCallId"]][1].append(chunk["inputTextDelta"])
        elif kind in ("tool-input-available", "tool-input-error"):
            name, pieces = calls[chunk["toolCallId"]]
            said = chunk["input"]
            assert parsed("".join(pieces)) == (parsed(said) if isinstance(said, str) else said)
            seen.calls.append((chunk["toolCallId"], name, parsed("".join(pieces))))
        elif kind == "error":
            seen.error = chunk["errorText"]
        elif kind == "finish":
            assert not [key for key, state in parts.items() if state == "open"]
            seen.ended = True
    assert kinds[0] == "start"
    assert kinds[-1] in ("finish", "error")
    assert kinds.count("start") == kinds.count("finish") + kinds.count("error") == 1
    return seen


def ag_ui(frames: Sequence[Frame]) -> Seen:
    """The rules of the official client's verifier; each event is one of the protocol's own types, with no member beside."""
    seen = Seen()
    open_: set[tuple[str, str]] = set()
    calls: dict[str, tuple[str, list[str]]] = {}
    events = [json.loads(frame.data) for frame in frames]
    for event in events:
        assert not AG_UI.validate_python(event).model_extra
        word, _, step = event["type"].rpartition("_")
        id = event.get("toolCallId") or event.get("messageId") or event.get("entityId", "")
        if step == "START":
            assert (word, id) not in open_
            open_.add((word, id))
            if word == "TOOL_CALL":
                calls[id] = (event["toolCallName"], [])
        elif step in ("CONTENT", "ARGS"):
            assert (word, id) in open_
            assert event["delta"]
            if word == "TOOL_CALL":
                calls[id][1].append(event["delta"])
            else:
                name = "text" if word == "TEXT_MESSAGE" else "reasoning"
                setattr(seen, name, getattr(seen, name) + event["delta"])
        elif step == "END":
            open_.remove((word, id))
            if word == "TOOL_CALL":
                seen.calls.append((id, calls[id][0], parsed("".join(calls[id][1]))))
        elif event["type"] == "RUN_FINISHED":
            assert not open_
            seen.ended = True
        elif event["type"] == "RUN_ERROR":
            seen.error = event["message"]
    kinds = [event["type"] for event in events]
    assert kinds[0] == "RUN_STARTED"
    assert kinds[-1] in ("RUN_FINISHED", "RUN_ERROR")
    assert kinds.count("RUN_FINISHED") + kinds.count("RUN_ERROR") == 1
    return seen


CLIENTS: dict[str, Callable[[Sequence[Frame]], Seen]] = {"vercel_ui": vercel_ui, "ag_ui": ag_ui, "a2ui": a2ui}
EACH_CLIENT = pytest.mark.parametrize("name", list(CLIENTS))
EACH_RECORDING = pytest.mark.parametrize(
    "row",
    [pytest.param(row, id=row.file) for row in recordings()]
    or [pytest.param(None, marks=requires_fixtures, id="no-fixtures")],
)


def due(name: str, events: Sequence[Event]) -> Seen:
    """What a client must show of these events."""
    seen = seen_of(*response_of(events))
    if name == "ag_ui":  # a run may not finish with a call open, so one that was abandoned is ended like others
        choices = response_of(events)[0].choices
        stopped = [event.block for event in events if isinstance(event, ev.BlockStop)]
        started = [
            (event.block, event.id)
            for event in events
            if isinstance(event, ev.BlockStart) and event.type is ev.BlockKind.TOOL_CALL and not event.choice
        ]
        closed = {id for block, id in started if block in stopped}
        answer = digest(Response(choices=choices)).answers.get(0)
        seen.calls = [
            (call.id, call.name, call.arguments) for call in (answer.calls if answer else ()) if call.id in closed
        ]
    return seen


def in_order(seen: Seen) -> Seen:
    """Calls side by side are whole in any order."""
    return Seen(seen.text, seen.reasoning, sorted(seen.calls, key=repr), seen.error, seen.ended)


def events_of(row: FixtureRow) -> list[Event]:
    return read(format_of(row) or "", [recorded_bytes(row)])


def test_they_are_for_callers_alone() -> None:
    assert {name for name, fmt in FORMATS.items() if not fmt.provides} == set(CLIENTS)
    for name in CLIENTS:
        with pytest.raises(NotImplementedError):
            FORMATS[name].read_error(500, {}, b"")


@EACH_RECORDING
@EACH_CLIENT
def test_every_recording(row: FixtureRow, name: str) -> None:
    events = events_of(row)
    assert in_order(CLIENTS[name](write(name, events).frames)) == in_order(due(name, events))


@EACH_RECORDING
@EACH_CLIENT
def test_every_recording_cut_anywhere(row: FixtureRow, name: str) -> None:
    """It ends as failed, with what had come and nothing made up."""
    whole = events_of(row)
    for place in range(0, len(whole) - 1, max(1, len(whole) // 30)):
        events = [*whole[:place], CUT]
        seen = CLIENTS[name](write(name, events).frames)
        assert (seen.error, seen.ended) == ("cut", False)
        assert in_order(seen) == in_order(due(name, events))


@EACH_CLIENT
@pytest.mark.parametrize("response", [pytest.param(one, id=name) for name, one in ANSWERS.items()])
def test_every_kind_of_answer(response: Response, name: str) -> None:
    events = list(explode(response))
    assert in_order(CLIENTS[name](write(name, events).frames)) == in_order(due(name, events))


@EACH_CLIENT
@pytest.mark.parametrize("response", [pytest.param(one, id=name) for name, one in ANSWERS.items()])
def test_every_framing_carries_the_same(response: Response, name: str) -> None:
    for framing in FORMATS[name].framings:
        written = write(name, list(explode(response)), framing)
        decoder = FRAMINGS[framing].decoder()
        frames = [*decoder.feed(written.data), *decoder.eof()]
        kept = [frame for frame in written.frames if framing == "sse" or frame.data != DONE]
        assert [frame.data for frame in frames] == [frame.data for frame in kept]


@EACH_CLIENT
@pytest.mark.parametrize("response", [pytest.param(one, id=name) for name, one in ANSWERS.items()])
def test_a_whole_body_says_what_the_stream_says(response: Response, name: str) -> None:
    body = json.loads(FORMATS[name].write_response(response, options()))
    if name == "a2ui":
        assert (body.pop("a2ui"), body.pop("a2ui_errors")) == ([], [])
        told = FORMATS["gateway"].read_response(json.dumps(body).encode(), ReaderOptions())
        assert digest(told).answers == digest(response).answers
        return
    frames = [Frame(json.dumps(one).encode()) for one in body["chunks" if name == "vercel_ui" else "events"]]
    shown = CLIENTS[name]([*frames, Frame(DONE)] if name == "vercel_ui" else frames)
    assert in_order(shown) == in_order(due(name, list(explode(response))))


@EACH_CLIENT
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=legal_events())
def test_every_stream_ends_exactly_once(name: str, events: list[Event]) -> None:
    seen = CLIENTS[name](write(name, events).frames)
    assert seen.ended == (seen.error is None) == (not isinstance(events[-1], ev.Error))
