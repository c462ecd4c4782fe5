"""CANNOT: what each format has no way to carry, with the reason; everything else must come through unchanged.

One table for everything: the tests of the matrix apply a limit's `change` to what went in and then demand equality with
what comes out, and docs/formats.md is made from the reasons. A limit whose `lost` is set is one that the writer must name
(in its `lost`) whenever it makes a difference; one without is a harmless change of words, told only here.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from copy import deepcopy

from headrace.formats.sealing import seal
from headrace.model.content import Citation, Media, Opaque, Reasoning, RedactedReasoning, Refusal, Text, ToolCall
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason

from .columns import COLUMNS
from .limits import (
    Limit,
    each_choice,
    first_choice,
    no_logprobs,
    no_stop_sequence,
    refusals_as_text,
    unchanged,
    unsigned,
    usage,
    without,
)

_S = StopReason


def expected(name: str, response: Response, leaving: Collection[str] = ()) -> tuple[Response, list[Limit]]:
    """What of this answer comes through a format, and the limits that made a difference. `leaving`: those not to count."""
    arrives = deepcopy(response)
    applied = []
    for limit in CANNOT[name]:
        if limit.what in leaving:
            continue
        before = deepcopy(arrives)
        limit.change(arrives)
        if arrives != before:
            applied.append(limit)
    return arrives, applied


def check_lost(applied: list[Limit], lost: set[str]) -> None:
    """The writer names what was lost, and nothing else."""
    due = {limit.lost for limit in applied if limit.lost}
    for pattern in due:
        assert any(re.fullmatch(pattern, name) for name in lost), f"nothing in {sorted(lost)} names {pattern}"
    unexplained = {
        name for name in lost if not any(re.fullmatch(pattern, name) for pattern in due) and not IGNORED.fullmatch(name)
    }
    assert not unexplained, f"lost without a limit in CANNOT: {sorted(unexplained)}"


IGNORED = re.compile(
    r"progress|tool_call\.incomplete|extensions\.\w+|(\w+\.)?(ping|vendor event|chunk|content after the finish reason)"
)
"""Names of what is not compared: progress, calls cut off, vendors' own fields and events."""


# OpenAI chat.

_OPENAI_STOPS = {
    # told by words of which "stop" and "length" are each several of ours
    _S.STOP_SEQUENCE: _S.END_TURN,
    _S.CONTEXT_WINDOW: _S.MAX_TOKENS,
    _S.PAUSE: _S.END_TURN,
    _S.MALFORMED_TOOL_CALL: _S.END_TURN,
    _S.OTHER: _S.END_TURN,
}


def _openai_stop(choice: Choice) -> None:
    """Five words; what "stop" means is then found in the content, where there is a call or a refusal."""
    refusals = [part for part in choice.parts if isinstance(part, Refusal)]
    said = any(part.text or part.logprobs for part in refusals)
    stop = choice.stop or _S.OTHER
    if stop is _S.REFUSAL:
        stop = _S.END_TURN if refusals else _S.CONTENT_FILTER
    stop = _OPENAI_STOPS.get(stop, stop)
    if stop is _S.END_TURN:
        called = any(isinstance(part, ToolCall) for part in choice.parts)
        stop = _S.TOOL_USE if called else _S.REFUSAL if said else stop
    choice.stop = stop


def _openai_citations(response: Response) -> None:
    """Those of web pages are told as `url_citation`."""
    for choice in response.choices:
        for part in choice.parts:
            if isinstance(part, Text) and part.citations:
                part.citations = [_url_citation(one) for one in part.citations if _page(one)] or None


def _unnamed_pages(response: Response) -> None:
    for choice in response.choices:
        for part in choice.parts:
            if isinstance(part, Text) and part.citations:
                part.citations = [one for one in part.citations if _page(one)] or None


def _page(citation: Citation) -> bool:
    payload = citation.payload
    return isinstance(payload.get("url_citation"), dict) or bool(isinstance(payload.get("url"), str) and payload["url"])


def _url_citation(citation: Citation) -> Citation:
    payload = citation.payload
    if isinstance(payload.get("url_citation"), dict):
        return Citation("openai", payload)
    told = {"url": payload["url"], "title": payload.get("title") or "", "start_index": 0, "end_index": 0}
    told |= {name: payload[name] for name in ("start_index", "end_index") if isinstance(payload.get(name), int)}
    if payload.get("cited_text"):
        told["content"] = payload["cited_text"]
    return Citation("openai", {"type": "url_citation", "url_citation": told})


def _openai_streams(part: Media) -> bool:
    family = part.media_type.partition("/")[0]
    return family == "image" or (family == "audio" and not part.url)


def _openai_media(response: Response) -> None:
    for choice in response.choices:
        for part in choice.parts:
            if isinstance(part, Media):
                _openai_medium(part)


def _openai_medium(part: Media) -> None:
    if part.type == "image":
        part.transcript = None
        if part.url:
            part.media_type, part.data = "image/*", None
    elif part.type == "audio":
        part.media_type = "audio/pcm"


def _signed_by_openai(choice: Choice) -> None:
    for part in choice.parts:
        if isinstance(part, Reasoning | RedactedReasoning):
            part.vendor = "openai"


# Anthropic.

_ANTHROPIC_STOPS = {
    _S.CONTENT_FILTER: _S.REFUSAL,
    _S.MALFORMED_TOOL_CALL: _S.END_TURN,
    _S.OTHER: _S.END_TURN,
}


