"""`headrace chat`: one live answer in the terminal, from any endpoint in any of the formats."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.text import Text as Styled

from headrace.cli.codes import Exit, fail
from headrace.cli.names import METAVAR, codecs, known_format
from headrace.formats.base import Format, ReaderOptions, Target
from headrace.framing import FRAMINGS, FramingError
from headrace.model import events as ev
from headrace.model.assemble import Assembler
from headrace.model.content import Text
from headrace.model.errors import GatewayError, ProtocolError
from headrace.model.events import BlockKind, Event
from headrace.model.request import Message, Request
from headrace.upstream import Client, Headers, HttpRequest, UpstreamError

DEFAULT_URL = "http://127.0.0.1:8080"
_CONNECT_SECONDS = 5.0


class Answer:
    """Receives one answer, shows it as it comes and keeps the times. The upstream client's ResponseHandler."""

    def __init__(self, fmt: Format, show: Callable[[Event], None]) -> None:
        self._format = fmt
        self._show = show
        self._decoder = FRAMINGS[fmt.framings[0]].decoder(**fmt.framing_options)
        self._reader = fmt.stream_reader(ReaderOptions(provider="the endpoint"))
        self._status = 0
        self._headers: dict[str, str] = {}
        self._error_body = bytearray()
        self._assembler = Assembler()
        self.started = time.monotonic()
        self.first: float | None = None
        self.last = self.started
        self.failure: str | None = None
        self.unreachable = False
        self.done = asyncio.Event()

    def response_started(self, status: int, headers: Headers) -> None:
        self._status, self._headers = status, dict(headers)

    def data_received(self, data: bytes) -> None:
        if self._status != 200:
            self._error_body += data[: 64 * 1024]
            return
        try:
            self._take(self._reader.read(self._decoder.feed(data)))
        except (FramingError, ProtocolError) as error:
            self.failure = self.failure or str(error)

    def response_ended(self) -> None:
        if self._status != 200:
            info = self._format.read_error(self._status, self._headers, bytes(self._error_body))
            self.failure = f"HTTP {self._status}: {info.message}"
        else:
            try:
                self._take(self._reader.read(self._decoder.eof()))
                self._take(self._reader.eof())
            except (FramingError, ProtocolError) as error:
                self.failure = self.failure or str(error)
        self.done.set()

    def response_failed(self, error: UpstreamError) -> None:
        self.failure = error.message
        self.unreachable = not error.bytes_received
        self.done.set()

    def _take(self, events: list[Event]) -> None:
        now = time.monotonic()
        self._assembler.feed(events)
        for event in events:
            if type(event) in _OUTPUT:
                self.first = now if self.first is None else self.first
                self.last = now
            if isinstance(event, ev.Error):
                self.failure = f"{event.error.code.value}: {event.error.message}"
            self._show(event)

    def summary(self) -> str:
        """Time to first token, speed and counts, as far as they are known."""
        parts = []
        if self.first is not None:
            parts.append(f"first token {1000 * (self.first - self.started):.0f} ms")
        usage = self._assembler.response().usage
        if usage is not None:
            if usage.output_tokens and self.first is not None and self.last > self.first:
                parts.append(f"{usage.output_tokens / (self.last - self.first):.0f} tokens/s")
            counts = {
                "in": usage.input_tokens,
                "cached": usage.cached_tokens,
                "out": usage.output_tokens,
                "reasoning": usage.reasoning_tokens,
            }
            known = ", ".join(f"{count} {name}" for name, count in counts.items() if count is not None)
            parts.append(f"tokens: {known}")
            if usage.cost_usd is not None:
                parts.append(f"${usage.cost_usd:.6f}")
        reasons = [choice.raw_stop or choice.stop for choice in self._assembler.response().choices]
        parts += [f"ended: {reason}" for reason in reasons if reason]
        return " · ".join(parts)


_OUTPUT = {ev.TextDelta, ev.RefusalDelta, ev.ReasoningDelta, ev.ToolDelta, ev.MediaDelta}


