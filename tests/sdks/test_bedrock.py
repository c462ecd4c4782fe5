"""boto3, AWS's own client, against a live gateway: Converse and InvokeModel, whole and streamed; keys as boto3 sends them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.access.keys import KeyFile
from headrace.tape import ReplayServer
from tests.live import LoopThread, gateway_config, live_gateway
from tests.upstream.conftest import Authority, authority

from .expected import REASONING, REDACTED, SCRIPTS, SIGNATURE, TEXT
from .shared import eventually

__all__ = ["authority"]  # a fixture

boto3 = pytest.importorskip("boto3", reason="boto3 is not installed")
botocore_config = pytest.importorskip("botocore.config")
exceptions = pytest.importorskip("botocore.exceptions")

PROVIDERS = ("as-openai", "as-anthropic", "as-bedrock", "as-invoke")
WAYS = ("converse", "converse_stream", "invoke", "invoke_stream")
ASK = [{"role": "user", "content": [{"text": "What is a headrace?"}]}]
PIXEL = bytes(range(256))
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = {
    "tools": [
        {"toolSpec": {"name": "get_weather", "description": "The weather of a city.", "inputSchema": {"json": SCHEMA}}}
    ]
}
RESULT = 'Grüß Gott, "12 °C"\n\\u2028:\u2028 end'


def providers(url: str) -> dict[str, str]:
    return {
        "as-bedrock": f"{{format: bedrock, base_url: '{url}', models: [text]}}",
        "as-invoke": f"{{format: bedrock_invoke, base_url: '{url}'}}",
    }


@pytest.fixture(scope="module")
def gateway_url(servers: LoopThread, replay: ReplayServer) -> Iterator[str]:
    with live_gateway(servers, gateway_config(replay.base_url, providers=providers(replay.base_url))) as live:
        yield live.url


def client_of(url: str, ca_file: Path | None = None) -> Any:
    settings = botocore_config.Config(retries={"total_max_attempts": 1}, read_timeout=60, parameter_validation=True)
    session = boto3.session.Session(
        region_name="us-east-1",
        aws_access_key_id="AKIDEXAMPLE",
        aws_secret_access_key="a secret",
    )
    verify = None if ca_file is None else str(ca_file)
    return session.client("bedrock-runtime", endpoint_url=url, config=settings, verify=verify)


@pytest.fixture(scope="module")
def client(gateway_url: str) -> Any:
    return client_of(gateway_url)


class Seen:
    """What boto3's user is shown of an answer."""

    def __init__(self) -> None:
        self.text = ""
        self.reasoning = ""
        self.signatures: list[str] = []
        self.redacted: list[Any] = []
        self.calls: list[tuple[str, str, Any]] = []
        self.stop = ""
        self.usage: Mapping[str, int] = {}
        self.deltas = 0
        self.content: list[dict[str, Any]] = []
        """The blocks as they are sent back in the next turn."""


def converse(client: Any, model: str, messages: Any = ASK, **request: Any) -> Seen:
    answer = client.converse(modelId=model, messages=messages, **request)
    seen = Seen()
    assert answer["output"]["message"]["role"] == "assistant"
    assert answer["ResponseMetadata"]["RequestId"].startswith("req_")
    seen.content = answer["output"]["message"]["content"]
    for block in seen.content:
        seen.text += block.get("text", "")
        call, thought = block.get("toolUse"), block.get("reasoningContent", {})
        if call:
            seen.calls.append((call["toolUseId"], call["name"], call["input"]))
        if "reasoningText" in thought:
            seen.reasoning += thought["reasoningText"]["text"]
            seen.signatures.append(thought["reasoningText"].get("signature", ""))
        if "redactedContent" in thought:
            seen.redacted.append(thought["redactedContent"])
    seen.stop, seen.usage = answer["stopReason"], answer["usage"]
    return seen


