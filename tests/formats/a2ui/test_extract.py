"""Finding A2UI messages in text: every way models write them, whatever the cuts, in linear time and bounded memory."""

from __future__ import annotations

import json
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.formats.a2ui.extract import LOOKAHEAD, MAX_MESSAGE, Broken, Extractor, Found, Piece, Plain

DELETE = '{"version":"v0.9","deleteSurface":{"surfaceId":"s1"}}'
UPDATE = (
    '{"version": "v0.9", "updateDataModel": {"surfaceId": "s\\"}1", "path": "/a", "value": "{\\\\} </a2ui-json> ```"}}'
)
PRETTY = json.dumps(json.loads(UPDATE), indent=2)


def found(*fragments: str) -> list[Piece]:
    extractor = Extractor()
    pieces = [piece for fragment in fragments for piece in extractor.feed(fragment)]
    return joined([*pieces, *extractor.end()])


def joined(pieces: list[Piece]) -> list[Piece]:
    """Texts that follow each other as one."""
    out: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, Plain) and out and isinstance(out[-1], Plain):
            out[-1] = Plain(out[-1].text + piece.text)
        else:
            out.append(piece)
    return out


def messages(pieces: list[Piece]) -> list[str]:
    return [piece.json for piece in pieces if isinstance(piece, Found)]


WRITTEN: dict[str, tuple[str, list[str]]] = {
    # how models write messages: (text, what is found in it)
    "tags": (f"Here:\n<a2ui-json>\n[{DELETE},\n{UPDATE}]\n</a2ui-json>\nDone.", ["Here:\n", DELETE, UPDATE, "Done."]),
    "one between tags": (f"<a2ui-json>{DELETE}</a2ui-json>", [DELETE]),
    "tags with attributes": (f'<A2UI-JSON version="0.9" >{DELETE}</a2ui-json >x', [DELETE, "x"]),
    "a fence between tags": (f"<a2ui-json>\n```json\n[{DELETE}]\n```\n</a2ui-json>", [DELETE]),
    "lines between tags": (f"<a2ui-json>{DELETE}\n{UPDATE}\n</a2ui-json>", [DELETE, UPDATE]),
    "lines": (f"I will.\n{DELETE}\n{UPDATE}\n\nDone.\n", ["I will.\n", DELETE, UPDATE, "Done.\n"]),
    "nothing but lines": (f"{DELETE}\n  {UPDATE}\n", [DELETE, UPDATE]),
    "without a last line end": (f"{DELETE}\n{UPDATE}", [DELETE, UPDATE]),
    "pretty": (f"See\n{PRETTY}\nthere", ["See\n", PRETTY, "there"]),
    "a list": (f"[\n{DELETE}, {UPDATE}\n] and so on", [DELETE, UPDATE, "and so on"]),
    "a fence": (f"See:\n```json\n{DELETE}\n{UPDATE}\n```\nDone.", ["See:\n", DELETE, UPDATE, "Done."]),
    "a fence of a list": (f"```\n[{DELETE},{UPDATE}]\n```", [DELETE, UPDATE]),
    "other keys first": (
        '{"deleteSurface":{"surfaceId":"s"},"version":"v0.9"}',
        ['{"deleteSurface":{"surfaceId":"s"},"version":"v0.9"}'],
    ),
}


def pieces_of(text: str, due: list[str]) -> list[Piece]:
    tagged = "<a2ui-json" in text.lower()
    return [Found(one, tagged) if one.startswith("{") else Plain(one) for one in due]


@pytest.mark.parametrize(("text", "due"), WRITTEN.values(), ids=list(WRITTEN))
def test_messages_are_found(text: str, due: list[str]) -> None:
    assert found(text) == pieces_of(text, due)


@pytest.mark.parametrize(("text", "due"), WRITTEN.values(), ids=list(WRITTEN))
def test_the_cuts_make_no_difference(text: str, due: list[str]) -> None:
    assert found(*text) == pieces_of(text, due)
    for cut in range(len(text)):
        assert found(text[:cut], text[cut:]) == pieces_of(text, due)


def test_a_message_is_handed_out_with_its_last_brace() -> None:
    extractor = Extractor()
    assert extractor.feed(f"<a2ui-json>[{DELETE[:-1]}") == []
    assert extractor.feed("}") == [Found(DELETE, True)]


