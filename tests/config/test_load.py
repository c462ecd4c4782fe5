"""What a good file, or none, becomes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from headrace.config import Candidate, Config, ConfigError, Limits, Server, Timeouts, load
from headrace.config.settings import DEFAULT_VENDORS

from .helpers import config, provider

KIB, MIB = 1024, 1024 * 1024


def test_without_file_and_variables_only_the_embedded_provider_is_there() -> None:
    result = load(None, {})
    assert list(result.providers) == ["replay"]
    assert result.providers["replay"].embedded
    assert result.routes == {}
    assert result.default_route is None
    assert result.warnings == ()


def test_defaults() -> None:
    result = load(None, {})
    assert result.server == Server(host="127.0.0.1", port=8080, keepalive_interval=15.0, access_log=True)
    assert result.limits == Limits(
        body_bytes=32 * MIB, head_bytes=64 * KIB, frame_bytes=8 * MIB, stream_buffer_bytes=256 * KIB
    )
    assert msgspec.structs.asdict(result.timeouts) == {
        "connect": 2.0,
        "first_token": 20.0,
        "request": 120.0,
        "deadline": 120.0,
        "idle_stream": 30.0,
        "slow_consumer": 30.0,
        "request_body": 30.0,
        "request_head": 10.0,
    }


def test_environment_providers_have_their_vendors_addresses_and_claims() -> None:
    result = load(None, {"OPENAI_API_KEY": "sk-o", "ANTHROPIC_API_KEY": "sk-a"})
    openai, anthropic = result.providers["openai"], result.providers["anthropic"]
    assert (openai.format, openai.vendor, openai.base_url) == ("openai_chat", "openai", "https://api.openai.com/v1")
    assert (anthropic.format, anthropic.vendor, anthropic.base_url) == (
        "anthropic",
        "anthropic",
        "https://api.anthropic.com",
    )
    assert (openai.api_key_env, anthropic.api_key_env) == ("OPENAI_API_KEY", "ANTHROPIC_API_KEY")
    assert "gpt-*" in openai.models
    assert anthropic.models == ["claude-*"]


def test_an_address_alone_makes_an_environment_provider_without_key() -> None:
    result = load(None, {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1/"})
    assert result.providers["openai"].base_url == "http://127.0.0.1:8000/v1"
    assert result.providers["openai"].api_key_env is None


@pytest.mark.parametrize("env", [{"OPENAI_API_KEY": ""}, {"OPENAI_API_KEY": "  "}, {"OPENAI_BASE_URL": ""}])
def test_empty_variables_make_no_provider(env: dict[str, str]) -> None:
    assert list(load(None, env).providers) == ["replay"]


def test_a_malformed_address_in_the_environment_names_its_variable_and_not_its_value() -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {"OPENAI_BASE_URL": "ftp://secret.test", "ANTHROPIC_BASE_URL": "https://user:pw@secret.test"})
    assert [each.field for each in caught.value.problems] == ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"]
    assert str(caught.value).startswith("environment: OPENAI_BASE_URL: the URL has to start with http")
    assert "secret.test" not in str(caught.value)


def test_file_provider_replaces_the_environment_one_of_its_name_and_keeps_the_others() -> None:
    env = {"OPENAI_API_KEY": "sk-o", "ANTHROPIC_API_KEY": "sk-a"}
    result = config("providers: {openai: {format: openai_chat, base_url: 'http://local.test'}}", env)
    assert set(result.providers) == {"openai", "anthropic", "replay"}
    assert result.providers["openai"].base_url == "http://local.test"
    assert result.providers["openai"].api_key_env is None
    assert result.providers["openai"].models == []


def test_environment_providers_can_be_left_out() -> None:
    env = {"OPENAI_API_KEY": "sk-o", "OPENAI_BASE_URL": "not looked at"}
    assert list(config("environment_providers: false", env).providers) == ["replay"]


@pytest.mark.parametrize("text", ["", "\n", "# nothing\n", "---\n", "{}", "null", "server:\nproviders:\nroutes:\n"])
def test_empty_files_and_empty_sections_are_the_defaults(text: str) -> None:
    assert config(text) == load(None, {})


def test_whole_file() -> None:
    result = config(
        """
        server: {host: 0.0.0.0, port: 0, keepalive_interval: 500ms, access_log: true}
        providers:
          acme:
            format: openai_chat
            base_url: http://acme.test/v1/
            vendor: vllm
            api_key_env: ACME_KEY
            headers: {x-team: search, anthropic-version: 2023-06-01}
            models: [llama-3.3, "qwen-*"]
            path: /chat?x=1
            proxy: http://proxy.test:3128
            verify: false
            quirks: {done_marker: false, think_tags: true, max_tokens_field: max_tokens}
        routes:
          fast: {candidates: [acme/org/llama, {provider: replay, model: long}]}
        default_route: fast
        limits: {body_bytes: 1.5MiB, frame_bytes: 65536}
        timeouts: {connect: 1m, request: 1h, idle_stream: 0.5}
        """,
        {"ACME_KEY": "k"},
    )
    acme = result.providers["acme"]
    assert result.server == Server(host="0.0.0.0", port=0, keepalive_interval=0.5, access_log=True)
    assert acme.base_url == "http://acme.test/v1"
    assert acme.vendor == "vllm"
    assert acme.headers == {"x-team": "search", "anthropic-version": "2023-06-01"}
    assert acme.models == ["llama-3.3", "qwen-*"]
    assert (acme.path, acme.proxy, acme.verify) == ("/chat?x=1", "http://proxy.test:3128", False)
    assert acme.quirks == {"done_marker": False, "think_tags": True, "max_tokens_field": "max_tokens"}
    assert acme.timeouts is None
    assert result.routes["fast"].candidates == [Candidate("acme", "org/llama"), Candidate("replay", "long")]
    assert result.default_route == "fast"
    assert result.limits == Limits(body_bytes=3 * MIB // 2, frame_bytes=65536)
    assert result.timeouts == Timeouts(connect=60.0, request=3600.0, idle_stream=0.5)


@pytest.mark.parametrize(("name", "vendor"), DEFAULT_VENDORS.items())
def test_vendor_follows_the_format(name: str, vendor: str) -> None:
    result = config(f"providers: {{acme: {{format: {name}, base_url: 'http://acme.test'}}}}")
    assert result.providers["acme"].vendor == vendor


def test_a_providers_timeouts_complete_themselves_from_those_of_all() -> None:
    text = provider("timeouts: {first_token: 60s}") + "timeouts: {connect: 5, first_token: 7}\n"
    result = config(text)
    assert result.timeouts == Timeouts(connect=5.0, first_token=7.0)
    assert result.providers["acme"].timeouts == Timeouts(connect=5.0, first_token=60.0)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2", 2.0),
        ("0.25", 0.25),
        (".5", 0.5),
        ("1e-1", 0.1),
        ("250ms", 0.25),
        ("1.5s", 1.5),
        ("2 m", 120.0),
        ("24h", 86400),
    ],
)
def test_durations(written: str, seconds: float) -> None:
    assert config(f"timeouts: {{connect: {written}}}").timeouts.connect == seconds


@pytest.mark.parametrize(
    ("written", "size"),
    [
        ("4096", 4096),
        ("64KiB", 65536),
        ("10MB", 10_000_000),
        ("1.5KiB", 1536),
        ("2 GB", None),
        ("1GiB", 2**30),
        ("2000B", 2000),
    ],
)
def test_sizes(written: str, size: int | None) -> None:
    if size is None:
        with pytest.raises(ConfigError, match="or less"):
            config(f"limits: {{body_bytes: {written}}}")
    else:
        assert config(f"limits: {{body_bytes: {written}}}").limits.body_bytes == size


@pytest.mark.parametrize("word", ["no", "off", "yes", "1:30", "2024-01-31", "0x1F", "1_000"])
def test_words_that_older_yaml_takes_for_something_else_are_strings(word: str) -> None:
    assert config(provider(f"models: [{word}]")).providers["acme"].models == [word]


def test_files_are_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    key = tmp_path / "keys" / "acme"
    key.write_text("sk-1\n")
    file = tmp_path / "headrace.yaml"
    file.write_text(provider("api_key_file: keys/acme", f"ca_file: {key}"))
    acme = load(file, {}).providers["acme"]
    assert (acme.api_key_file, acme.ca_file) == (str(key), str(key))


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_bytes(b"\xef\xbb\xbfserver:\r\n  port: 9\r\n")
    assert load(file, {}).server.port == 9


def test_config_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Config().default_route = "x"  # type: ignore[misc]  # the point of the test
