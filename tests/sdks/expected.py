"""What every scripted answer must look like, whatever SDK reads it and whatever provider format it came in.

One table, `SCRIPTS`, written by hand from the scripts' YAML and from nothing else; `expected` turns a row into what one
SDK shows of it. Where an SDK's format has another word, or none, that is said here and not in the tests.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import yaml

from headrace import tape

PROVIDERS = ("as-openai", "as-anthropic")
CLIENTS = ("python-openai", "python-anthropic", "js-openai", "js-anthropic")
WAYS = [
    (client, way)
    for client in CLIENTS
    for way in ("create", "stream", "helper", "async")
    if (client, way) not in {("js-openai", "async"), ("js-anthropic", "async")}  # everything is asynchronous there
]
"""(client, scenario) of all ways to get an answer."""
STREAM_WAYS = [(client, way) for client, way in WAYS if way != "create"]


def sdk_of(client: str) -> str:
    """Whose SDK a client is: "openai" or "anthropic"."""
    return client.partition("-")[2]


class Call(msgspec.Struct):
    """A tool call as the SDK's user gets it. `arguments`: parsed, or the text where it is no JSON."""

    id: str
    name: str
    arguments: Any


class UsageSeen(msgspec.Struct):
    """`reasoning`: None where nobody said."""

    input: int
    output: int
    reasoning: int | None = None


class Seen(msgspec.Struct):
    """An answer as an SDK shows it to its user. Every client of the tests, in either language, reports in this shape."""

    id: str = ""
    request_id: str = ""
    """Of a whole answer, for the user's log."""
    model: str = ""
    text: str = ""
    reasoning: str = ""
    refusal: str = ""
    signatures: list[str] = []
    redacted: list[str] = []
    calls: list[Call] = []
    stop: str | None = None
    usage: UsageSeen | None = None
    deltas: int = 0
    """Pieces of text, refusal, reasoning and arguments that were not empty; 0 where the answer did not come in pieces."""
    bare_chunks: int = 0
    """OpenAI: chunks without a choice."""


class Failure(msgspec.Struct):
    """What the SDK raised. `kind`: the name of its class."""

    kind: str
    message: str
    status: int | None = None
    request_id: str | None = None
    retry_after: str | None = None


class Outcome(msgspec.Struct):
    """What one use of an SDK led to: the answers it showed, whole or as far as they came, and what it raised."""

    answers: list[Seen] = []
    failure: Failure | None = None
    value: Any = None
    """What the scenario is about beside the answers (a list of models, a parsed object)."""

    @property
    def seen(self) -> Seen:
        """The one answer of a scenario that must not have failed."""
        assert self.failure is None, self.failure
        assert len(self.answers) == 1
        return self.answers[0]


class Row(msgspec.Struct, frozen=True):
    """A script's answer. `stop` is one of STOPS. `usage`: (input, output, reasoning)."""

    text: str = ""
    reasoning: str = ""
    signature: str = ""
    redacted: str = ""
    refusal: str = ""
    calls: tuple[tuple[str, str, Any], ...] = ()
    stop: str = "end"
    usage: tuple[int, int, int] | None = None


STOPS = {
    # row's word: (OpenAI's, Anthropic's)
    "end": ("stop", "end_turn"),
    "tools": ("tool_calls", "tool_use"),
    "length": ("length", "max_tokens"),
    "refusal": ("content_filter", "refusal"),
}

