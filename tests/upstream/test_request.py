"""Requests as bytes, and what is refused before a byte is sent."""

from __future__ import annotations

import pytest

from headrace import __version__
from headrace.upstream import HttpRequest, check_headers, parse_url
from headrace.upstream.request import encode_head

SECRET = "sk-very-secret"


def head_of(request: HttpRequest, *, through_proxy: bool = False, authorization: str | None = None) -> list[str]:
    address = parse_url(request.url)
    head = encode_head(request, address, through_proxy=through_proxy, proxy_authorization=authorization)
    assert head.endswith(b"\r\n\r\n")
    return head[:-4].decode("latin-1").split("\r\n")


def test_the_head() -> None:
    request = HttpRequest("POST", "https://Api.Example.test/v1/chat?beta=1#x", [("X-Api-Key", "k")], b"{}")
    assert head_of(request) == [
        "POST /v1/chat?beta=1 HTTP/1.1",
        "Host: api.example.test",
        "Accept-Encoding: identity",
        f"User-Agent: headrace/{__version__}",
        "X-Api-Key: k",
        "Content-Length: 2",
    ]


def test_the_user_agent_can_be_replaced() -> None:
    lines = head_of(HttpRequest("GET", "http://h/", [("user-agent", "mine/1")]))
    assert lines == ["GET / HTTP/1.1", "Host: h", "Accept-Encoding: identity", "user-agent: mine/1"]


def test_an_empty_post_has_a_length() -> None:
    assert "Content-Length: 0" in head_of(HttpRequest("POST", "http://h/"))


def test_the_absolute_form() -> None:
    lines = head_of(HttpRequest("GET", "http://h:81/a?b"), through_proxy=True, authorization="Basic eA==")
    assert lines[:2] == ["GET http://h:81/a?b HTTP/1.1", "Host: h:81"]
    assert "Proxy-Authorization: Basic eA==" in lines


@pytest.mark.parametrize(
    ("url", "tls", "host", "port", "target", "authority"),
    [
        ("http://h", False, "h", 80, "/", "h"),
        ("http://h:80/x", False, "h", 80, "/x", "h"),
        ("https://h:443", True, "h", 443, "/", "h"),
        ("https://h:80/", True, "h", 80, "/", "h:80"),
        ("HTTP://H.Test.:8080/A%20b?q", False, "h.test", 8080, "/A%20b?q", "h.test:8080"),
        ("http://[::1]:9/", False, "::1", 9, "/", "[::1]:9"),
        ("http://h?q", False, "h", 80, "/?q", "h"),
    ],
)
def test_urls(url: str, tls: bool, host: str, port: int, target: str, authority: str) -> None:
    address = parse_url(url)
    assert tuple(address) == (tls, host, port, target)
    assert address.authority == authority


@pytest.mark.parametrize(
    "url",
    [
        "",
        "/v1",
        "ftp://h/",
        "http://",
        "http:///x",
        "http://h:99999/",
        "http://h:x/",
        "http://[::1/",
        f"http://user:{SECRET}@h/",
        "http://h/a b",
        "http://h/\r\nX: 1",
        "http://h/é",
        "http://h\x00/",
        'http://h"/',
        f"http://h/a b?key={SECRET}",
    ],
)
def test_unusable_urls_are_refused_without_their_secrets(url: str) -> None:
    with pytest.raises(ValueError, match="URL") as caught:
        parse_url(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("value", ["a\r\nX: 1", "a\n", "\r", "a\0", "\x7f", "snow ☃", "\x1b"])
def test_a_value_that_could_break_out_is_refused_by_name(value: str) -> None:
    with pytest.raises(ValueError, match="X-Extra") as caught:
        check_headers([("X-Extra", value + SECRET)])
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "é", "a\0"])
def test_names_are_tokens(name: str) -> None:
    with pytest.raises(ValueError, match="header name"):
        check_headers([(name, SECRET)])


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding", "Connection", "Accept-Encoding"])
def test_framing_headers_are_the_clients_own(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}.*remove it"):
        check_headers([(name, "x")])


def test_a_bad_method_is_refused() -> None:
    with pytest.raises(ValueError, match="method"):
        head_of(HttpRequest("GET /x", "http://h/"))


def test_a_request_does_not_show_its_secrets() -> None:
    request = HttpRequest("POST", f"http://h/x?key={SECRET}", [("x-api-key", SECRET)], SECRET.encode())
    assert SECRET not in repr(request)
    assert repr(request) == "HttpRequest(POST http://h/x, 1 headers, 14 bytes)"
