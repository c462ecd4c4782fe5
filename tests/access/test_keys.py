from __future__ import annotations

import hashlib
import hmac
import json
import multiprocessing
import os
import stat
from datetime import UTC, datetime
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.access import keys as module
from headrace.access.keys import Key, KeyFile, KeyFileError, find_secret, new_secret, parse_time
from headrace.model.errors import ErrorCode, GatewayError
from tests.access.limiters import make_key

NOW = datetime(2025, 12, 1, 12, tzinfo=UTC)
SECONDS = NOW.timestamp()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def entry(**fields: Any) -> dict[str, Any]:
    return {"id": "k1", "name": "n", "hash": "0" * 64, "created_at": "2025-01-01T00:00:00Z", **fields}


def write(path: Path, *entries: Any, version: int = 1) -> None:
    """In one step, as an editor or a deployment does; also tells two writes of one moment apart."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"version": version, "keys": entries}))
    new.replace(path)


class TestSecrets:
    def test_shape(self) -> None:
        secret = new_secret("ab12")
        assert secret.startswith("hr-ab12-")
        assert len(secret) == len("hr-ab12-") + 43
        assert new_secret("ab12") != secret

    @pytest.mark.parametrize(
        ("headers", "found"),
        [
            ({"authorization": "Bearer hr-a-b"}, "hr-a-b"),
            ({"authorization": "bearer  hr-a-b "}, "hr-a-b"),
            ({"x-api-key": "hr-a-b"}, "hr-a-b"),
            ({"x-goog-api-key": "hr-a-b"}, "hr-a-b"),
            ({"api-key": "hr-a-b"}, "hr-a-b"),
            ({"authorization": "Bearer other", "x-api-key": "hr-a-b"}, "hr-a-b"),
            ({"authorization": "Bearer other", "x-api-key": "another"}, "other"),
            ({"authorization": "Basic dTpw", "api-key": "k"}, "k"),
            ({"authorization": "Basic dTpw"}, None),
            ({"authorization": "Bearer"}, None),
            ({"authorization": "Bearer ", "x-api-key": " "}, None),
            ({}, None),
        ],
    )
    def test_found_where_sdks_put_it(self, headers: dict[str, str], found: str | None) -> None:
        assert find_secret(headers) == found

    def test_an_aws_signature_is_no_secret(self) -> None:
        signature = "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/bedrock/aws4_request, Signature=abc"
        with pytest.raises(GatewayError, match="bearer token") as caught:
            find_secret({"authorization": signature})
        assert (caught.value.info.code, caught.value.info.type) == (ErrorCode.UNAUTHENTICATED, "signed_request")
        assert "AKID" not in caught.value.info.message
        assert find_secret({"authorization": signature, "x-api-key": "hr-a-b"}) == "hr-a-b"


class TestAuthenticate:
    def test_the_right_secret(self, path: Path) -> None:
        keys = KeyFile(path)
        key, secret = keys.create("ann", now=NOW)
        other, _ = keys.create("bob", now=NOW)
        assert keys.authenticate(secret, SECONDS) == key
        assert other != key

    def test_missing_unknown_and_wrong_are_told_the_same(self, path: Path) -> None:
        keys = KeyFile(path)
        key, secret = keys.create("ann", now=NOW)
        revoked, _ = keys.create("bob", now=NOW)
        keys.revoke(revoked.id)
        errors = []
        near = ("hr-", "hr--", f"hr-{key.id}", secret[:-1], secret + "A", secret.upper(), key.hash)
        others = (new_secret("ffffffff"), new_secret(key.id), new_secret(revoked.id), "hr-\xff-\u2028", "\ud800")
        for wrong in (None, "", "x", *near, *others):
            with pytest.raises(GatewayError) as caught:
                keys.authenticate(wrong, SECONDS)
            errors.append(caught.value.info)
        assert errors[0].code is ErrorCode.UNAUTHENTICATED
        assert errors[0].http_status == 401
        assert all(error == errors[0] for error in errors)

    @given(st.text())
    def test_any_text_is_refused_in_our_own_words(self, text: str) -> None:
        keys = KeyFile("/nonexistent/keys.json")
        with pytest.raises(GatewayError):
            keys.authenticate(text, SECONDS)

    def test_every_secret_is_compared_in_constant_time(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        keys = KeyFile(path)
        key, secret = keys.create("ann", now=NOW)
        compared: list[tuple[str, str]] = []

        def compare(a: str, b: str) -> bool:
            compared.append((a, b))
            return hmac.compare_digest(a, b)

        class Spy:
            compare_digest = staticmethod(compare)

        monkeypatch.setattr(module, "hmac", Spy)
        for tried in (secret, new_secret(key.id), new_secret("ffffffff"), "sk-other", "", None):
            before = len(compared)
            try:
                keys.authenticate(tried, SECONDS)
            except GatewayError:
                assert tried != secret
            assert len(compared) == before + 1
            given_hash, expected = compared[-1]
            assert given_hash == hashlib.sha256((tried or "").encode()).hexdigest()
            assert len(expected) == 64

    def test_the_dummy_lets_nobody_in(self, path: Path) -> None:
        """Even a secret with the dummy's hash belongs to no key."""
        with pytest.raises(GatewayError):
            KeyFile(path).authenticate("nobody", SECONDS)

    @pytest.mark.parametrize("ends", ["2025-12-01T13:00:00+01:00", "2025-12-01T12:00:00Z"])
    def test_an_expired_key_is_told_so(self, path: Path, ends: str) -> None:
        keys = KeyFile(path)
        _, secret = keys.create("ann", now=NOW, expires_at=ends)
        keys.authenticate(secret, SECONDS - 0.001)
        with pytest.raises(GatewayError, match="expired") as caught:
            keys.authenticate(secret, SECONDS)
        assert (caught.value.info.code, caught.value.info.type) == (ErrorCode.FORBIDDEN, "key_expired")

    def test_a_revoked_key_is_told_so(self, path: Path) -> None:
        keys = KeyFile(path)
        key, secret = keys.create("ann", now=NOW)
        keys.revoke("ann")
        with pytest.raises(GatewayError, match="revoked") as caught:
            keys.authenticate(secret, SECONDS)
        assert (caught.value.info.code, caught.value.info.type) == (ErrorCode.FORBIDDEN, "key_revoked")
        assert [kept.id for kept in keys.keys] == [key.id]

    def test_a_rotated_key_keeps_everything_but_its_secret(self, path: Path) -> None:
        keys = KeyFile(path)
        key, old = keys.create("ann", now=NOW, models=("gpt-*",), cost_per_day=1.5)
        rotated, new = keys.rotate("ann")
        assert keys.authenticate(new, SECONDS) == rotated
        with pytest.raises(GatewayError):
            keys.authenticate(old, SECONDS)
        assert (rotated.id, rotated.models, rotated.cost_per_day) == (key.id, key.models, key.cost_per_day)


