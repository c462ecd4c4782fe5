"""Errors: the SDKs raise the class their users expect, with status, message and Retry-After; an answer that did not
end as its format says never looks complete.
"""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Clients
from .expected import CLIENTS, PROVIDERS, STREAM_WAYS, TEXT, WAYS, sdk_of

REFUSED: dict[str, tuple[str, int, str, str]] = {
    # what happens: (model, status, OpenAI's class, Anthropic's class)
    "wrong key": ("text?status=401", 401, "AuthenticationError", "AuthenticationError"),
    "forbidden": ("text?status=403", 403, "PermissionDeniedError", "PermissionDeniedError"),
    "unknown to the provider": ("nonsense", 404, "NotFoundError", "NotFoundError"),
    "too many requests": ("text?status=429&retry_after=7", 429, "RateLimitError", "RateLimitError"),
    "provider failed": ("text?status=500", 503, "InternalServerError", "ServiceUnavailableError"),
    "provider unavailable": ("text?status=503", 503, "InternalServerError", "ServiceUnavailableError"),
    "refused by a script": ("error-first", 429, "RateLimitError", "RateLimitError"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("client", "way"), WAYS)
def test_a_provider_that_refuses(clients: Clients, client: str, provider: str, way: str, case: str) -> None:
    model, status, *kinds = REFUSED[case]
    outcome = clients[client](way, f"{provider}/{model}")
    failure = outcome.failure
    assert failure is not None
    assert (failure.kind, failure.status) == (kinds[sdk_of(client) == "anthropic"], status)
    assert outcome.answers == []
    retry_after = {"too many requests": "7", "refused by a script": "1"}.get(case)
    assert failure.retry_after == retry_after
    assert (failure.request_id or "").startswith("req_")
    said = {"unknown to the provider": "nonsense", "refused by a script": "Too many requests for this model."}
    assert said.get(case, "This status was asked for") in failure.message


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", ["python-anthropic", "js-anthropic"])
def test_overloaded_is_a_class_of_anthropics_own(clients: Clients, client: str, provider: str) -> None:
    failure = clients[client]("stream", f"{provider}/text?status=529").failure
    assert failure is not None
    assert (failure.kind, failure.status) == ("OverloadedError", 529)


@pytest.mark.parametrize("model", ["nowhere/text", "nothing-of-this-name"])
@pytest.mark.parametrize(("client", "way"), WAYS)
def test_a_model_that_nobody_has(clients: Clients, client: str, way: str, model: str) -> None:
    failure = clients[client](way, model).failure
    assert failure is not None
    assert (failure.kind, failure.status) == ("NotFoundError", 404)
    assert model.split("/")[0] in failure.message


BAD: dict[str, tuple[dict[str, Any], str]] = {
    # what is wrong: (fields of the request, the path that the message names)
    "content": ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
    "role": ({"messages": [{"role": "user", "content": "x"}, {"role": "wizard", "content": "x"}]}, "messages[1].role"),
    "empty": ({"messages": []}, "messages"),
    "temperature": ({"temperature": "hot"}, "temperature"),
    "tools": ({"tools": "all"}, "tools"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("way", ["create", "stream"])
@pytest.mark.parametrize("client", CLIENTS)
def test_a_bad_request_is_told_where(clients: Clients, client: str, way: str, case: str) -> None:
    request, path = BAD[case]
    failure = clients[client](way, "as-openai/text", **request).failure
    assert failure is not None
    assert (failure.kind, failure.status) == ("BadRequestError", 400)
    assert path in failure.message


BROKEN: dict[str, str] = {
    # what happens in the middle of the answer: model
    "error": "text?error=6:overloaded_error",
    "cut inside the chunked body": "text?cut=6",
    "ended without the terminal event": "text?cut=6&cut_clean=1",
    "connection reset": "text?reset=6",
    "broken JSON": "text?malformed=6",
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("client", "way"), STREAM_WAYS)
def test_a_stream_that_breaks_is_never_complete(
    clients: Clients, client: str, way: str, provider: str, case: str
) -> None:
    outcome = clients[client](way, f"{provider}/{BROKEN[case]}")
    assert outcome.failure is not None, "the SDK took a broken answer for a whole one"
    assert outcome.failure.kind in ("APIError", "APIStatusError", "OverloadedError"), outcome.failure
    if way == "helper":
        assert outcome.answers == []
        return
    (seen,) = outcome.answers
    assert seen.stop is None
    assert seen.text
    assert TEXT.startswith(seen.text), "what had come before is kept, and nothing is added"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_the_words_of_an_error_in_the_stream(clients: Clients, client: str, provider: str) -> None:
    outcome = clients[client]("stream", f"{provider}/error")
    assert outcome.failure is not None
    assert "Overloaded" in outcome.failure.message
    assert outcome.answers[0].text == "The water level is "


@pytest.mark.parametrize("fault", ["cut=0", "cut=0&cut_clean=1", "reset=0", "malformed=1"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_whole_answer_that_breaks(clients: Clients, client: str, provider: str, fault: str) -> None:
    outcome = clients[client]("create", f"{provider}/text?{fault}")
    assert outcome.answers == []
    assert outcome.failure is not None
    assert outcome.failure.status is not None
    assert outcome.failure.status >= 500
