"""Whole answers of all kinds, as the model has them."""

from __future__ import annotations

from typing import Any

from headrace.model.content import (
    Citation,
    Media,
    Opaque,
    Part,
    Reasoning,
    RedactedReasoning,
    Refusal,
    Text,
    ToolCall,
)
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason
from headrace.model.usage import Usage

PNG = "iVBORw0KGgo="
WAV = "UklGRiQAAAA="
PAGE = Citation(
    "anthropic",
    {
        "type": "web_search_result_location",
        "url": "https://example.com/a",
        "title": "A",
        "cited_text": "so it is",
        "encrypted_index": "Eo8=",
    },
)
PLACE = Citation("anthropic", {"type": "char_location", "cited_text": "x", "start_char_index": 3, "document_index": 0})
LOGPROBS: list[Any] = [
    {"token": "Hi", "logprob": -0.25, "bytes": [72, 105], "top_logprobs": [{"token": "Yo", "logprob": -3.5}]},
    {"token": "!", "logprob": -0.5, "bytes": [33], "top_logprobs": []},
]
SEARCH = Opaque(
    vendor="anthropic",
    role="server_tool_call",
    payload={"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
)
FOUND = Opaque(
    vendor="anthropic",
    role="server_tool_result",
    payload={
        "type": "web_search_tool_result",
        "tool_use_id": "srvtoolu_1",
        "content": [{"url": "https://example.com"}],
    },
)


def answer(*parts: Part, stop: StopReason = StopReason.END_TURN, raw: str | None = None, **fields: Any) -> Response:
    sequence = fields.pop("stop_sequence", None)
    given = {"id": "msg_1", "model": "their-model", "created": 1_750_000_001, **fields}
    choice = Choice(parts=list(parts), stop=stop, raw_stop=raw, stop_sequence=sequence)
    return Response(choices=[choice], **given)


ANSWERS: dict[str, Response] = {
    "text": answer(Text(text="Hello.\u2028 \U0001f600 \x00\n\n"), usage=Usage(input_tokens=3, output_tokens=2)),
    "nothing": answer(),
    "usage": answer(
        Text(text="x"),
        usage=Usage(
            input_tokens=100,
            output_tokens=20,
            cached_tokens=40,
            cache_write_tokens=10,
            reasoning_tokens=5,
            cost_usd=0.25,
        ),
    ),
    "estimated usage": answer(Text(text="x"), usage=Usage(input_tokens=1, output_tokens=2, estimated=True)),
    "citations": answer(Text(text="A cited text", citations=[PAGE, PLACE])),
    "logprobs": answer(Text(text="Hi!", logprobs=LOGPROBS)),
    "refusal": answer(Refusal(text="I cannot."), stop=StopReason.REFUSAL, raw="refusal"),
    "refusal with logprobs": answer(Refusal(text="Hi!", logprobs=LOGPROBS), stop=StopReason.REFUSAL),
    "reasoning": answer(Reasoning(text="Hm."), Text(text="So.")),
    "signed reasoning": answer(
        Reasoning(text="One", signature="c2ln", vendor="anthropic"),
        RedactedReasoning(data="cmVk", vendor="anthropic"),
        Reasoning(text="Two", signature="c2lnMg==", vendor="anthropic"),
        Text(text="So."),
    ),
    "reasoning of two vendors": answer(
        Reasoning(text="One", signature="c2ln", vendor="openai"),
        RedactedReasoning(data="cmVk", vendor="gemini"),
        Text(text="So."),
    ),
    "tool call": answer(
        ToolCall(id="call_1", name="weather", arguments='{"city": "Oslo", "n": 1.50}'),
        stop=StopReason.TOOL_USE,
        raw="tool_use",
    ),
    "parallel tool calls": answer(
        Text(text="Looking."),
        ToolCall(id="call_1", name="weather", arguments='{"city":"Oslo"}'),
        ToolCall(id="call_2", name="weather", arguments='{"city":"Bergen"}'),
        ToolCall(id="call_3", name="now", arguments="{}"),
        stop=StopReason.TOOL_USE,
    ),
    "server tools": answer(SEARCH, FOUND, Text(text="It is so.", citations=[PAGE])),
    "image": answer(Text(text="Here"), Media(type="image", media_type="image/png", data=PNG)),
    "image by URL": answer(Media(type="image", media_type="image/png", url="https://example.com/a.png")),
    "audio": answer(Media(type="audio", media_type="audio/wav", data=WAV, transcript="Hello")),
    "choices": Response(
        id="msg_1",
        model="their-model",
        created=1,
        choices=[
            Choice(index=0, parts=[Text(text="One")], stop=StopReason.END_TURN),
            Choice(index=1, parts=[ToolCall(id="c", name="f", arguments="{}")], stop=StopReason.TOOL_USE),
            Choice(index=2, parts=[Text(text="Three")], stop=StopReason.MAX_TOKENS),
        ],
    ),
    "stop sequence": answer(Text(text="x"), stop=StopReason.STOP_SEQUENCE, raw="stop_sequence", stop_sequence="END"),
    **{
        f"stop: {reason}": answer(Text(text="x"), stop=reason, raw=raw)
        for reason, raw in {
            StopReason.MAX_TOKENS: "max_tokens",
            StopReason.CONTEXT_WINDOW: "model_context_window_exceeded",
            StopReason.CONTENT_FILTER: "content_filter",
            StopReason.REFUSAL: "refusal",
            StopReason.PAUSE: "pause_turn",
            StopReason.MALFORMED_TOOL_CALL: "MALFORMED_FUNCTION_CALL",
            StopReason.OTHER: "something_new",
        }.items()
    },
}
