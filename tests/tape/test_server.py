from __future__ import annotations

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from headrace.formats import FORMATS
from headrace.formats.base import ReaderOptions
from headrace.framing import FRAMINGS, SSEDecoder
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Part, Text, ToolCall
from headrace.model.errors import ErrorCode
from headrace.model.events import Event
from headrace.model.grammar import Grammar
from headrace.model.response import Response
from headrace.tape import FAULTS, Library, Recording, ReplayServer, Script
from headrace.tape.answer import GARBAGE
from headrace.tape.http import Connection
from tests.fixtures import FIXTURES, fixture_bytes, fixture_index, requires_fixtures
from tests.tape.wire import FORMATS as NAMES
from tests.tape.wire import PATHS, Wire, ask, request_body

TOOLS: dict[str, Any] = {
    "openai_chat": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}],
    "anthropic": [{"name": "get_weather", "input_schema": {"type": "object"}}],
    "llm_stream": [{"name": "get_weather", "description": "Weather", "parameters": {"type": "object"}}],
    "gateway": [{"name": "get_weather", "description": "Weather", "parameters": {"type": "object"}}],
}


def read_stream(format: str, body: bytes, framing: str = "sse") -> list[Event]:
    """The events of a whole body, checked against the grammar."""
    chosen = FORMATS[format]
    decoder = FRAMINGS[framing].decoder(**chosen.framing_options)
    frames = [*decoder.feed(body), *decoder.eof()]
    reader = chosen.stream_reader(ReaderOptions(provider="replay"))
    leftover = decoder.leftover() if isinstance(decoder, SSEDecoder) else b""
    events = [*reader.read(frames), *reader.eof(leftover)]
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    assert grammar.ended
    return events


def parts(response: Response) -> list[Part]:
    return [part for choice in response.choices for part in choice.parts]


def texts(response: Response) -> str:
    return "".join(part.text for part in parts(response) if isinstance(part, Text))


def calls(response: Response) -> list[tuple[str, Any]]:
    return [
        (part.name, json.loads(part.arguments))
        for part in parts(response)
        if isinstance(part, ToolCall) and part.complete
    ]


async def stream(server: ReplayServer, format: str, model: str, **kwargs: Any) -> list[Event]:
    status, _, chunks = await ask(server, format, model, **kwargs)
    assert status == 200, chunks
    return read_stream(format, b"".join(chunks))


# -- streams -----------------------------------------------------------------------------------------------------------


def _scripted(name: str) -> Response:
    """What the script itself says, as the answer to the question of `request_body`."""
    script = Library.builtin().get(name)
    assert isinstance(script, Script)
    body = FORMATS["gateway"].read_request(request_body("gateway", name))
    return assemble(event for _, event in script.events(body, "acme"))


@pytest.mark.parametrize("format", NAMES)
@pytest.mark.parametrize("name", [name for name in Library.builtin().names if not name.startswith("error")])
async def test_every_script_in_every_format(server: ReplayServer, name: str, format: str) -> None:
    events = await stream(server, format, name)
    assert isinstance(events[-1], ev.End)
    read, meant = assemble(events), _scripted(name)
    assert calls(read) == calls(meant)
    if name != "refusal":  # a refusal is plain text in formats that have no other word for it
        assert texts(read) == texts(meant)
    assert read.choices[0].stop is not None


@pytest.mark.parametrize("format", NAMES)
@pytest.mark.parametrize("name", [name for name in Library.builtin().names if not name.startswith("error")])
async def test_whole_bodies(server: ReplayServer, name: str, format: str) -> None:
    status, headers, chunks = await ask(server, format, name, stream=False)
    assert (status, headers["content-type"]) == (200, "application/json")
    read = FORMATS[format].read_response(b"".join(chunks), ReaderOptions())
    assert calls(read) == calls(_scripted(name))
    if name != "refusal":
        assert texts(read) == texts(_scripted(name))


@pytest.mark.parametrize("format", NAMES)
async def test_error_in_the_middle(server: ReplayServer, format: str) -> None:
    events = await stream(server, format, "error")
    assert isinstance(events[-1], ev.Error)
    assert events[-1].error.code is ErrorCode.PROVIDER_UNAVAILABLE
    assert texts(assemble(events)) == "The water level is "


