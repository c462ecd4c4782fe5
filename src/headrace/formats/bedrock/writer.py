"""Writing a ConverseStream stream: `BedrockStreamWriter`.

The rule: indices run from 0 without gaps and one block is open at a time (in_turn.py). Only tool calls and images have a
contentBlockStart. A signature is one delta, just before its block stops; another vendor's is sealed (sealing.py).
`messageStop` comes when the choice has ended, `metadata` at the very end, when usage is final. A failed stream ends in an
exception message. Only choice 0 has a place in this format, and so have neither id nor model nor time of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from headrace.formats.base import WriterOptions
from headrace.formats.json import encode
from headrace.formats.lost import foreign
from headrace.framing.frame import Frame
from headrace.model import events as ev
from headrace.model.content import Extensions
from headrace.model.events import BlockKind, BlockStart, Event, TextDelta
from headrace.model.usage import Usage

from .errors import exception_frame
from .in_turn import InTurn
from .opaque import tool_result_of, tool_use_of
from .sealing import seal, told_redacted, tool_id
from .usage import write_usage
from .words import VENDOR, media_format, own, write_stop

_METADATA = frozenset({"metrics", "trace", "performanceConfig", "serviceTier"})


class BedrockStreamWriter:
    """Events -> frames of `/model/{model}/converse-stream`."""

    __slots__ = (
        "_delta_head",
        "_finished",
        "_index",
        "_last",
        "_metadata_passed",
        "_options",
        "_passes",
        "_passthrough",
        "_refused",
        "_signature",
        "_start",
        "_tool_called",
        "_turn",
        "_usage",
        "lost",
    )

    def __init__(self, options: WriterOptions) -> None:
        self.lost: set[str] = set()
        self._options = options
        self._passthrough = options.passthrough
        self._turn = InTurn(self.lost)
        self._index = -1  # of the block that is open, or was last
        self._delta_head = b""  # of its deltas, up to the delta
        self._start: BlockStart | None = None  # of the block that is open
        self._passes = False  # the frames that it was read from have the index that it has here
        self._signature: list[str] = []
        self._last: Frame | None = None  # frames passed on are shared by events
        self._usage: Usage | None = None
        self._finished = False
        self._metadata_passed = False
        self._tool_called = False
        self._refused = False

    def write(self, events: Sequence[Event]) -> list[Frame]:
        """The frames these events become."""
        frames: list[Frame] = []
        owner = self._turn.owner
        for event in events:
            if type(event) is TextDelta and event.block == owner and event.origin is None and not event.logprobs:
                if event.text:
                    data = self._delta_head + b'{"text":' + encode(event.text) + b"}}"
                    frames.append(Frame(data, "contentBlockDelta"))
                continue
            step = self._STEPS.get(type(event))
            if step is not None:
                step(self, event, frames)
                continue
            due: list[Event] = []
            self._TURNS[type(event)](self, event, due)
            for one in due:
                self._say_in_turn(one, frames)
            owner = self._turn.owner
        return frames

    # Events of the stream.

    def _on_start(self, event: ev.Start, frames: list[Frame]) -> None:
        self._usage = event.usage
        self._own(event.extensions)
        if not self._passed(event, frames):
            frames.append(Frame(b'{"role":"assistant"}', "messageStart"))

    def _on_usage(self, event: ev.UsageReport, frames: list[Frame]) -> None:
        self._merge(event.usage)
        self._metadata_passed = self._passed(event, frames) or self._metadata_passed

    def _on_progress(self, event: ev.Progress, frames: list[Frame]) -> None:
        self.lost.add("progress")

    def _on_finish(self, event: ev.Finish, frames: list[Frame]) -> None:
        if event.choice:
            self.lost.add("choices")
            return
        self._finished = True
        if event.stop_sequence is not None:
            self.lost.add("stop_sequence")
        if not self._passed(event, frames):
            self._message_stop(event, frames)

    def _on_opaque(self, event: ev.Opaque, frames: list[Frame]) -> None:
        if not self._passed(event, frames) and event.content:
            self.lost.add(f"{event.vendor}.{event.name}")

    def _on_error(self, event: ev.Error, frames: list[Frame]) -> None:
        if not self._passed(event, frames):
            frames.append(exception_frame(event.error))

    def _on_end(self, event: ev.End, frames: list[Frame]) -> None:
        self._merge(event.usage)
        if not self._finished:
            self._message_stop(None, frames)
        if self._passed(event, frames) or self._metadata_passed:
            return
        said = self._own(event.extensions)
        frames.append(Frame(encode(metadata(self._usage, said)), "metadata"))

    def _message_stop(self, event: ev.Finish | None, frames: list[Frame]) -> None:
        word = write_stop(
            event.reason if event else None,
            event.raw if event else None,
            tool_called=self._tool_called,
            refused=self._refused,
        )
        more = self._own(event.extensions if event else None)
        frames.append(Frame(encode({**more, "stopReason": word}), "messageStop"))

    # Events of blocks, as they come and as it is their turn.

    def _block_starts(self, event: BlockStart, due: list[Event]) -> None:
        if event.choice:
            self.lost.add("choices")
        elif event.type is BlockKind.OPAQUE and (event.vendor != VENDOR or _begun(event.payload) is None):
            self.lost.add(event.role or "opaque")
        elif event.type is BlockKind.MEDIA and media_format("image", event.media_type) is None:
            self.lost.add(event.media_type.partition("/")[0] or "media")
        else:
            self._turn.start(event, due)

    def _block_goes_on(self, event: Any, due: list[Event]) -> None:
        if type(event) in _WITH_LOGPROBS and event.logprobs:
            self.lost.add("logprobs")
        elif type(event) is ev.MediaDelta and event.url:
            self.lost.add("image")
        if type(event) is ev.CitationDelta and event.citation.vendor != VENDOR:
            self.lost.add("citations")
        else:
            self._turn.delta(event, due)

    def _block_stops(self, event: ev.BlockStop, due: list[Event]) -> None:
        self.lost.update(foreign(event.extensions, VENDOR))
        self._turn.stop(event, due)

    def _say_in_turn(self, event: Any, frames: list[Frame]) -> None:
        if type(event) is BlockStart:
            self._opened(event)
        if not (self._passes and self._passed(event, frames)):
            self._SAID[type(event)](self, event, frames)
        if type(event) is ev.BlockStop and event.complete and self._start is not None:
            self._tool_called = self._tool_called or self._start.type is BlockKind.TOOL_CALL

    def _say_start(self, event: BlockStart, frames: list[Frame]) -> None:
        if event.type is BlockKind.TOOL_CALL:
            id = tool_id(event.id or f"call_{self._options.request_id or 'x'}_{event.block}")
            self._say({"start": {"toolUse": {"toolUseId": id, "name": event.name}}}, "contentBlockStart", frames)
        elif event.type is BlockKind.MEDIA:
            format = media_format("image", event.media_type)
            self._say({"start": {"image": {"format": format}}}, "contentBlockStart", frames)
        elif event.type is BlockKind.OPAQUE:
            self._say({"start": _begun(event.payload)}, "contentBlockStart", frames)
            whole = _held(event.payload)
            if whole is not None:
                self._change(whole, frames)
        elif event.type is BlockKind.REDACTED_REASONING:
            data = told_redacted(event.data, event.vendor)
            self._change({"reasoningContent": {"redactedContent": data}}, frames)

    def _say_text(self, event: TextDelta | ev.RefusalDelta, frames: list[Frame]) -> None:
        if event.text:
            self._change({"text": event.text}, frames)

    def _say_reasoning(self, event: ev.ReasoningDelta, frames: list[Frame]) -> None:
        if event.text:
            self._change({"reasoningContent": {"text": event.text}}, frames)

    def _keep_signature(self, event: ev.SignatureDelta, frames: list[Frame]) -> None:
        self._signature.append(event.signature)

    def _say_arguments(self, event: ev.ToolDelta, frames: list[Frame]) -> None:
        if event.arguments:
            self._change({"toolUse": {"input": event.arguments}}, frames)

    def _say_media(self, event: ev.MediaDelta, frames: list[Frame]) -> None:
        if event.data:
            self._change({"image": {"source": {"bytes": event.data}}}, frames)

    def _say_opaque(self, event: ev.OpaqueDelta, frames: list[Frame]) -> None:
        if event.payload:
            self._change(event.payload, frames)

    def _say_citation(self, event: ev.CitationDelta, frames: list[Frame]) -> None:
        self._change({"citation": event.citation.payload}, frames)

    def _say_stop(self, event: ev.BlockStop, frames: list[Frame]) -> None:
        start, signature = self._start, "".join(self._signature)
        if signature and start is not None:
            if start.vendor != VENDOR:
                signature = seal(start.vendor, start.id, signature)
            self._change({"reasoningContent": {"signature": signature}}, frames)
        self._say({}, "contentBlockStop", frames)

    def _opened(self, event: BlockStart) -> None:
        self._index += 1
        self._passes = event.block == self._index
        self._delta_head = b'{"contentBlockIndex":%d,"delta":' % self._index
        self._start = event
        self._signature.clear()
        if event.type is BlockKind.REFUSAL:
            self._refused = True

    def _change(self, delta: dict[str, Any], frames: list[Frame]) -> None:
        frames.append(Frame(self._delta_head + encode(delta) + b"}", "contentBlockDelta"))

    def _say(self, fields: dict[str, Any], name: str, frames: list[Frame]) -> None:
        frames.append(Frame(encode({"contentBlockIndex": self._index, **fields}), name))

    _Step = Callable[["BedrockStreamWriter", Any, list[Frame]], None]
    _STEPS: ClassVar[dict[type[Event], _Step]] = {
        ev.Start: _on_start,
        ev.UsageReport: _on_usage,
        ev.Progress: _on_progress,
        ev.Finish: _on_finish,
        ev.Opaque: _on_opaque,
        ev.Error: _on_error,
        ev.End: _on_end,
    }
    _Turn = Callable[["BedrockStreamWriter", Any, list[Event]], None]
    _TURNS: ClassVar[dict[type[Event], _Turn]] = {
        BlockStart: _block_starts,
        ev.BlockStop: _block_stops,
        **dict.fromkeys(
            (
                TextDelta,
                ev.RefusalDelta,
                ev.ReasoningDelta,
                ev.SignatureDelta,
                ev.ToolDelta,
                ev.MediaDelta,
                ev.OpaqueDelta,
                ev.CitationDelta,
            ),
            _block_goes_on,
        ),
    }
    _SAID: ClassVar[dict[type[Event], _Step]] = {
        BlockStart: _say_start,
        TextDelta: _say_text,
        ev.RefusalDelta: _say_text,
        ev.ReasoningDelta: _say_reasoning,
        ev.SignatureDelta: _keep_signature,
        ev.ToolDelta: _say_arguments,
        ev.MediaDelta: _say_media,
        ev.OpaqueDelta: _say_opaque,
        ev.CitationDelta: _say_citation,
        ev.BlockStop: _say_stop,
    }

    # Passing through, and the rest.

    def _passed(self, event: Any, frames: list[Frame]) -> bool:
        """Whether the frame that the event was read from stands for it; sent once, though several events share it."""
        origin = event.origin
        if not self._passthrough or not isinstance(origin, Frame):
            return False
        if origin is not self._last:
            frames.append(origin)
            self._last = origin
        return True

    def _own(self, extensions: Extensions | None) -> dict[str, Any]:
        """Bedrock's part of the extensions; that of others is lost."""
        self.lost.update(foreign(extensions, VENDOR))
        return own(extensions)

    def _merge(self, usage: Usage | None) -> None:
        if usage is not None:
            self._usage = usage if self._usage is None else self._usage.merge(usage)


_WITH_LOGPROBS = frozenset({TextDelta, ev.RefusalDelta})


def metadata(usage: Usage | None, said: dict[str, Any]) -> dict[str, Any]:
    """`usage` and `metrics`, which clients require, and what of the rest a provider said. A latency that nobody
    measured is 0."""
    known = {name: value for name, value in said.items() if name in _METADATA}
    return {"metrics": {"latencyMs": 0}, **known, "usage": write_usage(usage)}


def _begun(payload: dict[str, Any] | None) -> dict[str, Any] | None:
    """What a contentBlockStart says of a block that was kept whole; None where it is none of Converse's."""
    for name, whole in (("toolUse", "input"), ("toolResult", "content")):
        found = (payload or {}).get(name)
        if isinstance(found, dict):
            return {name: {key: value for key, value in found.items() if key != whole}}
    return None


def _held(payload: dict[str, Any] | None) -> dict[str, Any] | None:
    """The delta that tells what a whole block holds beyond that."""
    call, input = tool_use_of(payload or {})
    if call is not None and input:
        return {"toolUse": {"input": input}}
    content = tool_result_of(payload or {})
    return {"toolResult": content} if content else None
