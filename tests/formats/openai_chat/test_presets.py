"""Every recording of the family, read with the quirks of the preset of its vendor."""

from __future__ import annotations

import pytest

from headrace.config.presets import PRESETS
from headrace.formats.base import ReaderOptions
from headrace.formats.openai_chat import FORMAT
from headrace.model import events as ev
from headrace.model.assemble import assemble
from headrace.model.content import Reasoning, Text, ToolCall
from headrace.model.grammar import Grammar
from tests.fixtures import FixtureRow, fixture_index, requires_fixtures

from .helpers import decode, fixture_stream, read, summary

pytestmark = requires_fixtures

PRESET_OF = {
    # word of the index -> preset
    **{f"openai.chat.{name}": name for name in PRESETS},
    "openai.chat": "openai",  # made by a gateway's own tests
    "openai.chat.anthropic-compat": "openai",  # Anthropic's imitation of it
    "openai.chat.ollama": "openai",  # Ollama's
}
ROWS = [
    row
    for row in fixture_index()
    if row.file.startswith(("openai-compatible/", "ollama/")) and row.format.startswith("openai.chat")
]


def test_every_recording_of_a_chat_has_its_preset() -> None:
    assert len(ROWS) >= 20
    assert {row.format for row in ROWS} <= set(PRESET_OF)


@pytest.mark.parametrize("row", ROWS, ids=[row.file for row in ROWS])
def test_it_is_read_to_its_end(row: FixtureRow) -> None:
    name, format = row.file, row.format
    preset = PRESETS[PRESET_OF[format]]
    assert preset.format == FORMAT.name
    frames, leftover = decode(fixture_stream(name))
    vendor = preset.vendor or PRESET_OF[format]
    reader = FORMAT.stream_reader(ReaderOptions(quirks=preset.quirks, vendor=vendor))
    events = [*reader.read(frames), *reader.eof(leftover)]
    grammar = Grammar()
    for event in events:
        grammar.accept(event)
    assert isinstance(events[-1], ev.End)
    told, bare = assemble(events), assemble(read(frames, leftover=leftover))
    if format == "openai.chat.vllm":
        return  # told apart below
    assert summary(told) == summary(bare), "a quirk changed what a recording says that has no need of it"


def test_the_reasoning_of_a_bare_vllm_is_told_apart() -> None:
    """Its server was started without a reasoning parser: everything stands in the text."""
    frames, leftover = decode(fixture_stream("openai-compatible/vllm-qwen3-tool.jsonl"))
    reader = FORMAT.stream_reader(ReaderOptions(quirks=PRESETS["vllm"].quirks, vendor="vllm"))
    (choice,) = assemble([*reader.read(frames), *reader.eof(leftover)]).choices
    reasoning = "".join(part.text for part in choice.parts if isinstance(part, Reasoning))
    text = "".join(part.text for part in choice.parts if isinstance(part, Text))
    assert reasoning.strip()
    assert "think>" not in reasoning + text
    assert [part.name for part in choice.parts if isinstance(part, ToolCall)] == ["get_time"]
