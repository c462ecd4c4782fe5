"""Proxies: which one is chosen, the absolute form, and tunnels through a real CONNECT proxy."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import AsyncIterator

import pytest

from headrace.upstream import Client, HttpRequest, UpstreamError, parse_proxy, parse_url
from headrace.upstream.proxy import NoProxy, ProxySettings

from .conftest import Authority
from .support import PATIENCE, Peer, Recorder, answer, answering, serving, turns

PASSWORD = "p@ss/wo:rd"
USERINFO = "user:p%40ss%2Fwo%3Ard"
AUTHORIZATION = "Basic " + base64.b64encode(f"user:{PASSWORD}".encode()).decode()


def chosen(env: dict[str, str], url: str) -> str | None:
    proxy = ProxySettings(env).select(parse_url(url))
    return None if proxy is None else str(proxy)


@pytest.mark.parametrize(
    ("env", "url", "proxy"),
    [
        ({}, "http://h.test/", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://h.test/", "p:1"),
        ({"HTTP_PROXY": "http://p:1"}, "https://h.test/", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://h.test/", "p:1"),
        ({"https_proxy": "p:1"}, "https://h.test/", "p:1"),
        ({"https_proxy": "http://low", "HTTPS_PROXY": "http://up"}, "https://h.test/", "low:80"),
        ({"ALL_PROXY": "http://all:2"}, "https://h.test/", "all:2"),
        ({"all_proxy": "http://all:2", "HTTP_PROXY": "http://p:1"}, "http://h.test/", "p:1"),
        ({"HTTP_PROXY": "", "ALL_PROXY": "http://all:2"}, "http://h.test/", "all:2"),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "h.test"}, "http://h.test/", None),
        ({"ALL_PROXY": "http://p:1", "no_proxy": "h.test", "NO_PROXY": "x"}, "http://h.test/", None),
        ({"ALL_PROXY": "http://p:1"}, "http://localhost/", None),
        ({"ALL_PROXY": "http://p:1"}, "http://127.0.0.9:8/", None),
        ({"ALL_PROXY": "http://p:1"}, "http://[::1]/", None),
        ({"ALL_PROXY": "http://[fe::1]:3128"}, "http://10.0.0.1/", "fe::1:3128"),
        ({"ALL_PROXY": "socks5://p:1", "HTTPS_PROXY": "http://p:2"}, "https://h.test/", "p:2"),
    ],
)
def test_the_environment(env: dict[str, str], url: str, proxy: str | None) -> None:
    assert chosen(env, url) == proxy


@pytest.mark.parametrize(
    ("no_proxy", "host", "port", "excepted"),
    [
        ("", "h.test", 80, False),
        ("*", "h.test", 80, True),
        ("a, *", "h.test", 80, True),
        ("h.test", "h.test", 80, True),
        ("H.Test.", "h.test", 80, True),
        ("h.test", "api.h.test", 80, True),
        ("h.test", "xh.test", 80, False),
        ("api.h.test", "h.test", 80, False),
        (".h.test", "api.h.test", 80, True),
        (".h.test", "h.test", 80, True),
        ("*.h.test", "api.h.test", 80, True),
        ("other,h.test", "h.test", 80, True),
        ("other h.test", "h.test", 80, True),
        ("h.test:8080", "h.test", 8080, True),
        ("h.test:8080", "api.h.test", 8080, True),
        ("h.test:8080", "h.test", 80, False),
        ("10.0.0.1", "10.0.0.1", 80, True),
        ("10.0.0.1:81", "10.0.0.1", 80, False),
        ("10.0.0.1:81", "10.0.0.1", 81, True),
        ("10.0.0.0/8", "10.200.3.4", 80, True),
        ("10.0.0.7/8", "10.200.3.4", 80, True),
        ("10.0.0.0/8", "11.0.0.1", 80, False),
        ("10.0.0.0/8", "10.test", 80, False),
        ("10.0.0", "10.0.0.1", 80, False),
        ("0.0.1", "10.0.0.1", 80, False),
        ("fd00::/8", "fd12::1", 80, True),
        ("fd00::1", "fd00:0:0::1", 80, True),
        ("[fd00::1]:81", "fd00::1", 81, True),
        ("[fd00::1]:81", "fd00::1", 80, False),
        ("[fd00::1]", "fd00::1", 80, True),
        (".", "h.test", 80, False),
        (",,", "h.test", 80, False),
        (":80", "h.test", 80, False),
    ],
)
def test_no_proxy(no_proxy: str, host: str, port: int, excepted: bool) -> None:
    assert NoProxy(no_proxy).excepts(host, port) is excepted


def test_a_proxy_url() -> None:
    proxy = parse_proxy(f"http://{USERINFO}@proxy.test:3128/")
    assert (proxy.host, proxy.port, proxy.authorization) == ("proxy.test", 3128, AUTHORIZATION)
    assert AUTHORIZATION not in repr(proxy) + str(proxy)


@pytest.mark.parametrize(
    "url", ["socks5://u:secret@p", "https://u:secret@p", "http://u:secret@", "http://u:secret@p:x"]
)
def test_an_unusable_proxy_url_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(ValueError, match="prox") as caught:
        parse_proxy(url)
    assert "secret" not in str(caught.value)


def test_an_unusable_variable_is_named() -> None:
    with pytest.raises(UpstreamError, match=r"HTTPS_PROXY: .*'socks5' are not supported") as caught:
        chosen({"HTTPS_PROXY": "socks5://u:secret@p"}, "https://h.test/")
    assert caught.value.kind == "proxy"
    assert "secret" not in str(caught.value)


class Tunnels:
    """A CONNECT proxy that leads every tunnel to one local port, whatever host is asked for."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.heads: list[list[str]] = []
        self._pumps: list[asyncio.Task[None]] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head[:-4].decode().split("\r\n"))
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        writer.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
        loop = asyncio.get_running_loop()
        self._pumps = [
            loop.create_task(self._pump(reader, target_writer)),
            loop.create_task(self._pump(target_reader, writer)),
        ]
        await asyncio.wait(self._pumps)

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()


