"""The writer of OpenAI's Chat Completions stream.

The rule (DOSSIER 1.10): the same id, time and model on every chunk; a role chunk first and one finish reason per choice;
tool indices dense from 0; usage, in one last chunk without choices, only for callers that asked for it; `[DONE]` last and
once, after an error too. Entries of lists in deltas have an `index`, by which official clients put them together. In
passthrough the provider's own frames go on as they are, and the state is kept as if each had been written here, so that
the two can alternate; only usage that the caller did not ask for is taken out.

Deltas are joined from constant bytes around the encoded text. What OpenAI has no word for travels in the words its
compatible family uses: `reasoning_content`, `reasoning_details` (signatures, redacted reasoning, with the vendor in
`format`), `images`, `annotations`, `native_finish_reason`; what even these cannot carry is named in `lost`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from headrace.formats.base import WriterOptions
from headrace.formats.json import encode
from headrace.formats.lost import foreign
from headrace.formats.steps import PlainSteps
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.events import BlockKind, Event, ReasoningDelta, TextDelta, ToolDelta
from headrace.model.usage import Usage

from .citations import write_annotation
from .errors import VENDOR, write_error
from .media import data_url
from .stops import native_stop, write_stop
from .usage import write_usage

_DONE = b"[DONE]"
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_STATELESS = frozenset({TextDelta, ReasoningDelta})


class _Choice:
    """What has been sent of one choice. `head`: the bytes of its chunks up to the delta."""

    __slots__ = ("annotations", "calls", "head", "images", "items", "refused")

    def __init__(self, head: bytes) -> None:
        self.head = head
        self.calls = 0
        self.items = 0  # reasoning items
        self.annotations = 0
        self.images = 0
        self.refused = False


class _Block:
    """An open block. `head` and `tail` stand around a delta's encoded text."""

    __slots__ = ("choice", "data", "head", "index", "sent", "signature", "start", "tail", "url")

    def __init__(self, choice: _Choice, start: ev.BlockStart) -> None:
        self.choice = choice
        self.start = start
        self.head = b""
        self.tail = b""
        self.index = 0  # of the tool call, or of the reasoning item
        self.sent = False
        self.signature: list[str] = []
        self.data: list[str] = []
        self.url = ""


