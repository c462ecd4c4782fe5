"""Content-Type and Accept against what is served."""

from __future__ import annotations

import pytest

from headrace.formats import FORMATS
from headrace.model.errors import GatewayError
from headrace.serve.negotiation import PLACES, media_type, negotiate, request_format


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("application/json", ("application/json", {})),
        ("Application/JSON ; Charset=UTF-8", ("application/json", {"charset": "UTF-8"})),
        ('text/event-stream; profile="llm-stream-1.0"', ("text/event-stream", {"profile": "llm-stream-1.0"})),
        (
            "text/event-stream;profile=llm-stream-1.0;q=0.5",
            ("text/event-stream", {"profile": "llm-stream-1.0", "q": "0.5"}),
        ),
        (r'a/b; x="a;b\"c"', ("a/b", {"x": 'a;b"c'})),
        ("", ("", {})),
        ('a/b; x="', ("a/b", {"x": '"'})),
    ],
)
def test_media_type(value: str, expected: tuple[str, dict[str, str]]) -> None:
    assert media_type(value) == expected


@pytest.mark.parametrize(
    ("path", "content_type", "expected"),
    [
        ("/v1/chat", "application/json", "gateway"),
        ("/v1/chat", None, "gateway"),
        ("/v1/chat", "application/llm-request+json", "llm_stream"),
        ("/v1/chat", 'application/llm-request+json; version="1.0"', "llm_stream"),
        ("/v1/chat/completions", "application/json; charset=utf-8", "openai_chat"),
        ("/v1/chat/completions", "application/llm-request+json", "llm_stream"),
        ("/v1/messages", "application/json", "anthropic"),
        ("/v1/messages", 'application/json; profile="openai-chat"', "openai_chat"),
    ],
)
def test_request_format(path: str, content_type: str | None, expected: str) -> None:
    assert request_format(PLACES.find(path)[0].format.name, content_type) is FORMATS[expected]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/llm-request+json; version=2.0",
        "application/json; charset=latin-1",
        'application/json; profile="x"',
    ],
)
def test_unsupported_media_types(name: str, content_type: str) -> None:
    with pytest.raises(GatewayError) as caught:
        request_format(name, content_type)
    assert caught.value.info.http_status == 415
    assert caught.value.info.param == "Content-Type"


@pytest.mark.parametrize(
    ("accept", "answer", "framing"),
    [
        (None, "openai_chat", "sse"),
        ("", "openai_chat", "sse"),
        ("*/*", "openai_chat", "sse"),
        ("application/json", "openai_chat", "sse"),
        ("text/event-stream", "openai_chat", "sse"),
        ("application/x-ndjson", "openai_chat", "ndjson"),
        ('application/x-ndjson; profile="headrace-gateway-1.0"', "gateway", "ndjson"),
        ('text/event-stream; profile="llm-stream-1.0"', "llm_stream", "sse"),
        ('application/json; profile="anthropic-messages"', "anthropic", "sse"),
        ("text/html, application/xhtml+xml, */*;q=0.8", "openai_chat", "sse"),
        ('text/event-stream; profile="nobody", text/event-stream; q=0.5', "openai_chat", "sse"),
        ('text/event-stream;q=0.1, application/x-ndjson; profile="llm-stream-1.0"', "llm_stream", "ndjson"),
        ("application/x-ndjson;q=0, */*", "openai_chat", "sse"),
        ("text/event-stream;q=junk", "openai_chat", "sse"),
        ('text/event-stream, text/event-stream; profile="llm-stream-1.0"', "llm_stream", "sse"),
        ("*/*, application/x-ndjson", "openai_chat", "ndjson"),
    ],
)
def test_negotiate(accept: str | None, answer: str, framing: str) -> None:
    found = negotiate(FORMATS["openai_chat"], accept)
    assert (found.answer.name, found.framing) == (answer, framing)
    assert found.request is FORMATS["openai_chat"]


@pytest.mark.parametrize("accept", ["text/html", 'text/event-stream; profile="nobody"', "image/png, audio/*"])
def test_not_acceptable(accept: str) -> None:
    with pytest.raises(GatewayError) as caught:
        negotiate(FORMATS["openai_chat"], accept)
    assert caught.value.info.http_status == 406
    assert "text/event-stream" in caught.value.info.message
