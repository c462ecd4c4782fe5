"""One block at a time: `InTurn` puts events of blocks that run side by side in a row.

The rule: a block with something to say takes its turn if it is free and keeps it until it stops; the others wait with what
they have to say. So text and reasoning that stay empty never begin, and only tool calls and what is whole at its start
begin at once. Everything that belongs to no block passes. The trade-off: what waits is held in memory, MAX_WAITING at the
most.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from headrace.model import events as ev
from headrace.model.errors import ProtocolError
from headrace.model.events import BlockKind, BlockStart, Event

MAX_WAITING = 8 * 1024 * 1024
"""Bound of what may wait, in characters."""

_EVENT_SIZE = 64
_LAZY = frozenset({BlockKind.TEXT, BlockKind.REFUSAL, BlockKind.REASONING, BlockKind.MEDIA})
_SAYS: dict[type[Event], str] = {
    # what of a delta has to be there for it to say something
    ev.TextDelta: "text",
    ev.RefusalDelta: "text",
    ev.ReasoningDelta: "text",
    ev.SignatureDelta: "signature",
    ev.ToolDelta: "arguments",
    ev.MediaDelta: "data",
}


class _Block:
    __slots__ = ("kind", "number", "queue", "stop", "waiting")

    def __init__(self, start: BlockStart) -> None:
        self.number = start.block
        self.kind = start.type
        self.queue: list[Event] = [start]
        self.waiting = False
        self.stop: ev.BlockStop | None = None


class InTurn:
    """Feed it every event of the blocks that the format has a place for."""

    __slots__ = ("_blocks", "_lost", "_owner", "_size", "_waiting")

    def __init__(self, lost: set[str]) -> None:
        self._lost = lost
        self._blocks: dict[int, _Block] = {}  # those that have not stopped
        self._owner: _Block | None = None
        self._waiting: deque[_Block] = deque()
        self._size = 0

    @property
    def owner(self) -> int:
        """The number of the block whose turn it is, -1 where there is none."""
        return -1 if self._owner is None else self._owner.number

    def start(self, event: BlockStart, out: list[Event]) -> None:
        """A frame of its own (`origin`) is sent at once, whatever the block says later."""
        block = self._blocks[event.block] = _Block(event)
        if event.type not in _LAZY or event.origin is not None:
            self._claim(block, out)

    def delta(self, event: Any, out: list[Event]) -> None:
        block = self._blocks.get(event.block)
        if block is None:
            return
        if block is self._owner:
            out.append(event)
            return
        field = _SAYS.get(type(event))
        if field is not None and not getattr(event, field):
            return
        self._size += len(getattr(event, field)) + _EVENT_SIZE if field else _EVENT_SIZE
        block.queue.append(event)
        self._claim(block, out)
        if self._size > MAX_WAITING:
            raise ProtocolError(f"more than {MAX_WAITING} characters in blocks beside the one that is open")

    def stop(self, event: ev.BlockStop, out: list[Event]) -> None:
        block = self._blocks.pop(event.block, None)
        if block is None:
            return
        block.stop = event
        if block is self._owner:
            out.append(event)
            self._next(out)
        elif block.kind is BlockKind.TOOL_CALL and not event.complete:
            self._waiting.remove(block)
            self._lost.add("tool_call.incomplete")

    def _claim(self, block: _Block, out: list[Event]) -> None:
        if self._owner is None:
            self._owner = block
            out += block.queue
            block.queue.clear()
            self._size = 0 if not self._waiting else self._size
        elif not block.waiting:
            block.waiting = True
            self._waiting.append(block)

    def _next(self, out: list[Event]) -> None:
        self._owner = None
        while self._waiting and self._owner is None:
            block = self._waiting.popleft()
            self._claim(block, out)
            if block.stop is not None:
                out.append(block.stop)
                self._owner = None