@contextlib.asynccontextmanager
async def tunnelling(target_port: int) -> AsyncIterator[Tunnels]:
    proxy = Tunnels(target_port)
    listener = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    yield proxy
    listener.close()


async def ask(client: Client, url: str, proxy: str | None) -> Recorder:
    recorder = Recorder()
    client.send(HttpRequest("POST", url), recorder, connect_timeout=PATIENCE, proxy=proxy)
    assert recorder.calls == []
    return await recorder.done()


async def test_https_goes_through_a_tunnel(client: Client, authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        for body in (b"1", b"2"):
            request = await peer.request()
            assert request.line == "POST /x HTTP/1.1"
            assert request.values("host") == ["api.example.test"]
            assert request.values("proxy-authorization") == []
            await peer.send(answer(body))
        await peer.closed()

    async with serving(script, tls=authority.server_context) as server, tunnelling(server.port) as proxy:
        via = f"http://{USERINFO}@127.0.0.1:{proxy.port}"
        assert (await ask(client, "https://api.example.test/x", via)).body == b"1"
        assert (await ask(client, "https://api.example.test/x", via)).body == b"2"  # the tunnel is kept alive
        assert proxy.heads == [
            [
                "CONNECT api.example.test:443 HTTP/1.1",
                "Host: api.example.test:443",
                f"Proxy-Authorization: {AUTHORIZATION}",
            ]
        ]
        await client.aclose()


async def test_the_certificate_is_checked_through_the_tunnel(client: Client, authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        await peer.closed()

    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=authority.server_context)
    async with tunnelling(listener.sockets[0].getsockname()[1]) as proxy:
        recorder = await ask(client, "https://other.example.test/", f"http://127.0.0.1:{proxy.port}")
        error = await recorder.failure()
        assert error.kind == "tls"
        assert "Hostname mismatch" in error.message
        await client.aclose()
    listener.close()


async def test_the_environment_is_used_and_overridden(authority: Authority) -> None:
    async def script(peer: Peer) -> None:
        request = await peer.request()
        assert request.line == "POST http://api.example.test/x?y HTTP/1.1"
        assert request.values("host") == ["api.example.test"]
        assert request.values("proxy-authorization") == [AUTHORIZATION]
        await peer.send(answer(b"by proxy"))
        await peer.closed()

    async with serving(script) as proxy, serving(answering(answer(b"direct"))) as server:
        client = Client(env={"http_proxy": f"http://{USERINFO}@127.0.0.1:{proxy.port}"})
        assert (await ask(client, "http://api.example.test/x?y", None)).body == b"by proxy"
        assert (await ask(client, server.url(), "")).body == b"direct"
        await client.aclose()


async def test_an_unusable_variable_fails_what_would_have_used_it() -> None:
    async with serving(answering(answer(b"direct"))) as server:
        client = Client(env={"ALL_PROXY": "socks5://u:secret@p"})
        error = await (await ask(client, "http://api.example.test/", None)).failure()
        assert error.kind == "proxy"
        assert "ALL_PROXY" in error.message
        assert "secret" not in error.message
        assert (await ask(client, server.url(), None)).body == b"direct"
        await client.aclose()


@pytest.mark.parametrize("status", [b"407 Proxy Authentication Required", b"403 Forbidden", b"502 Bad Gateway"])
async def test_a_refused_tunnel(client: Client, status: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
        assert await peer.closed() == b""

    async with serving(script) as proxy:
        with caplog.at_level(logging.DEBUG):
            recorder = await ask(client, "https://api.example.test/", f"http://{USERINFO}@127.0.0.1:{proxy.port}")
        error = await recorder.failure()
        assert (recorder.calls, error.kind) == (["failed"], "proxy")
        assert status[:3].decode() in error.message
        for secret in (PASSWORD, AUTHORIZATION, USERINFO):
            assert secret not in error.message + caplog.text


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "not HTTP"),
        (b"HTTP/1.1 abc\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\n\r\nhello", "before TLS began"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000, "head of more than"),
        (b"HTTP/1.1 200", "closed the connection"),
        (b"", "closed the connection"),
    ],
)
async def test_a_proxy_that_misbehaves(client: Client, said: bytes, message: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            await peer.send(said)

    async with serving(script) as proxy:
        error = await (await ask(client, "https://api.example.test/", f"127.0.0.1:{proxy.port}")).failure()
        assert error.kind == "proxy"
        assert message in error.message


async def test_a_tunnel_that_closes_as_soon_as_it_is_open(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")

    async with serving(script) as proxy:
        error = await (await ask(client, "https://api.example.test/", f"127.0.0.1:{proxy.port}")).failure()
        assert error.kind == "tls"


async def test_an_interim_answer_of_the_proxy_is_skipped(client: Client) -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        for byte in b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 504 Late\r\n\r\n":
            await peer.send(bytes([byte]))
            await asyncio.sleep(0)
        await peer.closed()

    async with serving(script) as proxy:
        error = await (await ask(client, "https://api.example.test/", f"127.0.0.1:{proxy.port}")).failure()
        assert "answered 504" in error.message


async def test_407_to_the_absolute_form_is_the_proxys(client: Client) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(refusal)) as proxy:
        error = await (await ask(client, "http://api.example.test/", f"127.0.0.1:{proxy.port}")).failure()
        assert error.kind == "proxy"
        assert "407" in error.message


async def test_a_proxy_that_is_not_there(client: Client) -> None:
    async with serving() as gone:
        port = gone.port
    for scheme in ("http", "https"):
        error = await (await ask(client, f"{scheme}://api.example.test/", f"127.0.0.1:{port}")).failure()
        assert error.kind == "proxy"
        assert f"cannot connect to the proxy 127.0.0.1:{port}" in error.message


async def test_abort_in_the_proxys_answer(client: Client) -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.reader.readuntil(b"\r\n\r\n")
        asked.set()
        assert await peer.closed() == b""

    async with serving(script) as proxy:
        recorder = Recorder()
        exchange = client.send(
            HttpRequest("POST", "https://api.example.test/"),
            recorder,
            connect_timeout=PATIENCE,
            proxy=f"127.0.0.1:{proxy.port}",
        )
        await asked.wait()
        exchange.abort()
        await proxy.finished()
        await turns()
        assert recorder.calls == []
