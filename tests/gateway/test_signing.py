"""Requests that are signed for AWS, as a server sees them: every signature is recomputed there by botocore."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from unittest import mock

import pytest

from headrace.config import CredentialError
from headrace.config.credentials import aws_keys
from headrace.config.settings import Aws
from headrace.upstream import AwsKeys, HttpRequest, SigningError, SigV4Signer
from headrace.upstream.sigv4 import RELOAD_SECONDS
from tests.gateway.client import post
from tests.live import LoopThread, gateway_config, live_gateway

auth = pytest.importorskip("botocore.auth", reason="botocore is not installed")
awsrequest = pytest.importorskip("botocore.awsrequest")

KEYS = AwsKeys("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
TEMPORARY = AwsKeys("ASIDEXAMPLE", "another secret", "a token of a session")
MODEL = "arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-sonnet-4-20250514-v1:0"
PATH = MODEL.replace(":", "%3A").replace("/", "%2F")
ANSWER = {
    "output": {"message": {"role": "assistant", "content": [{"text": "Hello"}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3},
    "metrics": {"latencyMs": 5},
}


class Seen(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


def check_signature(seen: Seen, host: str, keys: AwsKeys, region: str, scheme: str = "http") -> None:
    """As AWS does it: sign what arrived with the key that it names, at the time that it names, and compare."""
    scheme_word, _, rest = seen.headers["authorization"].partition(" ")
    assert scheme_word == "AWS4-HMAC-SHA256"
    said = dict(item.strip().split("=", 1) for item in rest.split(","))
    stamp = seen.headers["x-amz-date"]
    assert said["Credential"] == f"{keys.access_key}/{stamp[:8]}/{region}/bedrock/aws4_request"
    names = said["SignedHeaders"].split(";")
    assert {"host", "x-amz-date", "content-type"} <= set(names)
    assert ("x-amz-security-token" in names) is (keys.token is not None)
    assert "traceparent" not in names
    assert seen.headers["host"] == host
    request = awsrequest.AWSRequest(
        method=seen.method,
        url=f"{scheme}://{host}{seen.target}",
        headers={name: seen.headers[name] for name in names if name != "host"},
        data=seen.body,
    )
    request.context["timestamp"] = stamp
    signer = auth.SigV4Auth(keys, "bedrock", region)
    canonical = signer.canonical_request(request)
    assert signer.signature(signer.string_to_sign(request, canonical), request) == said["Signature"]


def signed(signer: SigV4Signer, **fields: Any) -> Seen:
    given: dict[str, Any] = {
        "method": "POST",
        "url": f"https://bedrock-runtime.us-east-1.amazonaws.com/model/{PATH}/converse",
        "headers": [("content-type", "application/json"), ("traceparent", "00-1-2-01"), ("X-Amz-Custom", "a  b")],
        "body": b'{"messages":[]}',
        **fields,
    }
    made = signer.sign(HttpRequest(**given))
    headers = {name.lower(): value for name, value in made.headers}
    assert len(headers) == len(made.headers)
    host, _, path = made.url.removeprefix("https://").partition("/")
    return Seen("POST", f"/{path}", {**headers, "host": host}, made.body)


@pytest.mark.parametrize("keys", [KEYS, TEMPORARY], ids=["lasting", "temporary"])
def test_a_signature_is_what_botocore_makes_of_the_request(keys: AwsKeys) -> None:
    seen = signed(SigV4Signer("us-east-1", keys=keys))
    check_signature(seen, "bedrock-runtime.us-east-1.amazonaws.com", keys, "us-east-1", "https")
    assert seen.headers["traceparent"] == "00-1-2-01"
    assert seen.headers["x-amz-custom"] == "a  b"
    assert seen.headers.get("x-amz-security-token") == keys.token


def test_a_signature_replaces_whatever_else_there_was() -> None:
    seen = signed(SigV4Signer("us-east-1", keys=KEYS), headers=[("Authorization", "Bearer x"), ("content-type", "a/b")])
    assert seen.headers["authorization"].startswith("AWS4-HMAC-SHA256 ")


def test_another_body_has_another_signature() -> None:
    signer = SigV4Signer("us-east-1", keys=KEYS)
    one, other = signed(signer), signed(signer, body=b"{}")
    assert one.headers["authorization"] != other.headers["authorization"]


# Where credentials come from.


def test_keys_of_the_configuration_and_of_the_environment() -> None:
    env = {"AWS_ACCESS_KEY_ID": " AKID ", "AWS_SECRET_ACCESS_KEY": "s", "AWS_SESSION_TOKEN": ""}
    assert aws_keys(Aws(region="r"), env) == ("AKID", "s", None)
    assert aws_keys(Aws(region="r"), {**env, "AWS_SESSION_TOKEN": "t"}) == ("AKID", "s", "t")
    assert aws_keys(Aws(region="r", profile="p"), env) is None
    assert aws_keys(Aws(region="r"), {}) is None


def test_half_a_pair_is_none() -> None:
    from headrace.config import Secret

    with pytest.raises(CredentialError, match="secret_access_key is missing"):
        aws_keys(Aws(region="r", access_key_id=Secret("x")), {})


def test_credentials_are_looked_for_when_they_are_loaded_and_renewed(tmp_path: Any) -> None:
    file = tmp_path / "credentials"
    file.write_text("[team]\naws_access_key_id = AKIDFILE\naws_secret_access_key = filed\n")
    env = {"AWS_SHARED_CREDENTIALS_FILE": str(file), "AWS_CONFIG_FILE": str(tmp_path / "none")}
    signer = SigV4Signer("us-east-1", profile="team")
    with pytest.raises(SigningError, match="looked for yet"):
        signed(signer)
    with mock.patch.dict("os.environ", env):
        signer.load()
    check_signature(
        signed(signer), "bedrock-runtime.us-east-1.amazonaws.com", AwsKeys("AKIDFILE", "filed"), "us-east-1", "https"
    )
    assert not signer.fixed
    assert RELOAD_SECONDS < 300


def test_a_profile_that_there_is_not(tmp_path: Any) -> None:
    signer = SigV4Signer("us-east-1", profile="nobody")
    with mock.patch.dict("os.environ", {"AWS_CONFIG_FILE": str(tmp_path / "none")}):
        signer.load()
    with pytest.raises(SigningError, match="nobody"):
        signed(signer)


def test_no_secret_is_shown() -> None:
    signer = SigV4Signer("us-east-1", keys=KEYS)
    assert KEYS.secret_key not in f"{KEYS!r} {KEYS} {vars(signer)!r}"


# A gateway.


class Upstream:
    """Answers every request alike, and keeps what it was sent."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
                method, target, _ = head[0].split(" ")
                headers = {}
                for line in head[1:]:
                    name, _, value = line.partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.seen.append(Seen(method, target, headers, body))
                answer = json.dumps(ANSWER).encode()
                writer.write(
                    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                    % (len(answer), answer)
                )
        writer.close()


