"""`headrace stdio`: the gateway for the process that started it, over standard input and output (docs/stdio.md).

Each line is a JSON object: a message as on a WebSocket (serve/messages.py), or JSON-RPC 2.0 (serve/jsonrpc.py); both may
use the same pipe. A line that is neither is answered with an error, and the next one counts: lines stand for themselves.

How it ends: when input ends, streams in flight go on to their ends first; when a signal asks for it, they end with an error
event; when nobody takes the output any more, they are cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
from collections.abc import Mapping
from enum import Enum

import msgspec

from headrace.config import Config
from headrace.formats import Format
from headrace.metering import Recorder
from headrace.model.errors import ErrorCode, GatewayError
from headrace.serve.app import Application
from headrace.serve.calls import Calls
from headrace.serve.jsonrpc import INVALID_REQUEST, PARSE_ERROR, JsonRpc
from headrace.serve.messages import BadMessage, Messages, authenticate, read_object
from headrace.serve.pipes import LOW, Input, Lines, Output, TooLong
from headrace.serve.server import FLUSH_SECONDS, SHUTTING_DOWN

logger = logging.getLogger("headrace.serve")

PATH = "stdio"
"""In place of a path, in the log."""

PILE = 1024 * 1024
"""Bytes of unread output above which no more input is read: each line may have an answer."""

_POLL = 0.02
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class End(Enum):
    """Why it ended."""

    INPUT = "the input has ended"
    SIGNAL = "a signal"
    OUTPUT = "nobody reads the output"


class Stdio:
    """The connection to whoever started the process; a Pipe. Make it inside the event loop."""

    def __init__(
        self,
        application: Application,
        format: Format,
        *,
        most: int,
        key: str | None = None,
        input: int = 0,
        output: int = 1,
    ) -> None:
        """`most`: bytes of a line. `key`: the caller's, where it is known already. Raises GatewayError where it is wrong."""
        self.loop = asyncio.get_running_loop()
        self.tasks: set[asyncio.Task[None]] = set()
        self.application = application
        self._calls = Calls(self, application, PATH, self._look)
        if key is not None:
            self._calls.headers["authorization"] = f"Bearer {key}"
        try:
            authenticate(self._calls, self._calls.headers)
            authenticated = True
        except GatewayError:
            if key is not None:
                raise
            authenticated = False
        self._messages = Messages(self._calls, format, authenticated=authenticated, knock=lambda: None)
        self._rpc = JsonRpc(self._messages, format)
        self._speaks_rpc = False
        self._lines = Lines(most)
        self._most = most
        self._end: asyncio.Future[End] = self.loop.create_future()
        self._input_over = False
        self._output_lost = False
        self._hurry = False
        self._output = Output(output, self._drained, self._lost)
        self._input = Input(input, self._received)

    async def run(self) -> End:
        """Until it has ended, for whichever reason. Signals are taken for as long as that."""
        for number in _SIGNALS:
            self.loop.add_signal_handler(number, self._asked_to_end)
        self._input.more()
        end = await self._end
        if end is End.SIGNAL:
            await self._finish(FLUSH_SECONDS)
        elif end is End.INPUT:
            await self._finish(math.inf)
        self._calls.caller_gone()
        if self.tasks:  # what they still do is to see that nobody is there
            await asyncio.wait(self.tasks, timeout=FLUSH_SECONDS)
        for number in _SIGNALS:
            self.loop.remove_signal_handler(number)
        return End.OUTPUT if self._output_lost else end

    # --- Pipe ------------------------------------------------------------------------------------------------------

    @property
    def write_paused(self) -> bool:
        return self._output.full

    def frame(self, message: bytes) -> bytes:
        """Line ends inside JSON stand between its tokens, where a blank means the same."""
        if b"\n" in message or b"\r" in message:
            message = message.translate(_BLANKS)
        return message + b"\n"

    def write(self, data: bytes) -> None:
        self._output.put(data)

    def abort(self) -> None:
        logger.warning("nobody reads standard output: the streams are given up")
        self._ended(End.OUTPUT)

    # --- what comes ------------------------------------------------------------------------------------------------

    def _received(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            try:
                self._take(line)
            except Exception as error:  # a fault of ours in one line is no reason to drop the others
                logger.error("a line could not be taken: %s", type(error).__name__)
                self._complain("The gateway failed on this line", ErrorCode.INTERNAL_ERROR, INVALID_REQUEST)
        if not data:
            self._input_over = True
            self._calls.no_more_pauses()
            self._look()
        elif self._output.size <= PILE:
            self._input.more()

    def _take(self, line: bytes | TooLong) -> None:
        code = PARSE_ERROR
        try:
            if isinstance(line, TooLong):
                code = INVALID_REQUEST
                raise BadMessage(f"A line is longer than the limit of {self._most} bytes (limits.body_bytes)")
            if line.startswith(b"["):
                code = INVALID_REQUEST
                raise BadMessage("Batches are not taken: send each message as an object on a line of its own")
            message = read_object(line)
            code = INVALID_REQUEST
            self._speaks_rpc = "jsonrpc" in message
            if self._speaks_rpc:
                self._rpc.take(message)
            else:
                self._messages.take(message)
        except BadMessage as bad:
            self._complain(str(bad), bad.code, code)

    def _complain(self, message: str, code: ErrorCode, number: int) -> None:
        """An error that belongs to no request, in the words that the caller used last."""
        if self._speaks_rpc:
            self._rpc.fail(number, message)
            return
        error = {"type": "error", "data": {"code": code.value, "message": message}}
        self.write(self.frame(msgspec.json.encode(error)))

    # --- how it ends -----------------------------------------------------------------------------------------------

    def _ended(self, why: End) -> None:
        if not self._end.done():
            self._end.set_result(why)

    def _look(self) -> None:
        """A request is over, or the input."""
        if self._input_over and not self._calls:
            self._ended(End.INPUT)

    def _drained(self) -> None:
        self._calls.open_gates()
        if not self._input_over and self._output.size <= LOW:
            self._input.more()

    def _lost(self) -> None:
        self._output_lost = True
        self._ended(End.OUTPUT)

    def _asked_to_end(self) -> None:
        """The first signal ends the streams, another one does not wait for that."""
        self._hurry = self._end.done()
        self._calls.ending = True
        self.application.drain()
        self._ended(End.SIGNAL)

    async def _finish(self, seconds: float) -> None:
        """Wait until everything has been said, and taken by whoever reads, or nobody does. Input may end while streams
        run, a signal ends them."""
        end = self.loop.time() + seconds
        while (self._calls or self._output.size) and self.loop.time() < end and not self._hurry:
            if self._calls:
                self.application.cancel(SHUTTING_DOWN)  # more than once, as a request becomes a stream late
            await asyncio.sleep(_POLL)


_BLANKS = bytes.maketrans(b"\r\n", b"  ")


async def serve(
    config: Config,
    format: Format,
    *,
    recorder: Recorder | None = None,
    env: Mapping[str, str] | None = None,
    key: str | None = None,
    input: int = 0,
    output: int = 1,
) -> End:
    """Serve the caller at these descriptors until it ends. Raises what `Application` and its start raise for a
    configuration that cannot be used, and GatewayError for a wrong key."""
    application = Application(config, recorder=recorder, env=env)
    await application.start()
    try:
        most = config.limits.body_bytes
        return await Stdio(application, format, most=most, key=key, input=input, output=output).run()
    finally:
        await application.aclose()