@pytest.mark.parametrize("format", NAMES)
async def test_error_before_the_stream(server: ReplayServer, format: str) -> None:
    for streaming in (True, False):
        status, headers, chunks = await ask(server, format, "error-first", stream=streaming)
        assert (status, headers["retry-after"]) == (429, "1")
        info = FORMATS[format].read_error(status, headers, b"".join(chunks))
        assert info.code is ErrorCode.PROVIDER_RATE_LIMITED


@pytest.mark.parametrize("format", NAMES)
async def test_error_in_a_whole_body_is_a_status(server: ReplayServer, format: str) -> None:
    status, _, _ = await ask(server, format, "error", stream=False)
    assert status >= 500


@pytest.mark.parametrize("format", NAMES)
async def test_tool_round_trip(server: ReplayServer, format: str) -> None:
    wire = await Wire.open(server)
    path, content_type = PATHS[format]
    wire.send(path, request_body(format, "tool-round-trip", tools=TOOLS[format]), content_type=content_type)
    _, _, chunks = await wire.answer()
    wire.drop()
    response = assemble(read_stream(format, b"".join(chunks)))
    assert calls(response) == [("get_weather", {"city": "Vienna"})]


async def test_echo_shows_what_reached_the_provider(server: ReplayServer) -> None:
    text = texts(assemble(await stream(server, "openai_chat", "echo")))
    assert text.startswith("How high is the water?\n[")
    assert "messages: 1;" in text


async def test_same_request_same_bytes(server: ReplayServer) -> None:
    for format in NAMES:
        assert await ask(server, format, "parallel-tools") == await ask(server, format, "parallel-tools")


async def test_ndjson_where_it_is_asked_for(server: ReplayServer) -> None:
    _, headers, chunks = await ask(server, "gateway", "text", accept="application/x-ndjson")
    assert headers["content-type"] == "application/x-ndjson"
    events = read_stream("gateway", b"".join(chunks), "ndjson")
    assert texts(assemble(events)) == texts(_scripted("text"))
    _, headers, _ = await ask(server, "gateway", "text", accept="*/*")
    assert headers["content-type"] == "text/event-stream"


# -- recordings --------------------------------------------------------------------------------------------------------


@requires_fixtures
async def test_fixtures_in_their_own_format_are_byte_for_byte() -> None:
    library = Library.load(FIXTURES)
    rows = [row for row in fixture_index(framing="sse-raw") if row.file.rpartition(".")[0] in library]
    async with ReplayServer(library, speed=0) as server:
        for row in rows:
            name = row.file.rpartition(".")[0]
            found = library.get(name)
            assert isinstance(found, Recording)
            _, _, chunks = await ask(server, found.format, name)
            assert b"".join(chunks) == fixture_bytes(row.file), row.file


@requires_fixtures
async def test_fixtures_in_other_formats_can_be_read() -> None:
    library = Library.load(FIXTURES)
    async with ReplayServer(library, speed=0) as server:
        for found in library:
            assert isinstance(found, Recording)
            for format in NAMES:
                status, _, chunks = await ask(server, format, found.name)
                assert status == 200, (found.name, format)
                if format != found.format:
                    read_stream(format, b"".join(chunks))


async def test_unknown_stream_is_not_found(server: ReplayServer) -> None:
    for format in NAMES:
        status, headers, chunks = await ask(server, format, "parallel-tool")
        assert status == 404
        info = FORMATS[format].read_error(status, headers, b"".join(chunks))
        assert info.code is ErrorCode.MODEL_NOT_FOUND
        assert "Did you mean" in info.message
        assert "reasoning" in info.message


async def test_default_stream_answers_for_every_name() -> None:
    async with ReplayServer(Library.builtin(), speed=0, default_stream="hello") as server:
        assert texts(assemble(await stream(server, "anthropic", "claude-anything"))) == "Hello!"
        status, _, chunks = await ask(server, "anthropic", "gpt?status=503")
        assert status == 503, chunks


