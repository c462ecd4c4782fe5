"""One choice of a stream: its deltas, in every dialect, become blocks.

The rule: a block is opened by the first content of its kind and closed when the kind changes; tool calls stay open side by
side until the choice finishes, since fragments of several may interleave. Nothing here raises: what has no sense in it is
passed over, because a chunk must be taken whole or not at all (the reader checks its outline first).
"""

from __future__ import annotations

from typing import Any

from headrace.formats.json import encode
from headrace.model import events as ev
from headrace.model.content import Citation
from headrace.model.events import BlockKind, BlockStart, BlockStop, Event, ReasoningDelta, TextDelta, ToolDelta

from .calls import Call, Calls
from .media import split_data_url
from .reasoning import ReasoningItem, reasoning_items
from .think import ThinkSplitter


class Output:
    """What the frame under way has given so far, and what the choices of a stream share."""

    __slots__ = ("audio_type", "chunked", "dirty", "events", "next_block", "stream_id", "vendor")

    def __init__(self, vendor: str) -> None:
        self.vendor = vendor
        self.events: list[Event] = []
        self.dirty = False
        """The frame may not stand for its events: something in it had to be mended."""
        self.chunked = False
        """Mistral's way: content may be an array of chunks, and calls need no index."""
        self.next_block = 0
        self.stream_id = ""
        self.audio_type = "audio/pcm"
        """OpenAI streams no other encoding; a whole body may hold any."""

    def take(self) -> list[Event]:
        events, self.events = self.events, []
        return events

    def own(self, payload: dict[str, Any]) -> dict[str, Any] | None:
        """A provider's own members as extensions."""
        return {self.vendor: payload} if payload else None


