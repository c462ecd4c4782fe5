from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.framing import Frame
from headrace.tape import Library, LibraryError, Recording
from tests.fixtures import FIXTURES, fixture_bytes, fixture_index, requires_fixtures

OPENAI = b'data: {"object":"chat.completion.chunk","choices":[]}\n\ndata: [DONE]\n\n'
ANTHROPIC = (
    b'event: message_start\r\ndata: {"type":"message_start"}\r\n\r\n'
    b": ping\r\n\r\n"
    b'event: message_stop\r\ndata: {"type":"message_stop"}\r\n\r\n'
)


def recording(library: Library, name: str) -> Recording:
    found = library.get(name)
    assert isinstance(found, Recording)
    return found


def test_builtin_scripts() -> None:
    names = set(Library.builtin().names)
    assert {"hello", "text", "reasoning", "parallel-tools", "zero-argument-tool", "error", "error-first"} <= names
    assert {"long", "refusal", "tool-round-trip", "json", "echo"} <= names
    assert Library.builtin().skipped == ()


def test_folder(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "a" / "one.sse").write_bytes(OPENAI)
    (tmp_path / "a" / "two.jsonl").write_bytes(b'{"type":"message_start"}\n{"type":"message_stop"}\n')
    (tmp_path / "mine.yaml").write_text("steps: [{text: hi}]")
    (tmp_path / "bad.yaml").write_text("steps: 3")
    (tmp_path / "what.sse").write_bytes(b"data: {}\n\n")
    (tmp_path / "notes.md").write_text("not a stream")
    (tmp_path / ".hidden" / "x.sse").write_bytes(OPENAI)
    library = Library.load(tmp_path)
    assert library.names == ["a/one", "a/two", "mine"]
    assert library.get("one") is library.get("a/one")
    assert "two" in library
    assert library.near("min") == ["mine"]
    reasons = {Path(skipped.file).name: skipped.reason for skipped in library.skipped}
    assert set(reasons) == {"bad.yaml", "what.sse", "notes.md"}
    assert "say which of" in reasons["what.sse"]
    assert "*.md" in reasons["notes.md"]

    named = Library.load(tmp_path, format="gateway")
    assert recording(named, "what").format == "gateway"
    assert recording(named, "one").format == "openai_chat", "what a file shows outweighs what the caller says"


def test_raw_bytes_are_kept(tmp_path: Path) -> None:
    (tmp_path / "x.sse").write_bytes(ANTHROPIC)
    found = recording(Library.load(tmp_path / "x.sse"), "x")
    assert b"".join(piece.raw or b"" for piece in found.pieces) == ANTHROPIC
    assert [frame.event for _, frame in found.frames] == ["message_start", "message_stop"]
    assert [piece.at for piece in found.pieces] == [0.0, 0.02, 0.04]


def test_payloads_get_their_envelope_back(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"type":"message_start"}\n{"type":"ping"}\n')
    (tmp_path / "o.jsonl").write_bytes(b'{"object":"chat.completion.chunk"}\n')
    library = Library.load(tmp_path)
    assert [frame for _, frame in recording(library, "a").frames] == [
        Frame(b'{"type":"message_start"}', "message_start"),
        Frame(b'{"type":"ping"}', "ping"),
    ]
    assert [frame.data for _, frame in recording(library, "o").frames][-1] == b"[DONE]"


def test_same_name_twice(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b'{"type":"message_start"}\n')
    (tmp_path / "x.sse").write_bytes(OPENAI)
    assert Library.load(tmp_path).names == ["x", "x.sse"]


def test_libraries_add_up(tmp_path: Path) -> None:
    (tmp_path / "text.sse").write_bytes(OPENAI)
    both = Library.builtin() | Library.load(tmp_path)
    assert len(both) == len(Library.builtin())
    assert isinstance(both.get("text"), Recording)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "nothing to play"),
        (lambda path: path.write_bytes(OPENAI), "files named * are not known"),
        (lambda path: (path.mkdir(), (path / "index.tsv").write_text("a\tb\n")), "columns file, format, framing"),
        (lambda path: (path.mkdir(), (path / "index.tsv").write_bytes(b"\xff")), "utf-8"),
    ],
)
def test_nothing_to_play(tmp_path: Path, make: object, message: str) -> None:
    make(tmp_path / "it")  # type: ignore[operator]  # one of the functions above
    with pytest.raises(LibraryError) as caught:
        Library.load(tmp_path / "it")
    assert message in str(caught.value)


def test_index_decides(tmp_path: Path) -> None:
    rows = [
        "file\tformat\tframing\tshows",
        "a.txt\topenai.chat.acme\tsse-raw\tthe first",
        "gone.sse\topenai.chat\tsse-raw\t",
        "b.bin\tbedrock.converse\tbinary\t",
        "c.bin\topenai.chat\tbinary\t",
        "d.ndjson\tllm_stream\tndjson-raw\t",
    ]
    (tmp_path / "index.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "a.txt").write_bytes(b"data: {}\n\n")
    (tmp_path / "b.bin").write_bytes(b"")
    (tmp_path / "c.bin").write_bytes(b"")
    (tmp_path / "d.ndjson").write_bytes(json.dumps({"type": "stream.start"}).encode())
    library = Library.load(tmp_path)
    assert library.names == ["a", "d"]
    assert (recording(library, "a").format, recording(library, "a").description) == ("openai_chat", "the first")
    assert recording(library, "d").framing == "ndjson"
    reasons = {Path(skipped.file).name: skipped.reason for skipped in library.skipped}
    assert "cannot be read" in reasons["gone.sse"]
    assert "format is bedrock.converse" in reasons["b.bin"]
    assert "framing is binary" in reasons["c.bin"]


@requires_fixtures
def test_every_fixture_is_served_or_skipped_with_its_reason() -> None:
    library = Library.load(FIXTURES)
    known = ("openai.chat", "anthropic.messages", "cohere.v2", "mistral.chat")
    ours = [row.file for row in fixture_index() if row.format.startswith(known)]
    assert [name.rpartition(".")[0] for name in ours] == library.names
    assert len(ours) + len(library.skipped) == len(fixture_index())
    assert {skipped.reason.partition(" is ")[0] for skipped in library.skipped} == {"its format"}


@requires_fixtures
def test_raw_fixtures_are_byte_for_byte() -> None:
    library = Library.load(FIXTURES)
    rows = [row for row in fixture_index(framing="sse-raw") if row.file.rpartition(".")[0] in library]
    assert len(rows) > 20
    for row in rows:
        found = recording(library, row.file.rpartition(".")[0])
        assert b"".join(piece.raw or b"" for piece in found.pieces) == fixture_bytes(row.file)
