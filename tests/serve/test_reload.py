"""A new configuration while streams run: what is noticed, what is kept, what is used."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.access.keys import KeyFileError
from headrace.config import Config, ConfigError, Problem, Server, loads
from headrace.serve import exposure
from headrace.serve.reload import POLL_SECONDS, FileWatch, Source, keep_fixed
from headrace.serve.server import GatewayServer
from headrace.tape import ReplayServer
from tests.gateway.client import Connection, get
from tests.gateway.test_life import ended
from tests.gateway.test_serving import CALLERS, ask, text_of
from tests.live import LiveGateway, LoopThread, gateway_config, live_gateway
from tests.serve.process import LONG, Process, serving, wait_for

EXTRA = "providers: {extra: {format: openai_chat, base_url: 'http://127.0.0.1:9/v1', models: [%s]}}"


def config(text: str = "") -> Config:
    return loads(text, filename="test.yaml", env={})


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "headrace.yaml"
    path.write_text("a")
    return path


def replaced(file: Path, text: str) -> None:
    new = file.with_name("new")
    new.write_text(text)
    new.replace(file)


def touched(file: Path) -> None:
    found = file.stat()
    os.utime(file, ns=(found.st_atime_ns, found.st_mtime_ns + 1))


def linked_anew(file: Path) -> None:
    """As containers update a file: a symbolic link comes to point elsewhere."""
    other = file.with_name("other")
    other.write_text("a")
    link = file.with_name("link")
    link.symlink_to(other)
    link.replace(file)


CHANGES: list[Callable[[Path], Any]] = [
    touched,
    lambda file: replaced(file, "a"),
    lambda file: replaced(file, "bb"),
    linked_anew,
    os.unlink,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_told_once_when_it_has_settled(file: Path, change: Callable[[Path], Any]) -> None:
    watch = FileWatch(file)
    assert [watch.changed() for _ in range(3)] == [False, False, False]
    change(file)
    assert [watch.changed() for _ in range(4)] == [False, True, False, False]


def test_a_file_that_is_still_being_written_is_left_alone(file: Path) -> None:
    watch = FileWatch(file)
    for size in range(2, 6):
        file.write_text("a" * size)
        assert not watch.changed()
    assert watch.changed()


def test_a_file_that_was_gone_for_a_moment_has_not_changed(file: Path) -> None:
    watch = FileWatch(file)
    away = file.with_name("away")
    file.rename(away)
    assert not watch.changed()
    away.rename(file)
    assert [watch.changed() for _ in range(3)] == [False, False, False]


def test_a_change_that_was_read_is_no_longer_one(file: Path) -> None:
    watch = FileWatch(file)
    replaced(file, "bb")
    watch.read_now()
    assert [watch.changed() for _ in range(3)] == [False, False, False]


# --- the source -------------------------------------------------------------------------------------------------------


class Loads:
    """A file's content, by turns."""

    def __init__(self, *results: Config | ConfigError) -> None:
        self.results = list(results)

    def __call__(self) -> Config:
        result = self.results.pop(0)
        if isinstance(result, ConfigError):
            raise result
        return result


def test_the_file_is_looked_at_at_intervals_and_a_wish_counts_at_once(file: Path) -> None:
    source = Source(Loads(), config(), FileWatch(file))
    assert source.watching
    assert not source.due(100.0)
    replaced(file, "bb")
    assert not source.due(100.0 + POLL_SECONDS * 0.9)  # not looked
    assert not source.due(100.0 + POLL_SECONDS)  # seen for the first time
    assert not source.due(100.0 + POLL_SECONDS * 1.9)
    assert source.due(100.0 + POLL_SECONDS * 2)
    assert not source.due(100.0 + POLL_SECONDS * 3)
    source.ask()
    assert source.due(100.0 + POLL_SECONDS * 3)
    assert not source.due(100.0 + POLL_SECONDS * 3)


def test_a_worker_reads_when_it_is_told_to(file: Path) -> None:
    worker = Source(Loads(), config(), FileWatch(file)).worker()
    assert not worker.watching
    replaced(file, "bb")
    assert not any(worker.due(100.0 + POLL_SECONDS * step) for step in range(5))
    worker.ask()
    assert worker.due(200.0)


