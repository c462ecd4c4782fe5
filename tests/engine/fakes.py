"""Two small formats and a driver, so that the engine's tests show the engine and nothing else.

`LINES` has one JSON object a frame: {"t": "start"}, {"t": "text", "v": "..."} and so on. What it writes is numbered
(`seq`), so a lost or doubled frame shows. Some texts make its codecs fail as a bug would.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.engine import (
    Caller,
    Command,
    Connect,
    Limits,
    Meter,
    Outcome,
    Plan,
    SendHead,
    Settle,
    Stream,
    Timeouts,
    Upstream,
)
from headrace.formats.base import Format, FrameReader, ReaderOptions, Route, WriterOptions
from headrace.framing import FRAMINGS, Frame
from headrace.model import events as ev
from headrace.model.content import Text
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, ProtocolError, code_for_status
from headrace.model.events import BlockKind, Event
from headrace.model.request import Request
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason
from headrace.model.usage import Usage
from headrace.routing.retry import RetryPolicy

READ_BUG = "bug in the reader"
WRITE_BUG = "bug in the writer"
FATAL_BUG = "bug in the writer that stays"


class LinesReader(FrameReader):
    def __init__(self, options: ReaderOptions) -> None:
        self.options = options
        self.ended = False

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        if self.ended:
            return
        try:
            said = json.loads(frame.data)
            kind, value = said["t"], said.get("v", "")
        except (ValueError, KeyError, TypeError):
            raise ProtocolError("a line is not an object with a type") from None
        origin = frame if self.options.passthrough else None
        if kind == "start":
            events.append(ev.Start(id="answer-1", model="m", origin=origin))
            events.append(ev.BlockStart(block=0, type=BlockKind.TEXT, origin=origin))
        elif kind == "ping":
            events.append(ev.Opaque(vendor="lines", name="ping", origin=origin))
        elif kind == "text":
            if value == READ_BUG:
                raise ZeroDivisionError(value)
            events.append(ev.TextDelta(0, value, None, origin))
        elif kind == "usage":
            events.append(ev.UsageReport(Usage(output_tokens=value)))
        elif kind == "tokens":
            events.append(ev.UsageReport(Usage(input_tokens=value[0], output_tokens=value[1])))
        elif kind == "error":
            self.ended = True
            code = ErrorCode.PROVIDER_RATE_LIMITED
            events.append(ev.Error(ErrorInfo(code=code, message=value, retry_after=said.get("wait")), origin))
        elif kind == "end":
            self.ended = True
            events.append(ev.BlockStop(0, origin=origin))
            events.append(ev.Finish(reason=StopReason.END_TURN, origin=origin))
            events.append(ev.End(origin=origin))
        else:
            raise ProtocolError("a line has an unknown type")

    def eof(self, leftover: bytes = b"") -> list[Event]:
        if self.ended:
            return []
        self.ended = True
        message = f"cut ({len(leftover)} bytes left over)"
        return [ev.Error(ErrorInfo(code=ErrorCode.PROVIDER_UNAVAILABLE, type="upstream_truncated", message=message))]


class LinesWriter:
    """Numbered lines; a text's line has its text, the error's line its code and type."""

    def __init__(self, options: WriterOptions) -> None:
        self.options = options
        self.lost: set[str] = set()
        self.seq = 0
        self.broken = False

    def write(self, events: Sequence[Event]) -> list[Frame]:
        frames = []
        for event in events:
            for line in self._lines(event):
                frames.append(Frame(json.dumps({"seq": self.seq, **line}).encode()))
                self.seq += 1
        return frames

    def _lines(self, event: Event) -> list[dict[str, Any]]:
        if self.broken:
            raise LookupError(FATAL_BUG)
        if isinstance(event, ev.Start):
            return [{"t": "start", "provider": self.options.provider}]
        if isinstance(event, ev.Opaque):
            self.lost.add("ping")
            return []
        if isinstance(event, ev.TextDelta):
            self.broken = event.text == FATAL_BUG
            if event.text in (WRITE_BUG, FATAL_BUG):
                raise LookupError(event.text)
            return [{"t": "text", "v": event.text}]
        if isinstance(event, ev.UsageReport) and event.usage.estimated:
            return [{"t": "usage", "v": event.usage.output_tokens, "cost": event.usage.cost_usd}]
        if isinstance(event, ev.Error):
            return [{"t": "error", "code": event.error.code.value, "type": event.error.type}]
        if isinstance(event, ev.End):
            usage = event.usage
            counts = None if usage is None else [usage.input_tokens, usage.output_tokens, usage.cost_usd]
            return [{"t": "end", "routing": event.routing, "usage": counts}]
        return []


def _read_response(body: bytes, options: ReaderOptions) -> Response:
    try:
        said = json.loads(body)
    except ValueError:
        raise ProtocolError(f"the body is not JSON ({len(body)} bytes)") from None
    if "error" in said:
        raise GatewayError(ErrorInfo(code=ErrorCode.PROVIDER_RATE_LIMITED, message=said["error"], retry_after=1.2))
    choice = Choice(parts=[Text(text=said["text"])], stop=StopReason.END_TURN)
    usage = Usage(output_tokens=said.get("tokens"))
    return Response(
        id="answer-1", model="m", choices=[choice], usage=usage, origin=body if options.passthrough else None
    )


def _write_response(response: Response, options: WriterOptions) -> bytes:
    if options.passthrough and response.origin is not None:
        return bytes(response.origin)
    texts = [part.text for choice in response.choices for part in choice.parts if isinstance(part, Text)]
    if WRITE_BUG in "".join(texts):  # FATAL_BUG begins with it
        raise LookupError(WRITE_BUG)
    tokens = response.usage.output_tokens if response.usage else None
    return json.dumps({"text": "".join(texts), "tokens": tokens, "provider": response.provider}).encode()


def _read_error(status: int, headers: Mapping[str, str], body: bytes) -> ErrorInfo:
    wait = float(headers["retry-after"]) if "retry-after" in headers else None
    return ErrorInfo(code=code_for_status(status), message=body.decode("utf-8", "replace")[:200], retry_after=wait)


def _write_error(info: ErrorInfo) -> bytes:
    return json.dumps({"error": info.code.value, "type": info.type, "provider": info.provider}).encode()


def _no_request(*_: Any) -> Any:
    raise AssertionError("the engine reads and writes no requests")


LINES = Format(
    name="lines",
    vendor="lines",
    media_type="application/json",
    profile="lines",
    routes=(Route("/lines"),),
    upstream_path="/lines",
    framings=("sse", "ndjson", "json_array"),
    auth_headers=lambda key: (),
    read_request=_no_request,
    write_request=_no_request,
    stream_reader=LinesReader,
    stream_writer=LinesWriter,
    read_response=_read_response,
    write_response=_write_response,
    read_error=_read_error,
    write_error=_write_error,
)

ONCE = RetryPolicy(attempts=1)
TIMEOUTS = Timeouts(first_token=20, request=120, idle_stream=30, slow_consumer=40, keepalive=15)


def line(t: str, v: Any = None, **more: Any) -> bytes:
    """The data of one frame of LINES."""
    return json.dumps({"t": t, **({} if v is None else {"v": v}), **more}).encode()


def sse(*lines: bytes) -> bytes:
    return b"".join(b"data: " + data + b"\n\n" for data in lines)


def answer(*texts: str) -> bytes:
    """A complete stream of LINES in SSE."""
    return sse(line("start"), *(line("text", text) for text in texts), line("end"))


def acme(**changes: Any) -> Upstream:
    options = ReaderOptions(provider="acme", passthrough=changes.pop("passthrough", False))
    settings = {
        "provider": "acme",
        "model": "m-1",
        "format": LINES,
        "framing": "sse",
        "reader_options": options,
        **changes,
    }
    return Upstream(**settings)


class Driver:
    """Drives a stream as a real driver must, on a clock of its own, and keeps what came out.

    `block_after`: the caller accepts so many writes, then blocks. `plan` stands for the one candidate `upstream`, which
    is asked once. What a provider does is told of the latest attempt, or of the one that is named.
    """

    def __init__(
        self,
        *,
        format: Format = LINES,
        framing: str = "sse",
        stream: bool = True,
        upstream: Upstream | None = None,
        plan: Plan | None = None,
        meter: Meter | None = None,
        usage_interval: float | None = None,
        timeouts: Timeouts = TIMEOUTS,
        limits: Limits | None = None,
        lost: tuple[str, ...] = (),
        passthrough: bool = False,
        block_after: float = math.inf,
    ) -> None:
        options = WriterOptions(
            provider="acme", lost=lost, passthrough=passthrough, request=Request(model="m", messages=[])
        )
        caller = Caller(
            format=format, framing=framing, stream=stream, writer_options=options, usage_interval=usage_interval
        )
        plan = plan or Plan([upstream or acme()], retry=ONCE)
        self.stream = Stream(caller=caller, plan=plan, limits=limits, timeouts=timeouts, meter=meter)
        self.framing = framing
        self.now = 1000.0
        self.seen: list[Command] = []
        self.body = b""
        self.writes: list[bytes] = []
        self.block_after = block_after
        self.blocked = False

    # inputs

    def begin(self) -> Driver:
        self.stream.begin(self.now)
        return self.pump()

    def headers(
        self,
        status: int = 200,
        content_type: str = "text/event-stream",
        *,
        of: int | None = None,
        **headers: str,
    ) -> Driver:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        number = self.attempt(of)
        if number is not None:
            self.stream.upstream_headers(number, status, {"content-type": content_type, **named}, self.now)
        return self.pump()

    def open(self) -> Driver:
        return self.begin().headers()

    def data(self, data: bytes, *, of: int | None = None) -> Driver:
        number = self.attempt(of)
        if number is not None:
            out = self.stream.upstream_data(number, data, self.now)
            if out:
                self.write(out)
        return self.pump()

    def end(self, *, of: int | None = None) -> Driver:
        number = self.attempt(of)
        if number is not None:
            self.stream.upstream_ended(number, self.now)
        return self.pump()

    def fail(self, type: str = "upstream_reset", *, of: int | None = None, **more: Any) -> Driver:
        settings = {"code": ErrorCode.PROVIDER_UNAVAILABLE, "message": "the connection broke", **more}
        number = self.attempt(of)
        if number is not None:
            self.stream.upstream_failed(number, ErrorInfo(type=type, **settings), self.now)
        return self.pump()

    def attempt(self, number: int | None) -> int | None:
        """That attempt, or the latest; None before the first."""
        made = self.count(Connect)
        return number if number is not None else made - 1 if made else None

    def block(self) -> Driver:
        self.blocked = True
        self.stream.caller_blocked(self.now)
        return self.pump()

    def unblock(self) -> Driver:
        self.blocked = False
        self.stream.caller_ready(self.now)
        return self.pump()

    def gone(self) -> Driver:
        self.stream.caller_gone(self.now)
        return self.pump()

    def cancel(self, **more: Any) -> Driver:
        self.stream.cancel(self.now, **more)
        return self.pump()

    def wait(self, seconds: float) -> Driver:
        """Let time pass, ticking at every deadline on the way, as a timer would."""
        until = self.now + seconds
        while self.stream.next_deadline <= until:
            self.now = max(self.now, self.stream.next_deadline)
            self.stream.tick(self.now)
            self.pump()
            assert self.stream.next_deadline > self.now, "a deadline that was ticked stays due"
        self.now = until
        return self

    def pump(self) -> Driver:
        while True:
            commands = self.stream.commands()
            for command in commands:
                self.see(command)
            data = self.stream.data_to_send()
            if data:
                self.write(data)
            elif not commands:
                return self

    def see(self, command: Command) -> None:
        self.seen.append(command)

    def write(self, data: bytes) -> None:
        self.body += data
        self.writes.append(data)
        if len(self.writes) >= self.block_after and not self.blocked:
            self.blocked = True
            self.stream.caller_blocked(self.now)

    # what came out

    def count(self, kind: type[Command]) -> int:
        return sum(type(command) is kind for command in self.seen)

    @property
    def head(self) -> SendHead:
        (head,) = [command for command in self.seen if isinstance(command, SendHead)]
        return head

    @property
    def outcome(self) -> Outcome:
        (settle,) = [command for command in self.seen if isinstance(command, Settle)]
        return settle.outcome

    @property
    def kinds(self) -> list[str]:
        """The commands so far, by name."""
        return [type(command).__name__ for command in self.seen]

    def lines(self) -> list[dict[str, Any]]:
        """The caller's stream, decoded; its numbers are checked and taken away."""
        decoder = FRAMINGS[self.framing].decoder()
        frames = decoder.feed(self.body)
        lines = [json.loads(frame.data) for frame in frames]
        assert [line.pop("seq") for line in lines] == list(range(len(lines))), "numbers with gaps"
        return lines

    @property
    def told(self) -> list[Any]:
        """The caller's stream in short: kinds, the text itself for text, code and type for the error."""
        told: list[Any] = []
        for line in self.lines():
            if line["t"] == "text":
                told.append(line["v"])
            elif line["t"] == "error":
                told.append(("error", line["code"], line["type"]))
            else:
                told.append(line["t"])
        return told

    @staticmethod
    def stream_events(stream: bytes) -> list[Event]:
        """What a stream of LINES in SSE says."""
        return LinesReader(ReaderOptions()).read(FRAMINGS["sse"].decoder().feed(stream))

    @property
    def json(self) -> Any:
        """The caller's whole body."""
        return json.loads(self.body)