_WEATHER = (
    ("call_vienna", "get_weather", {"city": "Vienna", "unit": "celsius"}),
    ("call_graz", "get_weather", {"city": "Graz", "unit": "celsius"}),
)
MILL = {
    "mill": "Old Weir Mill",
    "wheel": {"type": "overshot", "diameter_m": 4.2, "buckets": 36},
    "stones": ["french burr", "millstone grit"],
    "running": True,
    "note": 'Grist for "two" villages – since 1412',
}
SIGNATURE = "cmVwbGF5ZWQtc2lnbmF0dXJlLW9mLWEtc2NyaXB0ZWQtcmVhc29uaW5nLWJsb2Nr"
REDACTED = "cmVwbGF5ZWQtcmVkYWN0ZWQtcmVhc29uaW5n"
REASONING = (
    "The wheel is overshot, so the water works by its weight. Four metres of fall and a flow of two hundred litres a "
    "second give about eight kilowatts before losses. A wooden wheel keeps perhaps two thirds of that."
)
TEXT = (
    "Hello! A headrace is the channel that brings the water of a river to a mill wheel. Everything the mill does "
    "depends on it: too little water and the wheel stands still, too much and the wheel floods."
)


def _long() -> str:
    """The long answer's text, by a plain YAML reader."""
    path = Path(tape.__file__).parent / "scripts" / "long.yaml"
    steps = yaml.safe_load(path.read_text(encoding="utf-8"))["steps"]
    return "".join(step.get("text", "") for step in steps)


SCRIPTS: dict[str, Row] = {
    "hello": Row(text="Hello!", usage=(16, 1, 0)),
    "text": Row(text=TEXT, usage=(14, 38, 0)),
    "unicode": Row(
        text="Grüße aus der Mühle – 水車, мельница, ⚙️👩‍🔧. Line separator:\u2028 paragraph separator:\u2029 next line:\x85 "
        'vertical tab:\v end.\nA second line,\ttabbed, with "quotes" and a \\ backslash.'
    ),
    "long": Row(text=_long()),
    "max-tokens": Row(
        text="The miller opened the gate, the water came down the headrace, and then", stop="length", usage=(16, 13, 0)
    ),
    "refusal": Row(refusal="I can't help with opening somebody else's sluice gate.", stop="refusal"),
    "reasoning": Row(
        reasoning=REASONING,
        signature=SIGNATURE,
        text="About five kilowatts reach the millstone, enough for one pair of stones grinding rye.",
        usage=(31, 72, 52),
    ),
    "redacted-reasoning": Row(
        redacted=REDACTED, text="I thought about it, and the answer is the sluice gate.", usage=(16, 11, 0)
    ),
    "tool": Row(
        text="Let me look at the gauge.",
        calls=(
            (
                "call_level_1",
                "get_water_level",
                {"station": "Lower Weir", "unit": "cm", "since": "2024-03-01T06:00:00Z"},
            ),
        ),
        stop="tools",
    ),
    "parallel-tools": Row(text="I will check both cities.", calls=_WEATHER, stop="tools", usage=(87, 46, 0)),
    "interleaved-tools": Row(calls=_WEATHER, stop="tools"),
    "zero-argument-tool": Row(calls=(("call_gates", "list_gates", {}),), stop="tools"),
}


def expected(script: str, sdk: str, provider: str) -> Seen:
    """What `sdk` ("openai" or "anthropic") shows of a script's answer; id, usage and the counts are left to the test."""
    row = SCRIPTS[script]
    text, refusal, stop = row.text, row.refusal, STOPS[row.stop][sdk == "anthropic"]
    if refusal and sdk == "openai" and provider == "as-openai":
        stop = "stop"  # OpenAI ends a refusal like any other answer
    if refusal and (sdk == "anthropic" or provider == "as-anthropic"):
        text, refusal = refusal, ""  # in Anthropic's format a refusal is text, told apart by the stop reason
    return Seen(
        model=script,
        text=text,
        reasoning=row.reasoning,
        refusal=refusal,
        signatures=[sealed(row.signature, sdk, provider)] if row.signature else [],
        redacted=[sealed(row.redacted, sdk, provider)] if row.redacted else [],
        calls=[Call(*call) for call in row.calls],
        stop=stop,
    )


def sealed(value: str, sdk: str, provider: str) -> str:
    """A signature as the SDK's user sees it: in Anthropic's format, another vendor's says whose it is."""
    return f"headrace:openai::{value}" if sdk == "anthropic" and provider == "as-openai" else value