class ChatStreamWriter(PlainSteps):
    """Writes one stream for a caller of this format."""

    def __init__(self, options: WriterOptions) -> None:
        self.lost: set[str] = set()
        self._passthrough = options.passthrough
        self._include_usage = options.request.include_usage if options.request is not None else True
        self._options = options
        self._head = b""
        self._tail = b',"logprobs":null,"finish_reason":null}]' + (b',"usage":null}' if self._include_usage else b"}")
        self._choices: dict[int, _Choice] = {}
        self._blocks: dict[int, _Block] = {}
        self._usage: Usage | None = None
        self._shown_usage: Usage | None = None  # in a frame that was passed on
        self._passed: Frame | None = None
        self._withheld: Frame | None = None
        self._steps: dict[type[Event], Callable[[Any, list[Frame]], None]] = {
            ev.Start: self._on_start,
            ev.BlockStart: self._on_block_start,
            ev.TextDelta: self._on_text,
            ev.RefusalDelta: self._on_refusal,
            ev.ReasoningDelta: self._on_delta,
            ev.ToolDelta: self._on_delta,
            ev.SignatureDelta: self._on_signature,
            ev.MediaDelta: self._on_media,
            ev.OpaqueDelta: self._on_nothing,
            ev.CitationDelta: self._on_citation,
            ev.BlockStop: self._on_block_stop,
            ev.UsageReport: self._on_usage,
            ev.Progress: self._on_progress,
            ev.Finish: self._on_finish,
            ev.Error: self._on_error,
            ev.End: self._on_end,
            ev.Opaque: self._on_opaque,
        }

    def write(self, events: Sequence[Event]) -> list[Frame]:
        frames: list[Frame] = []
        blocks = self._blocks
        if self._passthrough:
            for event in events:
                self._pass(event, frames)
            return frames
        for event in events:
            if type(event) is TextDelta and event.logprobs is None:
                block = blocks[event.block]
                frames.append(Frame(block.head + encode(event.text) + block.tail))
            else:
                self._steps[type(event)](event, frames)
        return frames

    # Passing frames on.

    def _pass(self, event: Event, frames: list[Frame]) -> None:
        kind = type(event)
        origin: Frame | None = event.origin  # type: ignore[attr-defined]  # every event has one
        if origin is None:
            self._steps[kind](event, frames)
            return
        if not self._include_usage and (kind is ev.UsageReport or (isinstance(event, ev.Start) and event.usage)):
            self._withheld = origin  # the event that tells of usage comes before the others of its frame
        if isinstance(event, ev.End):
            self._on_end(event, frames)  # what comes before the end marker is ours to write
            frames[-1] = origin
            return
        if origin is not self._passed:
            self._passed = origin
            passed = _without_usage(origin) if origin is self._withheld else origin
            if passed is not None:
                frames.append(passed)
        if isinstance(event, ev.Error):
            frames.append(Frame(_DONE))
        elif isinstance(event, ToolDelta):
            self._blocks[event.block].sent = True
        elif kind not in _STATELESS:
            self._note(event)

    def _note(self, event: Event) -> None:
        """Keep the state of an event whose frame was passed on: what the steps would write is already written."""
        lost = set(self.lost)
        self._steps[type(event)](event, [])
        self.lost = lost
        if isinstance(event, ev.UsageReport) or (isinstance(event, ev.Start) and event.usage is not None):
            self._shown_usage = self._usage

    # The steps: each writes what its event says.

    def _on_start(self, event: ev.Start, frames: list[Frame]) -> None:
        options = self._options
        fields: dict[str, Any] = {
            "id": event.id or f"chatcmpl-{options.request_id}",
            "object": "chat.completion.chunk",
            "created": event.created or options.created,
            "model": event.model or options.model,
        }
        own = own_fields(event.extensions)
        fields.update({name: own[name] for name in ("service_tier", "system_fingerprint") if own.get(name)})
        self._head = encode(fields)[:-1] + b',"choices":['
        if event.usage is not None:
            self._usage = event.usage

    def _on_block_start(self, event: ev.BlockStart, frames: list[Frame]) -> None:
        choice = self._choice(event.choice, frames)
        block = self._blocks[event.block] = _Block(choice, event)
        kind = event.type
        if kind is BlockKind.TEXT:
            block.head = choice.head + b'{"content":'
            block.tail = b"}" + self._tail
        elif kind is BlockKind.REASONING:
            block.head = choice.head + b'{"reasoning_content":'
            block.tail = b"}" + self._tail
            block.index = choice.items
            choice.items += 1
        elif kind is BlockKind.REFUSAL:
            choice.refused = True
        elif kind is BlockKind.REDACTED_REASONING:
            item = redacted_item(event.data, event.vendor, event.extensions, choice.items)
            choice.items += 1
            self._delta(choice, {"reasoning_details": [item]}, frames)
        elif kind is BlockKind.TOOL_CALL:
            self._start_call(block, frames)
        elif kind is BlockKind.OPAQUE:
            what = (event.payload or {}).get("type")
            self.lost.add(f"{event.role or 'opaque'}: {what}" if isinstance(what, str) else event.role or "opaque")

    def _start_call(self, block: _Block, frames: list[Frame]) -> None:
        choice, start = block.choice, block.start
        block.index = choice.calls
        choice.calls += 1
        index = str(block.index).encode()
        block.head = choice.head + b'{"tool_calls":[{"index":' + index + b',"function":{"arguments":'
        block.tail = b"}}]}" + self._tail
        call: dict[str, Any] = {
            "index": block.index,
            "id": start.id or f"call_{self._options.request_id}_{start.block}",
            "type": "function",
            "function": {"name": start.name, "arguments": ""},
        }
        if start.extensions:
            call["extra_content"] = start.extensions
        self._delta(choice, {"tool_calls": [call]}, frames)

    def _on_text(self, event: ev.TextDelta, frames: list[Frame]) -> None:
        choice = self._blocks[event.block].choice
        logprobs = {"content": event.logprobs, "refusal": None} if event.logprobs else None
        self._delta(choice, {"content": event.text}, frames, logprobs)

    def _on_refusal(self, event: ev.RefusalDelta, frames: list[Frame]) -> None:
        choice = self._blocks[event.block].choice
        logprobs = {"content": None, "refusal": event.logprobs} if event.logprobs else None
        self._delta(choice, {"refusal": event.text}, frames, logprobs)

    def _on_delta(self, event: ev.ReasoningDelta | ev.ToolDelta, frames: list[Frame]) -> None:
        block = self._blocks[event.block]
        text = event.arguments if isinstance(event, ToolDelta) else event.text
        block.sent = block.sent or bool(text)
        frames.append(Frame(block.head + encode(text) + block.tail))

    def _on_signature(self, event: ev.SignatureDelta, frames: list[Frame]) -> None:
        self._blocks[event.block].signature.append(event.signature)

    def _on_media(self, event: ev.MediaDelta, frames: list[Frame]) -> None:
        block = self._blocks[event.block]
        family = block.start.media_type.partition("/")[0]
        if family == "audio" and not event.url:
            said = own_fields(block.start.extensions)
            audio: dict[str, Any] = {}
            if not block.sent:
                block.sent = True
                audio = {"id": f"audio_{self._options.request_id}_{event.block}", **said}
            for name, value in (("data", event.data), ("transcript", event.transcript)):
                if value:
                    audio[name] = value
            # clients append what comes twice, so only what is new
            audio.update((k, v) for k, v in own_fields(event.extensions).items() if k != "id" and k not in said)
            self._delta(block.choice, {"audio": audio}, frames)
        elif family == "image":
            block.data.append(event.data)  # an image goes out whole, when its block stops
            block.url = event.url or block.url
        else:
            self.lost.add(family or "media")

    def _on_citation(self, event: ev.CitationDelta, frames: list[Frame]) -> None:
        annotation = write_annotation(event.citation)
        if annotation is None:
            self.lost.add("citations")
        else:
            choice = self._blocks[event.block].choice
            self._delta(choice, {"annotations": [{**annotation, "index": choice.annotations}]}, frames)
            choice.annotations += 1

    def _on_block_stop(self, event: ev.BlockStop, frames: list[Frame]) -> None:
        block = self._blocks.pop(event.block)
        kind = block.start.type
        self.lost.update(foreign(event.extensions, VENDOR))
        if kind is BlockKind.TOOL_CALL:
            if event.complete and not block.sent:
                frames.append(
                    Frame(block.head + b'"{}"' + block.tail)
                )  # clients parse the arguments, and "" is no JSON
        elif block.signature:
            item = signature_item("".join(block.signature), block.start.vendor, block.start.extensions, block.index)
            self._delta(block.choice, {"reasoning_details": [item]}, frames)
        elif kind is BlockKind.MEDIA and (block.url or any(block.data)):
            url = block.url or data_url(block.start.media_type, "".join(block.data))
            image = {"type": "image_url", "image_url": {"url": url}, "index": block.choice.images}
            block.choice.images += 1
            self._delta(block.choice, {"images": [image]}, frames)

    def _on_finish(self, event: ev.Finish, frames: list[Frame]) -> None:
        choice = self._choice(event.choice, frames)
        if event.stop_sequence is not None:
            self.lost.add("stop_sequence")
        word = encode(write_stop(event.reason, refused=choice.refused))
        native = native_stop(event.reason, event.raw)
        said = b',"native_finish_reason":' + encode(native) if native else b""
        end = b'}],"usage":null}' if self._include_usage else b"}]}"
        frames.append(Frame(choice.head + b'{},"logprobs":null,"finish_reason":' + word + said + end))

    def _on_end(self, event: ev.End, frames: list[Frame]) -> None:
        usage = event.usage if event.usage is not None else self._usage
        if self._include_usage and usage is not None and usage != self._shown_usage:
            frames.append(Frame(self._head + b'],"usage":' + encode(write_usage(usage, VENDOR)) + b"}"))
        frames.append(Frame(_DONE))

    def _on_error(self, event: ev.Error, frames: list[Frame]) -> None:
        frames.append(Frame(write_error(event.error)))
        frames.append(Frame(_DONE))

    # Helpers.

    def _choice(self, index: int, frames: list[Frame]) -> _Choice:
        """The choice, after its role chunk."""
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(self._head + b'{"index":' + str(index).encode() + b',"delta":')
            self._delta(choice, {"role": "assistant", "content": "", "refusal": None}, frames)
        return choice

    def _delta(
        self, choice: _Choice, delta: dict[str, Any], frames: list[Frame], logprobs: dict[str, Any] | None = None
    ) -> None:
        if logprobs is None:
            frames.append(Frame(choice.head + encode(delta) + self._tail))
            return
        tail = self._tail.replace(b'"logprobs":null', b'"logprobs":' + encode(logprobs), 1)
        frames.append(Frame(choice.head + encode(delta) + tail))


