"""What a format is: the contract between the codecs of one folder and everything that uses them.

A format gives frames their meaning. It reads and writes three things: a request's body, a stream of frames, and a whole
(non-streaming) body. All of it is pure: bytes, frames and model objects in, the same out. N formats need N folders, never
N x N pairs, because every reader makes the model and every writer takes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from headrace.framing.frame import Frame
from headrace.model.errors import ErrorInfo, ProtocolError
from headrace.model.events import Event
from headrace.model.request import Request
from headrace.model.response import Response


class StreamReader(Protocol):
    """Frames of a provider's stream in, events out, in the order grammar.py allows.

    After a terminal event (End or Error) it ignores whatever follows.
    """

    def read(self, frames: Sequence[Frame]) -> list[Event]:
        """The events of these frames. Raises ProtocolError (with `events` and `consumed` set) where a frame is not
        what the format allows; the call may then be made again with the frames after it."""

    def eof(self, leftover: bytes = b"") -> list[Event]:
        """The provider closed the stream cleanly. [] after a terminal event; else one Error event (the stream was cut),
        or the end, where EOF is the format's own terminal marker. `leftover`: bytes that formed no frame (a bare JSON
        error body, say)."""


class FrameReader:
    """Base of readers that take one frame at a time: a bad frame loses neither what came before it nor what follows."""

    __slots__ = ()

    def read(self, frames: Sequence[Frame]) -> list[Event]:
        events: list[Event] = []
        consumed = 0
        try:
            for frame in frames:
                consumed += 1
                self.read_frame(frame, events)
        except ProtocolError as error:
            error.events = events
            error.consumed = consumed
            raise
        return events

    def read_frame(self, frame: Frame, events: list[Event]) -> None:
        """Append the events of one frame. Raises ProtocolError before any of the frame's events are appended."""
        raise NotImplementedError(f"{type(self).__name__} must define read_frame")


class StreamWriter(Protocol):
    """Events in, frames of the caller's format out."""

    lost: set[str]
    """Names of what had to be left out so far ("citations", "logprobs", "reasoning.signature" ...)."""

    def write(self, events: Sequence[Event]) -> list[Frame]:
        """The frames these events become (may be none). The caller of this passes each event exactly once, in order,
        and nothing after a terminal event."""


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What a stream or body reader may need to know."""

    provider: str = ""
    """Name of the provider, for messages."""
    quirks: Mapping[str, Any] = field(default_factory=dict)
    """Profile flags of an OpenAI-compatible dialect and the like (provider configuration, `quirks`)."""
    passthrough: bool = False
    """The caller's format is this very format: set `origin` on events fit to be sent on unchanged. When False, leave
    origin None and read only the fields that matter (faster)."""
    tools: tuple[str, ...] = ()
    """Names of the tools that the request declared."""
    vendor: str = ""
    """The provider's vendor, in whose name signatures and unknown fields travel; "": the format's own."""


MessageCheck = Callable[[dict[str, Any], Mapping[str, str]], None]
"""Checks one message of a protocol within the answer by that protocol's own package, given the catalogs of the surfaces
that the answer has made so far, by their ids. Raises InvalidRequest with the path of what is wrong."""


class WriterOptions(msgspec.Struct, frozen=True):
    """What a stream or body writer may need to know."""

    request: Request | None = None
    request_id: str = ""
    """The gateway's id of this request, or the caller's own. Ids a format needs are derived from it."""
    created: int = 0
    """Unix seconds, for formats that carry a time and providers that gave none."""
    model: str = ""
    """Model name to show where the provider gave none."""
    provider: str = ""
    passthrough: bool = False
    """The provider's format is this very format: send `origin` on where it is set."""
    lost: tuple[str, ...] = ()
    """What the request writer had to leave out ("request.top_k" ...), to be named in the terminal event."""
    check: MessageCheck | None = None
    """For formats that hold messages of another protocol (a2ui). Handed in, as such packages do I/O."""


class Target(msgspec.Struct, frozen=True):
    """Where a request goes: the provider's own name of the model, and its vendor."""

    model: str
    vendor: str
    stream: bool = True
    """Ask the provider to stream."""
    path: str | None = None
    """Configured path, instead of the format's own."""
    quirks: Mapping[str, Any] = msgspec.field(default_factory=dict)


class Located(msgspec.Struct, frozen=True):
    """What a caller's URL says of its request; formats whose bodies say it themselves need not look."""

    model: str = ""
    """The model that stands in the path, percent-decoded; "": none does."""
    stream: bool | None = None
    """Whether the path asks for a stream; None: it does not say."""


IN_THE_BODY = Located()
"""A URL that says nothing."""


