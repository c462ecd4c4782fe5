"""Server-Sent Events, exactly by the WHATWG rules (HTML standard, 9.2.6): `SSEDecoder` and `SSEEncoder`.

The rule: CRLF, LF and CR end a line and nothing else does; a blank line dispatches; the end of the stream does not.
An event's `data` stays bytes, since formats decode JSON themselves; event names and ids are text, with U+FFFD where
they are not UTF-8.

Every line end becomes LF as the bytes come in (a CR at the end of a read counts at once, and a LF that follows it in
the next read is dropped). That is exact, since neither can occur inside a line, and leaves one kind of line end to the
code behind. Beside the general way, line by line, there is a short cut for reads of whole events in the two shapes that
providers really send, `data: ...` and `event: ...` with `data: ...`. The trade-off is that the rules are written twice;
a test holds both against a plain implementation of the standard. On that path `find` stands where `in` reads better: for
bytes it takes half the time.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.framing.base import FrameDecoder
from headrace.framing.frame import MAX_FRAME_BYTES, Frame

MAX_LEFTOVER_BYTES = 64 * 1024
"""How much of the bytes that are no SSE is kept for `SSEDecoder.leftover`."""

_BOM = b"\xef\xbb\xbf"
_STANDARD_FIELDS = frozenset({"data", "event", "id", "retry"})
_MAX_RETRY_DIGITS = 18  # Python refuses to convert numbers of thousands of digits; 18 are already ages
_MAX_CACHED_NAMES = 64  # formats have a dozen event names; what the other side sends must not fill the memory
_MAX_CACHED_NAME_BYTES = 128


class SSEDecoder(FrameDecoder):
    """Decoder of one event stream.

    Frame.event is "" where the stream names no event; Frame.id is the last event id in force, which persists from event
    to event, and None as long as the stream has set none.

    `max_frame` bounds what the decoder holds at a time: the lines of one event, with the line ends between them.
    (Comments and unknown fields count too, but are gone when their line ends.) `extra_fields` are non-standard fields
    that come out like an event at the blank line, as a frame of their own whose event is the field's name
    (`error: {...}` of some servers).
    """

    comments: int
    """Number of comment lines so far: bytes that came without a frame were a keepalive if this grew."""

    retry: int | None
    """The reconnection time in milliseconds that the stream asked for last, None if it asked for none."""

    def __init__(self, max_frame: int = MAX_FRAME_BYTES, *, extra_fields: frozenset[str] = frozenset()) -> None:
        super().__init__(max_frame)
        if not _STANDARD_FIELDS.isdisjoint(extra_fields):
            raise ValueError(f"extra_fields may not name standard fields: {sorted(extra_fields)}")
        self.comments = 0
        self.retry = None
        self._extra_fields = {name.encode(): name for name in extra_fields}
        # Where the stream stands between two reads.
        self._start: bytes | None = b""  # at the very start: what may still turn out to be a BOM
        self._after_cr = False
        self._between_events = False  # True where the short cut may be tried: nothing is held back from before
        self._line = bytearray()  # a line whose end has not come
        # The event whose blank line has not come.
        self._held = 0  # bytes of its lines; 0 says that there is none
        self._data = bytearray()  # each value with LF after it, as in the standard
        self._event = ""
        self._extras: dict[str, bytearray] = {}
        # What outlives an event.
        self._id: str | None = None
        self._names: dict[bytes, str] = {}  # whole lines `event: name` seen before
        self._alien = bytearray()
        self._unfinished: list[Frame] = []

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes; return the frames they complete, in order. Raises FramingError (too_large)."""
        if self._between_events and data[-2:] == b"\n\n" and data.find(b"\r") < 0:
            usual = self._usual_events(data)
            if usual is not None:
                return usual
        self._between_events = False
        frames: list[Frame] = []
        self._run(frames, data)
        self._between_events = not (
            self._line or self._held or self._after_cr or self._start is not None or self._failure is not None
        )
        return frames

    def leftover(self) -> bytes:
        """What was no SSE at all, at most 64 KiB, lines ended by LF: a bare error body in JSON, HTML or plain text.

        A line counts as such when its field name could be none (anything but letters, digits, "-" and "_"); after the
        first such line every unknown field does. Complete after `eof`.
        """
        return bytes(self._alien)

    def unfinished(self) -> list[Frame]:
        """After `eof`: what the blank line would have dispatched that did not come before the stream ended.

        By the standard this is lost, and possibly cut anywhere. It is here for providers that leave out the last blank
        line; a caller must see for itself that the data is complete.
        """
        return self._unfinished

    def _decode(self, data: bytes, frames: list[Frame]) -> None:
        if self._start is not None:
            data = self._start + data
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._start = data
                return
            self._start = None
            data = data.removeprefix(_BOM)
        if self._after_cr and data:
            self._after_cr = False
            data = data.removeprefix(b"\n")
        if b"\r" in data:
            self._after_cr = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._line:
            self._line += data
            if b"\n" not in data:
                self._check_size(len(self._line))
                return
            data = bytes(self._line)
            self._line.clear()

        # `data` starts at the start of a line. What ends with its last blank line is whole events.
        end = data.rfind(b"\n\n") + 2
        if end >= 2:
            whole = data[:end]
            usual = None if self._held else self._usual_events(whole)
            if usual is not None:
                frames += usual
            else:
                self._lines(whole[:-1], frames)
            data = data[end:]
        end = data.rfind(b"\n")
        if end >= 0:
            self._lines(data[:end], frames)
            data = data[end + 1 :]
        if data:
            self._check_size(len(data))
            self._line += data

    def _finish(self, frames: list[Frame]) -> None:
        self._between_events = False
        last = bytes(self._line) or self._start or b""
        self._line.clear()
        if last:
            self._field(last, at_eof=True)
        self._dispatch(self._unfinished)

    def _usual_events(self, data: bytes) -> list[Frame] | None:
        """The short cut: the frames of `data` if it is whole events of the usual two shapes, else None.

        `data` starts between events, ends with a blank line and has no line end but LF.
        """
        if len(data) > self._max:
            return None
        last_id = self._id
        if data[:6] == b"data: ":
            if data.find(b"\n") == len(data) - 2:  # one event a read, the most frequent case of all
                return [Frame(data[6:-2], "", last_id)]
            payloads = data[6:-2].split(b"\n\ndata: ")
            # Two LF for each event and no more: so each is one line, and the pieces are the payloads.
            if data.count(b"\n") == 2 * len(payloads):
                if last_id is None:
                    return [Frame(payload) for payload in payloads]
                return [Frame(payload, "", last_id) for payload in payloads]
        frames = []
        for block in data[:-2].split(b"\n\n"):
            head, separator, payload = block.partition(b"\ndata: ")
            if separator:
                name = self._names.get(head)
                if name is None:
                    name = self._learn_name(head)
            elif head[:6] == b"data: ":
                name, payload = "", head[6:]
            else:
                return None
            if name is None or payload.find(b"\n") >= 0:
                return None
            frames.append(Frame(payload, name, last_id))
        return frames

    def _learn_name(self, line: bytes) -> str | None:
        """The name if this is one line `event: name`, which is then known the next time; else None."""
        if line[:7] != b"event: " or b"\n" in line:
            return None
        name = _text(line[7:])
        if len(self._names) < _MAX_CACHED_NAMES and len(line) <= _MAX_CACHED_NAME_BYTES:
            self._names[line] = name
        return name

    def _lines(self, lines: bytes, frames: list[Frame]) -> None:
        for line in lines.split(b"\n"):
            if line:
                self._field(line)
            else:
                self._dispatch(frames)

    def _field(self, line: bytes, *, at_eof: bool = False) -> None:
        self._check_size(len(line))
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data += value
            self._data += b"\n"
        elif name == b"event":
            self._event = _text(value)
        elif name == b"id":
            if b"\0" not in value:
                self._id = _text(value)
        elif name == b"retry":
            if value.isdigit() and len(value) <= _MAX_RETRY_DIGITS and not at_eof:  # the number may be cut
                self.retry = int(value)
            return
        elif name in self._extra_fields:
            extra = self._extras.setdefault(self._extra_fields[name], bytearray())
            extra += value
            extra += b"\n"
        else:
            if not name:
                self.comments += 1
            elif at_eof or self._alien or not name.translate(None, b"-_").isalnum():
                self._keep_alien(line)
            return
        self._held += len(line) + 1

    def _keep_alien(self, line: bytes) -> None:
        room = MAX_LEFTOVER_BYTES - len(self._alien)
        self._alien += (line + b"\n")[:room]

    def _dispatch(self, frames: list[Frame]) -> None:
        if not self._held:
            return
        self._held = 0
        if self._data:
            self._data.pop()  # the LF after the last line
            frames.append(Frame(bytes(self._data), self._event, self._id))
            self._data.clear()
        self._event = ""
        if self._extras:
            for name, value in self._extras.items():
                value.pop()
                frames.append(Frame(bytes(value), name, self._id))
            self._extras.clear()

    def _check_size(self, line: int) -> None:
        """`line` is the size of a line that is to be held beside the event under way."""
        if self._held + line > self._max:
            raise self._too_large("an event or a line of the event stream")