def _without_usage(frame: Frame) -> Frame | None:
    """The frame for a caller that did not ask for usage: None where it says nothing else."""
    chunk = _decode(frame.data)
    if not chunk.get("choices"):
        return None
    for holder in (chunk, chunk.get("x_groq"), *chunk["choices"]):
        if isinstance(holder, dict):
            holder.pop("usage", None)
    return Frame(encode(chunk), frame.event, frame.id)


def own_fields(extensions: dict[str, Any] | None, vendor: str = VENDOR) -> dict[str, Any]:
    """What one vendor's extensions hold."""
    own = (extensions or {}).get(vendor)
    return own if isinstance(own, dict) else {}


def signature_item(
    signature: str, vendor: str, extensions: dict[str, Any] | None, index: int, text: str = ""
) -> dict[str, Any]:
    """The item of `reasoning_details` that carries a signature. `format` says whose it is."""
    return _item({"type": "reasoning.text", "text": text, "signature": signature}, vendor, extensions, index)


def redacted_item(data: str, vendor: str, extensions: dict[str, Any] | None, index: int) -> dict[str, Any]:
    """The item of `reasoning_details` that carries reasoning only its vendor can read."""
    return _item({"type": "reasoning.encrypted", "data": data}, vendor, extensions, index)


def _item(item: dict[str, Any], vendor: str, extensions: dict[str, Any] | None, index: int) -> dict[str, Any]:
    own = own_fields(extensions, vendor)
    named: dict[str, Any] = {name: own[name] for name in ("format", "id") if name in own}
    return {**item, "format": vendor or "unknown", **named, "index": index}