class Route(msgspec.Struct, frozen=True):
    """A path on which callers of a format arrive.

    `path` may hold `{model}` once: one or more characters, slashes included, that are the model's name.
    """

    path: str
    stream: bool | None = None
    """Whether a request on this path asks for a stream; None: its body says so."""
    framing: str = ""
    """The framing of the stream where Accept asks for none; "": the format's native one."""
    query: tuple[str, str] | None = None
    """A query parameter that this route needs (`("alt", "sse")`); a route that needs one is looked at first."""


class WireRequest(msgspec.Struct, frozen=True):
    """A request in the provider's words. `path` is appended to the provider's base URL."""

    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    """Headers of the format (content-type, accept, versions); credentials and trace headers are added by others."""
    lost: tuple[str, ...] = ()
    """Paths of what the provider's format cannot carry ("request.top_k", "messages[1].parts[0]: audio")."""


def bearer(credential: str) -> tuple[tuple[str, str], ...]:
    """The headers of a bearer token (RFC 6750), which most providers ask for."""
    return (("authorization", f"Bearer {credential}"),)


class ReadRequest(Protocol):
    """A caller's body, and what its URL says -> Request."""

    def __call__(self, body: bytes, located: Located = IN_THE_BODY, /) -> Request: ...


@dataclass(frozen=True, slots=True)
class Format:
    """One format: its names, and its codecs. Instances live in the registry (formats/__init__.py)."""

    name: str
    """"openai_chat", "anthropic", "llm_stream", "gateway"."""
    vendor: str
    """Default vendor name of providers of this format: its key in extensions."""
    media_type: str
    """Content-Type of its request body."""
    profile: str
    """Value of the Accept header's profile parameter that asks for this format ("openai-chat", "anthropic-messages",
    "llm-stream-1.0", "headrace-gateway-1.0")."""
    routes: tuple[Route, ...]
    """Where callers of this format arrive ("/v1/messages"); the first is the one to use."""
    upstream_path: str
    """Path appended to a provider's base URL ("/chat/completions")."""
    framings: tuple[str, ...]
    """Framings that its stream may be carried in; the first is its native one."""
    auth_headers: Callable[[str], tuple[tuple[str, str], ...]]
    """Credential -> headers a provider of this format expects it in."""
    read_request: ReadRequest
    """A caller's body, and what its URL says -> Request. Raises InvalidRequest with the path of the bad field."""
    write_request: Callable[[Request, Target], WireRequest]
    """Raises InvalidRequest where the request cannot be expressed at all."""
    stream_reader: Callable[[ReaderOptions], StreamReader]
    stream_writer: Callable[[WriterOptions], StreamWriter]
    read_response: Callable[[bytes, ReaderOptions], Response]
    """A provider's whole 200 body -> Response. Raises ProtocolError. A body that is an error in disguise raises
    GatewayError."""
    write_response: Callable[[Response, WriterOptions], bytes]
    read_error: Callable[[int, Mapping[str, str], bytes], ErrorInfo]
    """A provider's HTTP error (status, lower-cased headers, body of any kind) -> ErrorInfo. Never raises."""
    write_error: Callable[[ErrorInfo], bytes]
    """The body of an HTTP error in this format; the status is `ErrorInfo.http_status`."""
    error_status: Callable[[ErrorInfo], int] = lambda info: info.http_status
    """HTTP status of an error in this format, where the vendor has its own convention (Anthropic's 529)."""
    error_headers: Callable[[ErrorInfo], tuple[tuple[str, str], ...]] = lambda info: ()
    """Headers of an HTTP error in this format, where the vendor says something there (AWS's x-amzn-ErrorType)."""
    forwarded_headers: tuple[str, ...] = ()
    """Headers of a caller (lower-case) that a provider of this format may see ("anthropic-beta")."""
    quirks: Mapping[str, str] = field(default_factory=dict)
    """The flags that a provider of this format may be configured with, and what each means, for the documentation."""
    provides: bool = True
    """Whether there are providers of this format; False: it is one for callers alone, and has no readers of answers."""
    answer_headers: tuple[tuple[str, str], ...] = ()
    """Headers that a caller's stream in this format carries besides the gateway's own."""
    signs_of_life: bool = True
    """Whether callers of this format pass over what a framing has for a sign of life; False: none is sent to them."""
    framing_options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword options for the decoder of its provider's stream (dialects that need them)."""

    def caller_path(self, model: str) -> str:
        """Where a caller sends its request for a stream of this model, percent-encoded, with its query."""
        route = self.routes[0]
        query = "" if route.query is None else "?" + "=".join(route.query)
        return route.path.replace("{model}", quote(model, safe="")) + query
