"""A2UI messages beside the gateway's events, validated by the official package."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.formats import FORMATS
from headrace.formats.base import WriterOptions
from headrace.framing import FRAMINGS, Frame
from headrace.model import events as ev
from headrace.model.content import Part, Refusal, Text
from headrace.model.errors import ErrorCode, ErrorInfo, InvalidRequest
from headrace.model.events import BlockKind, Event
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason
from headrace.serve.checks import load_check
from tests.fixtures import fixture_bytes

FORMAT = FORMATS["a2ui"]
BASIC = "https://a2ui.org/specification/v0_9/catalogs/basic/catalog.json"
CREATE: dict[str, Any] = {"version": "v0.9", "createSurface": {"surfaceId": "s1", "catalogId": BASIC}}
DELETE: dict[str, Any] = {"version": "v0.9", "deleteSurface": {"surfaceId": "s1"}}


def update(*components: dict[str, Any], surface: str = "s1", **more: Any) -> dict[str, Any]:
    return {"version": "v0.9", "updateComponents": {"surfaceId": surface, "components": list(components), **more}}


def component(id: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": id, "component": kind, **fields}


ROOT = component("root", "Text", text="Hi")


def options() -> WriterOptions:
    return WriterOptions(request_id="req_1", model="m", provider="p", check=load_check(FORMAT))


def answered(*texts: str, error: bool = False) -> list[Frame]:
    """The frames of an answer whose text comes in these fragments."""
    events: list[Event] = [ev.Start(id="x"), ev.BlockStart(block=0, type=BlockKind.TEXT)]
    events += [ev.TextDelta(0, text) for text in texts]
    if error:
        events.append(ev.Error(ErrorInfo(code=ErrorCode.TIMEOUT, message="slow")))
    else:
        events += [ev.BlockStop(0), ev.Finish(reason=StopReason.END_TURN), ev.End()]
    writer = FORMAT.stream_writer(options())
    return [frame for event in events for frame in writer.write([event])]


def sent(frames: list[Frame]) -> list[Any]:
    return [json.loads(frame.data) for frame in frames if frame.event == "a2ui"]


def problems(frames: list[Frame]) -> list[dict[str, Any]]:
    return [json.loads(frame.data)["data"] for frame in frames if frame.event == "a2ui-error"]


def text_of(frames: list[Frame]) -> str:
    return "".join(json.loads(frame.data)["data"]["content"] for frame in frames if frame.event == "delta")


def lines(*messages: dict[str, Any]) -> str:
    return "".join(json.dumps(message) + "\n" for message in messages)


def test_the_specifications_example() -> None:
    """Every message of the recording is delivered as it stands, one a frame."""
    recorded = fixture_bytes("a2ui/contact_form_example.jsonl").decode()
    for fragments in ([recorded], list(recorded), [f"Here is it.\n<a2ui-json>\n{recorded}</a2ui-json>\nDone."]):
        frames = answered(*fragments)
        assert [frame.data for frame in frames if frame.event == "a2ui"] == [
            line.strip().encode() for line in recorded.splitlines() if line.strip()
        ]
        assert problems(frames) == []
        assert text_of(frames) in ("", "Here is it.\nDone.")


def test_the_gateways_events_stand_beside_them() -> None:
    frames = answered("Look:\n", lines(CREATE), "and\n", lines({"version": "v0.9", "bad": 1, "deleteSurface": {}}))
    assert [frame.event for frame in frames] == ["start", "delta", "a2ui", "delta", "a2ui-error", "done"]
    numbered = [json.loads(frame.data)["seq"] for frame in frames if frame.event != "a2ui"]
    assert numbered == list(range(5))
    assert sent(frames) == [CREATE]


def test_in_ndjson_a_message_is_a_line_without_a_type() -> None:
    frames = answered(json.dumps(update(ROOT), indent=2))
    encoder = FRAMINGS["ndjson"].encoder()
    read = [json.loads(line) for line in encoder.encode(frames).split(b"\n") if line]
    assert [line.get("type") for line in read] == ["start", None, "done"]
    assert read[1] == update(ROOT)


INVALID: dict[str, tuple[dict[str, Any], str]] = {
    # message: (what is wrong, in the path or the message)
    "an unknown component": (update(component("root", "Nope")), "Nope"),
    "a missing property": (update(component("root", "Text")), "text"),
    "a wrong type": (update(component("root", "Text", text=3)), "text"),
    "an additional member": (update(ROOT, extra=1), "extra"),
    "no components": (update(), "components"),
    "a component without id": (update({"component": "Text", "text": "x"}), "components[0].id"),
    "two actions": ({**DELETE, "createSurface": {"surfaceId": "s1", "catalogId": BASIC}}, "exactly one"),
    "another version": ({**DELETE, "version": "v1.0"}, "version"),
    "no version": ({"deleteSurface": {"surfaceId": "s1"}}, "version"),
    "no surface": ({"version": "v0.9", "deleteSurface": {}}, "surfaceId"),
    "no catalog": ({"version": "v0.9", "createSurface": {"surfaceId": "s2"}}, "catalogId"),
    "another member beside": ({**DELETE, "x": 1}, "other members"),
    "a surface that is there": (CREATE, "exists already"),
}


@pytest.mark.parametrize(("message", "word"), INVALID.values(), ids=list(INVALID))
def test_invalid_messages_are_told_and_left_out(message: dict[str, Any], word: str) -> None:
    frames = answered(lines(CREATE, message, DELETE))
    assert sent(frames) == [CREATE, DELETE]
    (problem,) = problems(frames)
    assert problem["code"] == "VALIDATION_FAILED"
    assert word in problem["message"] + problem.get("path", "")
    assert text_of(frames) == ""


def test_what_is_no_json_is_told_where_it_must_be_a_message() -> None:
    frames = answered("<a2ui-json>{nonsense}</a2ui-json>")
    assert (sent(frames), text_of(frames), len(problems(frames))) == ([], "", 1)


def test_json_of_other_kinds_is_text() -> None:
    said = 'See\n{"version": "1.0.0", "name": "x"}\n'
    frames = answered(said)
    assert (sent(frames), problems(frames)) == ([], [])
    assert text_of(frames).strip() == said.strip()


def test_a_surface_may_be_made_again_when_it_is_gone() -> None:
    assert sent(answered(lines(CREATE, DELETE, CREATE))) == [CREATE, DELETE, CREATE]


def test_of_other_catalogs_only_the_envelope_is_known() -> None:
    create = {"version": "v0.9", "createSurface": {"surfaceId": "s1", "catalogId": "https://example.com/mine"}}
    frames = answered(lines(create, update(component("root", "Mine", anything=1)), update(ROOT, extra=1)))
    assert sent(frames) == [create, update(component("root", "Mine", anything=1))]
    assert len(problems(frames)) == 1


def test_surfaces_of_an_earlier_answer() -> None:
    """Their catalog is not known: the basic one decides where it has all the components."""
    frames = answered(
        lines(update(component("a", "Text")), update(component("a", "Mine")), update(component("b", "Text", text="x")))
    )
    assert sent(frames) == [update(component("a", "Mine")), update(component("b", "Text", text="x"))]
    assert len(problems(frames)) == 1


def test_a_stream_that_breaks_off() -> None:
    """What was text is sent, what was to be a message is not, and nothing is made up."""
    assert text_of(answered("One <a2", error=True)) == "One <a2"
    frames = answered("One\n", lines(CREATE)[:-5], error=True)
    assert [frame.event for frame in frames] == ["start", "delta", "error"]


def test_parallel_texts_are_not_mixed() -> None:
    writer = FORMAT.stream_writer(options())
    half = json.dumps(CREATE)
    events: list[Event] = [ev.Start()]
    events += [ev.BlockStart(block=number, type=BlockKind.TEXT) for number in (0, 1)]
    events += [ev.TextDelta(0, half[:30]), ev.TextDelta(1, "Other"), ev.TextDelta(0, half[30:])]
    events += [ev.BlockStop(0), ev.BlockStop(1), ev.End()]
    frames = [frame for event in events for frame in writer.write([event])]
    assert sent(frames) == [CREATE]
    assert text_of(frames) == "Other"


def test_log_probabilities_stay() -> None:
    writer = FORMAT.stream_writer(options())
    logprobs = [{"token": "x", "logprob": -1.0}]
    writer.write([ev.Start(), ev.BlockStart(block=0, type=BlockKind.TEXT)])
    frames = writer.write([ev.TextDelta(0, "x", logprobs)])
    assert b'"logprobs"' in b"".join(frame.data for frame in frames)


def test_a_whole_answer() -> None:
    parts: list[Part] = [
        Text(text=f"Look\n{lines(CREATE, CREATE)}"),
        Text(text=lines(update(ROOT))),
        Refusal(text="{no}"),
    ]
    response = Response(id="x", choices=[Choice(parts=parts, stop=StopReason.END_TURN)])
    body = json.loads(FORMAT.write_response(response, options()))
    assert body["a2ui"] == [CREATE, update(ROOT)]
    assert [problem["code"] for problem in body["a2ui_errors"]] == ["VALIDATION_FAILED"]
    assert [part["text"] for part in body["choices"][0]["message"]["content"]] == ["Look\n", "{no}"]


def test_requests_are_the_gateways_and_stream_by_default() -> None:
    body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    request = FORMAT.read_request(json.dumps(body).encode())
    assert (request.stream, request.format) == (True, "a2ui")
    assert FORMAT.read_request(json.dumps({**body, "stream": False}).encode()).stream is False
    with pytest.raises(InvalidRequest):
        FORMAT.read_request(b'{"messages": []}')


def test_other_choices_stay_text() -> None:
    writer = FORMAT.stream_writer(options())
    events: list[Event] = [ev.Start()]
    events += [ev.BlockStart(block=number, choice=number, type=BlockKind.TEXT) for number in (0, 1)]
    events += [ev.TextDelta(number, lines(CREATE)) for number in (0, 1)]
    events += [ev.BlockStop(0), ev.BlockStop(1), ev.End()]
    frames = [frame for event in events for frame in writer.write([event])]
    assert sent(frames) == [CREATE]
    assert text_of(frames) == lines(CREATE)
    text: list[Part] = [Text(text=lines(CREATE))]
    body = json.loads(
        FORMAT.write_response(Response(choices=[Choice(parts=text), Choice(index=1, parts=text)]), options())
    )
    assert body["a2ui"] == [CREATE]
    assert body["choices"][1]["message"]["content"] == lines(CREATE)
