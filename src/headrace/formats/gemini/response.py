"""Whole bodies: a stream's only chunk, for the reader; a stream's chunks put together, by the writer."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.json import decode_payload, encode
from headrace.framing.frame import Frame
from headrace.model.assemble import Assembler, explode
from headrace.model.errors import GatewayError, ProtocolError
from headrace.model.response import Response

from .errors import error_info, find_error
from .reader import GeminiStreamReader
from .writer import GeminiStreamWriter

_ANY: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def read_response(body: bytes, options: ReaderOptions) -> Response:
    """Raises ProtocolError, and GatewayError where the body is an error in disguise. A list of chunks is read as one."""
    parsed = decode_payload(body, _ANY, "The provider's answer")
    error = find_error(parsed)
    if error is not None:
        raise GatewayError(error_info(error, provider=options.provider or None))
    reader = GeminiStreamReader(options)
    chunks = parsed if isinstance(parsed, list) else [parsed]
    assembler = Assembler()
    for chunk in chunks:
        if not isinstance(chunk, dict):
            raise ProtocolError("The provider's answer must be a JSON object, or an array of them")
        assembler.feed(reader.read([Frame(encode(chunk))]))
    assembler.feed(reader.eof())
    if assembler.error is not None:
        raise GatewayError(assembler.error)
    response = assembler.response()
    response.provider = options.provider
    response.origin = body if options.passthrough else None
    return response


def write_response(response: Response, options: WriterOptions) -> bytes:
    if options.passthrough and isinstance(response.origin, bytes):
        return response.origin
    writer = GeminiStreamWriter(msgspec.structs.replace(options, passthrough=False))
    chunks = [_ANY.decode(frame.data) for frame in writer.write(list(explode(response)))]
    return encode(_merged(chunks))


def _merged(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """One body of a stream's chunks. Parts of the same kind become one, but those with a signature stay by themselves."""
    body: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for raw in chunk.pop("candidates", ()):
            candidate = candidates.setdefault(raw["index"], {"content": {"parts": [], "role": "model"}})
            parts: list[dict[str, Any]] = candidate["content"]["parts"]
            for part in raw.pop("content", {}).get("parts", ()):
                _add(parts, part)
            if "logprobsResult" in raw:
                _extend(candidate.setdefault("logprobsResult", {}), raw.pop("logprobsResult"))
            candidate.update(raw)
        body.update(chunk)
    body["candidates"] = [candidates[index] for index in sorted(candidates)]
    return body


def _add(parts: list[dict[str, Any]], part: dict[str, Any]) -> None:
    if part == {"text": ""}:
        return
    last = parts[-1] if parts else None
    mergeable = {"text", "thought"}
    same = last is not None and "text" in last and last.keys() <= mergeable and "text" in part
    if last is not None and same and last.get("thought") == part.get("thought"):
        if part.keys() <= mergeable:
            last["text"] += part["text"]
            return
        if part.get("thought") and not part["text"]:
            last.update({**part, "text": last["text"]})  # the thought that it signs
            return
    parts.append(part)


def _extend(into: dict[str, Any], more: dict[str, Any]) -> None:
    for name, values in more.items():
        into[name] = [*into.get(name, ()), *values]