def test_a_bad_file_is_reported_as_config_check_does(caplog: pytest.LogCaptureFixture) -> None:
    bad = ConfigError([Problem("h.yaml", 3, 5, "server.prot", "unknown key", "did you mean port?")])
    source = Source(Loads(bad, config("server: {keepalive_interval: 3s}")), config(), FileWatch(None))
    assert source.read() is None
    assert "h.yaml:3:5: server.prot: unknown key (did you mean port?)" in caplog.text
    good = source.read()
    assert good is not None
    assert good.server.keepalive_interval == 3


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("server: {port: 1}", ["server.port"]),
        ("server: {host: 127.0.0.2, workers: 3}", ["server.host", "server.workers"]),
        ("usage: {enabled: false}", ["usage"]),
        ("redis: {url: 'redis://127.0.0.1'}", ["redis"]),
        ("breaker: {enabled: false}", ["breaker"]),
        ("server: {keepalive_interval: 3s}", []),
        ("limits: {body_bytes: 1KiB}", []),
    ],
)
def test_what_needs_a_restart_is_kept_and_named(
    caplog: pytest.LogCaptureFixture, text: str, ignored: list[str]
) -> None:
    started, new = config("server: {keepalive_interval: 7s}"), config(text)
    kept, names = keep_fixed(new, started)
    assert names == ignored
    assert (kept == new) == (not ignored)
    assert kept.server.port == started.server.port
    assert kept.server.keepalive_interval == new.server.keepalive_interval
    source = Source(Loads(new, new), started, FileWatch(None))
    assert source.read() == kept
    for name in ignored:
        assert f"{name} has changed; that needs a restart" in caplog.text
    caplog.clear()
    assert source.worker().read() == kept
    assert not caplog.text  # its supervisor has said it


def test_keys_cannot_be_taken_away_from_an_address_that_others_reach(caplog: pytest.LogCaptureFixture) -> None:
    """Not even by a file that names another address, as that is not the one which is listened on."""
    started = config("server: {host: 0.0.0.0}\nkeys_file: keys.json")
    source = Source(Loads(config(), config("server: {open: true}")), started, FileWatch(None))
    assert source.read() is None
    assert "0.0.0.0" in caplog.text
    assert source.read() is not None


@pytest.mark.parametrize(
    ("host", "reachable"),
    [
        ("127.0.0.1", False),
        ("127.1.2.3", False),
        ("::1", False),
        ("localhost", False),
        ("0.0.0.0", True),
        ("::", True),
        ("10.0.0.1", True),
        ("gateway.internal", True),
    ],
)
def test_without_keys_only_loopback_is_served(host: str, reachable: bool) -> None:
    without = msgspec.structs.replace(config(), server=Server(host=host))
    assert (exposure.refusal(without) is not None) == reachable
    assert exposure.warning(without)
    opened = msgspec.structs.replace(config(), server=Server(host=host, open=True))
    assert exposure.refusal(opened) is None
    assert host in (exposure.warning(opened) or "") or not reachable
    keyed = msgspec.structs.replace(without, keys_file="keys.json")
    assert exposure.refusal(keyed) is exposure.warning(keyed) is None


# --- a running gateway ------------------------------------------------------------------------------------------------


@pytest.fixture
def live(servers: LoopThread, replay: ReplayServer) -> Iterator[LiveGateway]:
    with live_gateway(servers, gateway_config(replay.base_url)) as gateway:
        yield gateway


def models(gateway: LiveGateway | Process) -> set[str]:
    """The names of all models, without their providers'."""
    return {model["id"].rpartition("/")[2] for model in get(gateway.port, "/v1/models").json()["data"]}


def take_up(servers: LoopThread, gateway: LiveGateway, new: Config) -> None:
    server = gateway._server
    assert isinstance(server, GatewayServer)
    servers.call(server.use(new))


def test_streams_go_on_under_the_configuration_they_began_with(
    servers: LoopThread, replay: ReplayServer, live: LiveGateway
) -> None:
    old, state = live.application.runtime, live.application.runtime.state
    with contextlib.ExitStack() as open_streams:
        streams = {}
        for caller, (path, content_type, body) in CALLERS.items():
            connection = open_streams.enter_context(Connection(live.port))
            model = b'"as-anthropic/text?speed=2"' if caller != "gateway" else b'"replay/text?speed=2"'
            sent = msgspec.json.encode({"stream": True, **body, "model": msgspec.Raw(model)})
            connection.send(path, sent, {"content-type": content_type})
            streams[caller] = connection
        wait_for(lambda: len(live.application.live) == len(streams), "the streams")
        take_up(servers, live, gateway_config(replay.base_url, "environment_providers: false\n"))
        assert live.application.runtime is not old
        assert live.application.runtime.state is state  # limits and circuits are remembered
        assert old.ready  # it is still needed
        assert len(live.application.live) == len(streams)
        assert not live.application.ticker.live
        assert ask(live.port, "openai", "replay/text?speed=0").complete  # by the new one, whose replay is another
        for caller, connection in streams.items():
            answer = connection.answer()
            assert answer.complete
            assert len(text_of(caller, answer)) > 40
    wait_for(lambda: not old.ready, "the old runtime's end")
    wait_for(lambda: not live.application._retired, "the old runtime's end")


