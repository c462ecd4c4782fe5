"""Hypothesis strategies that several test modules share: lists of events in any order that the grammar allows.

`legal_events()` makes what a provider's stream may say, the rare included: blocks side by side, several choices,
abandoned blocks, missing finishes, an error at any point. Everything about one block is planned first and the plans are
then interleaved, so each example is legal by construction (tests/test_strategies.py lets the grammar check).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection
from typing import Any

from hypothesis import strategies as st

from headrace.model import events as ev
from headrace.model.content import Citation
from headrace.model.errors import ErrorCode, ErrorInfo
from headrace.model.events import BlockKind, Event
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

VENDORS = ("openai", "anthropic", "gemini")
ALL_KINDS = tuple(BlockKind)

TEXT = st.text(max_size=12)
WORDS = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2), max_leaves=3)
OBJECTS = st.dictionaries(WORDS, VALUES, max_size=2)
FILLED = st.dictionaries(WORDS, VALUES, min_size=1, max_size=2)
VENDOR_EXTENSIONS = st.none() | st.dictionaries(st.sampled_from(VENDORS), FILLED, min_size=1, max_size=2)


def _pieces(draw: st.DrawFn, text: str, most: int = 4) -> list[str]:
    """The text cut into 1 to `most` pieces, of which some may be empty."""
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=most - 1)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _logprobs(draw: st.DrawFn) -> list[Any] | None:
    return draw(st.none() | st.none() | st.just([{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]))


def _text(draw: st.DrawFn, start: ev.BlockStart) -> list[Event]:
    body: list[Event] = []
    for piece in draw(st.lists(TEXT, max_size=4)):
        if draw(st.integers(0, 5)) == 0:
            citation = Citation(vendor=draw(st.sampled_from(VENDORS)), payload=draw(OBJECTS))
            body.append(ev.CitationDelta(0, citation))
        body.append(ev.TextDelta(0, piece, _logprobs(draw)))
    return body


def _refusal(draw: st.DrawFn, start: ev.BlockStart) -> list[Event]:
    return [ev.RefusalDelta(0, piece, _logprobs(draw)) for piece in draw(st.lists(TEXT, max_size=3))]


def _reasoning(draw: st.DrawFn, start: ev.BlockStart) -> list[Event]:
    start.vendor = draw(st.sampled_from(("", *VENDORS)))
    start.id = draw(st.sampled_from(("", "rs_1")))
    body: list[Event] = [ev.ReasoningDelta(0, piece) for piece in draw(st.lists(TEXT, max_size=3))]
    if start.vendor and draw(st.booleans()):
        body += [ev.SignatureDelta(0, piece) for piece in _pieces(draw, draw(st.text(min_size=1, max_size=12)), 2)]
    return body


def _redacted(draw: st.DrawFn, start: ev.BlockStart) -> list[Event]:
    start.vendor = draw(st.sampled_from(VENDORS))
    start.data = draw(st.text(min_size=1, max_size=12))
    return []


def _tool_call(draw: st.DrawFn, start: ev.BlockStart) -> list[Event]:
    start.name = draw(WORDS)
    arguments = draw(st.just("") | OBJECTS.map(json.dumps))
    return [ev.ToolDelta(0, piece) for piece in _pieces(draw, arguments)] if arguments else []


def _media(draw: st.DrawFn, start: ev.BlockStart) -> list[Event]:
    start.media_type = draw(st.sampled_from(("image/png", "audio/wav", "")))
    if draw(st.integers(0, 3)) == 0:
        return [ev.MediaDelta(0, url="https://example.com/picture.png", extensions=draw(VENDOR_EXTENSIONS))]
    data = base64.b64encode(draw(st.binary(min_size=1, max_size=9))).decode()
    return [ev.MediaDelta(0, piece, draw(TEXT)) for piece in _pieces(draw, data, 3)]


def _opaque(draw: st.DrawFn, start: ev.BlockStart) -> list[Event]:
    start.vendor = draw(st.sampled_from(VENDORS))
    start.role = draw(st.sampled_from(("server_tool_call", "server_tool_result", "other")))
    start.payload = {"type": "web_search", **draw(OBJECTS)}
    body: list[Event] = []
    for piece in draw(st.lists(TEXT, max_size=2)):
        field = draw(st.sampled_from(("", "query")))
        body.append(ev.OpaqueDelta(0, {"partial": piece}, field, piece if field else ""))
    return body


_BODIES = {
    BlockKind.TEXT: _text,
    BlockKind.REFUSAL: _refusal,
    BlockKind.REASONING: _reasoning,
    BlockKind.REDACTED_REASONING: _redacted,
    BlockKind.TOOL_CALL: _tool_call,
    BlockKind.MEDIA: _media,
    BlockKind.OPAQUE: _opaque,
}


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    """Counts in normal form: the parts never exceed their totals."""
    inputs, outputs = draw(st.integers(1, 1000)), draw(st.integers(1, 1000))
    return Usage(
        input_tokens=inputs,
        output_tokens=outputs,
        cached_tokens=draw(st.none() | st.integers(0, inputs)),
        reasoning_tokens=draw(st.none() | st.integers(0, outputs)),
        cost_usd=draw(st.none() | st.sampled_from((0.25, 0.0057))),
        estimated=draw(st.booleans()),
        vendor=draw(VENDOR_EXTENSIONS),
    )


@st.composite
def errors(draw: st.DrawFn) -> ErrorInfo:
    return ErrorInfo(
        code=draw(st.sampled_from(ErrorCode)),
        message=draw(TEXT),
        type=draw(st.none() | st.sampled_from(("upstream_truncated", "overloaded_error", "context_length_exceeded"))),
        provider=draw(st.none() | st.just("some-provider")),
        retry_after=draw(st.none() | st.just(1.5)),
        details=draw(st.none() | OBJECTS),
    )


def _stray(draw: st.DrawFn) -> Event | None:
    """Now and then an event that belongs to no block."""
    kind = draw(st.integers(0, 20))
    if kind == 0:
        return ev.UsageReport(draw(usages()))
    if kind == 1:
        percent = draw(st.none() | st.just(40.0))
        return ev.Progress(message=draw(TEXT), percent=percent, extensions=draw(VENDOR_EXTENSIONS))
    if kind == 2:
        return ev.Opaque(vendor=draw(st.sampled_from(VENDORS)), name="ping", content=draw(st.booleans()))
    return None


def _finish(draw: st.DrawFn, choice: int) -> ev.Finish:
    reason = draw(st.sampled_from(StopReason))
    return ev.Finish(
        choice=choice,
        reason=reason,
        raw=draw(st.none() | st.sampled_from(("stop", "end_turn", "MAX_TOKENS"))),
        stop_sequence=draw(TEXT) if reason is StopReason.STOP_SEQUENCE else None,
        extensions=draw(VENDOR_EXTENSIONS),
    )


@st.composite
def legal_events(
    draw: st.DrawFn,
    *,
    kinds: Collection[BlockKind] = ALL_KINDS,
    max_choices: int = 2,
    max_blocks: int = 5,
    side_by_side: bool = True,
    errors_allowed: bool = True,
    finish_always: bool = False,
    abandon: bool = True,
    extensions: bool = True,
) -> list[Event]:
    """A stream's events, from Start (or a bare Error) to its terminal event.

    kinds: kinds of block that may occur. side_by_side: whether blocks of one choice may be open at the same time.
    finish_always: every choice has a Finish. abandon: blocks may stop incomplete. extensions: blocks, Start, End and
    Finish may carry some.
    """
    some = VENDOR_EXTENSIONS if extensions else st.none()
    choices = draw(st.integers(1, max_choices))
    plans: list[tuple[ev.BlockStart, list[Event]]] = []
    for number in range(draw(st.integers(0, max_blocks))):
        kind = draw(st.sampled_from(sorted(kinds)))
        start = ev.BlockStart(block=0, type=kind, choice=draw(st.integers(0, choices - 1)), extensions=draw(some))
        body = _BODIES[kind](draw, start)
        if kind is BlockKind.TOOL_CALL:
            start.id = f"call_{number}"
        complete = not (abandon and draw(st.integers(0, 5)) == 0)
        if not complete and body:
            body = body[: draw(st.integers(0, len(body)))]
        plans.append((start, [*body, ev.BlockStop(0, complete)]))

    left = [sum(start.choice == choice for start, _ in plans) for choice in range(choices)]
    events: list[Event] = [
        ev.Start(
            id=draw(st.sampled_from(("", "msg_1"))),
            model=draw(st.sampled_from(("", "example-model"))),
            created=draw(st.sampled_from((0, 1749292800))),
            usage=draw(st.none() | usages()),
            extensions=draw(some),
        )
    ]
    waiting: list[ev.Finish] = []

    def settle(choice: int) -> None:
        if finish_always or draw(st.integers(0, 9)):
            finish = _finish(draw, choice)
            (events if draw(st.booleans()) else waiting).append(finish)

    for choice, count in enumerate(left):
        if not count:
            settle(choice)
    running: list[tuple[ev.BlockStart, list[Event]]] = []
    started = 0
    while plans or running:
        stray = _stray(draw)
        if stray is not None:
            events.append(stray)
        busy = {start.choice for start, _ in running}
        free = bool(plans) and (side_by_side or plans[0][0].choice not in busy)
        if free and (not running or draw(st.integers(0, 2)) == 0):
            start, body = plans.pop(0)
            start.block = started
            for event in body:
                event.block = started  # type: ignore[attr-defined]  # all events of a plan belong to a block
            started += 1
            events.append(start)
            running.append((start, body))
            continue
        start, body = running[draw(st.integers(0, len(running) - 1))]
        events.append(body.pop(0))
        if not body:
            running = [(other, rest) for other, rest in running if other is not start]
            left[start.choice] -= 1
            if not left[start.choice]:
                settle(start.choice)
    events += waiting
    usage = draw(st.none() | usages())
    for event in reversed(events):  # what End says is the merge of all that was said
        earlier = event.usage if isinstance(event, ev.Start | ev.UsageReport) else None
        if earlier is not None:
            usage = earlier if usage is None else earlier.merge(usage)
    events.append(ev.End(usage=usage, extensions=draw(some), routing=draw(st.none() | st.just({"failovers": 0}))))
    if errors_allowed and draw(st.integers(0, 3)) == 0:
        cut = draw(st.integers(0, len(events) - 1))
        return [*events[:cut], ev.Error(draw(errors()))]
    return events