class TestModels:
    @pytest.mark.parametrize(
        ("patterns", "names", "allowed"),
        [
            ((), ("anything",), True),
            (("gpt-*",), ("gpt-4o",), True),
            (("gpt-*",), ("GPT-4o",), False),
            (("gpt-*",), ("my-gpt-4o",), False),
            (("openai/*",), ("openai/gpt-4o",), True),
            (("openai/*",), ("gpt-4o", "openai/gpt-4o"), True),
            (("openai/*",), ("gpt-4o",), False),
            (("smart", "gpt-?"), ("gpt-5",), True),
            (("smart",), ("smarter",), False),
            (("claude-[34]",), ("claude-4",), True),
        ],
    )
    def test_patterns(self, patterns: tuple[str, ...], names: tuple[str, ...], allowed: bool) -> None:
        key = make_key(models=patterns)
        assert key.allows(*names) is allowed
        if allowed:
            key.require(*names)
        else:
            with pytest.raises(GatewayError, match=names[0]) as caught:
                key.require(*names)
            assert caught.value.info.code is ErrorCode.FORBIDDEN


class TestFile:
    def test_holds_no_secret_and_is_for_its_owner_alone(self, path: Path) -> None:
        _, secret = KeyFile(path).create("ann", now=NOW)
        assert secret.rpartition("-")[2] not in path.read_text()
        assert hashlib.sha256(secret.encode()).hexdigest() in path.read_text()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert os.listdir(path.parent) == [path.name]

    def test_comes_back_as_it_was(self, path: Path) -> None:
        keys = KeyFile(path)
        keys.create("ann", now=NOW, models=("gpt-*", "smart"), requests_per_minute=5, tokens_per_minute=7,
                    concurrent_streams=2, cost_per_day=0.5, cost_per_month=9, expires_at="2030-01-01T00:00:00Z",
                    metadata={"team": "λ"})  # fmt: skip
        keys.create("bob", now=NOW)
        assert KeyFile(path).keys == keys.keys
        assert len(keys) == 2

    def test_that_is_missing_lets_nobody_in(self, path: Path) -> None:
        assert KeyFile(path).keys == ()
        assert not path.exists()

    def test_changes_of_others_are_kept(self, path: Path) -> None:
        one, other = KeyFile(path), KeyFile(path)
        one.create("ann", now=NOW)
        other.create("bob", now=NOW)
        one.revoke("ann")
        assert [(key.name, key.disabled) for key in KeyFile(path).keys] == [("ann", True), ("bob", False)]

    def test_changes_at_the_same_time_are_all_kept(self, path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        start = context.Barrier(3)
        workers = [context.Process(target=_create_some, args=(path, n, start)) for n in range(3)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
            assert worker.exitcode == 0
        expected = sorted(f"{n}.{i}" for n in range(3) for i in range(_EACH))
        assert sorted(key.name for key in KeyFile(path).keys) == expected

    def test_a_symbolic_link_stays_one(self, path: Path, tmp_path: Path) -> None:
        real = tmp_path / "real.json"
        path.symlink_to(real)
        KeyFile(path).create("ann", now=NOW)
        assert path.is_symlink()
        assert len(KeyFile(real)) == 1

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "not a key file"),
            (b"{", "not a key file"),
            (b"[" * 100_000, "not a key file"),
            (b"\xff\xfe", "not a key file"),
            (b'{"version": 1}', "keys"),
            (b'{"version": 2, "keys": []}', "version 2"),
            (b'{"version": 1, "keys": [], "more": 1}', "more"),
            (b'{"version": 1, "keys": [{"id": 5}]}', r"\$\.keys\[0\]"),
        ],
    )
    def test_that_is_broken_is_refused(self, path: Path, content: bytes, message: str) -> None:
        path.write_bytes(content)
        with pytest.raises(KeyFileError, match=message) as caught:
            KeyFile(path)
        assert str(path) in str(caught.value)

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"id": "A-b"}, "id 'A-b'"),
            ({"name": " "}, "name"),
            ({"hash": "hr-k1-secret"}, "SHA-256"),
            ({"models": [""]}, "empty pattern"),
            ({"requests_per_minute": 0}, "requests_per_minute is 0"),
            ({"cost_per_day": -1.5}, "cost_per_day is -1.5"),
            ({"expires_at": "tomorrow"}, "expires_at"),
            ({"expires_at": "2030-01-01T00:00:00"}, "offset"),
            ({"created_at": ""}, "created_at"),
            ({"requests_per_minute": "5"}, "requests_per_minute"),
            ({"request_per_minute": 5}, "request_per_minute"),
        ],
    )
    def test_a_wrong_key_is_named(self, path: Path, fields: dict[str, Any], message: str) -> None:
        write(path, entry(id="k0"), entry(**fields))
        with pytest.raises(KeyFileError, match=message) as caught:
            KeyFile(path)
        assert "keys[1]" in str(caught.value)

    def test_two_keys_with_one_id_are_refused(self, path: Path) -> None:
        write(path, entry(), entry())
        with pytest.raises(KeyFileError, match="twice"):
            KeyFile(path)

    def test_a_directory_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(KeyFileError, match="cannot be read"):
            KeyFile(tmp_path)

    def test_one_that_others_may_write_is_warned_of(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        write(path, entry())
        path.chmod(0o622)
        KeyFile(path)
        assert "chmod 600" in caplog.text

    def test_that_cannot_be_written_says_so(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(KeyFileError, match="file"):
            KeyFile(tmp_path / "file" / "keys.json").create("ann", now=NOW)

    def test_bad_values_are_not_written(self, path: Path) -> None:
        keys = KeyFile(path)
        wrong: list[dict[str, Any]] = [
            {"cost_per_day": 0.0},
            {"cost_per_month": float("nan")},
            {"expires_at": "soon"},
            {"models": ("",)},
        ]
        for fields in wrong:
            with pytest.raises(KeyFileError):
                keys.create("ann", now=NOW, **fields)
        assert not path.exists()


class TestRefresh:
    def test_unchanged_reads_nothing(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(path, entry())
        keys = KeyFile(path)
        monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("read"))
        assert keys.refresh() is False

    def test_takes_changes_up(self, path: Path) -> None:
        keys = KeyFile(path)
        write(path, entry())
        assert keys.refresh() is True
        write(path, entry(), entry(id="k2"))
        assert keys.refresh() is True
        assert [key.id for key in keys.keys] == ["k1", "k2"]
        assert keys.refresh() is False

    def test_a_broken_file_keeps_the_old_keys_and_says_so_once(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        keys = KeyFile(path)
        key, secret = keys.create("ann", now=NOW)
        path.write_text("{ broken")
        for _ in range(3):
            assert keys.refresh() is False
        assert keys.authenticate(secret, SECONDS) == key
        assert keys.problem is not None
        assert str(path) in keys.problem
        assert len(caplog.records) == 1
        write(path, entry())
        assert keys.refresh() is True
        assert keys.problem is None
        with pytest.raises(GatewayError):
            keys.authenticate(secret, SECONDS)

    def test_a_file_that_is_gone_keeps_the_old_keys(self, path: Path) -> None:
        keys = KeyFile(path)
        key, secret = keys.create("ann", now=NOW)
        path.unlink()
        assert keys.refresh() is False
        assert keys.authenticate(secret, SECONDS) == key
        assert keys.problem is not None
        assert "gone" in keys.problem


def test_find_needs_one_key(path: Path) -> None:
    keys = KeyFile(path)
    first, _ = keys.create("ann", now=NOW)
    assert keys.find("ann") == keys.find(first.id) == first
    second, _ = keys.create("ann", now=NOW)
    with pytest.raises(KeyFileError, match="no key") as caught:
        keys.find("bob")
    assert "keys list" in str(caught.value)
    with pytest.raises(KeyFileError, match="2 keys") as caught:
        keys.find("ann")
    assert first.id in str(caught.value)
    assert second.id in str(caught.value)


def test_a_revoked_key_is_not_rotated(path: Path) -> None:
    keys = KeyFile(path)
    keys.create("ann", now=NOW)
    keys.revoke("ann")
    with pytest.raises(KeyFileError, match="revoked"):
        keys.rotate("ann")


def test_times_have_their_offset() -> None:
    assert parse_time("2025-12-01T13:00:00+01:00") == parse_time("2025-12-01T12:00:00Z") == SECONDS


def test_what_counts_as_limited() -> None:
    assert not make_key().limited
    for limit in module.LIMITS:
        assert make_key(**{limit: 1}).limited
    assert make_key(cost_per_day=1.0).has_budget
    assert not make_key(requests_per_minute=1).has_budget
    assert isinstance(make_key(), Key)


_EACH = 30


def _create_some(path: Path, number: int, start: Barrier) -> None:
    start.wait(60)
    for i in range(_EACH):
        KeyFile(path).create(f"{number}.{i}", now=NOW)
