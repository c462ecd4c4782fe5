"""Which formats and which framing: Content-Type and Accept against the table of what is served. Pure.

Content-Type chooses the format of the request, Accept the format and framing of the answer; where Accept says nothing
particular, the answer comes in the request's format and that format's native framing. SDKs ask for
`application/json` even when they stream, so media types that we serve at all are never a reason to refuse: the body's
`stream` field decides whether the answer is a stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from headrace.formats import FORMATS, Format
from headrace.formats.locate import Locator
from headrace.framing import FRAMINGS
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError

LLM_REQUEST = "application/llm-request+json"
JSON = "application/json"

PLACES = Locator(fmt for fmt in FORMATS.values() if fmt.media_type == JSON)
"""The inference paths, and what application/json means on each."""
PROFILES: dict[str, Format] = {fmt.profile: fmt for fmt in FORMATS.values()}
_STREAM_FRAMINGS = {framing.media_type: name for name, framing in FRAMINGS.items() if framing.media_type != JSON}


@dataclass(frozen=True, slots=True)
class Negotiated:
    """`request` reads the body, `answer` writes the response; `framing` carries it when it is a stream."""

    request: Format
    answer: Format
    framing: str


def media_type(value: str) -> tuple[str, dict[str, str]]:
    """A media type with its parameters, names lower-cased and quotes removed: `a/b; c="d"` -> ("a/b", {"c": "d"})."""
    essence, *rest = _split(value, ";")
    parameters = {}
    for item in rest:
        name, _, parameter = item.partition("=")
        parameters[name.strip().lower()] = _unquote(parameter.strip())
    return essence.strip().lower(), parameters


_CACHED = 512
"""Headers longer than this are worked out each time; clients send a handful of short ones again and again."""


def request_format(native: str, content_type: str | None) -> Format:
    """The format of a body that arrived where JSON means the format `native` (its name). Raises GatewayError 415."""
    if content_type is not None and len(content_type) <= _CACHED:
        return _request_format_cached(native, content_type)
    return _request_format(native, content_type)


def _request_format(name: str, content_type: str | None) -> Format:
    native = FORMATS[name]
    if content_type is None or not content_type.strip():
        return native
    essence, parameters = media_type(content_type)
    if parameters.get("charset", "utf-8").lower() not in ("utf-8", "utf8", "us-ascii"):
        raise _unsupported(f"charset {parameters['charset']!r} is not supported: send UTF-8")
    if essence == LLM_REQUEST:
        version = parameters.get("version", "1.0")
        if version != "1.0":
            raise _unsupported(f'{LLM_REQUEST} version {version!r} is not supported: send version "1.0"')
        return FORMATS["llm_stream"]
    if essence != JSON:
        raise _unsupported(f"Content-Type {essence!r} is not served here: send {JSON} or {LLM_REQUEST}")
    profile = parameters.get("profile")
    if profile is None:
        return native
    if profile not in PROFILES:
        raise _unsupported(f"profile {profile!r} is not served: use one of {_names()}")
    return PROFILES[profile]


def negotiate(request: Format, accept: str | None, framing: str = "") -> Negotiated:
    """What the answer to a request of this format looks like. Raises GatewayError 406.

    `framing` is that of its stream where `accept` names none; "": the format's native one.
    """
    if accept is None or len(accept) <= _CACHED:
        return _negotiate_cached(request.name, accept, framing)
    return _negotiate(request.name, accept, framing)


def _negotiate(name: str, accept: str | None, native: str) -> Negotiated:
    request = FORMATS[name]
    ranges = _ranges(accept)
    refused: str | None = None
    for essence, parameters in ranges:
        framing = _STREAM_FRAMINGS.get(essence)
        if framing is None and essence not in (JSON, "application/*", "text/*", "*/*"):
            refused = refused or f"{essence!r} is not served"
            continue
        profile = parameters.get("profile")
        if profile is not None and profile not in PROFILES:
            refused = f"profile {profile!r} is not served: use one of {_names()}"
            continue
        answer = request if profile is None else PROFILES[profile]
        if framing is not None and framing not in answer.framings:
            refused = f"{answer.profile} is not carried in {essence}"
            continue
        return Negotiated(request, answer, framing or _native(answer, request, native))
    if refused is not None:
        raise GatewayError(
            ErrorInfo(
                code=ErrorCode.INVALID_REQUEST,
                status=406,
                type="not_acceptable",
                param="Accept",
                message=f"Accept: {refused}. Served are text/event-stream and application/x-ndjson (streams), each with "
                f"an optional profile, and {JSON}",
            )
        )
    return Negotiated(request, request, _native(request, request, native))


def _native(answer: Format, request: Format, framing: str) -> str:
    return framing if framing and answer is request else answer.framings[0]


_request_format_cached = lru_cache(maxsize=256)(_request_format)
_negotiate_cached = lru_cache(maxsize=256)(_negotiate)


def _ranges(accept: str | None) -> list[tuple[str, dict[str, str]]]:
    """Media ranges in the caller's order of preference: by q, then the more specific first (RFC 9110, 12.5.1), then as
    written. q=0 is dropped."""
    weighted = []
    for item in _split(accept or "", ","):
        essence, parameters = media_type(item)
        if not essence:
            continue
        try:
            quality = float(parameters.pop("q", "1"))
        except ValueError:
            quality = 1.0
        if quality > 0:
            weighted.append((-quality, -_specificity(essence, parameters), essence, parameters))
    weighted.sort(key=lambda entry: entry[:2])
    return [(essence, parameters) for _, _, essence, parameters in weighted]


def _specificity(essence: str, parameters: dict[str, str]) -> int:
    return 2 if "profile" in parameters else 0 if "*" in essence else 1


def _split(text: str, separator: str) -> list[str]:
    """Split outside quoted strings."""
    pieces, start, quoted, escaped = [], 0, False, False
    for position, character in enumerate(text):
        if escaped:
            escaped = False
        elif quoted and character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character == separator and not quoted:
            pieces.append(text[start:position])
            start = position + 1
    pieces.append(text[start:])
    return pieces


def _unquote(value: str) -> str:
    if len(value) >= 2 and value[0] == value[-1] == '"':
        return value[1:-1].replace('\\"', '"').replace("\\\\", "\\")
    return value


def _names() -> str:
    return ", ".join(sorted(PROFILES))


def _unsupported(message: str) -> GatewayError:
    return GatewayError(
        ErrorInfo(
            code=ErrorCode.INVALID_REQUEST,
            status=415,
            type="unsupported_media_type",
            param="Content-Type",
            message=message,
        )
    )