def converse_stream(client: Any, model: str, messages: Any = ASK, **request: Any) -> Seen:
    answer = client.converse_stream(modelId=model, messages=messages, **request)
    seen, names = Seen(), []
    blocks: dict[int, dict[str, Any]] = {}
    for event in answer["stream"]:
        ((name, said),) = event.items()
        names.append(name)
        if name == "contentBlockStart":
            use = said["start"]["toolUse"]
            blocks[said["contentBlockIndex"]] = {"toolUse": {**use, "input": ""}}
        elif name == "contentBlockDelta":
            seen.deltas += 1
            add(blocks.setdefault(said["contentBlockIndex"], {}), said["delta"])
        elif name == "contentBlockStop":
            assert said["contentBlockIndex"] in blocks
        elif name == "messageStop":
            seen.stop = said["stopReason"]
        elif name == "metadata":
            seen.usage = said["usage"]
            assert said["metrics"]["latencyMs"] >= 0
    assert names[0] == "messageStart"
    assert names[-2:] == ["messageStop", "metadata"]
    assert list(blocks) == list(range(len(blocks)))
    for block in blocks.values():
        seen.content.append(block)
        seen.text += block.get("text", "")
        call, thought = block.get("toolUse"), block.get("reasoningContent", {})
        if call:
            call["input"] = json.loads(call["input"] or "{}")
            seen.calls.append((call["toolUseId"], call["name"], call["input"]))
        if "reasoningText" in thought:
            seen.reasoning += thought["reasoningText"]["text"]
            seen.signatures.append(thought["reasoningText"].get("signature", ""))
        if "redactedContent" in thought:
            seen.redacted.append(thought["redactedContent"])
    return seen


def add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    if "text" in delta:
        block["text"] = block.get("text", "") + delta["text"]
    elif "toolUse" in delta:
        block["toolUse"]["input"] += delta["toolUse"]["input"]
    else:
        said = delta["reasoningContent"]
        if "redactedContent" in said:
            block["reasoningContent"] = said
            return
        thought = block.setdefault("reasoningContent", {"reasoningText": {"text": ""}})["reasoningText"]
        thought["text"] += said.get("text", "")
        if "signature" in said:
            assert "signature" not in thought
            thought["signature"] = said["signature"]


def anthropic_body(**fields: Any) -> bytes:
    body = {
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "What is a headrace?"}],
        **fields,
    }
    return json.dumps(body).encode()


def invoke(client: Any, model: str, **fields: Any) -> Seen:
    answer = client.invoke_model(modelId=model, body=anthropic_body(**fields))
    message = json.loads(answer["body"].read())
    assert answer["contentType"] == "application/json"
    return of_message(message)


def invoke_stream(client: Any, model: str, **fields: Any) -> Seen:
    answer = client.invoke_model_with_response_stream(modelId=model, body=anthropic_body(**fields))
    message: dict[str, Any] = {}
    deltas = 0
    for event in answer["body"]:
        said = json.loads(event["chunk"]["bytes"])
        kind = said["type"]
        if kind == "message_start":
            message = said["message"]
        elif kind == "content_block_start":
            message["content"].append(said["content_block"])
        elif kind == "content_block_delta":
            deltas += 1
            block, change = message["content"][said["index"]], said["delta"]
            field = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}.get(
                change["type"], "signature"
            )
            block[field] = block.get(field, "") + change[field]
        elif kind == "message_delta":
            message |= said["delta"]
            message["usage"] |= said["usage"]
    assert kind == "message_stop"
    for block in message["content"]:
        if "partial_json" in block:
            block["input"] = json.loads(block.pop("partial_json"))
    seen = of_message(message)
    seen.deltas = deltas
    return seen


def of_message(message: dict[str, Any]) -> Seen:
    seen = Seen()
    for block in message["content"]:
        seen.text += block.get("text", "")
        seen.reasoning += block.get("thinking", "")
        if block["type"] == "thinking":
            seen.signatures.append(block.get("signature", ""))
        if block["type"] == "redacted_thinking":
            seen.redacted.append(block["data"])
        if block["type"] == "tool_use":
            seen.calls.append((block["id"], block["name"], block["input"]))
    usage = message["usage"]
    seen.stop = message["stop_reason"]
    seen.usage = {"inputTokens": usage["input_tokens"], "outputTokens": usage["output_tokens"]}
    return seen


