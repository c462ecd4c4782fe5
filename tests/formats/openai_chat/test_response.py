"""Whole bodies, both ways, and usage between the conventions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.formats.base import ReaderOptions, WriterOptions
from headrace.formats.openai_chat import FORMAT
from headrace.formats.openai_chat.usage import read_usage, write_usage
from headrace.model.assemble import assemble
from headrace.model.content import (
    Citation,
    Media,
    Opaque,
    Reasoning,
    RedactedReasoning,
    Refusal,
    Text,
    ToolCall,
)
from headrace.model.errors import ErrorCode, GatewayError, ProtocolError
from headrace.model.response import Choice, Response
from headrace.model.stop import StopReason as S
from headrace.model.usage import Usage

from .helpers import DONE, chunk, function, read, summary

HEAD = {"id": "c", "object": "chat.completion", "created": 3, "model": "m"}
TOKEN = {"token": "t", "logprob": -1.0, "bytes": None, "top_logprobs": []}


def body(*choices: dict[str, Any], **top: Any) -> bytes:
    return json.dumps({**HEAD, "choices": list(choices), **top}).encode()


def told(message: dict[str, Any], finish: Any = "stop", index: int = 0, **more: Any) -> dict[str, Any]:
    return {"index": index, "message": {"role": "assistant", **message}, "finish_reason": finish, **more}


def parsed(raw: bytes, **options: Any) -> Response:
    return FORMAT.read_response(raw, ReaderOptions(**options))


def written(response: Response, **options: Any) -> dict[str, Any]:
    raw = FORMAT.write_response(response, WriterOptions(request_id="r", created=8, model="asked", **options))
    said = json.loads(raw)
    assert isinstance(said, dict)
    return said


def test_a_whole_answer() -> None:
    annotation = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}
    message = {
        "content": "hello",
        "refusal": None,
        "reasoning_content": "think",
        "annotations": [annotation],
        "tool_calls": [
            function("f", '{"x": 1}', id="1", type="function"),
            function("g", "{}", id="2", type="function"),
        ],
    }
    raw = body(
        told(message, "tool_calls", logprobs={"content": [TOKEN], "refusal": None}),
        usage={"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12},
        system_fingerprint="fp",
    )
    response = parsed(raw, provider="p")
    assert response == Response(
        id="c",
        model="m",
        created=3,
        provider="p",
        choices=[
            Choice(
                parts=[
                    Reasoning(text="think", vendor="openai"),
                    Text(text="hello", citations=[Citation("openai", annotation)], logprobs=[TOKEN]),
                    ToolCall(id="1", name="f", arguments='{"x": 1}'),
                    ToolCall(id="2", name="g", arguments="{}"),
                ],
                stop=S.TOOL_USE,
                raw_stop="tool_calls",
            )
        ],
        usage=Usage(input_tokens=5, output_tokens=7),
        extensions={"openai": {"system_fingerprint": "fp"}},
    )
    again = written(response)
    assert again == {
        **HEAD,
        "choices": [{**told(message, "tool_calls"), "logprobs": {"content": [TOKEN], "refusal": None}}],
        "usage": {
            "prompt_tokens": 5,
            "completion_tokens": 7,
            "total_tokens": 12,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "system_fingerprint": "fp",
    }


def test_several_choices_in_any_order() -> None:
    response = parsed(body(told({"content": "b"}, "length", 1), told({"content": "a"}, "stop", 0)))
    assert [(said["text"], said["stop"]) for said in summary(response)] == [("a", S.END_TURN), ("b", S.MAX_TOKENS)]
    assert [choice["message"]["content"] for choice in written(response)["choices"]] == ["a", "b"]


def test_a_refusal_and_audio() -> None:
    audio = {"id": "au", "expires_at": 9, "data": "AAAA", "transcript": "hi"}
    response = parsed(body(told({"content": None, "refusal": "no", "audio": audio})))
    assert response.choices[0].parts == [
        Refusal(text="no"),
        Media(
            type="audio",
            media_type="audio/*",
            data="AAAA",
            transcript="hi",
            extensions={"openai": {"id": "au", "expires_at": 9}},
        ),
    ]
    message = written(response)["choices"][0]["message"]
    assert (message["refusal"], message["content"], message["audio"]) == ("no", None, audio)
    assert written(response)["choices"][0]["finish_reason"] == "stop"


def test_reasoning_signatures_and_images_of_other_vendors() -> None:
    response = Response(
        choices=[
            Choice(
                parts=[
                    Reasoning(text="th", signature="s", vendor="anthropic"),
                    RedactedReasoning(data="d", vendor="anthropic"),
                    Text(text="a"),
                    Text(text="b"),
                    Media(type="image", media_type="image/png", data="AAAA"),
                    ToolCall(id="", name="f", arguments="{}", extensions={"google": {"thought_signature": "x"}}),
                    Opaque(vendor="anthropic", payload={"type": "web_search"}),
                ],
                stop=S.PAUSE,
                raw_stop="pause_turn",
            )
        ]
    )
    said = written(response)
    assert (said["id"], said["created"], said["model"]) == ("chatcmpl-r", 8, "asked")
    (choice,) = said["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": "ab",
        "refusal": None,
        "reasoning_content": "th",
        "reasoning_details": [
            {"type": "reasoning.text", "text": "th", "signature": "s", "format": "anthropic", "index": 0},
            {"type": "reasoning.encrypted", "data": "d", "format": "anthropic", "index": 1},
        ],
        "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}],
        "tool_calls": [
            {
                **function("f", "{}", id="call_r_0_0", type="function"),
                "extra_content": {"google": {"thought_signature": "x"}},
            }
        ],
    }
    assert (choice["finish_reason"], choice["native_finish_reason"]) == ("stop", "pause_turn")
    assert "usage" not in said


def test_custom_calls_are_kept() -> None:
    call = {"id": "1", "type": "custom", "custom": {"name": "c", "input": "x"}}
    response = parsed(body(told({"content": None, "tool_calls": [call]}, "tool_calls")))
    assert written(response)["choices"][0]["message"]["tool_calls"] == [call]


def test_passthrough_is_byte_for_byte() -> None:
    raw = body(told({"content": "a"}), odd={"x": 1}) + b"\n"
    response = parsed(raw, passthrough=True)
    assert FORMAT.write_response(response, WriterOptions(passthrough=True)) == raw
    assert parsed(raw).origin is None
    assert FORMAT.write_response(response, WriterOptions()) != raw


def test_a_whole_answer_says_what_the_stream_says() -> None:
    message = {"content": "a", "tool_calls": [function("f", '{"x":1}', id="1", type="function")]}
    call = function("f", '{"x":1}', index=0, id="1")
    streamed = read([chunk({"content": "a"}), chunk({"tool_calls": [call]}), chunk({}, finish="stop"), DONE])
    assert summary(parsed(body(told(message, "stop")))) == summary(assemble(streamed))


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"1", b'{"choices": 5}', b"\xff", b"[" * 100_000])
def test_bodies_that_are_no_answer(raw: bytes) -> None:
    with pytest.raises(ProtocolError):
        parsed(raw)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b'{"error":{"message":"m","code":429}}', ErrorCode.PROVIDER_RATE_LIMITED),
        (b'{"error":"m"}', ErrorCode.PROVIDER_UNAVAILABLE),
        (b'{"object":"error","message":"m","code":400}', ErrorCode.INVALID_REQUEST),
        (body(told({"content": "a"}, "error")), ErrorCode.PROVIDER_UNAVAILABLE),
        (body(), ErrorCode.PROVIDER_UNAVAILABLE),
        (b"{}", ErrorCode.PROVIDER_UNAVAILABLE),
    ],
)
def test_errors_in_disguise(raw: bytes, code: ErrorCode) -> None:
    with pytest.raises(GatewayError) as caught:
        parsed(raw)
    assert caught.value.info.code is code


# Usage.


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 6, "total_tokens": 11}, Usage(input_tokens=5, output_tokens=6)),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 6,
                "total_tokens": 31,
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            Usage(input_tokens=5, output_tokens=26, reasoning_tokens=20),
        ),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 26,
                "total_tokens": 31,
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            Usage(input_tokens=5, output_tokens=26, reasoning_tokens=20),
        ),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 1,
                "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 3},
            },
            Usage(input_tokens=5, output_tokens=1, cached_tokens=2, cache_write_tokens=3),
        ),
        (
            {"prompt_tokens": 5, "completion_tokens": 1, "prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 1},
            Usage(
                input_tokens=5,
                output_tokens=1,
                cached_tokens=4,
                vendor={"v": {"prompt_cache_hit_tokens": 4, "prompt_cache_miss_tokens": 1}},
            ),
        ),
        (
            {
                "prompt_tokens": 5,
                "completion_tokens": 1,
                "cost": 0.5,
                "completion_tokens_details": {"audio_tokens": 1, "reasoning_tokens": None},
            },
            Usage(
                input_tokens=5,
                output_tokens=1,
                cost_usd=0.5,
                vendor={"v": {"completion_tokens_details": {"audio_tokens": 1}}},
            ),
        ),
        ({"prompt_tokens": True, "completion_tokens": "1"}, None),
        ({"prompt_tokens": -5}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_usage_is_read_into_the_normal_form(raw: Any, usage: Usage | None) -> None:
    assert read_usage(raw, "v") == usage


def test_usage_is_written_with_what_only_the_vendor_knows() -> None:
    raw = {
        "prompt_tokens": 5,
        "completion_tokens": 6,
        "total_tokens": 11,
        "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 1, "audio_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 4, "accepted_prediction_tokens": 2},
        "queue_time": 0.5,
        "cost": 0.25,
    }
    usage = read_usage(raw, "openai")
    assert usage is not None
    assert write_usage(usage, "openai") == raw
    assert "queue_time" not in write_usage(usage, "other")