class Choice:
    """Where one choice stands. `block` is its open block that is no tool call, -1 if there is none."""

    __slots__ = ("_out", "audio", "block", "calls", "finished", "index", "item", "kind", "refused", "think")

    def __init__(self, index: int, output: Output, think: ThinkSplitter | None) -> None:
        self._out = output
        self.index = index
        self.block = -1
        self.kind: BlockKind | None = None
        self.item: Any = None  # the number of the reasoning item that is open, where the provider numbers them
        self.audio: dict[str, Any] = {}  # what the provider says of its audio beside the data
        self.calls = Calls()
        self.refused = False
        self.finished = False
        self.think = think

    def read_delta(self, delta: dict[str, Any], logprobs: dict[str, Any]) -> None:
        if not logprobs and not any(value for name, value in delta.items() if name != "role"):
            return  # the first chunk, and the last
        for item in reasoning_items(delta):
            self._reasoning(item)
        content = delta.get("content")
        tokens = _tokens(logprobs, "content")
        if isinstance(content, list):
            self._out.dirty = self._out.dirty or not self._out.chunked
            self._content_parts(content)
        elif isinstance(content, str) and (content or tokens):
            self._content(content, tokens)
        elif tokens and self.kind is BlockKind.TEXT:
            self._out.events.append(TextDelta(self.block, "", tokens))
        refusal = delta.get("refusal")
        tokens = _tokens(logprobs, "refusal")
        if isinstance(refusal, str) and (refusal or tokens):
            self.refused = True
            self._out.events.append(ev.RefusalDelta(self._open(BlockKind.REFUSAL), refusal, tokens))
        annotations = delta.get("annotations")
        if isinstance(annotations, list):
            for annotation in annotations:
                if isinstance(annotation, dict):
                    block = self._open(BlockKind.TEXT)
                    said = {name: value for name, value in annotation.items() if name != "index"}  # the stream's own
                    self._out.events.append(ev.CitationDelta(block, Citation(self._out.vendor, said)))
        if delta.get("tool_calls"):
            self._tool_calls(delta["tool_calls"])
        if isinstance(delta.get("function_call"), dict):
            self._tool_fragment({"index": 0, "function": delta["function_call"]}, beside=False, mend=False)
        if isinstance(delta.get("audio"), dict):
            self._audio(delta["audio"])
        images = delta.get("images")
        if isinstance(images, list):
            for image in images:
                self._image(image)

    def _content(self, text: str, tokens: list[Any] | None) -> None:
        if self.think is None or self.think.done:
            self._out.events.append(TextDelta(self._open(BlockKind.TEXT), text, tokens))
            return
        pieces = self.think.feed(text)
        self._out.dirty = self._out.dirty or pieces != [(False, text)]
        self._thought(pieces)

    def _thought(self, pieces: list[tuple[bool, str]]) -> None:
        for is_reasoning, piece in pieces:
            if is_reasoning:
                self._out.events.append(ReasoningDelta(self._open(BlockKind.REASONING), piece))
            else:
                self._out.events.append(TextDelta(self._open(BlockKind.TEXT), piece))

    def _content_parts(self, parts: list[Any]) -> None:
        """Content as an array, as Mistral sends it: text, thinking, references, images, and what else may come."""
        for part in parts:
            if not isinstance(part, dict):
                if isinstance(part, str) and part:
                    self._content(part, None)
                continue
            kind = part.get("type")
            if kind == "text" and isinstance(part.get("text"), str):
                if part["text"]:
                    self._content(part["text"], None)
            elif kind == "thinking":
                text = _joined(part.get("thinking"))
                if text:
                    self._out.events.append(ReasoningDelta(self._open(BlockKind.REASONING), text))
            elif kind == "reference":
                block = self._open(BlockKind.TEXT)
                self._out.events.append(ev.CitationDelta(block, Citation(self._out.vendor, part)))
            elif kind == "image_url":
                self._image(part)
            else:
                block = self._block(BlockKind.OPAQUE, vendor=self._out.vendor, role="other", payload=part)
                self._out.events.append(BlockStop(block))

    def _reasoning(self, item: ReasoningItem) -> None:
        if item.data:
            own = self._out.own(item.own)
            block = self._block(BlockKind.REDACTED_REASONING, data=item.data, vendor=self._out.vendor, extensions=own)
            self._out.events.append(BlockStop(block))
            return
        if self.kind is BlockKind.REASONING and item.number is not None:
            if self.item is not None and self.item != item.number:
                self._close()
            self.item = item.number
        if not item.text and not item.signature:
            return
        if self.kind is not BlockKind.REASONING:
            self._block(
                BlockKind.REASONING,
                keep_open=True,
                id=_text(item.own.get("id")),
                vendor=self._out.vendor,
                extensions=self._out.own(item.own),
            )
            self.item = item.number
        if item.text:
            self._out.events.append(ReasoningDelta(self.block, item.text))
        if item.signature:
            self._out.events.append(ev.SignatureDelta(self.block, item.signature))

    def _tool_calls(self, calls: Any) -> None:
        if isinstance(calls, dict):
            calls = [calls]
            self._out.dirty = True
        known = len(self.calls.all)
        for raw in calls if isinstance(calls, list) else []:
            if isinstance(raw, dict):
                self._tool_fragment(raw, beside=len(self.calls.all) > known, mend=True)

    def _tool_fragment(self, raw: dict[str, Any], *, beside: bool, mend: bool) -> None:
        """`mend`: hold the fragment against the format's rules (a legacy function call has none of these fields)."""
        if raw.get("type") == "custom":
            self._out.events.append(
                BlockStop(self._block(BlockKind.OPAQUE, vendor=self._out.vendor, role="other", payload=raw))
            )
            return
        function = raw.get("function")
        if not isinstance(function, dict):
            function = raw  # some servers leave the wrapper out
        key, id, name = raw.get("index"), _text(raw.get("id")), _text(function.get("name"))
        key = key if isinstance(key, int) and not isinstance(key, bool) else None
        arguments = function.get("arguments")
        if arguments is not None and not isinstance(arguments, str):
            arguments = encode(arguments).decode()
            self._out.dirty = True
        arguments = arguments or ""
        if not (id or name or arguments or self.calls.all):
            return
        call, begins = self.calls.find(key, id, name, arguments, beside=beside)
        if mend and not self._out.chunked:
            first = begins and bool(id) and bool(name) and raw.get("type") in ("function", None)
            goes_on = not begins and not raw.get("id") and raw.get("id") != "" and not name
            if call.position != key or function is raw or not (first or goes_on):
                self._out.dirty = True
        if isinstance(raw.get("extra_content"), dict):
            call.extensions = {**(call.extensions or {}), **raw["extra_content"]}
        call.name = call.name or name
        if arguments:
            call.keep(arguments)
        if call.block < 0:
            if not call.name:
                call.arguments.append(arguments)
                self._out.dirty = True
                return
            arguments = "".join(call.arguments) + arguments
            call.arguments = []
            self._begin_call(call)
        if arguments:
            self._out.events.append(ToolDelta(call.block, arguments))

    def _begin_call(self, call: Call) -> None:
        self._close()
        id = call.id
        if not id:
            seed = "".join(c for c in self._out.stream_id if c.isalnum() or c in "-_")
            id = f"call_{seed}_{self.index}_{call.position}" if seed else f"call_{self.index}_{call.position}"
        elif self.calls.is_id_taken(call):
            id = f"{id}-{call.position}"
        call.block = self._out.next_block
        self._out.next_block += 1
        self._out.events.append(
            BlockStart(
                block=call.block,
                type=BlockKind.TOOL_CALL,
                choice=self.index,
                id=id,
                name=call.name,
                extensions=call.extensions,
            )
        )

    def _audio(self, audio: dict[str, Any]) -> None:
        own = {name: value for name, value in audio.items() if name not in {"data", "transcript"}}
        if self.kind is not BlockKind.MEDIA:
            self._block(BlockKind.MEDIA, keep_open=True, media_type=self._out.audio_type, extensions=self._out.own(own))
            self.audio, own = dict(own), {}
        self.audio.update(own)
        data, transcript = _text(audio.get("data")), _text(audio.get("transcript"))
        if data or transcript or own:
            extensions = self._out.own(dict(self.audio)) if own else None  # all of them: the later replaces the earlier
            self._out.events.append(ev.MediaDelta(self.block, data, transcript, extensions=extensions))

    def _image(self, image: Any) -> None:
        url = image.get("image_url") if isinstance(image, dict) else None
        url = _text(url.get("url")) if isinstance(url, dict) else _text(url)
        if not url:
            return
        media_type, data = split_data_url(url)
        block = self._block(BlockKind.MEDIA, media_type=media_type or "image/*")
        self._out.events.append(ev.MediaDelta(block, data) if data else ev.MediaDelta(block, url=url))
        self._out.events.append(BlockStop(block))

    def _open(self, kind: BlockKind) -> int:
        if self.kind is not kind:
            vendor = self._out.vendor if kind is BlockKind.REASONING else ""
            self._block(kind, keep_open=True, vendor=vendor)
        return self.block

    def _block(self, kind: BlockKind, *, keep_open: bool = False, **fields: Any) -> int:
        """Start a block after the one that is open. Not `keep_open`: the caller stops it at once."""
        self._close()
        block = self._out.next_block
        self._out.next_block += 1
        self._out.events.append(BlockStart(block=block, type=kind, choice=self.index, **fields))
        if keep_open:
            self.block, self.kind, self.item = block, kind, None
        return block

    def _close(self) -> None:
        if self.kind is not None:
            self._out.events.append(BlockStop(self.block))
            self.block, self.kind = -1, None

    def finish(self, *, cut_off: bool) -> None:
        """Close every block. `cut_off`: the answer may have ended inside the arguments of the last call."""
        if self.think is not None:
            self._thought(self.think.finish())
        for call in self.calls.all:
            if call.block < 0:  # its name never came
                self._begin_call(call)
                if call.arguments:
                    self._out.events.append(ToolDelta(call.block, "".join(call.arguments)))
        self._close()
        for call in self.calls.all:
            whole = not cut_off or call is not self.calls.last or call.is_whole()
            self._out.events.append(BlockStop(call.block, whole))
        self.finished = True


def _tokens(logprobs: dict[str, Any], name: str) -> list[Any] | None:
    tokens = logprobs.get(name)
    return tokens if isinstance(tokens, list) and tokens else None


def _joined(thinking: Any) -> str:
    if isinstance(thinking, str):
        return thinking
    parts = thinking if isinstance(thinking, list) else []
    return "".join(_text(part.get("text")) for part in parts if isinstance(part, dict))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