RUN: dict[str, Callable[..., Seen]] = {
    "converse": converse,
    "converse_stream": converse_stream,
    "invoke": invoke,
    "invoke_stream": invoke_stream,
}
STOPS = {
    "end": "end_turn",
    "tools": "tool_use",
    "length": "max_tokens",
    "refusal": "content_filtered",
}


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_every_script(client: Any, way: str, provider: str, script: str) -> None:
    row = SCRIPTS[script]
    seen = RUN[way](client, f"{provider}/{script}")
    assert seen.text == row.text + row.refusal
    assert seen.reasoning == row.reasoning
    assert [(name, arguments) for _, name, arguments in seen.calls] == [call[1:] for call in row.calls]
    assert [id for id, _, _ in seen.calls] == [call[0] for call in row.calls]
    refused = row.stop == "refusal" and "invoke" in way
    assert seen.stop == ("refusal" if refused else STOPS[row.stop])
    if row.usage is not None:
        assert (seen.usage["inputTokens"], seen.usage["outputTokens"]) == row.usage[:2]
    if "stream" in way:
        assert seen.deltas >= len(f"{row.text} {row.reasoning}".split()), "not word by word"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", ["converse", "converse_stream"])
def test_a_tool_and_its_result(client: Any, replay: ReplayServer, way: str, provider: str) -> None:
    model = f"{provider}/tool-round-trip"
    first = RUN[way](client, model, toolConfig=TOOLS)
    assert first.text == "I need a tool for that."
    ((id, name, arguments),) = first.calls
    assert (name, arguments, first.stop) == ("get_weather", {"city": "Vienna"}, "tool_use")
    result = {"toolUseId": id, "content": [{"text": RESULT}], "status": "success"}
    messages = [
        *ASK,
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [{"toolResult": result}]},
    ]
    second = RUN[way](client, model, messages, toolConfig=TOOLS)
    assert second.text == f"The tool says: {RESULT}"
    if provider == "as-bedrock":
        sent = replay.requests[-1]
        assert sent.path == f"/model/tool-round-trip/{way.replace('_', '-')}"
        assert sent.body == {"messages": messages, "toolConfig": TOOLS}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", ["converse", "converse_stream"])
@pytest.mark.parametrize("script", ["reasoning", "redacted-reasoning"])
def test_reasoning_goes_back_to_whom_it_came_from(
    client: Any, replay: ReplayServer, way: str, provider: str, script: str
) -> None:
    """In order and byte for byte, to the provider that has a place for it; sealed on the way through boto3's user."""
    first = RUN[way](client, f"{provider}/{script}")
    assert first.reasoning == (REASONING if script == "reasoning" else "")
    vendor = {"as-openai": "openai", "as-anthropic": "anthropic", "as-bedrock": "", "as-invoke": "anthropic"}[provider]
    seal = f"headrace:{vendor}::" if vendor else ""
    if script == "reasoning":
        assert first.signatures == [seal + SIGNATURE]
    else:
        assert first.redacted == [f"{seal}{REDACTED}".encode() if seal else base64.b64decode(REDACTED)]
    messages = [*ASK, {"role": "assistant", "content": first.content}, *ASK]
    RUN[way](client, f"{provider}/echo", messages)
    told = json.dumps(replay.requests[-1].body)
    value = SIGNATURE if script == "reasoning" else REDACTED
    assert value in told
    assert "headrace:" not in told
    # To another vendor it does not go.
    other = "as-anthropic" if provider == "as-bedrock" else "as-bedrock"
    RUN[way](client, f"{other}/echo", messages)
    assert value not in json.dumps(replay.requests[-1].body)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", ["converse", "converse_stream"])
def test_an_image_and_a_document_reach_the_provider(client: Any, replay: ReplayServer, way: str, provider: str) -> None:
    content = [
        {"text": "Look"},
        {"image": {"format": "png", "source": {"bytes": PIXEL}}},
        {"document": {"format": "pdf", "name": "report", "source": {"bytes": PIXEL}}},
    ]
    seen = RUN[way](client, f"{provider}/echo", [{"role": "user", "content": content}], system=[{"text": "Be brief."}])
    assert seen.text.startswith("Look")
    assert "system: Be brief.;" in seen.text
    assert "images: 1; documents: 1;" in seen.text
    assert base64.b64encode(PIXEL).decode() in json.dumps(replay.requests[-1].body)


