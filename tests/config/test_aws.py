"""Amazon Bedrock in the file and in the environment: keys that are sent, and keys that requests are signed with."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from headrace.config import Aws, Secret, api_key, load

from .helpers import config, problem, provider

BEDROCK = ("format: bedrock", "base_url: https://bedrock-runtime.us-east-1.amazonaws.com")
SECRETS = {"ID": "AKIDEXAMPLE", "KEY": "a-secret-key", "TOKEN": "a-session-token"}


def bedrock(*lines: str) -> str:
    return "\n".join(["providers:", "  acme:", *(f"    {line}" for line in (*BEDROCK, *lines))]) + "\n"


def test_what_requests_are_signed_with() -> None:
    found = config(bedrock("aws: {region: us-east-1, profile: team a}")).providers["acme"]
    assert found.aws == Aws(region="us-east-1", profile="team a")
    text = bedrock("aws: {region: r, access_key_id: '${ID}', secret_access_key: '${KEY}', session_token: '${TOKEN}'}")
    result = config(text, SECRETS)
    aws = result.providers["acme"].aws
    assert aws is not None
    assert (aws.access_key_id, aws.secret_access_key) == (Secret("AKIDEXAMPLE"), Secret("a-secret-key"))
    for secret in SECRETS.values():
        assert secret not in repr(result)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (provider("aws: {region: r}"), "requests of format openai_chat are not signed"),
        (bedrock("aws: {region: r}", "api_key: '${KEY}'"), "api_key is given too"),
        (bedrock("aws: {region: r, access_key_id: '${ID}'}"), "belong together"),
        (bedrock("aws: {profile: p}"), "'region' is missing"),
        (bedrock("aws: {region: r, session_token: abc}"), "a key in the file is refused"),
        (bedrock("aws: {regoin: r, region: r}"), "unknown key 'regoin'"),
    ],
)
def test_what_cannot_be(text: str, message: str) -> None:
    found = problem(text, SECRETS)
    assert message.replace("'", "") in str(found).replace("'", "").replace('"', "")


def test_without_botocore_nothing_can_be_signed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "headrace[aws]" in str(problem(bedrock("aws: {region: r}")))
    env = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    assert list(load(None, env).providers) == ["replay"]


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_an_api_key_in_the_environment(variable: str) -> None:
    env = {variable: "eu-central-1", "AWS_BEARER_TOKEN_BEDROCK": "token", "AWS_ACCESS_KEY_ID": "x"}
    found = load(None, env).providers["bedrock"]
    assert (found.format, found.vendor) == ("bedrock", "bedrock")
    assert found.base_url == "https://bedrock-runtime.eu-central-1.amazonaws.com"
    assert found.aws is None
    key = api_key("bedrock", found, env)
    assert key is not None
    assert key.reveal() == "token"
    assert "anthropic.*" in found.models


def test_access_keys_in_the_environment() -> None:
    env = {"AWS_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y"}
    found = load(None, env).providers["bedrock"]
    assert (found.aws, found.api_key_env) == (Aws(region="us-west-2"), None)


@pytest.mark.parametrize(
    "env",
    [
        {"AWS_BEARER_TOKEN_BEDROCK": "token"},
        {"AWS_REGION": "us-west-2"},
        {"AWS_REGION": "us-west-2", "AWS_ACCESS_KEY_ID": "x"},
        {"AWS_REGION": "evil.test/", "AWS_BEARER_TOKEN_BEDROCK": "token"},
    ],
)
def test_half_of_it_makes_no_provider(env: dict[str, str]) -> None:
    assert list(load(None, env).providers) == ["replay"]


def test_the_file_comes_first(tmp_path: Path) -> None:
    file = tmp_path / "headrace.yaml"
    file.write_text("providers:\n  bedrock: {format: bedrock, base_url: 'http://b.test'}\n")
    found = load(file, {"AWS_REGION": "us-west-2", "AWS_BEARER_TOKEN_BEDROCK": "token"}).providers["bedrock"]
    assert (found.base_url, found.api_key_env) == ("http://b.test", None)