@pytest.mark.parametrize(
    "wrong",
    [{"default_format": "morse"}, {"default_stream": "nope"}, {"speed": -1.0}, {"speed": float("nan")}],
)
def test_wrong_options(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ReplayServer(Library.builtin(), **wrong)


# -- faults on the wire ------------------------------------------------------------------------------------------------


async def whole_events(server: ReplayServer, model: str = "text") -> list[bytes]:
    """One chunk an event is the rule; these are the events of the untouched stream."""
    _, _, chunks = await ask(server, "anthropic", model)
    return chunks


async def test_one_chunk_an_event(server: ReplayServer) -> None:
    chunks = await whole_events(server)
    assert len(chunks) > 30
    assert all(chunk.startswith(b"event: ") and chunk.endswith(b"\n\n") for chunk in chunks)


@pytest.mark.parametrize("by_model", [False, True])
@pytest.mark.parametrize("format", NAMES)
async def test_status(server: ReplayServer, format: str, by_model: bool) -> None:
    model, faults = ("text?status=503&retry_after=2", "") if by_model else ("text", "status=503,retry_after=2")
    status, headers, chunks = await ask(server, format, model, faults=faults)
    assert (status, headers["retry-after"], headers["content-type"]) == (503, "2", "application/json")
    assert FORMATS[format].read_error(status, headers, b"".join(chunks)).code is ErrorCode.PROVIDER_UNAVAILABLE


async def test_header_outweighs_the_model(server: ReplayServer) -> None:
    assert (await ask(server, "anthropic", "text?status=503", faults="status=429"))[0] == 429


async def test_unknown_fault_is_refused_with_the_list(server: ReplayServer) -> None:
    for model, faults in (("text?fire=1", ""), ("text", "fire=1")):
        status, _, chunks = await ask(server, "openai_chat", model, faults=faults)
        assert status == 400
        assert all(name.encode() in chunks[0] for name in FAULTS)


@pytest.mark.parametrize(
    ("fault", "error"), [("cut=3", asyncio.IncompleteReadError), ("reset=3", ConnectionResetError)]
)
async def test_breaking_off(server: ReplayServer, fault: str, error: type[Exception]) -> None:
    expected = await whole_events(server)
    wire = await Wire.open(server)
    wire.ask("anthropic", "text", faults=fault)
    assert (await wire.head())[0] == 200
    chunks, raised = await wire.broken_body()
    assert chunks == expected[:3]
    assert type(raised) is error
    assert server.aborted == 0
    assert server.active == 0


async def test_clean_cut_leaves_the_connection_usable(server: ReplayServer) -> None:
    expected = await whole_events(server)
    wire = await Wire.open(server)
    for _ in range(2):
        wire.ask("anthropic", "text", faults="cut=3,cut_clean=1")
        assert (await wire.answer())[2] == expected[:3]
    wire.drop()


@pytest.mark.parametrize("fault", ["hang", "silence=0", "silence=3"])
async def test_silence_and_the_disconnect_during_it(server: ReplayServer, fault: str) -> None:
    wire = await Wire.open(server)
    wire.ask("anthropic", "text", faults=fault)
    if fault != "hang":
        await wire.head()
    async with asyncio.timeout(10):
        await server.wait_started()
        if fault == "silence=3":
            chunks = wire.chunks()
            assert len([await anext(chunks) for _ in range(3)]) == 3
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await wire.reader.readexactly(1)
    assert (server.active, server.aborted) == (1, 0)

    before = asyncio.get_running_loop().time()
    wire.writer.close()
    async with asyncio.timeout(10):
        noticed = await server.wait_aborted(1)
    assert noticed >= before
    assert (server.active, server.aborted) == (0, 1)


async def test_disconnect_while_a_delay_is_running(server: ReplayServer) -> None:
    wire = await Wire.open(server)
    wire.ask("anthropic", "text", faults="delay=3600")
    await server.wait_started()
    wire.drop()
    async with asyncio.timeout(10):
        await server.wait_aborted()
    assert server.active == 0


@pytest.mark.parametrize("format", NAMES)
async def test_error_event_after_k(server: ReplayServer, format: str) -> None:
    events = await stream(server, format, "text", faults="error=4:overloaded_error")
    assert isinstance(events[-1], ev.Error)
    assert events[-1].error.code is ErrorCode.PROVIDER_UNAVAILABLE
    whole = texts(_scripted("text"))
    text = texts(assemble(events))
    assert text
    assert text != whole
    assert whole.startswith(text)
    at_once = await stream(server, format, "text", faults="error=0:rate_limit_error")
    assert isinstance(at_once[-1], ev.Error)
    assert at_once[-1].error.code is ErrorCode.PROVIDER_RATE_LIMITED
    never = await stream(server, format, "text", faults="error=1000")
    assert isinstance(never[-1], ev.End)


@pytest.mark.parametrize("format", NAMES)
async def test_error_event_after_the_last_event_has_no_effect(server: ReplayServer, format: str) -> None:
    _, _, chunks = await ask(server, format, "hello")
    _, _, same = await ask(server, format, "hello", faults=f"error={len(chunks)}")
    assert same == chunks


@requires_fixtures
async def test_error_event_inside_a_recording() -> None:
    async with ReplayServer(Library.load(FIXTURES), speed=0) as server:
        _, _, whole = await ask(server, "anthropic", "cache-read")
        _, _, chunks = await ask(server, "anthropic", "cache-read", faults="error=5:overloaded_error")
        assert chunks[:5] == whole[:5]
        events = read_stream("anthropic", b"".join(chunks))
        assert isinstance(events[-1], ev.Error)


@pytest.mark.parametrize(
    "fault", ["split=5", "coalesce=7", "comment=2", "crlf=1", "cr=1", "nospace=1", "drip=1,speed=0"]
)
@pytest.mark.parametrize("format", NAMES)
async def test_faults_that_a_good_reader_survives(server: ReplayServer, format: str, fault: str) -> None:
    model = "hello" if "drip" in fault else "parallel-tools"
    untouched = await stream(server, format, model)
    assert await stream(server, format, model, faults=fault) == untouched


async def test_chunks_of_split_and_coalesce(server: ReplayServer) -> None:
    expected = await whole_events(server)
    _, _, split = await ask(server, "anthropic", "text", faults="split=5")
    assert {len(chunk) for chunk in split} <= {1, 2, 3, 4, 5}
    assert b"".join(split) == b"".join(expected)
    _, _, coalesced = await ask(server, "anthropic", "text", faults="coalesce=7")
    assert coalesced[0] == b"".join(expected[:7])


async def test_malformed_garbage_and_duplicate(server: ReplayServer) -> None:
    expected = await whole_events(server)
    _, _, chunks = await ask(server, "anthropic", "text", faults="malformed=3,garbage=4,duplicate_terminal=1")
    assert chunks[:2] == expected[:2]
    payload = chunks[2].partition(b"data: ")[2].strip()
    assert expected[2].partition(b"data: ")[2].startswith(payload)
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        json.loads(payload)
    assert chunks[3:5] == [expected[3], GARBAGE]
    assert chunks[5:] == [*expected[4:], expected[-1]]


async def test_gzip(server: ReplayServer) -> None:
    expected = await whole_events(server)
    _, headers, chunks = await ask(server, "anthropic", "text", faults="gzip=1")
    assert headers["content-encoding"] == "gzip"
    assert gzip.decompress(b"".join(chunks)) == b"".join(expected)


@pytest.mark.parametrize("format", NAMES)
async def test_json_for_a_stream(server: ReplayServer, format: str) -> None:
    _, headers, chunks = await ask(server, format, "text", faults="json=1")
    assert headers["content-type"] == "application/json"
    assert texts(FORMATS[format].read_response(b"".join(chunks), ReaderOptions())) == texts(_scripted("text"))


async def test_rhythm(tmp_path: Path) -> None:
    lines = [{"tape": 1, "format": "anthropic"}, {"at": 0.0, "data": "a"}, {"at": 36_000.0, "data": "b"}]
    (tmp_path / "slow.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    loop = asyncio.get_running_loop()
    async with ReplayServer(Library.load(tmp_path)) as server:
        wire = await Wire.open(server)
        wire.ask("anthropic", "slow")
        await wire.head()
        chunks = wire.chunks()
        assert await anext(chunks) == b"data: a\n\n"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await anext(chunks)
        wire.drop()

        started = loop.time()
        _, _, paced = await ask(server, "anthropic", "slow", faults="speed=360000")
        assert loop.time() - started > 0.09  # uvloop counts whole milliseconds
        _, _, at_once = await ask(server, "anthropic", "slow", faults="speed=0")
        assert paced == at_once == [b"data: a\n\n", b"data: b\n\n"]


# -- HTTP --------------------------------------------------------------------------------------------------------------


async def test_keep_alive_and_pipelining(server: ReplayServer) -> None:
    wire = await Wire.open(server)
    wire.ask("anthropic", "hello")
    wire.ask("openai_chat", "hello")
    wire.ask("gateway", "hello", stream=False)
    for format in ("anthropic", "openai_chat"):
        _, _, chunks = await wire.answer()
        assert texts(assemble(read_stream(format, b"".join(chunks)))) == "Hello!"
    await wire.answer()
    wire.ask("anthropic", "nowhere")
    assert (await wire.answer())[0] == 404
    assert server.connections == 1
    wire.drop()


async def test_connection_close_and_http_10(server: ReplayServer) -> None:
    wire = await Wire.open(server)
    wire.ask("anthropic", "hello", connection="close")
    await wire.answer()
    assert await wire.reader.read() == b""
    wire.drop()

    wire = await Wire.open(server)
    body = request_body("anthropic", "hello")
    wire.writer.write(b"POST /v1/messages HTTP/1.0\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
    head, _, rest = (await wire.reader.read()).partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert texts(assemble(read_stream("anthropic", rest))) == "Hello!"
    wire.drop()


async def test_chunked_request_and_expect_continue(server: ReplayServer) -> None:
    wire = await Wire.open(server)
    wire.writer.write(
        b"POST /v1/messages HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    assert await wire.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    body = request_body("anthropic", "hello")
    wire.writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    assert (await wire.answer())[0] == 200
    wire.drop()


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/v1/messages", b"{", 400),
        ("POST", "/v1/messages", b"", 400),
        ("POST", "/v1/messages", b"[]", 400),
        ("POST", "/v1/messages", b'{"model": 7}', 400),
        ("POST", "/v1/messages", b'{"model": "text"}', 400),
        ("POST", "/v1/messages", b"[" * 100_000, 400),
        ("GET", "/v1/messages", b"", 405),
        ("POST", "/v1/embeddings", b"{}", 404),
        ("GET", "/", b"", 404),
        ("POST", "/v1/chat", b"{}", 404),
    ],
)
async def test_what_is_wrong_with_a_request(
    server: ReplayServer, method: str, path: str, body: bytes, status: int
) -> None:
    wire = await Wire.open(server)
    wire.send(path, body, method=method)
    found, headers, chunks = await wire.answer()
    assert (found, headers["content-type"]) == (status, "application/json")
    assert json.loads(chunks[0])["error"]["message"]
    wire.drop()


async def test_what_is_not_http(server: ReplayServer) -> None:
    wire = await Wire.open(server)
    wire.writer.write(b"\x16\x03\x01 not http\r\n\r\n")
    assert (await wire.reader.read()).startswith(b"HTTP/1.1 400 ")
    wire.drop()
    assert (await ask(server, "anthropic", "hello"))[0] == 200


async def test_models(server: ReplayServer) -> None:
    wire = await Wire.open(server)
    wire.send("/v1/models", method="GET", anthropic_version="2023-06-01")
    status, _, chunks = await wire.answer()
    listed = json.loads(chunks[0])
    assert status == 200
    assert [model["id"] for model in listed["data"]] == server.library.names
    assert (listed["data"][0]["type"], listed["has_more"]) == ("model", False)
    wire.drop()
    async with ReplayServer(Library.builtin(), default_format="openai_chat") as other:
        wire = await Wire.open(other)
        wire.send("/v1/models", method="GET")
        listed = json.loads((await wire.answer())[2][0])
        assert listed["object"] == "list"
        assert [model["id"] for model in listed["data"]] == other.library.names
        wire.drop()


@pytest.mark.parametrize("format", NAMES)
async def test_api_key(format: str) -> None:
    async with ReplayServer(Library.builtin(), speed=0, api_key="open-sesame") as server:
        right: dict[str, Any] = {
            name.lower().replace("-", "_"): value for name, value in FORMATS[format].auth_headers("open-sesame")
        }
        wrong = {name: value.replace("sesame", "barley") for name, value in right.items()}
        assert (await ask(server, format, "hello", **right))[0] == 200
        without: dict[str, Any] = {}
        for headers in (wrong, without):
            status, _, chunks = await ask(server, format, "hello", **headers)
            assert status == 401
            info = FORMATS[format].read_error(status, {}, chunks[0])
            assert info.code is ErrorCode.UNAUTHENTICATED
            assert "sesame" not in info.message


async def test_requests_are_recorded(server: ReplayServer) -> None:
    before = asyncio.get_running_loop().time()
    await ask(server, "anthropic", "hello", x_trace="abc")
    seen = server.requests[-1]
    assert (seen.method, seen.path, seen.headers["x-trace"]) == ("POST", "/v1/messages", "abc")
    assert seen.body["messages"][0]["content"] == "How high is the water?"
    assert seen.at >= before
    assert "abc" not in repr(seen)
    async with ReplayServer(Library.builtin(), speed=0) as quiet:
        await ask(quiet, "anthropic", "hello")
        assert quiet.requests == []


async def test_a_caller_that_does_not_read_holds_the_stream_up(
    server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server keeps no more than one event for it, and goes on when it reads again."""
    wire = await Wire.open(server)
    wire.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport of both directions
    paused = asyncio.Event()
    pause_writing = Connection.pause_writing

    def notice(connection: Connection) -> None:
        paused.set()
        pause_writing(connection)

    monkeypatch.setattr(Connection, "pause_writing", notice)
    count = 50  # more than all socket buffers together
    for _ in range(count):
        wire.ask("gateway", "long")
    async with asyncio.timeout(60):
        await paused.wait()
        (connection,) = server._connections
        assert (await ask(server, "gateway", "hello"))[0] == 200
        assert connection._transport is not None
        assert connection._transport.get_write_buffer_size() < 4096
        assert server.active == 1
        wire.writer.transport.resume_reading()  # type: ignore[attr-defined]  # as above
        first = await wire.answer()
        for _ in range(count - 1):
            assert await wire.answer() == first
    wire.drop()


async def test_200_streams_side_by_side(server: ReplayServer) -> None:
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(ask(server, NAMES[n % 4], "parallel-tools") for n in range(200)))
    for n in range(4):
        assert all(found == answers[n] for found in answers[n::4])
    assert server.active == 0
    assert server.aborted == 0


async def test_aclose_ends_everything_and_may_be_repeated() -> None:
    server = ReplayServer(Library.builtin())
    await server.aclose()
    await server.start()
    wire = await Wire.open(server)
    wire.ask("anthropic", "text", faults="hang")
    await server.wait_started()
    async with asyncio.timeout(10):
        await server.aclose()
        await server.aclose()
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await wire.reader.readexactly(1)
    assert server.active == 0
    with pytest.raises(OSError, match="Connect"):
        await Wire.open(server)
    wire.drop()


async def test_a_defect_in_a_writer_drops_the_connection(
    server: ReplayServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: object, *_: object) -> Any:
        raise RuntimeError("How high is the water?")
        yield

    monkeypatch.setattr("headrace.tape.render.Rendering._written", fail)
    wire = await Wire.open(server)
    wire.ask("anthropic", "text")
    await wire.head()
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
        await wire.reader.readexactly(1)
    assert "broke off: RuntimeError" in caplog.text
    assert "water" not in caplog.text
    wire.drop()