@pytest.mark.parametrize("way", ["invoke", "invoke_stream"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_image_in_an_invocation(client: Any, provider: str, way: str) -> None:
    data = base64.b64encode(PIXEL).decode()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    seen = RUN[way](
        client, f"{provider}/echo", messages=[{"role": "user", "content": [{"type": "text", "text": "Look"}, image]}]
    )
    assert "images: 1;" in seen.text


def test_inference_settings_reach_bedrock_as_they_are(client: Any, replay: ReplayServer) -> None:
    request = {
        "inferenceConfig": {"maxTokens": 5, "temperature": 0.5, "topP": 0.5, "stopSequences": ["x"]},
        "additionalModelRequestFields": {"top_k": 7, "anything": {"else": [1]}},
        "guardrailConfig": {"guardrailIdentifier": "abc", "guardrailVersion": "1", "trace": "enabled"},
        "requestMetadata": {"tenant": "t"},
        "system": [{"text": "S"}, {"cachePoint": {"type": "default"}}],
    }
    converse(client, "as-bedrock/hello", **request)
    assert replay.requests[-1].body == {"messages": ASK, **request}


def test_an_invocation_reaches_bedrock_as_it_is(client: Any, replay: ReplayServer) -> None:
    answer = client.invoke_model(
        modelId="as-invoke/hello",
        body=anthropic_body(anthropic_beta=["x"], thinking={"type": "enabled", "budget_tokens": 1024}),
        guardrailIdentifier="abc",
        guardrailVersion="1",
    )
    assert json.loads(answer["body"].read())["content"] == [{"type": "text", "text": "Hello!"}]
    sent = replay.requests[-1]
    assert sent.path == "/model/hello/invoke"
    assert sent.body == json.loads(
        anthropic_body(anthropic_beta=["x"], thinking={"type": "enabled", "budget_tokens": 1024})
    )
    assert sent.headers["x-amzn-bedrock-guardrailidentifier"] == "abc"


REFUSED = {
    "unknown to the gateway": ("nowhere/text", 404, "ResourceNotFoundException"),
    "unknown to the provider": ("as-bedrock/nonsense", 404, "ResourceNotFoundException"),
    "wrong key": ("as-anthropic/text?status=401", 401, "UnrecognizedClientException"),
    "too many requests": ("as-bedrock/text?status=429", 429, "ThrottlingException"),
    "refused by a script": ("as-openai/error-first", 429, "ThrottlingException"),
    "provider failed": ("as-bedrock/text?status=500", 503, "ServiceUnavailableException"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("way", WAYS)
def test_a_provider_that_refuses(client: Any, way: str, case: str) -> None:
    model, status, code = REFUSED[case]
    with pytest.raises(exceptions.ClientError) as caught:
        RUN[way](client, model)
    told = caught.value.response
    assert (told["Error"]["Code"], told["ResponseMetadata"]["HTTPStatusCode"]) == (code, status)
    assert told["Error"]["Message"]
    if hasattr(client.exceptions, code):  # what boto3's users catch
        assert isinstance(caught.value, getattr(client.exceptions, code))


def test_a_request_that_is_wrong(client: Any) -> None:
    with pytest.raises(client.exceptions.ValidationException, match=r"messages\[0\].content\[0\].toolUse: belongs in"):
        converse(client, "as-bedrock/text", [{"role": "user", "content": [{"toolUse": _USE}]}])


_USE = {"toolUseId": "a", "name": "f", "input": {}}

BROKEN = {
    # what happens in the middle: (model, what boto3 calls it)
    "an error": ("error", "serviceUnavailableException"),
    "the stream is cut": ("long?cut=5&cut_clean=1", "modelStreamErrorException"),
    "the connection is reset": ("long?reset=5", "serviceUnavailableException"),
    "an event is malformed": ("long?malformed=5", "modelStreamErrorException"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", ["converse_stream", "invoke_stream"])
def test_a_stream_that_fails(client: Any, way: str, provider: str, case: str) -> None:
    model, code = BROKEN[case]
    with pytest.raises(exceptions.EventStreamError) as caught:
        RUN[way](client, f"{provider}/{model}")
    assert caught.value.response["Error"]["Code"] == code
    assert caught.value.response["Error"]["Message"]


@pytest.mark.parametrize("provider", ["as-bedrock", "as-invoke"])
@pytest.mark.parametrize("way", ["converse_stream", "invoke_stream"])
def test_bytes_that_are_damaged_end_the_stream(client: Any, way: str, provider: str) -> None:
    """And do not make anybody wait for a message as long as they say (vercel/ai#18994)."""
    with pytest.raises(exceptions.EventStreamError) as caught:
        RUN[way](client, f"{provider}/long?garbage=5")
    assert caught.value.response["Error"]["Code"] == "modelStreamErrorException"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", ["converse_stream", "invoke_stream"])
def test_a_stream_that_is_left(client: Any, replay: ReplayServer, way: str, provider: str) -> None:
    assert eventually(lambda: replay.active == 0)
    aborted = replay.aborted
    model = f"{provider}/long?speed=1"
    if way == "converse_stream":
        stream = client.converse_stream(modelId=model, messages=ASK)["stream"]
        found = any("contentBlockDelta" in event for event in stream)
    else:
        stream = client.invoke_model_with_response_stream(modelId=model, body=anthropic_body())["body"]
        found = any(b"text_delta" in event["chunk"]["bytes"] for event in stream)
    assert found
    stream.close()
    assert eventually(lambda: replay.active == 0), "the provider still sends"
    assert replay.aborted == aborted + 1


# Keys.


@pytest.fixture(scope="module")
def guarded(
    servers: LoopThread, replay: ReplayServer, tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[tuple[str, str]]:
    """A gateway that wants a key, behind TLS as boto3 wants it for bearer tokens, and a key."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    secret = KeyFile(path).create("boto3", now=datetime.now(UTC))[1]
    config = gateway_config(replay.base_url, f"keys_file: {path}", providers=providers(replay.base_url))
    with live_gateway(servers, config) as live, terminating(servers, authority, live.port) as port:
        yield f"https://127.0.0.1:{port}", secret


@contextlib.contextmanager
def terminating(servers: LoopThread, authority: Authority, port: int) -> Iterator[int]:
    """TLS in front of a port of this machine, as a proxy does it; the port that speaks TLS."""

    relays: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        relays.add(task)
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))

    async def start() -> asyncio.Server:
        return await asyncio.start_server(relay, "127.0.0.1", 0, ssl=authority.server_context)

    async def stop(server: asyncio.Server) -> None:
        server.close()
        for task in relays:
            task.cancel()
        await asyncio.wait(relays)

    server = servers.call(start())
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        servers.call(stop(server))


@pytest.mark.parametrize("way", WAYS)
def test_a_bearer_token_is_a_key(
    guarded: tuple[str, str], authority: Authority, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    url, secret = guarded
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", secret)
    assert RUN[way](client_of(url, authority.ca_file), "as-bedrock/text").text == TEXT
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "hr-nobody-knows")
    with pytest.raises(exceptions.ClientError) as caught:
        RUN[way](client_of(url, authority.ca_file), "as-bedrock/text")
    assert caught.value.response["Error"]["Code"] == "UnrecognizedClientException"
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 401


@pytest.mark.parametrize("way", WAYS)
def test_a_signature_is_no_key(guarded: tuple[str, str], authority: Authority, way: str) -> None:
    with pytest.raises(exceptions.ClientError, match="send a key of this gateway as a bearer token") as caught:
        RUN[way](client_of(guarded[0], authority.ca_file), "as-bedrock/text")
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 401


# Anthropic's client for Bedrock, which speaks the same envelope.


@pytest.fixture(scope="module")
def anthropic_client(gateway_url: str) -> Any:
    anthropic = pytest.importorskip("anthropic")
    return anthropic.AnthropicBedrock(
        base_url=gateway_url,
        aws_region="us-east-1",
        aws_access_key="AKIDEXAMPLE",
        aws_secret_key="a secret",  # nobody's
        max_retries=0,
    )


@pytest.mark.parametrize("script", ["text", "reasoning", "parallel-tools", "unicode"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_anthropics_client_for_bedrock(anthropic_client: Any, provider: str, script: str) -> None:
    row = SCRIPTS[script]
    request = {"max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
    answer = anthropic_client.messages.create(model=f"{provider}/{script}", **request)
    assert "".join(block.text for block in answer.content if block.type == "text") == row.text
    with anthropic_client.messages.stream(model=f"{provider}/{script}", **request) as stream:
        streamed = stream.get_final_message()
    assert [block.type for block in streamed.content] == [block.type for block in answer.content]
    assert [(block.name, block.input) for block in streamed.content if block.type == "tool_use"] == [
        call[1:] for call in row.calls
    ]
