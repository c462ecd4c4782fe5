"""Every script, through every SDK and every way to use it, from both provider formats: the same answer."""

from __future__ import annotations

import msgspec
import pytest

from .conftest import Clients
from .expected import CLIENTS, PROVIDERS, SCRIPTS, WAYS, UsageSeen, expected, sdk_of

UNPARSABLE = {"length": "LengthFinishReasonError", "content_filter": "ContentFilterFinishReasonError"}
"""What the helper of OpenAI's Python SDK raises in place of an answer that is not complete."""
HARMLESS = (
    "comment=1",
    "crlf=1",
    "cr=1",
    "nospace=1",
    "eventless=1",
    "coalesce=5",
    "split=1",
    "garbage=6",
    "json=1",
    "duplicate_terminal=1",
)


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("client", "way"), WAYS)
def test_every_script(clients: Clients, client: str, way: str, provider: str, script: str) -> None:
    sdk = sdk_of(client)
    wanted = expected(script, sdk, provider)
    outcome = clients[client](way, f"{provider}/{script}")
    if (client, way) == ("python-openai", "helper") and wanted.stop in UNPARSABLE:
        assert outcome.failure is not None
        assert outcome.failure.kind == UNPARSABLE[wanted.stop]
        return
    seen = outcome.seen
    assert seen.id
    if way in ("stream", "async"):
        assert seen.deltas >= len(f"{wanted.text} {wanted.reasoning} {wanted.refusal}".split()), "not word by word"
    if sdk == "openai" and way != "create":
        assert seen.usage is None, "nobody asked for usage"
    else:
        row, usage = SCRIPTS[script], seen.usage
        assert usage is not None
        if row.usage is not None:
            assert (usage.input, usage.output, usage.reasoning or 0) == row.usage
    assert seen.bare_chunks == 0
    if way == "create":
        assert seen.request_id.startswith("req_")
    if (client, way) == ("js-openai", "helper"):
        # This helper keeps the last piece of a field that it does not know.
        assert wanted.reasoning.endswith(seen.reasoning)
        wanted.reasoning = seen.reasoning
    own = {name: getattr(seen, name) for name in ("id", "request_id", "usage", "deltas")}
    assert seen == msgspec.structs.replace(wanted, **own)


@pytest.mark.parametrize("fault", HARMLESS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_what_must_not_matter(clients: Clients, client: str, provider: str, fault: str) -> None:
    for script in ("parallel-tools", "unicode"):
        seen = clients[client]("stream", f"{provider}/{script}?{fault}").seen
        wanted = expected(script, sdk_of(client), provider)
        assert (seen.text, seen.calls, seen.stop) == (wanted.text, wanted.calls, wanted.stop)


@pytest.mark.parametrize(
    ("way", "provider"),
    # Anthropic has no place for broken arguments in a whole answer.
    [("stream", "as-openai"), ("stream", "as-anthropic"), ("create", "as-openai")],
)
@pytest.mark.parametrize("client", ["python-openai", "js-openai"])
def test_arguments_that_were_cut_off(clients: Clients, client: str, way: str, provider: str) -> None:
    seen = clients[client](way, f"{provider}/broken-tool").seen
    assert [(call.name, call.arguments) for call in seen.calls] == [("set_gate", '{"gate": "north", "opening_cm": 1')]
    assert seen.stop == "length"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("client", ["python-openai", "js-openai"])
def test_usage_in_a_stream_comes_where_it_was_asked_for(
    clients: Clients, client: str, include: bool, provider: str
) -> None:
    options = {"include_usage": include}
    seen = clients[client]("stream", f"{provider}/reasoning", stream_options=options).seen
    assert (seen.usage is not None, seen.bare_chunks) == ((True, 1) if include else (False, 0))
    if include:
        assert seen.usage == UsageSeen(31, 72, 52)
    helped = clients[client]("helper", f"{provider}/reasoning", stream_options=options).seen
    assert helped.usage == seen.usage
