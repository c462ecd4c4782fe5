"""Keys are found where the configuration says, and shown nowhere."""

from __future__ import annotations

import copy
import pickle
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from rich.pretty import pprint

from headrace.config import CredentialError, Provider, Secret, api_key

from .helpers import config, provider

SECRETS = {"KEY": "sk-secret-1", "TOKEN": "sk-secret-2", "PASSWORD": "sk-secret-3"}


def test_no_secret_in_any_form_of_a_config() -> None:
    result = config(
        provider(
            "api_key: ${KEY}",
            "headers: {Authorization: 'Bearer ${TOKEN}', x-plain: '${TOKEN}'}",
            "proxy: http://user:${PASSWORD}@proxy.test:1",
            "path: /chat?key=${KEY}",
        ),
        SECRETS,
    )
    acme = result.providers["acme"]
    assert acme.api_key is not None
    assert acme.api_key.reveal() == "sk-secret-1"
    assert acme.headers["Authorization"] == "Bearer sk-secret-2"
    assert acme.proxy == "http://user:sk-secret-3@proxy.test:1"
    out = StringIO()
    pprint(result, console=Console(file=out, width=300), expand_all=True)
    for shown in (repr(result), str(result), f"{result}", f"{acme!r:s}", out.getvalue()):
        assert "sk-secret" not in shown
    assert "'Authorization': '***'" in repr(acme)
    assert "http://***@proxy.test:1" in repr(acme)
    assert "/chat?***" in repr(acme)
    assert "Authorization" in out.getvalue()


def test_secret_keeps_to_itself() -> None:
    secret = Secret("sk-secret")
    assert [repr(secret), str(secret), f"{secret}", f"{secret!s:>12}"] == ["Secret('***')"] * 4
    assert secret == Secret("sk-secret") != Secret("other")
    assert hash(secret) == hash(Secret("sk-secret"))
    assert secret != "sk-secret"
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    with pytest.raises(TypeError):
        msgspec.json.encode(secret)
    with pytest.raises(TypeError):
        copy.copy(secret)


def test_key_by_variable_is_looked_up_when_asked_for() -> None:
    acme = config(provider("api_key_env: KEY"), SECRETS).providers["acme"]
    assert api_key("acme", acme, {"KEY": " later\n"}) == Secret("later")


def test_key_by_file_is_read_when_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("first\n")
    acme = config(provider(f"api_key_file: {file}")).providers["acme"]
    assert api_key("acme", acme, {}) == Secret("first")
    file.write_text("second\n")
    assert api_key("acme", acme, {}) == Secret("second")


def test_key_by_reference_and_no_key() -> None:
    assert api_key("acme", config(provider("api_key: ${KEY}"), SECRETS).providers["acme"], {}) == Secret("sk-secret-1")
    assert api_key("acme", config(provider()).providers["acme"], {}) is None


def of(**fields: str) -> Provider:
    return Provider(format="anthropic", base_url="http://x", **fields)  # type: ignore[arg-type]  # names of keys


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({}, "environment variable KEY is not set"),
        ({"KEY": " "}, "environment variable KEY .* is empty"),
        ({"KEY": "a\r\nX-Evil: sk-secret"}, "environment variable KEY .* holds white space"),
        ({"KEY": "sk-secret-é"}, "non-ASCII"),
    ],
)
def test_unusable_variables(env: dict[str, str], message: str) -> None:
    with pytest.raises(CredentialError, match=message) as caught:
        api_key("acme", of(api_key_env="KEY"), env)
    assert "acme" in str(caught.value)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot read .*: No such file"),
        (b"", "is empty"),
        (b"sk-secret\nsecond", "holds white space"),
        (b"sk-secret\xff", "holds bytes that no key has"),
    ],
)
def test_unusable_files(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "key"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CredentialError, match=message) as caught:
        api_key("acme", of(api_key_file=str(file)), {})
    assert str(file) in str(caught.value)
    assert "sk-secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("file", ["a\0b", "/"])
def test_names_that_are_no_files(file: str) -> None:
    with pytest.raises(CredentialError, match="provider acme"):
        api_key("acme", of(api_key_file=file), {})
