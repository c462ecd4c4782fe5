"""A raw HTTP client for the tests of the tape: it shows every chunk, and how the connection ended."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from headrace.tape import ReplayServer

FORMATS = ("openai_chat", "anthropic", "llm_stream", "gateway")

PATHS = {
    "openai_chat": ("/v1/chat/completions", "application/json"),
    "anthropic": ("/v1/messages", "application/json"),
    "llm_stream": ("/v1/chat", "application/llm-request+json"),
    "gateway": ("/v1/chat", "application/json"),
    "cohere": ("/v2/chat", "application/json"),
    "mistral": ("/mistral/v1/chat/completions", "application/json"),
}

_EXTRA: dict[str, dict[str, Any]] = {
    "openai_chat": {"stream_options": {"include_usage": True}},
    "anthropic": {"max_tokens": 100},
    "llm_stream": {"version": "1.0"},
    "gateway": {},
    "cohere": {},
    "mistral": {},
}


def request_body(format: str, model: str, *, stream: bool = True, **fields: Any) -> bytes:
    messages = [{"role": "user", "content": "How high is the water?"}]
    return json.dumps({"model": model, "stream": stream, "messages": messages, **_EXTRA[format], **fields}).encode()


class Wire:
    """One connection. Give up with `drop`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, server: ReplayServer) -> Wire:
        return cls(*await asyncio.open_connection(server.host, server.port))

    def send(self, path: str, body: bytes = b"", *, method: str = "POST", **headers: str) -> None:
        lines = [f"{method} {path} HTTP/1.1", "host: test", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "\r\n"]).encode() + body)

    def ask(self, format: str, model: str, *, faults: str = "", stream: bool = True, **headers: str) -> None:
        path, content_type = PATHS[format]
        if faults:
            headers["x_replay"] = faults
        self.send(path, request_body(format, model, stream=stream), content_type=content_type, **headers)

    async def head(self) -> tuple[int, dict[str, str]]:
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(": ") for line in lines[1:] if line)
        return int(lines[0].split(" ")[1]), {name: value for name, _, value in pairs}

    async def chunks(self) -> AsyncIterator[bytes]:
        """The chunks of a body up to its proper end. asyncio.IncompleteReadError where there is none."""
        while True:
            size = int((await self.reader.readuntil(b"\r\n")).strip(), 16)
            chunk = await self.reader.readexactly(size + 2)
            assert chunk.endswith(b"\r\n")
            if size == 0:
                return
            yield chunk[:-2]

    async def answer(self) -> tuple[int, dict[str, str], list[bytes]]:
        """(status, headers, chunks); a body with a length is one chunk."""
        status, headers = await self.head()
        if "content-length" in headers:
            return status, headers, [await self.reader.readexactly(int(headers["content-length"]))]
        return status, headers, [chunk async for chunk in self.chunks()]

    async def broken_body(self) -> tuple[list[bytes], Exception]:
        """The chunks before the connection broke off, and how it did."""
        chunks: list[bytes] = []
        try:
            async for chunk in self.chunks():
                chunks.append(chunk)  # noqa: PERF401  # an exception is expected half-way
        except (asyncio.IncompleteReadError, ConnectionResetError) as error:
            return chunks, error
        raise AssertionError("the body ended properly")

    def drop(self) -> None:
        self.writer.transport.abort()


async def ask(
    server: ReplayServer, format: str, model: str, *, faults: str = "", stream: bool = True, **headers: str
) -> tuple[int, dict[str, str], list[bytes]]:
    """One request on a connection of its own."""
    wire = await Wire.open(server)
    try:
        wire.ask(format, model, faults=faults, stream=stream, **headers)
        return await wire.answer()
    finally:
        wire.drop()