def _anthropic_stop(choice: Choice) -> None:
    """Where a provider says only that it stopped, a call or a refusal in the content says why."""
    stop = choice.stop or _S.OTHER
    if stop in (_S.END_TURN, _S.OTHER):
        if any(isinstance(part, ToolCall) for part in choice.parts):
            stop = _S.TOOL_USE
        elif any(isinstance(part, Refusal) for part in choice.parts):
            stop = _S.REFUSAL
    choice.stop = _ANTHROPIC_STOPS.get(stop, stop)


def _anthropic_citations(response: Response) -> None:
    for choice in response.choices:
        for part in choice.parts:
            if isinstance(part, Text) and part.citations:
                part.citations = [one for one in part.citations if one.vendor == "anthropic"] or None


def _sealed(choice: Choice) -> None:
    for part in choice.parts:
        if isinstance(part, Reasoning):
            if part.signature and part.vendor != "anthropic":
                part.signature = seal(part.vendor or "", part.id or "", part.signature)
            part.vendor = "anthropic"
        elif isinstance(part, RedactedReasoning) and part.vendor != "anthropic":
            part.data, part.vendor = seal(part.vendor, "", part.data), "anthropic"


SEALED = "signatures and redacted reasoning"

CANNOT: dict[str, tuple[Limit, ...]] = {
    "openai_chat": (
        Limit(
            "server-side tool blocks",
            "left out: the format has only tools that the caller executes",
            without(lambda part: isinstance(part, Opaque)),
            lost=r"(server_tool_call|server_tool_result|other|opaque)(: .*)?",
        ),
        Limit(
            "citations",
            "left out where they cite no web page: an annotation is a `url_citation`",
            _unnamed_pages,
            lost="citations",
        ),
        Limit("citations", "those of web pages are annotations of type `url_citation`", _openai_citations),
        Limit(
            "images and audio",
            "other media, and audio by URL, left out",
            without(lambda part: isinstance(part, Media) and not _openai_streams(part)),
            lost="media|document|video|audio",
        ),
        Limit("images and audio", "audio comes without its type, an image by URL too", _openai_media),
        Limit(
            "signatures and redacted reasoning",
            "in `reasoning_details`, where `format` says whose they are",
            each_choice(_signed_by_openai),
        ),
        Limit(
            "stop reasons",
            "five words: a stop sequence is `stop`, a full context window `length`; the provider's own word stands in "
            "`native_finish_reason` where they blur it",
            each_choice(_openai_stop),
        ),
        Limit(
            "the stop sequence that was met",
            "left out: there is no field for it",
            each_choice(no_stop_sequence),
            lost="stop_sequence",
        ),
        Limit("cost, estimated counts", "estimates are not marked", usage(estimated=False)),
    ),
    "anthropic": (
        Limit(
            "several choices",
            "only the first is sent: a message has one content",
            first_choice,
            lost="choices",
        ),
        Limit(
            "images and audio",
            "left out: an assistant's content blocks are text, thinking and tools",
            without(lambda part: isinstance(part, Media)),
            lost="image|audio|media|document",
        ),
        Limit(
            "server-side tool blocks",
            "those of other vendors left out: their shapes are their vendor's",
            without(lambda part: isinstance(part, Opaque) and part.vendor != "anthropic"),
            lost="server_tool_call|server_tool_result|opaque|other",
        ),
        Limit(
            "citations",
            "those of other vendors left out: their shapes are their vendor's",
            _anthropic_citations,
            lost="citations",
        ),
        Limit("log probabilities", "left out: there is no field for them", no_logprobs, lost="logprobs"),
        Limit(
            "stop reasons",
            "a content filter's cut is `refusal`; unknown words are `end_turn`",
            each_choice(_anthropic_stop),
        ),
        Limit("refusals", "sent as text, with the stop reason `refusal`", each_choice(refusals_as_text)),
        Limit(
            SEALED,
            "those of other vendors are sealed: they come out again when the turn is sent back",
            each_choice(_sealed),
        ),
        Limit(
            "cost, estimated counts", "left out: the usage object holds counts", usage(cost_usd=None, estimated=False)
        ),
    ),
    "llm_stream": (
        Limit("reasoning", "in `delta.reasoning`, beside an empty `delta.text`", unchanged),
        Limit(
            "tool calls",
            "whole, never in pieces; of calls side by side the first to be whole goes first, `index` says which began first",
            unchanged,
        ),
        Limit("abandoned tool calls", "no `tool.call`: told in `extensions`", unchanged),
        Limit("stop reasons", "four words, the exact one in `extensions` beside them", unchanged),
    ),
    "gateway": (Limit("abandoned tool calls", "never `complete`", unchanged),),
}

_PROGRESS = Limit("progress", "left out, and named", unchanged)
CANNOT["openai_chat"] += (_PROGRESS, Limit("abandoned tool calls", "end as they are", unchanged))
CANNOT["anthropic"] += (
    _PROGRESS,
    Limit(
        "abandoned tool calls", "end as they are; left out, and named, where another block was being sent", unchanged
    ),
)

CANNOT |= {name: column.limits for name, column in COLUMNS.items()}
CANNOT["mistral"] = (
    *[limit for limit in CANNOT["openai_chat"] if limit.what != SEALED],
    Limit(
        SEALED,
        "left out: there is no place for them",
        without(lambda part: isinstance(part, RedactedReasoning)),
        lost="redacted_reasoning",
    ),
    Limit(SEALED, "thinking is a chunk of the content", each_choice(unsigned), lost="reasoning.signature"),
)

ROWS = (
    "text",
    "refusals",
    "reasoning",
    "signatures and redacted reasoning",
    "tool calls",
    "abandoned tool calls",
    "server-side tool blocks",
    "citations",
    "log probabilities",
    "images and audio",
    "several choices",
    "stop reasons",
    "the stop sequence that was met",
    "token counts",
    "cost, estimated counts",
    "progress",
)
"""What an answer can hold: the document's rows."""