class Screen:
    """Shows events on a terminal: reasoning dimmed, tool calls on lines of their own."""

    _STYLES = {BlockKind.REASONING: "dim italic", BlockKind.REFUSAL: "yellow", BlockKind.TOOL_CALL: "cyan"}

    def __init__(self, console: Console) -> None:
        self._console = console
        self._styles: dict[int, str] = {}
        self._current: int | None = None

    def show(self, event: Event) -> None:
        if isinstance(event, ev.BlockStart):
            self._styles[event.block] = self._STYLES.get(event.type, "")
            if event.type is BlockKind.TOOL_CALL:
                self._print(event.block, f"→ {event.name} ")
        elif isinstance(event, ev.TextDelta | ev.RefusalDelta | ev.ReasoningDelta):
            self._print(event.block, event.text)
        elif isinstance(event, ev.ToolDelta):
            self._print(event.block, event.arguments)
        elif isinstance(event, ev.Progress):
            self._console.print(f"… {event.message}", style="dim")

    def _print(self, block: int, text: str) -> None:
        if self._current is not None and self._current != block:
            self._console.print()
        self._current = block
        self._console.print(Styled(text, style=self._styles.get(block, "")), end="", soft_wrap=True)


def chat(
    prompt: Annotated[
        str | None, typer.Argument(help="What to ask. Without it, standard input is read.", show_default=False)
    ] = None,
    model: Annotated[str, typer.Option("--model", "-m", help="Model, as the endpoint knows it.")] = "replay/text",
    url: Annotated[
        str,
        typer.Option(
            envvar="HEADRACE_URL",
            help="The endpoint. An address without a path gets the format's usual one; one with a path is a base URL "
            "as the vendor's SDK takes it (https://api.openai.com/v1).",
        ),
    ] = DEFAULT_URL,
    form: Annotated[
        str, typer.Option("--as", callback=known_format, metavar=METAVAR, help="Format to speak.")
    ] = "llm-stream",
    system: Annotated[str | None, typer.Option(help="System prompt.", show_default=False)] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Most tokens to generate.", show_default=False)] = None,
    key_env: Annotated[
        str, typer.Option("--api-key-env", help="Environment variable with the API key, where one is needed.")
    ] = "HEADRACE_API_KEY",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="The answer only, no figures.")] = False,
) -> None:
    """Stream one answer to the terminal, with time to first token, tokens a second and usage."""
    text = sys.stdin.read() if prompt is None else prompt
    if not text.strip():
        fail("nothing to ask: give a prompt, or pipe one in", Exit.USAGE)
    messages = [Message(role="system", parts=[Text(text=system)])] if system else []
    messages.append(Message(role="user", parts=[Text(text=text)]))
    request = Request(model=model, messages=messages, stream=True, max_tokens=max_tokens)
    console = Console(highlight=False, markup=False)
    try:
        answer = asyncio.run(ask(url, codecs(form), request, os.environ.get(key_env), Screen(console).show))
    except KeyboardInterrupt:
        console.print()
        raise typer.Exit(130) from None
    except ValueError as error:
        fail(str(error), Exit.USAGE)
    if answer.first is not None:
        console.print()
    if not quiet:
        Console(stderr=True, highlight=False, markup=False).print(answer.summary(), style="dim")
    if answer.failure is not None:
        fail(answer.failure, Exit.UNREACHABLE if answer.unreachable else Exit.FAILED)


async def ask(url: str, fmt: Format, request: Request, key: str | None, show: Callable[[Event], None]) -> Answer:
    """Send `request` to an endpoint of this format and hand every event to `show` as it arrives."""
    try:
        wire = fmt.write_request(request, Target(model=request.model, vendor=fmt.vendor, stream=True))
    except GatewayError as error:
        raise ValueError(error.info.message) from None
    path = urlsplit(url).path.rstrip("/")
    target = url.rstrip("/") + (wire.path if path else fmt.caller_path(request.model))
    headers = [*wire.headers, *(fmt.auth_headers(key) if key else ())]
    answer = Answer(fmt, show)
    client = Client(env=os.environ)
    try:
        exchange = client.send(
            HttpRequest(method="POST", url=target, headers=list(headers), body=wire.body),
            answer,
            connect_timeout=_CONNECT_SECONDS,
        )
        try:
            await answer.done.wait()
        finally:
            exchange.abort()
    finally:
        await client.aclose()
    return answer
