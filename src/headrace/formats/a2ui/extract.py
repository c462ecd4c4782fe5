"""A2UI messages in a model's text, found as it comes: `Extractor`, text fragments in, pieces out.

Models are told to put them between `<a2ui-json>` and `</a2ui-json>`, and often write them as lines of JSON, in a code fence
or as one list; all of that is taken, and each message handed out as soon as its last brace has come. Everything else is
text and goes on at once, but for the few characters that may yet turn out to be the beginning of a message.

The rule: linear in the text, and bounded. At most LOOKAHEAD characters are held undecided, at most MAX_MESSAGE of a
message; what is longer is skipped to its end, and told. A message that was never closed does not swallow those after it: a
line that begins like a message begins one, wherever it stands.
"""

from __future__ import annotations

import re
from typing import NamedTuple

ACTIONS = ("createSurface", "updateComponents", "updateDataModel", "deleteSurface")
MAX_MESSAGE = 64 * 1024
"""Characters of one message."""
LOOKAHEAD = 256


class Plain(NamedTuple):
    """Text that is none of a message's."""

    text: str


class Found(NamedTuple):
    """The JSON of what looks like a message. `tagged`: it stood between tags, so it can be nothing else."""

    json: str
    tagged: bool


class Broken(NamedTuple):
    """A place where a message was to be, and none could be read. `what` says why, never what stood there."""

    what: str


Piece = Plain | Found | Broken

_OPEN_TAG = "<a2ui-json"
_OPEN = re.compile(r"<a2ui-json(?:\s[^>]{0,200})?>", re.IGNORECASE)
_OPEN_PART = re.compile(r"<a2ui-json\s[^>]*\Z", re.IGNORECASE)
_CLOSE_TAG = "</a2ui-json"
_CLOSE = re.compile(r"</a2ui-json\s{0,16}>", re.IGNORECASE)
_CLOSE_PART = re.compile(r"</a2ui-json\s*\Z", re.IGNORECASE)
_FENCE = re.compile(r"```[\w+-]{0,20}[ \t]{0,8}\r?\n\s{0,32}")
_FENCE_PART = re.compile(r"`{1,2}\Z|```[\w+-]{0,20}[ \t]{0,8}\r?\Z")
_INNER_FENCE = re.compile(r"`{1,3}[\w+-]{0,20}")
_KEYS = ("version", *ACTIONS)
_BEGIN = re.compile(rf'\[?\s{{0,32}}\{{\s{{0,32}}"(?:{"|".join(_KEYS)})"')
_BEGIN_PART = re.compile(r'\[?\s*(?:\{\s*(?:"(?P<key>\w*))?)?\Z')
_BLANKS = re.compile(r"[ \t]*")
_SPACE = re.compile(r"\s*")
_BETWEEN = re.compile(r"[\s,]*")
_BETWEEN_LISTS = re.compile(r"[\s,\[\]]*")
_TEXT_MARK = re.compile(r"[<\n]")
_JUNK_END = re.compile(r"[{<]")
_OUTSIDE = re.compile(r'["{}\n<`]')
_INSIDE = re.compile(r'["\\\n]')

_CUT = "a message was not complete when another began, or the text ended"
_LONG = f"a message is longer than {MAX_MESSAGE} characters"
_JUNK = "there is something else than messages between the tags"


