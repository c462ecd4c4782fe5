"""A script: an answer written by hand, in YAML, in the words of the event model.

    description: A short answer.
    gap: 0.03                       # seconds between two deltas
    steps:
      - reasoning: Let me see.
        signature: c2ln
      - text: "You asked: $last_user_text"
      - tool_call: {name: get_weather, arguments: {city: Vienna}}
      - stop: tool_use

In place of `steps`, `variants` is a list of `{when, steps}`, of which the first that fits the request is played. Texts
are cut into words, arguments into small pieces. `$name` in a text or a tool's name is filled in from the request, see
`request_values`.

The rule: a script is deterministic. The same request gives the same events at the same offsets, ids included; what a
test has seen once it will see again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from string import Template
from typing import Annotated, Any

import msgspec
import yaml
from msgspec import Meta

from headrace.model import events as ev
from headrace.model.content import Media, Part, Text, ToolResult
from headrace.model.errors import ErrorInfo
from headrace.model.events import BlockKind, BlockStart, BlockStop, Event
from headrace.model.request import Request, Tool
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from headrace.tape.recording import DEFAULT_GAP, slug

TimedEvent = tuple[float, Event]
"""(seconds since the request, event)."""

_WORD = re.compile(r"\S+\s*|\s+")
_PIECE_OF_JSON = 8
_INPUT_TOKENS = 16
"""Reported where a script states no usage; output tokens are then its number of deltas."""


class ScriptError(ValueError):
    """A script is not what it should be. The message names the file, the field and what was expected there."""


class ToolCallStep(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`arguments`: an object, or JSON text (also broken) to be sent as it is; absent: no argument is ever sent."""

    name: str
    id: str = ""
    arguments: dict[str, Any] | str | None = None


