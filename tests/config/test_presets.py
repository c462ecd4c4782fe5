"""Presets: in a file, and as providers of the environment."""

from __future__ import annotations

import pytest

from headrace.config import Catalogue, ConfigError, load
from headrace.config.kinds import KINDS, Scalar
from headrace.config.presets import PRESETS, ollama_address
from headrace.config.references import Expanded
from headrace.formats import FORMATS

from .helpers import config, problem, resolved

EACH = pytest.mark.parametrize("name", PRESETS)


@EACH
def test_a_preset_is_what_the_configuration_takes(name: str) -> None:
    preset = PRESETS[name]
    fmt = FORMATS[preset.format]
    assert fmt.provides
    assert {*preset.quirks, *preset.quirk_variables} <= set(fmt.quirks)
    if preset.base_url:
        scalar = Scalar(preset.base_url, "str", Expanded(preset.base_url, preset.base_url))
        assert KINDS["base_url"].value(scalar, None) == preset.base_url  # type: ignore[arg-type]  # strings need no type
    env = {preset.key_variable: "k", preset.url_variable: preset.base_url or "https://mine.example"}
    from_environment = load(None, env).providers[name]
    written = config(f"providers: {{{name}: {{preset: {name}, base_url: '{from_environment.base_url}'}}}}", env)
    assert written.providers[name] == from_environment
    assert written.warnings == ()


def test_no_two_presets_share_a_claim_or_a_variable() -> None:
    for values in (
        [claim for preset in PRESETS.values() for claim in preset.claims],
        [preset.key_variable for preset in PRESETS.values()],
        [preset.url_variable for preset in PRESETS.values()],
    ):
        assert len(values) == len(set(values))


def test_a_preset_alone_is_a_whole_provider() -> None:
    provider = config("providers: {fast: {preset: groq}}", {"GROQ_API_KEY": "k"}).providers["fast"]
    assert (provider.format, provider.base_url) == ("openai_chat", "https://api.groq.com/openai/v1")
    assert (provider.vendor, provider.api_key_env) == ("groq", "GROQ_API_KEY")
    assert provider.quirks == {"max_tokens_field": "max_completion_tokens"}


def test_what_the_provider_says_goes_before_its_preset() -> None:
    text = """
        providers:
          mine:
            preset: vllm
            base_url: http://gpu-box:8000/v1
            vendor: us
            models: [llama]
            api_key: ${MY_KEY}
            quirks: {top_k: false}
    """
    provider = config(text, {"MY_KEY": "k", "VLLM_API_KEY": "other"}).providers["mine"]
    assert (provider.base_url, provider.vendor, provider.models) == ("http://gpu-box:8000/v1", "us", ["llama"])
    assert provider.api_key is not None
    assert provider.api_key_env is None
    assert provider.quirks == {"think_tags": True, "top_k": False}


def test_another_format_leaves_the_quirks_of_the_presets_format_behind() -> None:
    text = "providers: {p: {preset: perplexity, format: anthropic, base_url: 'http://x'}}"
    provider = config(text).providers["p"]
    assert (provider.format, provider.quirks, provider.vendor) == ("anthropic", {}, "anthropic")


def test_a_key_that_is_missed_is_named() -> None:
    found = problem("providers: {p: {preset: groq}}")
    assert "GROQ_API_KEY is not set" in str(found)


@pytest.mark.parametrize(
    "text",
    ["providers: {p: {preset: vllm}}", "providers: {p: {preset: groq, base_url: 'http://proxy.test/v1'}}"],
    ids=["a server of one's own", "an address of one's own"],
)
def test_no_key_is_needed_at_ones_own(text: str) -> None:
    assert config(text).providers["p"].api_key_env is None


def test_a_preset_without_an_address_asks_for_one() -> None:
    found = problem("providers: {p: {preset: azure_openai}}", {"AZURE_OPENAI_API_KEY": "k"})
    assert found.field == "providers.p.base_url"
    assert "has no address of its own" in found.message


def test_neither_preset_nor_format() -> None:
    found = problem("providers: {p: {base_url: 'http://x'}}")
    assert found.message == '"format" is missing'


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        config("providers: {p: {preset: nowhere}}")


def test_a_preset_in_the_file_stands_in_for_the_one_of_the_environment() -> None:
    found = config("providers: {mine: {preset: deepseek}}", {"DEEPSEEK_API_KEY": "k", "XAI_API_KEY": "k"})
    assert set(found.providers) == {"mine", "xai", "replay"}
    assert resolved(Catalogue(found), "deepseek-chat")[0] == "mine"
    assert found.warnings == ()


def test_a_key_without_an_address_anywhere_makes_no_provider() -> None:
    assert set(load(None, {"AZURE_OPENAI_API_KEY": "k"}).providers) == {"replay"}


def test_azure_from_the_environment() -> None:
    env = {
        "AZURE_OPENAI_API_KEY": "k",
        "AZURE_OPENAI_ENDPOINT": "https://mill.openai.azure.com/",
        "OPENAI_API_VERSION": "2025-01-01-preview",
    }
    provider = load(None, env).providers["azure_openai"]
    assert provider.format == "azure_openai"
    assert provider.quirks == {"api_version": "2025-01-01-preview"}


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", ""),
        ("127.0.0.1", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        (":8080", "http://127.0.0.1:8080"),
        ("gpu-box:1234", "http://gpu-box:1234"),
        ("http://gpu-box", "http://gpu-box:11434"),
        ("https://ollama.example", "https://ollama.example:443"),
        ("https://ollama.example/behind", "https://ollama.example:443/behind"),
        ("[::1]", "http://[::1]:11434"),
        ("[::]:99", "http://127.0.0.1:99"),
    ],
)
def test_ollamas_address(host: str, url: str) -> None:
    assert ollama_address(host) == url


def test_ollama_from_the_environment_needs_no_key() -> None:
    provider = load(None, {"OLLAMA_HOST": "gpu-box"}).providers["ollama"]
    assert (provider.format, provider.base_url, provider.api_key_env) == ("ollama", "http://gpu-box:11434", None)