class Extractor:
    """One text. Feed it every fragment in order, then ask for the `end`."""

    def __init__(self) -> None:
        self._rest = ""  # undecided, the beginning of the next fragment
        self._out: list[Piece] = []
        self._region = ""  # what the messages stand in: "" none, "line", "list", "fence", "tag"
        self._in_object = False
        self._line_start = True
        self._after = False  # a message has just ended: white space after it is nobody's
        self._object: list[str] = []
        self._size = 0
        self._depth = 0
        self._in_string = False
        self._junk = False  # something else between these tags has been told

    def feed(self, text: str) -> list[Piece]:
        """What has become clear with this fragment."""
        data = self._rest + text
        self._rest = ""
        self._out = []
        place: int | None = 0
        while place is not None and place < len(data):
            scan = self._scan_object if self._in_object else self._scan_region if self._region else self._scan_text
            place = scan(data, place)
        return self._out

    def end(self) -> list[Piece]:
        """What is left when the text has ended."""
        self._out = []
        if self._in_object:
            self._take(self._rest)
            text = "".join(self._object)
            if self._size > MAX_MESSAGE:
                self._out.append(Broken(_LONG))
            elif self._region == "tag" or any(f'"{action}"' in text for action in ACTIONS):
                self._out.append(Broken(_CUT))
            else:
                self._plain(text)
        elif not self._region:
            self._plain(self._rest)
        self._rest = self._region = ""
        self._in_object = False
        return self._out

    def held(self) -> str:
        """The text that is held undecided, where it is no part of a message: for streams that break off."""
        return "" if self._in_object or self._region else self._rest

    def _hold(self, data: str, place: int) -> int | None:
        """Decide when more has come: None."""
        self._rest = data[place:]
        return None

    def _plain(self, text: str) -> None:
        if text:
            self._out.append(Plain(text))

    # -- text ------------------------------------------------------------------------------------------------------

    def _scan_text(self, data: str, place: int) -> int | None:
        if self._after:
            place = _end(_SPACE, data, place)
            if place == len(data):
                return place
            self._after, self._line_start = False, True
        start = place
        while True:
            if self._line_start:
                first = _end(_BLANKS, data, place)
                if first == len(data) and first - place < LOOKAHEAD:
                    self._plain(data[start:place])
                    return self._hold(data, place)
                began = self._begins_region(data, first)
                if began is None:
                    self._plain(data[start:place])
                    return self._hold(data, place)
                if began >= 0:
                    self._plain(data[start:place])
                    return began
                self._line_start = False
                place = first
            mark = _TEXT_MARK.search(data, place)
            if mark is None:
                self._plain(data[start:])
                return len(data)
            if mark[0] == "\n":
                place = mark.end()
                self._line_start = True
                continue
            tag = _opens(_OPEN, _OPEN_PART, _OPEN_TAG, data, mark.start())
            if tag is None or tag:
                self._plain(data[start : mark.start()])
                if tag is None:
                    return self._hold(data, mark.start())
                self._region, self._junk = "tag", False
                return tag
            place = mark.end()

    def _begins_region(self, data: str, place: int) -> int | None:
        """Where messages begin that stand in lines, a list or a fence, if one of these begins here; -1: none does; None:
        it is not clear yet."""
        first = data[place : place + 1]
        region, inside = "line", place
        if first == "[":
            region, inside = "list", place + 1
        elif first == "`":
            fence = _FENCE.match(data, place)
            if fence is None:
                return None if _FENCE_PART.match(data, place) else -1
            region, place = "fence", fence.end()
            inside = place
        elif first != "{":
            return -1
        begins = _begins(data, place)
        if not begins:
            return None if begins is None else -1
        self._region = region
        return inside

    # -- between messages ------------------------------------------------------------------------------------------

    def _scan_region(self, data: str, place: int) -> int | None:
        region = self._region
        place = _end(_BETWEEN if region in ("line", "list") else _BETWEEN_LISTS, data, place)
        if place == len(data):
            return place
        first = data[place]
        if first == "{":
            self._in_object = True
            self._object, self._size, self._depth, self._in_string = [], 0, 0, False
            return place
        if region == "tag":
            return self._scan_tagged(data, place, first)
        if region == "list" and first == "]":
            self._leave()
            return place + 1
        if region == "fence" and first == "`":
            if data.startswith("```", place):
                self._leave()
                return place + 3
            if len(data) - place < 3:
                return self._hold(data, place)
        self._region, self._line_start = "", False  # what follows is text
        return place

    def _scan_tagged(self, data: str, place: int, first: str) -> int | None:
        if first == "<":
            close = _opens(_CLOSE, _CLOSE_PART, _CLOSE_TAG, data, place)
            if close is None:
                return self._hold(data, place)
            if close:
                self._leave()
                return close
        if first == "`":
            after = _end(_INNER_FENCE, data, place)
            return self._hold(data, place) if after == len(data) and after - place < 24 else after
        if not self._junk:
            self._junk = True
            self._out.append(Broken(_JUNK))
        junk = _JUNK_END.search(data, place + 1)
        return len(data) if junk is None else junk.start()

    def _leave(self) -> None:
        self._region, self._after = "", True

    # -- a message -------------------------------------------------------------------------------------------------

    def _scan_object(self, data: str, place: int) -> int | None:
        start = place
        while True:
            mark = (_INSIDE if self._in_string else _OUTSIDE).search(data, place)
            if mark is None:
                self._take(data[start:])
                return len(data)
            place = mark.end()
            what = mark[0]
            if what == '"':
                self._in_string = not self._in_string
            elif what == "{":
                self._depth += 1
            elif what == "}":
                self._depth -= 1
                if not self._depth:
                    self._take(data[start:place])
                    self._complete()
                    return place
            elif what == "\\":
                if place == len(data):
                    self._take(data[start : place - 1])
                    return self._hold(data, place - 1)
                place += 1
            else:
                ended = self._breaks_off(data, mark.start(), what)
                if ended is None:
                    self._take(data[start : mark.start()])
                    return self._hold(data, mark.start())
                if ended:
                    return ended

    def _breaks_off(self, data: str, place: int, what: str) -> int | None:
        """Where to go on, if the message that is being read ends here without its last brace; 0: no; None: unclear."""
        region = self._region
        if what == "\n":
            first = _end(_BLANKS, data, place + 1)
            if first == len(data):
                return None if first - place < LOOKAHEAD else 0
            if data[first] != "{" or not (begins := _begins(data, first)):
                return None if data[first] == "{" and begins is None else 0
            after = first
        elif what == "<" and region == "tag":
            close = _opens(_CLOSE, _CLOSE_PART, _CLOSE_TAG, data, place)
            if not close:
                return close
            self._leave()
            after = close
        elif what == "`" and region == "fence":
            if not data.startswith("```", place):
                return None if len(data) - place < 3 else 0
            self._leave()
            after = place + 3
        else:
            return 0
        self._in_object = False
        self._out.append(Broken(_CUT))
        return after

    def _take(self, text: str) -> None:
        self._size += len(text)
        if self._size > MAX_MESSAGE:
            self._object.clear()
        else:
            self._object.append(text)

    def _complete(self) -> None:
        self._in_object = False
        if self._size > MAX_MESSAGE:
            self._out.append(Broken(_LONG))
        else:
            self._out.append(Found("".join(self._object), self._region == "tag"))
        self._object = []
        if self._region == "line":
            self._leave()


def _end(pattern: re.Pattern[str], data: str, place: int) -> int:
    found = pattern.match(data, place)
    return place if found is None else found.end()


def _opens(whole: re.Pattern[str], part: re.Pattern[str], tag: str, data: str, place: int) -> int | None:
    """Where a tag that stands here ends; 0: none does; None: it may yet become one."""
    found = whole.match(data, place)
    if found is not None:
        return found.end()
    if len(data) - place >= LOOKAHEAD:
        return 0
    return None if tag.startswith(data[place:].lower()) or part.match(data, place) else 0


def _begins(data: str, place: int) -> bool | None:
    """Whether JSON that stands here begins like a message, or a list of them; None: too little of it has come."""
    if _BEGIN.match(data, place):
        return True
    if len(data) - place >= LOOKAHEAD:
        return False
    found = _BEGIN_PART.match(data, place)
    if found is None:
        return False
    key = found["key"]
    return None if key is None or any(name.startswith(key) for name in _KEYS) else False
