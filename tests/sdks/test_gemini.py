"""Google's GenAI SDKs against a live gateway: every script, a tool's round trip, thoughts with their signatures, an image,
errors, a stream that is left. In Python plain, asynchronous and as a chat; in JavaScript."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from headrace.formats.gemini.words import sealed
from headrace.tape import ReplayServer
from tests.live import LoopThread, gateway_config, live_gateway

from .expected import MILL, REASONING, REDACTED, SCRIPTS, SIGNATURE, TEXT
from .javascript import FOLDER, NodeProcess
from .shared import Mill, eventually

PROVIDERS = ("as-openai", "as-anthropic", "as-gemini")
WAYS = ("whole", "stream", "async")
PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
WEATHER = types.FunctionDeclaration(
    name="get_weather",
    description="The weather of a city",
    parameters_json_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
TOOLS = [types.Tool(function_declarations=[WEATHER])]


@pytest.fixture(scope="module")
def gateway_url(servers: LoopThread, replay: ReplayServer) -> Iterator[str]:
    providers = {"as-gemini": f"{{format: gemini, base_url: '{replay.base_url}/v1beta'}}"}
    with live_gateway(servers, gateway_config(replay.base_url, providers=providers)) as live:
        yield live.url


@pytest.fixture(scope="module")
def node(gateway_url: str) -> Iterator[NodeProcess]:
    if not (FOLDER / "node_modules").exists():
        pytest.skip("the JavaScript SDKs are not installed: run make test")
    process = NodeProcess("genai", gateway_url)
    yield process
    process.close()


def client_of(url: str) -> genai.Client:
    options = types.HttpOptions(base_url=url, timeout=60_000, retry_options=types.HttpRetryOptions(attempts=1))
    return genai.Client(api_key="none", http_options=options)


def in_a_path(model: str) -> str:
    """The SDK puts the model's name into the URL as it is."""
    return model.replace("?", "%3F").replace("&", "%26")


class Seen:
    """What the SDK showed of an answer."""

    def __init__(self) -> None:
        self.parts: list[types.Part] = []
        self.chunks = 0
        self.last: types.GenerateContentResponse | None = None
        self.finish: str | None = None

    def add(self, chunk: types.GenerateContentResponse) -> None:
        assert self.finish is None, "something followed the finish reason"
        self.chunks += 1
        self.last = chunk
        assert chunk.candidates is not None
        (candidate,) = chunk.candidates
        self.finish = candidate.finish_reason.name if candidate.finish_reason else None
        if candidate.content is not None:
            self.parts += candidate.content.parts or []

    @property
    def text(self) -> str:
        return "".join(part.text or "" for part in self.parts if not part.thought)

    @property
    def thoughts(self) -> str:
        return "".join(part.text or "" for part in self.parts if part.thought)

    @property
    def calls(self) -> list[tuple[str | None, str | None, Any]]:
        return [(c.id, c.name, c.args) for part in self.parts if (c := part.function_call)]

    @property
    def signatures(self) -> list[str]:
        """As they stand in the JSON."""
        return [base64.b64encode(part.thought_signature).decode() for part in self.parts if part.thought_signature]

    @property
    def content(self) -> types.Content:
        return types.Content(role="model", parts=self.parts)


def ask(url: str, way: str, model: str, contents: Any = "What is a headrace?", **config: Any) -> Seen:
    """An answer, by one of WAYS."""
    seen = Seen()
    model = in_a_path(model)
    given = types.GenerateContentConfig(**config) if config else None
    client = client_of(url)
    if way == "async":

        async def main() -> None:
            stream = await client.aio.models.generate_content_stream(model=model, contents=contents, config=given)
            async for chunk in stream:
                seen.add(chunk)

        asyncio.run(main())
    elif way == "stream":
        for chunk in client.models.generate_content_stream(model=model, contents=contents, config=given):
            seen.add(chunk)
    else:
        seen.add(client.models.generate_content(model=model, contents=contents, config=given))
    return seen


STOPS = {"end": "STOP", "tools": "STOP", "length": "MAX_TOKENS"}