class SSEEncoder:
    """Encoder of an event stream: LF line ends, `event`, `id`, then one `data` line.

    Data with raw line ends goes out as several `data` lines and comes back with LF for each line end. An id of "" goes
    out as well: it takes back the id before it.
    """

    def __init__(self) -> None:
        self._heads: dict[str, bytes] = {"": b"data: "}  # what precedes the payload, by event name

    def prologue(self) -> bytes:
        """An event stream begins with its first event: b""."""
        return b""

    def encode(self, frames: Iterable[Frame]) -> bytes:
        """The bytes of these frames, in order. Raises ValueError for a line end in an event name or id, and NUL in an id."""
        heads = self._heads
        parts: list[bytes] = []
        for frame in frames:
            data = frame.data
            head = heads.get(frame.event)
            if head is None:
                head = self._learn_head(frame.event)
            if frame.id is not None:
                head = b"id: " + _line_value(frame.id, "id") + b"\n" + head
            if data.find(b"\n") >= 0 or data.find(b"\r") >= 0:
                data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").replace(b"\n", b"\ndata: ")
            parts += (head, data, b"\n\n")
        return b"".join(parts)

    def keepalive(self) -> bytes:
        """A comment, which every reader of event streams ignores."""
        return b": keepalive\n\n"

    def epilogue(self) -> bytes:
        """An event stream ends with its last event: b""."""
        return b""

    def _learn_head(self, event: str) -> bytes:
        head = b"event: " + _line_value(event, "event name") + b"\ndata: "
        if len(self._heads) < _MAX_CACHED_NAMES and len(head) <= _MAX_CACHED_NAME_BYTES:
            self._heads[event] = head
        return head


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _line_value(text: str, what: str) -> bytes:
    if "\n" in text or "\r" in text or (what == "id" and "\0" in text):
        raise ValueError(f"the {what} of an SSE event may not contain a line end{', nor NUL' if what == 'id' else ''}")
    return text.encode()
