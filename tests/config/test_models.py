"""From a model's name to its provider."""

from __future__ import annotations

import pytest

from headrace.config import AmbiguousModel, Catalogue, ModelEntry, UnknownModel, load

from .helpers import config, resolved

CONFIG = config(
    """
    providers:
      openai: {format: openai_chat, base_url: http://o.test, models: ["gpt-*", gpt-5, shared, o1*]}
      azure: {format: openai_chat, base_url: http://z.test, vendor: azure, models: [gpt-4.1, shared, "o1-*"]}
      local: {format: openai_chat, base_url: http://l.test, models: [llama, Qwen/Qwen3-32B, "org/*", taken]}
    routes:
      fast: {candidates: [local/llama, azure/gpt-4.1]}
      taken: {candidates: [azure/gpt-4.1]}
      team/fast: {candidates: [{provider: local, model: Qwen/Qwen3-32B}]}
    """
)
CATALOGUE = Catalogue(CONFIG, replay_streams=["long", "parallel-tools"])


@pytest.mark.parametrize(
    ("name", "provider", "model", "route"),
    [
        ("openai/gpt-5", "openai", "gpt-5", None),
        ("openai/anything at all", "openai", "anything at all", None),
        ("local/Qwen/Qwen3-32B", "local", "Qwen/Qwen3-32B", None),
        ("local/openai/gpt-5", "local", "openai/gpt-5", None),
        ("replay/long", "replay", "long", None),
        ("fast", "local", "llama", "fast"),
        ("team/fast", "local", "Qwen/Qwen3-32B", "team/fast"),
        ("taken", "azure", "gpt-4.1", "taken"),  # a route before a claim
        ("gpt-5", "openai", "gpt-5", None),  # the same provider, by name and by prefix
        ("gpt-4.1", "azure", "gpt-4.1", None),  # a full name before a prefix
        ("gpt-6", "openai", "gpt-6", None),
        ("o1", "openai", "o1", None),
        ("Qwen/Qwen3-32B", "local", "Qwen/Qwen3-32B", None),
        ("org/x", "local", "org/x", None),
    ],
)
def test_resolve(name: str, provider: str, model: str, route: str | None) -> None:
    assert resolved(CATALOGUE, name) == (provider, model, route)


@pytest.mark.parametrize(
    ("name", "suggestions"),
    [
        ("", ()),
        ("opnai/gpt-5", ("openai/gpt-5",)),
        ("llma", ("llama",)),
        ("fats", ("fast",)),
        ("local/", ()),
        ("/llama", ("llama",)),
        ("long", ()),  # the embedded provider claims no bare names
        ("GPT-5", ()),
        ("fast ", ("fast",)),
        ("x" * 1_000_000, ()),
        ("\0", ()),
    ],
)
def test_unknown(name: str, suggestions: tuple[str, ...]) -> None:
    with pytest.raises(UnknownModel) as caught:
        CATALOGUE.resolve(name)
    assert caught.value.name == name
    assert caught.value.suggestions[: len(suggestions)] == suggestions
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(("name", "providers"), [("shared", ("openai", "azure")), ("o1-mini", ("openai", "azure"))])
def test_ambiguous(name: str, providers: tuple[str, ...]) -> None:
    with pytest.raises(AmbiguousModel) as caught:
        CATALOGUE.resolve(name)
    assert (caught.value.name, caught.value.providers) == (name, providers)
    assert f"openai/{name} or azure/{name}" in str(caught.value)


def test_list() -> None:
    assert CATALOGUE.list() == [
        ModelEntry("fast", "local", "headrace"),
        ModelEntry("taken", "azure", "headrace"),
        ModelEntry("team/fast", "local", "headrace"),
        ModelEntry("openai/gpt-5", "openai", "openai"),
        ModelEntry("openai/shared", "openai", "openai"),
        ModelEntry("azure/gpt-4.1", "azure", "azure"),
        ModelEntry("azure/shared", "azure", "azure"),
        ModelEntry("local/llama", "local", "openai"),
        ModelEntry("local/Qwen/Qwen3-32B", "local", "openai"),
        ModelEntry("local/taken", "local", "openai"),
        ModelEntry("replay/long", "replay", "headrace"),
        ModelEntry("replay/parallel-tools", "replay", "headrace"),
    ]


def test_every_listed_name_resolves_to_its_provider() -> None:
    for entry in CATALOGUE.list():
        assert resolved(CATALOGUE, entry.id)[0] == entry.provider


def test_the_list_is_the_callers_own() -> None:
    CATALOGUE.list().clear()
    assert CATALOGUE.list()


@pytest.mark.parametrize(
    ("name", "provider"),
    [
        ("gpt-5", "openai"),
        ("o1", "openai"),
        ("o3-mini", "openai"),
        ("o4-mini", "openai"),
        ("chatgpt-4o-latest", "openai"),
        ("claude-sonnet-4-5", "anthropic"),
    ],
)
def test_claims_of_the_environment_providers(name: str, provider: str) -> None:
    catalogue = Catalogue(load(None, {"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"}))
    assert resolved(catalogue, name)[0] == provider
    assert catalogue.list() == []


def test_nothing_configured() -> None:
    catalogue = Catalogue(load(None, {}))
    assert resolved(catalogue, "replay/long") == ("replay", "long", None)
    with pytest.raises(UnknownModel, match=r'there is no model "gpt-5"$'):
        catalogue.resolve("gpt-5")


def test_a_provider_that_claims_everything() -> None:
    catalogue = Catalogue(config("providers: {a: {format: anthropic, base_url: http://x, models: ['*']}}"))
    assert resolved(catalogue, "any/thing") == ("a", "any/thing", None)
    with pytest.raises(UnknownModel):
        catalogue.resolve("")