def test_the_bounds_of_connections_change_too(servers: LoopThread, replay: ReplayServer, live: LiveGateway) -> None:
    long = {"x-long": "x" * 4096}
    assert get(live.port, "/healthz", long).status == 200
    take_up(servers, live, gateway_config(replay.base_url, "limits: {head_bytes: 2KiB}\n"))
    assert get(live.port, "/healthz", long).status == 431


def test_what_cannot_be_taken_up_changes_nothing(
    servers: LoopThread, replay: ReplayServer, live: LiveGateway, tmp_path: Path
) -> None:
    before = live.application.runtime
    (tmp_path / "keys.json").write_text("no keys")
    (tmp_path / "ca.pem").write_text("no certificates")
    for bad, error in (
        (f"keys_file: {tmp_path}/keys.json\n", KeyFileError),
        (f"limits: {{head_bytes: 2KiB}}\nproviders: {{x: {{format: anthropic, base_url: 'https://127.0.0.1', "
         f"ca_file: {tmp_path}/ca.pem}}}}\n", ValueError),
    ):  # fmt: skip
        with pytest.raises(error):
            take_up(servers, live, config(bad))
        assert live.application.runtime is before
        assert get(live.port, "/healthz", {"x-long": "x" * 4096}).status == 200
        assert ask(live.port, "openai", "as-openai/text").complete
    take_up(servers, live, gateway_config(replay.base_url))
    assert live.application.runtime is not before


# --- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 2])
def test_sighup_with_a_stream_in_flight(tmp_path: Path, workers: int) -> None:
    with (
        serving(tmp_path, EXTRA % "first", workers=workers) as gateway,
        gateway.stream("openai", "replay/text?speed=0.5") as stream,
        gateway.stream("openai", LONG) as long,
    ):
        assert "first" in models(gateway)
        gateway.write(EXTRA % "second, third" + "\nserver: {port: 1, shutdown_grace: 100ms}")
        gateway.signal(signal.SIGHUP)
        gateway.wait_for_log("was read anew", workers)
        assert gateway.log.count("server.port has changed; that needs a restart") == 0  # --port was given
        for _ in range(8):
            assert models(gateway) & {"first", "second", "third"} == {"second", "third"}
        assert "outcome=" not in gateway.log
        answer = stream.answer()
        assert answer.complete
        assert answer.sse()[-1][1] == "[DONE]"
        assert len(text_of("openai", answer)) > 40
        gateway.signal(signal.SIGTERM)  # the new grace period counts
        assert ended("openai", long.answer())[1]["message"] == "The gateway is shutting down"
        assert gateway.exit_code() == 0
        assert "Traceback" not in gateway.log


def test_a_replacement_has_the_new_configuration(tmp_path: Path) -> None:
    """Even where the file is bad by then."""
    with serving(tmp_path, EXTRA % "first", workers=2) as gateway:
        gateway.write(EXTRA % "second")
        gateway.signal(signal.SIGHUP)
        gateway.wait_for_log("was read anew", 2)
        gateway.write("server:\n  prot: 80\n")
        before = gateway.workers
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not set(gateway.workers.values()) & set(before.values()), "replacements")
        for _ in range(8):
            assert models(gateway) & {"first", "second"} == {"second"}


@pytest.mark.parametrize("workers", [1, 2])
def test_a_bad_file_keeps_the_old_configuration(tmp_path: Path, workers: int) -> None:
    with serving(tmp_path, EXTRA % "first", workers=workers) as gateway:
        before = models(gateway)
        gateway.write("server:\n  prot: 80\n")
        gateway.signal(signal.SIGHUP)
        gateway.wait_for_log(f"{gateway.file}:2:3: server.prot")
        assert models(gateway) == before
        assert gateway.log.count("server.prot") == 1  # told once, by the one who watches
        gateway.write(EXTRA % "second")
        gateway.wait_for_log("was read anew", workers)  # without a signal: the file has changed
        assert models(gateway) != before
        gateway.signal(signal.SIGTERM)
        assert gateway.exit_code() == 0
        assert "Traceback" not in gateway.log