@pytest.mark.parametrize("script", [name for name in SCRIPTS if name != "redacted-reasoning"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_every_script(gateway_url: str, way: str, provider: str, script: str) -> None:
    row = SCRIPTS[script]
    seen = ask(gateway_url, way, f"{provider}/{script}")
    assert seen.text == row.text + row.refusal
    assert seen.thoughts == row.reasoning
    assert [call[1:] for call in seen.calls] == [call[1:] for call in row.calls]
    assert len({call[0] for call in seen.calls}) == len(row.calls)
    assert seen.finish == STOPS.get(row.stop, seen.finish)
    if row.stop == "refusal":
        assert seen.finish in ("PROHIBITED_CONTENT", "SAFETY")
    if way != "whole":
        assert seen.chunks >= len(f"{row.text} {row.reasoning}".split()), "not word by word"
    assert seen.last is not None
    assert seen.last.model_version == script
    if row.usage is not None:
        usage = seen.last.usage_metadata
        assert usage is not None
        spoken = (usage.candidates_token_count or 0) + (usage.thoughts_token_count or 0)
        assert (usage.prompt_token_count, spoken) == row.usage[:2]
        assert usage.total_token_count == sum(row.usage[:2])


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_tool_and_its_result(gateway_url: str, way: str, provider: str) -> None:
    model = f"{provider}/tool-round-trip"
    first = ask(gateway_url, way, model, tools=TOOLS)
    ((id, name, args),) = first.calls
    assert (name, args) == ("get_weather", {"city": "Vienna"})
    result = types.Part(function_response=types.FunctionResponse(id=id, name=name, response={"output": "12 degrees"}))
    turn = [
        types.Content(role="user", parts=[types.Part(text="What is it like?")]),
        first.content,
        types.Content(role="user", parts=[result]),
    ]
    assert ask(gateway_url, way, model, turn, tools=TOOLS).text == "The tool says: 12 degrees"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_function_of_pythons(gateway_url: str, provider: str) -> None:
    """The SDK calls it by itself, and asks again."""

    def get_weather(city: str) -> str:
        """The weather of a city."""
        return f"rain in {city}"

    client = client_of(gateway_url)
    answer = client.models.generate_content(
        model=f"{provider}/tool-round-trip",
        contents="What is it like?",
        config=types.GenerateContentConfig(tools=[get_weather]),
    )
    assert answer.text == "The tool says: rain in Vienna"


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("script", ["reasoning", "redacted-reasoning"])
def test_thoughts_go_back_to_whom_they_came_from(
    gateway_url: str, replay: ReplayServer, provider: str, script: str
) -> None:
    """As it stands in the JSON; the SDK's types would change the alphabet."""
    contents = [{"role": "user", "parts": [{"text": "What is a headrace?"}]}]
    url = f"{gateway_url}/v1beta/models/{provider}%2F{{}}:generateContent"

    def post(script: str) -> Any:
        request = urllib.request.Request(
            url.format(script), json.dumps({"contents": contents}).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    content = post(script)["candidates"][0]["content"]
    vendor = {"as-openai": "openai", "as-anthropic": "anthropic", "as-gemini": "google"}[provider]
    secret = SIGNATURE if script == "reasoning" else REDACTED
    signatures = [part["thoughtSignature"] for part in content["parts"] if "thoughtSignature" in part]
    if script == "redacted-reasoning":
        assert signatures == [sealed(vendor, "-redacted", secret)]
    else:
        assert signatures == [secret if vendor == "google" else sealed(vendor, "", secret)]
        assert "".join(part["text"] for part in content["parts"] if part.get("thought")) == REASONING
    contents += [content, {"role": "user", "parts": [{"text": "Go on"}]}]
    assert post("echo")["candidates"][0]["content"]["parts"][0]["text"].startswith("Go on")
    sent = json.dumps(replay.requests[-1].body)
    assert (signatures[0] if provider == "as-gemini" else secret) in sent
    if provider == "as-anthropic":
        kind = "thinking" if script == "reasoning" else "redacted_thinking"
        assert replay.requests[-1].body["messages"][1]["content"][0]["type"] == kind


def test_signatures_of_its_own_are_googles_bytes(gateway_url: str, replay: ReplayServer) -> None:
    first = ask(gateway_url, "stream", "as-gemini/reasoning")
    assert first.signatures == [SIGNATURE]
    turn = [
        types.Content(role="user", parts=[types.Part(text="Hi")]),
        first.content,
        types.Content(role="user", parts=[types.Part(text="Go on")]),
    ]
    ask(gateway_url, "stream", "as-gemini/echo", turn)
    parts = replay.requests[-1].body["contents"][1]["parts"]
    (signed,) = [part for part in parts if "thoughtSignature" in part]
    assert base64.urlsafe_b64decode(signed["thoughtSignature"]) == base64.b64decode(SIGNATURE)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_chat(gateway_url: str, provider: str) -> None:
    client = client_of(gateway_url)
    chat = client.chats.create(model=f"{provider}/echo")
    assert (chat.send_message("One").text or "").startswith("One")
    text = "".join(chunk.text or "" for chunk in chat.send_message_stream("Two"))
    assert text.startswith("Two")
    assert "messages: 3;" in text


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_an_image_reaches_the_provider(gateway_url: str, replay: ReplayServer, way: str, provider: str) -> None:
    image = types.Part.from_bytes(data=PIXEL, mime_type="image/png")
    seen = ask(gateway_url, way, f"{provider}/echo", ["What is it?", image])
    assert "images: 1;" in seen.text
    body = json.dumps(replay.requests[-1].body)
    assert base64.b64encode(PIXEL).decode() in body.replace("-", "+").replace("_", "/")
    assert "image/png" in body


@pytest.mark.parametrize("provider", PROVIDERS)
def test_structured_output(gateway_url: str, provider: str) -> None:
    client = client_of(gateway_url)
    answer = client.models.generate_content(
        model=f"{provider}/json",
        contents="The mill?",
        config=types.GenerateContentConfig(response_mime_type="application/json", response_schema=Mill),
    )
    assert answer.parsed == Mill.model_validate(MILL)


def test_googles_schemas_are_json_schemas_elsewhere(gateway_url: str, replay: ReplayServer) -> None:
    schema = types.Schema(
        type=types.Type.OBJECT,
        properties={
            "at": types.Schema(type=types.Type.STRING, nullable=True),
            "n": types.Schema(type=types.Type.INTEGER),
        },
        property_ordering=["n", "at"],
    )
    declared = types.FunctionDeclaration(name="f", description="F", parameters=schema)
    ask(gateway_url, "whole", "as-openai/echo", tools=[types.Tool(function_declarations=[declared])])
    (tool,) = replay.requests[-1].body["tools"]
    properties = tool["function"]["parameters"]["properties"]
    assert properties == {"at": {"type": ["string", "null"]}, "n": {"type": "integer"}}


@pytest.mark.parametrize(
    ("model", "status"),
    [("text?status=401", 401), ("text?status=429", 429), ("nonsense", 404), ("text?status=500", 503)],
)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_provider_that_refuses(gateway_url: str, way: str, provider: str, model: str, status: int) -> None:
    with pytest.raises(errors.APIError) as raised:
        ask(gateway_url, way, f"{provider}/{model}")
    assert raised.value.code == status
    assert raised.value.status
    assert raised.value.message


@pytest.mark.parametrize("fault", ["error=6:overloaded_error", "cut=6", "cut=6&cut_clean=1", "reset=6", "malformed=6"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_stream_that_breaks_is_never_complete(gateway_url: str, provider: str, fault: str) -> None:
    seen = Seen()
    client = client_of(gateway_url)
    chunks = client.models.generate_content_stream(model=in_a_path(f"{provider}/text?{fault}"), contents="Hi")
    with pytest.raises(errors.APIError):  # noqa: PT012  # what came before counts
        for chunk in chunks:
            seen.add(chunk)
    assert TEXT.startswith(seen.text)
    assert seen.finish is None


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "contents"),
        ({"contents": [{"role": "wizard", "parts": []}]}, "contents[0].role"),
        ({"contents": [{"parts": [{"text": 7}]}]}, "contents[0].parts[0].text"),
        ({"contents": ["x"], "generationConfig": {"temperature": "warm"}}, "generationConfig.temperature"),
        ({"contents": ["x"], "tools": [{"functionDeclarations": [{}]}]}, "tools[0].functionDeclarations[0]"),
    ],
)
def test_a_bad_request_is_told_where(gateway_url: str, body: Any, param: str) -> None:
    request = urllib.request.Request(
        f"{gateway_url}/v1beta/models/as-openai%2Ftext:generateContent",
        json.dumps(body).encode(),
        {"content-type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as raised:
        urllib.request.urlopen(request, timeout=60)
    error = json.load(raised.value)["error"]
    assert (raised.value.code, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert param in error["message"]


def test_without_alt_sse_a_stream_is_one_array(gateway_url: str) -> None:
    request = urllib.request.Request(
        f"{gateway_url}/v1beta/models/as-anthropic%2Ftext:streamGenerateContent",
        json.dumps({"contents": [{"parts": [{"text": "Hi"}]}]}).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.headers["content-type"] == "application/json"
        chunks = json.load(answer)
    assert len(chunks) > 10
    assert "".join(part["text"] for chunk in chunks for part in chunk["candidates"][0]["content"]["parts"]) == TEXT
    assert chunks[-1]["candidates"][0]["finishReason"] == "STOP"


@pytest.mark.parametrize("provider", PROVIDERS)
def test_leaving_a_stream_lets_the_provider_go(gateway_url: str, replay: ReplayServer, provider: str) -> None:
    assert eventually(lambda: replay.active == 0)
    aborted = replay.aborted

    async def main() -> None:
        client = client_of(gateway_url)
        model = in_a_path(f"{provider}/long?speed=1")
        stream = await client.aio.models.generate_content_stream(model=model, contents="Hi")
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]  # an asynchronous generator
        await client.aio.aclose()

    asyncio.run(main())
    assert eventually(lambda: replay.active == 0), "the provider still sends"
    assert replay.aborted == aborted + 1


# JavaScript.


@pytest.mark.parametrize("script", ["text", "parallel-tools", "zero-argument-tool"])
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("way", ["create", "stream"])
def test_javascript(node: NodeProcess, way: str, provider: str, script: str) -> None:
    row = SCRIPTS[script]
    seen = node.run(way, f"{provider}/{script}").seen
    assert (seen.text, seen.reasoning) == (row.text, row.reasoning)
    assert [(call.name, call.arguments) for call in seen.calls] == [call[1:] for call in row.calls]
    if row.usage is not None:
        assert seen.usage is not None
        assert (seen.usage.input, seen.usage.output) == row.usage[:2]


@pytest.mark.parametrize("script", ["reasoning", "redacted-reasoning"])
def test_javascript_thoughts_go_back(node: NodeProcess, replay: ReplayServer, script: str) -> None:
    outcome = node.run("round_trip", f"as-anthropic/{script}", then="as-anthropic/echo")
    assert outcome.failure is None
    assert outcome.answers[-1].text.startswith("Go on")
    block = replay.requests[-1].body["messages"][1]["content"][0]
    assert (block.get("signature") or block["data"]) == (SIGNATURE if script == "reasoning" else REDACTED)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_javascript_a_stream_that_breaks(node: NodeProcess, provider: str) -> None:
    """No finish reason is made up, whether the SDK raises or not."""
    broken = node.run("stream", in_a_path(f"{provider}/text?cut=6"))
    assert broken.failure is not None or broken.answers[-1].stop is None


@pytest.mark.parametrize("provider", PROVIDERS)
def test_javascript_thoughts_tool_image_error_and_abort(node: NodeProcess, replay: ReplayServer, provider: str) -> None:
    assert node.run("stream", f"{provider}/reasoning").seen.reasoning == REASONING
    declared = [{"functionDeclarations": [WEATHER.model_dump(exclude_none=True, by_alias=True, mode="json")]}]
    turns = node.run("round_trip", f"{provider}/tool-round-trip", config={"tools": declared})
    assert turns.failure is None
    assert turns.answers[-1].text == "The tool says: 12 degrees"
    image = {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(PIXEL).decode()}}
    contents = [{"role": "user", "parts": [{"text": "What is it?"}, image]}]
    assert "images: 1;" in node.run("stream", f"{provider}/echo", contents=contents).seen.text
    failed = node.run("create", in_a_path(f"{provider}/text?status=429")).failure
    assert failed is not None
    assert failed.status == 429
    aborted = replay.aborted
    node.run("abort", in_a_path(f"{provider}/long?speed=1"))
    assert eventually(lambda: replay.aborted > aborted)