NOTHING = [
    "Plain text, with < and {braces} and `code`.",
    '{"name": "x", "version": "v0.9"}\nis JSON',
    "[1, 2]\n{}\n[{}]\n",
    '```python\nd = {}\n```\n\n```json\n{"a": 1}\n```',
    "<a2ui is no tag, nor <a2ui-jsonx> or <a2ui-json",
    'a {"version":1} in a line, <b>bold</b>\n\t{\n',
    'a\u2028{"version"\u2029b\r\n  ```\r\nc',
    " " * 600 + "{x",
    "\n" * 600,
    "``",
]


@pytest.mark.parametrize("text", NOTHING)
def test_other_text_is_left_alone(text: str) -> None:
    for fragments in ([text], list(text)):
        pieces = found(*fragments)
        assert [type(piece) for piece in pieces] == [Plain] * bool(text)
        assert "".join(piece.text for piece in pieces if isinstance(piece, Plain)) == text


def test_json_that_only_begins_like_a_message() -> None:
    """Held until it is closed; what it is its reader says."""
    package = '{"version": "1.0.0", "name": "x"}'
    assert found(f"See\n{package}\nthere") == [Plain("See\n"), Found(package, False), Plain("there")]
    assert found('{"version": "1.0.0", "na') == [Plain('{"version": "1.0.0", "na')]


BROKEN: dict[str, tuple[str, list[str]]] = {
    "a line that is cut off": (f'{{"version":"v0.9","updateDataModel":{{"a"\n{DELETE}\n', [DELETE]),
    "an open string": (f'{{"version":"v0.9","updateDataModel":{{"a":"b\n{DELETE}\n{DELETE}', [DELETE, DELETE]),
    "too few braces between tags": (f"<a2ui-json>{DELETE[:-1]}</a2ui-json>\n{DELETE}", [DELETE]),
    "too few braces in a fence": (f"```json\n{DELETE[:-1]}\n```\n{DELETE}", [DELETE]),
    "the end of the text": (f'{DELETE}\n{{"version":"v0.9","deleteSurface":{{', [DELETE]),
    "words between tags": (f"<a2ui-json>Sure, here it is: {DELETE} ok?</a2ui-json>", [DELETE]),
    "nothing but words between tags": ("<a2ui-json>no < yes</a2ui-json>", []),
}


@pytest.mark.parametrize(("text", "due"), BROKEN.values(), ids=list(BROKEN))
def test_what_is_broken_is_told_once_and_swallows_nothing(text: str, due: list[str]) -> None:
    for fragments in ([text], list(text)):
        pieces = found(*fragments)
        assert messages(pieces) == due
        assert sum(isinstance(piece, Broken) for piece in pieces) == 1


def test_a_message_that_is_too_long_is_skipped_to_its_end() -> None:
    long = '{"version":"v0.9","updateDataModel":{"surfaceId":"s","value":"' + "x" * MAX_MESSAGE + '"}}'
    text = f"{long}\n{DELETE}\nend"
    pieces = found(*[text[place : place + 1000] for place in range(0, len(text), 1000)])
    assert [type(piece) for piece in pieces] == [Broken, Found, Plain]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [
                DELETE, PRETTY, UPDATE[:20], "<a2ui-json>", "</a2ui-json>", "<a2ui-", "```", "```json\n", "\n", " ", "[",
                "]", ",", "{", "}", '"', "\\", "text", '{"version"', "<", "`",
            ]
        ),
        max_size=14,
    ),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_any_text_in_any_pieces(words: list[str], dice: random.Random) -> None:
    text = "".join(words)
    whole = found(text)
    assert found(*text) == whole
    cuts = sorted(dice.randint(0, len(text)) for _ in range(3))
    assert found(*[text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == whole


HEAVY = [
    "<",
    "{",
    "\n",
    "\n{",
    '\n{"',
    '{"version":"v0.9",',
    "```\n",
    "\n```",
    '"\\',
    "\n ",
    "<a2ui-json ",
    "[",
    "`",
    "\n{\n",
]


@pytest.mark.parametrize("word", HEAVY)
@pytest.mark.parametrize("prefix", ["", "<a2ui-json>", '{"version":"', '{"version":{', "```\n" + '{"version":1}'])
def test_linear_and_bounded(prefix: str, word: str) -> None:
    """Four times the text takes about four times as long, and no more than a little of it is held."""
    times = []
    for size in (20_000, 80_000):
        text = prefix + word * (size // len(word))
        best = float("inf")
        for _ in range(3):
            extractor = Extractor()
            start = time.perf_counter()
            extractor.feed(text)
            best = min(best, time.perf_counter() - start)
            assert len(extractor._rest) <= LOOKAHEAD
            assert sum(map(len, extractor._object)) <= MAX_MESSAGE
        times.append(best)
    assert times[1] < 12 * times[0] + 0.02