class Step(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One step: exactly one of these fields, and what belongs to it."""

    text: str | None = None
    json: dict[str, Any] | None = None
    """Text that is this object as JSON."""
    refusal: str | None = None
    reasoning: str | None = None
    signature: str | None = None
    """Belongs to `reasoning`."""
    redacted: str | None = None
    """Reasoning that only the vendor can read: its opaque data."""
    tool_call: ToolCallStep | None = None
    together: list[ToolCallStep] | None = None
    """Tool calls that are open side by side, their fragments taking turns."""
    pause: Annotated[float, Meta(ge=0)] | None = None
    """Seconds."""
    usage: Usage | None = None
    stop: StopReason | None = None
    error: ErrorInfo | None = None
    """Ends the stream. As the first step: the request is answered with the error's HTTP status."""


_KINDS = tuple(name for name in Step.__struct_fields__ if name != "signature")


class When(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a request must be for a variant to fit. Absent fields always fit."""

    last_role: str | None = None
    tools: bool | None = None
    """Whether the request declares tools."""

    def fits(self, request: Request) -> bool:
        role = request.messages[-1].role if request.messages else None
        return self.last_role in (None, role) and self.tools in (None, bool(request.tools))


class Variant(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    steps: list[Step]
    when: When = msgspec.field(default_factory=When)


class _Document(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    description: str = ""
    gap: Annotated[float, Meta(ge=0)] = DEFAULT_GAP
    steps: list[Step] | None = None
    variants: list[Variant] | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """A stream written by hand."""

    name: str
    description: str
    gap: float
    variants: tuple[Variant, ...]

    @classmethod
    def parse(cls, name: str, source: str) -> Script:
        """A script from its YAML. Raises ScriptError."""
        try:
            document = msgspec.convert(yaml.safe_load(source), _Document)
        except yaml.YAMLError as error:
            raise ScriptError(f"script {name}: not valid YAML: {error}") from None
        except (ValueError, RecursionError) as error:  # msgspec's, or a date that YAML cannot make sense of
            raise ScriptError(f"script {name}: {error}") from None
        if (document.steps is None) == (document.variants is None):
            raise ScriptError(f"script {name}: give either `steps` or `variants`")
        if document.variants is not None:
            variants = document.variants
        else:
            variants = [Variant(steps=document.steps or [])]
        if not variants:
            raise ScriptError(f"script {name}: there are no variants")
        for variant in variants:
            if not variant.steps:
                raise ScriptError(f"script {name}: a variant has no steps")
            for number, step in enumerate(variant.steps, 1):
                _check(step, f"script {name}: step {number}")
        return cls(name, document.description, document.gap, tuple(variants))

    def events(self, request: Request, vendor: str) -> Iterator[TimedEvent]:
        """The events that answer this request, in the grammar's order. `vendor` is whose opaque content it plays.

        Raises ScriptError where no variant fits the request.
        """
        variant = next((variant for variant in self.variants if variant.when.fits(request)), None)
        if variant is None:
            raise ScriptError(f"the script {self.name} has no answer to such a request: {self.description}")
        return _Player(self, request, vendor).play(variant.steps)


def _check(step: Step, where: str) -> None:
    kinds = [kind for kind in _KINDS if getattr(step, kind) is not None]
    if len(kinds) != 1:
        raise ScriptError(f"{where} must have exactly one of {', '.join(_KINDS)}, not {' and '.join(kinds) or 'none'}")
    objects = [step.json, *(call.arguments for call in [step.tool_call, *(step.together or [])] if call is not None)]
    for value in objects:
        try:
            json.dumps(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ScriptError(f"{where}: not an object that JSON can hold: {error}") from None
    if step.signature is not None and kinds != ["reasoning"]:
        raise ScriptError(f"{where}: a signature belongs to reasoning, not to {kinds[0]}")


class _Player:
    """Turns the steps of one variant into events, once."""

    def __init__(self, script: Script, request: Request, vendor: str) -> None:
        self._script = script
        self._request = request
        self._vendor = vendor
        self._values: dict[str, str] | None = None
        self._at = 0.0
        self._blocks = 0
        self._deltas = 0
        self._usage: Usage | None = None
        self._stop: StopReason | None = None

    def play(self, steps: Sequence[Step]) -> Iterator[TimedEvent]:
        start: ev.Start | None = ev.Start(
            model=self._request.model, usage=Usage(input_tokens=self._input_tokens(steps))
        )
        for step in steps:
            if step.error is not None:
                yield self._at, ev.Error(step.error)
                return
            if step.pause is not None:
                self._at += step.pause
                continue
            if start is not None:  # pauses before the first step delay the start itself
                yield self._at, start
                start = None
            yield from self._step(step)
        if start is not None:
            yield self._at, start
        usage = self._usage or Usage(input_tokens=_INPUT_TOKENS, output_tokens=self._deltas)
        yield self._at, ev.Finish(reason=self._stop or StopReason.END_TURN)
        yield self._at, ev.UsageReport(usage)
        yield self._at, ev.End(usage=usage)

    @staticmethod
    def _input_tokens(steps: Sequence[Step]) -> int | None:
        stated = next((step.usage for step in steps if step.usage is not None), None)
        return _INPUT_TOKENS if stated is None else stated.input_tokens

    def _step(self, step: Step) -> Iterator[TimedEvent]:
        if step.text is not None:
            yield from self._block(BlockKind.TEXT, ev.TextDelta, _WORD.findall(self._fill(step.text)))
        elif step.json is not None:
            text = json.dumps(step.json, ensure_ascii=False)
            yield from self._block(BlockKind.TEXT, ev.TextDelta, _pieces(text))
        elif step.refusal is not None:
            self._stop = self._stop or StopReason.REFUSAL
            yield from self._block(BlockKind.REFUSAL, ev.RefusalDelta, _WORD.findall(step.refusal))
        elif step.reasoning is not None:
            words = _WORD.findall(step.reasoning)
            yield from self._block(BlockKind.REASONING, ev.ReasoningDelta, words, step.signature)
        elif step.redacted is not None:
            block = self._open(BlockKind.REDACTED_REASONING, data=step.redacted, vendor=self._vendor)
            yield self._at, block
            yield self._at, BlockStop(block.block)
        elif step.tool_call is not None or step.together is not None:
            self._stop = StopReason.TOOL_USE
            yield from self._tool_calls([step.tool_call] if step.tool_call else step.together or [])
        else:
            self._usage = step.usage or self._usage
            self._stop = step.stop or self._stop

    def _block(
        self,
        kind: BlockKind,
        delta: type[ev.TextDelta | ev.RefusalDelta | ev.ReasoningDelta],
        texts: Iterable[str],
        signature: str | None = None,
    ) -> Iterator[TimedEvent]:
        opened = self._open(kind, vendor=self._vendor if kind is BlockKind.REASONING else "")
        yield self._at, opened
        for text in texts:
            yield self._tick(), delta(opened.block, text)
        if signature is not None:
            yield self._tick(), ev.SignatureDelta(opened.block, signature)
        yield self._at, BlockStop(opened.block)

    def _tool_calls(self, calls: Iterable[ToolCallStep]) -> Iterator[TimedEvent]:
        under_way: list[tuple[BlockStop, Iterator[str]]] = []
        for call in calls:
            id_ = call.id or f"call_{slug(self._script.name)}_{self._blocks}"
            opened = self._open(BlockKind.TOOL_CALL, id=id_, name=self._fill(call.name))
            yield self._tick(), opened
            text = _arguments(call)
            under_way.append((BlockStop(opened.block, not text or _is_json(text)), iter(_pieces(text))))
        while under_way:
            for stop, fragments in list(under_way):
                fragment = next(fragments, None)
                if fragment is None:
                    under_way.remove((stop, fragments))
                    yield self._at, stop
                else:
                    yield self._tick(), ev.ToolDelta(stop.block, fragment)

    def _open(self, kind: BlockKind, **fields: Any) -> BlockStart:
        self._blocks += 1
        return BlockStart(block=self._blocks - 1, type=kind, **fields)

    def _tick(self) -> float:
        self._deltas += 1
        self._at += self._script.gap
        return self._at

    def _fill(self, text: str) -> str:
        if "$" not in text:
            return text
        if self._values is None:
            self._values = request_values(self._request)
        return Template(text).safe_substitute(self._values)


def _arguments(call: ToolCallStep) -> str:
    if isinstance(call.arguments, dict):
        return json.dumps(call.arguments, ensure_ascii=False)
    return call.arguments or ""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _pieces(text: str) -> list[str]:
    return [text[start : start + _PIECE_OF_JSON] for start in range(0, len(text), _PIECE_OF_JSON)]


def request_values(request: Request) -> dict[str, str]:
    """What a script may quote: the words of the last user message, tool results, tools, and counts of everything."""
    parts = [part for message in request.messages for part in message.parts]
    media = [part.type for part in _flat(parts) if isinstance(part, Media)]
    user = [message for message in request.messages if message.role == "user"]
    last = request.messages[-1] if request.messages else None
    tools = [tool.name for tool in request.tools if isinstance(tool, Tool)]
    return {
        "model": request.model,
        "last_user_text": _text(user[-1].parts) if user else "",
        "system": "\n".join(_text(message.parts) for message in request.messages if message.role == "system"),
        "tool_result": _text(last.parts) if last is not None and last.role == "tool" else "",
        "tool_results": str(sum(isinstance(part, ToolResult) for part in parts)),
        "first_tool": tools[0] if tools else "",
        "tool_names": ", ".join(tools) or "none",
        "messages": str(len(request.messages)),
        "images": str(media.count("image")),
        "documents": str(media.count("document")),
        "audio": str(media.count("audio")),
    }


def _flat(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        if isinstance(part, ToolResult):
            yield from _flat(part.parts)


def _text(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in _flat(parts) if isinstance(part, Text))
