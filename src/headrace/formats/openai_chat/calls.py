"""Which tool call a fragment belongs to.

By the format a fragment's `index` says it. Servers leave the index out, give every call the same one, repeat id and name
on every fragment, or change nothing at all between two whole calls. The rule: a new id is a new call; a name and the
start of an object after arguments that are already a whole object is a new call; everything else goes on. The trade-off:
arguments are kept (up to a bound) until the choice ends, to know whether they are whole.
"""

from __future__ import annotations

from typing import Any

import msgspec

_MAX_KEPT = 64 * 1024
_decode_any = msgspec.json.Decoder().decode


class Call:
    """One tool call of one choice. `block` is -1 until its name is known."""

    __slots__ = ("_kept", "_size", "arguments", "block", "extensions", "id", "name", "position")

    def __init__(self, position: int, id: str) -> None:
        self.position = position
        self.id = id
        self.name = ""
        self.block = -1
        self.arguments: list[str] = []  # fragments that came before the name
        self.extensions: dict[str, Any] | None = None
        self._kept: list[str] = []
        self._size = 0

    def keep(self, fragment: str) -> None:
        """Note a fragment of the arguments."""
        if self._size <= _MAX_KEPT:
            self._size += len(fragment)
            self._kept.append(fragment)

    @property
    def begun(self) -> bool:
        """Whether any arguments have come."""
        return self._size > 0

    def is_whole(self) -> bool:
        """Whether the arguments are a whole JSON value (none at all stands for {}). False where they are too long to tell."""
        if self._size > _MAX_KEPT:
            return False
        text = "".join(self._kept)
        self._kept = [text]
        if not text.strip():
            return True
        try:
            _decode_any(text)
        except (msgspec.DecodeError, RecursionError):
            return False
        return True


class Calls:
    """The tool calls of one choice, in the order they began."""

    __slots__ = ("_by_id", "_by_key", "_first_of_id", "all", "last")

    def __init__(self) -> None:
        self.all: list[Call] = []
        self.last: Call | None = None
        """The call that the latest fragment belongs to."""
        self._by_key: dict[int, Call] = {}
        self._by_id: dict[str, Call] = {}
        self._first_of_id: dict[str, int] = {}  # position of the earliest call

    def find(self, key: int | None, id: str, name: str, arguments: str, *, beside: bool) -> tuple[Call, bool]:
        """The call of a fragment, and whether it begins with it.

        `key`: the fragment's index. `beside`: it stands in one list with a fragment of the last call.
        """
        call = self._known(key, id, name)
        if call is not None and not _begins_anew(call, key, id, name, arguments, beside):
            if id and not call.id:
                call.id = id
                self._note_id(id, call)
            self.last = call
            return call, False
        call = Call(len(self.all), id)
        self.all.append(call)
        if key is not None:
            self._by_key[key] = call
        if id:
            self._note_id(id, call)
        self.last = call
        return call, True

    def is_id_taken(self, call: Call) -> bool:
        """Whether an earlier call came under this call's id."""
        return self._first_of_id.get(call.id, call.position) < call.position

    def _note_id(self, id: str, call: Call) -> None:
        self._by_id[id] = call
        self._first_of_id.setdefault(id, call.position)

    def _known(self, key: int | None, id: str, name: str) -> Call | None:
        call = self.last if key is None else self._by_key.get(key)
        same_id = self._by_id.get(id) if id else None
        if same_id is not None and not (call is None and key is not None and name):
            return same_id  # but a name at an index of its own is a call of its own, whatever its id
        if id and call is not None and call.id:
            return None  # another id than the one that stands there
        return call


def _begins_anew(call: Call, key: int | None, id: str, name: str, arguments: str, beside: bool) -> bool:
    if not name:
        return False
    if id and not call.id:
        return call.begun  # the first call had no id, this fragment has one, and a name
    if key is None and not id and (beside or name != call.name):
        return True
    return call.begun and arguments.lstrip().startswith("{") and call.is_whole()
