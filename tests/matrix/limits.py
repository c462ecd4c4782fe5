"""Limit: one thing that a format has no way to carry; and the changes that limits of several formats are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.model.content import Citation, Media, Part, Reasoning, Refusal, Text, ToolCall
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason


@dataclass(frozen=True)
class Limit:
    what: str
    """Row of the document."""
    reason: str
    """Cell of the document: what happens instead, and why."""
    change: Callable[[Response], None]
    """Makes of an answer, in place, what of it arrives."""
    lost: str | None = None
    """Regular expression for the name in `StreamWriter.lost`; None: nothing is lost, it is told in other words."""


def each_choice(change: Callable[[Choice], None]) -> Callable[[Response], None]:
    def change_all(response: Response) -> None:
        for choice in response.choices:
            change(choice)

    return change_all


def without(test: Callable[[Part], bool]) -> Callable[[Response], None]:
    def change(choice: Choice) -> None:
        choice.parts = [part for part in choice.parts if not test(part)]

    return each_choice(change)


def first_choice(response: Response) -> None:
    response.choices = [choice for choice in response.choices if choice.index == 0]


def refusals_as_text(choice: Choice) -> None:
    choice.parts = [
        Text(text=part.text, logprobs=part.logprobs) if isinstance(part, Refusal) else part for part in choice.parts
    ]


def no_logprobs(response: Response) -> None:
    for choice in response.choices:
        for part in choice.parts:
            if isinstance(part, Text | Refusal):
                part.logprobs = None


def no_refusal_logprobs(choice: Choice) -> None:
    for part in choice.parts:
        if isinstance(part, Refusal):
            part.logprobs = None


def unsigned(choice: Choice) -> None:
    for part in choice.parts:
        if isinstance(part, Reasoning):
            part.signature = None


def no_transcripts(choice: Choice) -> None:
    for part in choice.parts:
        if isinstance(part, Media):
            part.transcript = None


def is_carried_image(part: Part) -> bool:
    """All but media that are no image, or one without its bytes."""
    return not isinstance(part, Media) or (part.media_type.startswith("image/") and bool(part.data) and not part.url)


def only_citations(test: Callable[[Citation], object]) -> Callable[[Response], None]:
    def change(choice: Choice) -> None:
        for part in choice.parts:
            if isinstance(part, Text) and part.citations:
                part.citations = [one for one in part.citations if test(one)] or None

    return each_choice(change)


def told_by_calls(words: Mapping[StopReason, StopReason]) -> Callable[[Response], None]:
    """A stop reason becomes the word that the format has; where it has none for calls, the content tells of them."""

    def change(choice: Choice) -> None:
        stop = choice.stop or StopReason.OTHER
        stop = words.get(stop, stop)
        called = any(isinstance(part, ToolCall) for part in choice.parts)
        choice.stop = StopReason.TOOL_USE if called and stop is StopReason.END_TURN else stop

    return each_choice(change)


def no_stop_sequence(choice: Choice) -> None:
    choice.stop_sequence = None


def usage(**fields: object) -> Callable[[Response], None]:
    def change(response: Response) -> None:
        if response.usage is not None:
            for name, value in fields.items():
                setattr(response.usage, name, value)

    return change


def unchanged(response: Response) -> None:
    """For limits that show elsewhere."""