@pytest.fixture(scope="module")
def upstream(servers: LoopThread) -> Iterator[Upstream]:
    made = Upstream()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(made.serve, "127.0.0.1", 0)

    server = servers.call(start())
    made.port = server.sockets[0].getsockname()[1]
    yield made

    async def stop() -> None:
        server.close()

    servers.call(stop())


REQUEST = {"model": f"aws/{MODEL}", "messages": [{"role": "user", "content": "Grüß Gott"}]}


def ask(port: int) -> tuple[int, Any]:
    answer = post(port, "/v1/chat/completions", REQUEST)
    return answer.status, answer.json()


@pytest.mark.parametrize("keys", [KEYS, TEMPORARY], ids=["lasting", "temporary"])
def test_every_request_is_signed(servers: LoopThread, upstream: Upstream, keys: AwsKeys) -> None:
    env = {"AWS_ACCESS_KEY_ID": keys.access_key, "AWS_SECRET_ACCESS_KEY": keys.secret_key}
    if keys.token:
        env["AWS_SESSION_TOKEN"] = keys.token
    provider = f"{{format: bedrock, base_url: 'http://127.0.0.1:{upstream.port}', aws: {{region: eu-central-1}}}}"
    config = gateway_config("http://127.0.0.1:9", providers={"aws": provider})
    upstream.seen.clear()
    with live_gateway(servers, config, env) as live:
        for _ in range(2):
            status, body = ask(live.port)
            assert status == 200, body
            assert body["choices"][0]["message"]["content"] == "Hello"
    assert len(upstream.seen) == 2
    for seen in upstream.seen:
        assert seen.target == f"/model/{PATH}/converse"
        check_signature(seen, f"127.0.0.1:{upstream.port}", keys, "eu-central-1")


def test_an_api_key_is_sent_as_it_is(servers: LoopThread, upstream: Upstream) -> None:
    provider = f"{{format: bedrock, base_url: 'http://127.0.0.1:{upstream.port}', api_key_env: TOKEN}}"
    from headrace.config import loads

    text = f"providers:\n  aws: {provider}\n"
    env = {"TOKEN": "bedrock-api-key-abc"}
    upstream.seen.clear()
    with live_gateway(servers, loads(text, filename="test.yaml", env=env), env) as live:
        assert ask(live.port)[0] == 200
    assert upstream.seen[0].headers["authorization"] == "Bearer bedrock-api-key-abc"
    assert "x-amz-date" not in upstream.seen[0].headers


def test_without_credentials_nothing_is_sent(
    servers: LoopThread, upstream: Upstream, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    provider = f"{{format: bedrock, base_url: 'http://127.0.0.1:{upstream.port}', aws: {{region: eu-central-1}}}}"
    upstream.seen.clear()
    with live_gateway(servers, gateway_config("http://127.0.0.1:9", providers={"aws": provider}), {}) as live:
        status, body = ask(live.port)
    assert status == 500
    assert "no AWS credentials were found" in body["error"]["message"]
    assert upstream.seen == []
