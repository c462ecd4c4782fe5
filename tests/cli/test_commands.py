"""The commands as a user runs them: processes, pipes, exit codes."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.config import json_schema
from headrace.tape import ReplayServer
from tests.live import LiveGateway

COMMAND = [sys.executable, "-c", "from headrace.cli import main; main()"]
PATIENCE = 30
FORMATS = ["llm-stream", "gateway", "openai-chat", "anthropic"]
HELLO = re.compile(r"[Hh]eadrace")

ANTHROPIC = """event: message_start
data: {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":5,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi"}}

"""  # noqa: E501  # lines of a stream
ANTHROPIC_REST = """event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":2}}

event: message_stop
data: {"type":"message_stop"}

"""


def run(
    *arguments: str, env: dict[str, str] | None = None, stdin: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        input=stdin,
        env={**os.environ, "NO_COLOR": "1", "COLUMNS": "200", **(env or {})},
        check=False,
    )


@contextmanager
def started(*arguments: str, env: dict[str, str] | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A command that serves; yields the process and the address it names on standard error."""
    process = subprocess.Popen(
        [*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        found = re.search(r"http://[^ ]+:\d+", line)
        assert found, line
        yield process, found[0]
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE)


def fetch(url: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        url, data=None if body is None else json.dumps(body).encode(), headers={"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return json.loads(answer.read())


def test_help_names_every_command() -> None:
    shown = run("--help")
    assert shown.returncode == 0
    for command in ("serve", "chat", "translate", "replay", "config"):
        assert command in shown.stdout
        assert run(command, "--help").returncode == 0


def test_version() -> None:
    assert re.fullmatch(r"headrace \d+\.\d+\.\d+\n", run("--version").stdout)


def test_a_wrong_command_line() -> None:
    assert run("serve", "--prot", "1").returncode == 2
    assert run("translate", "--from", "klingon", "--to", "gateway").returncode == 2


def test_serve_without_a_file_and_sigterm() -> None:
    with started("serve", "--port", "0") as (process, url):
        assert fetch(f"{url}/readyz") == {"status": "ready"}
        body = {"model": "replay/text?speed=0", "messages": [{"role": "user", "content": "x"}]}
        answer = fetch(f"{url}/v1/chat/completions", body)
        assert HELLO.search(answer["choices"][0]["message"]["content"])
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert "outcome=completed" in log


def test_serve_takes_providers_from_the_environment(replay: ReplayServer) -> None:
    env = {
        "ANTHROPIC_BASE_URL": replay.base_url,
        "ANTHROPIC_API_KEY": "k-1",
        "OPENAI_BASE_URL": f"{replay.base_url}/v1",
    }
    with started("serve", "--port", "0", env=env) as (_, url):
        body = {"model": "anthropic/text", "messages": [{"role": "user", "content": "x"}]}
        assert fetch(f"{url}/v1/chat/completions", body)["choices"]
        assert replay.requests[-1].headers["x-api-key"] == "k-1"
        assert replay.requests[-1].path == "/v1/messages"
        assert fetch(f"{url}/v1/chat/completions", {**body, "model": "openai/text"})["choices"]
        assert replay.requests[-1].path == "/v1/chat/completions"
        assert "authorization" not in replay.requests[-1].headers


def test_serve_on_a_port_that_is_taken(gateway: LiveGateway) -> None:
    done = run("serve", "--port", str(gateway.port))
    assert done.returncode == 1
    assert f"127.0.0.1:{gateway.port}" in done.stderr


def test_config_check(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text("providers: {local: {format: openai_chat, base_url: 'http://127.0.0.1:1/v1', models: [llama]}}\n")
    done = run("config", "check", "--config", str(good))
    assert done.returncode == 0
    assert "provider local: openai_chat at http://127.0.0.1:1/v1" in done.stdout
    bad = tmp_path / "bad.yaml"
    bad.write_text("server:\n  prot: 80\n")
    for command in (["config", "check"], ["serve"]):
        done = run(*command, "--config", str(bad))
        assert done.returncode == 4
        assert f"{bad}:2:3: server.prot" in done.stderr
        assert "Traceback" not in done.stderr
    assert run("config", "check", "--config", str(tmp_path / "none.yaml")).returncode == 4


def test_config_schema() -> None:
    assert json.loads(run("config", "schema").stdout) == json_schema()


@pytest.mark.parametrize("form", FORMATS)
def test_chat_with_the_gateway_in_every_format(gateway: LiveGateway, form: str) -> None:
    done = run("chat", "Hello", "--url", gateway.url, "--as", form, "--model", "as-anthropic/reasoning")
    assert done.returncode == 0, done.stderr
    assert "five kilowatts reach the millstone" in done.stdout
    assert "overshot" in done.stdout, "the reasoning"
    assert "first token" in done.stderr
    assert "72 out" in done.stderr


@pytest.mark.parametrize(("form", "suffix"), [("openai-chat", "/v1"), ("anthropic", "")])
def test_chat_with_a_provider(replay: ReplayServer, form: str, suffix: str) -> None:
    done = run(
        *("chat", "Hello", "--url", replay.base_url + suffix, "--as", form, "--model", "parallel-tools", "--quiet"),
        *("--api-key-env", "SOME_KEY"),
        env={"SOME_KEY": "k-2"},
    )
    assert done.returncode == 0, done.stderr
    assert "get_weather" in done.stdout
    assert "Vienna" in done.stdout
    assert done.stderr == ""
    assert "k-2" in replay.requests[-1].headers.get("x-api-key", replay.requests[-1].headers.get("authorization", ""))


def test_chat_reads_its_prompt_from_a_pipe(gateway: LiveGateway) -> None:
    done = run("chat", "--url", gateway.url, "--model", "as-openai/echo", stdin="from the pipe")
    assert "from the pipe" in done.stdout
    assert run("chat", "--url", gateway.url, stdin="").returncode == 2


@pytest.mark.parametrize(
    ("model", "code", "text"),
    [
        ("as-openai/text?cut=3", 1, "cut"),
        ("as-openai/text?status=503", 1, "HTTP 503"),
        ("nobody/nothing", 1, "HTTP 404"),
        ("as-openai/error", 1, ""),
    ],
)
def test_chat_fails(gateway: LiveGateway, model: str, code: int, text: str) -> None:
    done = run("chat", "Hello", "--url", gateway.url, "--model", model)
    assert done.returncode == code
    assert done.stderr
    assert text in done.stderr or "closed" in done.stderr
    assert "Traceback" not in done.stderr


def test_chat_with_nobody() -> None:
    done = run("chat", "Hello", "--url", "http://127.0.0.1:9")
    assert done.returncode == 3
    assert "127.0.0.1:9" in done.stderr
    assert run("chat", "Hello", "--url", "ftp://x").returncode == 2


@pytest.mark.parametrize("target", FORMATS)
def test_translate(target: str) -> None:
    done = run("translate", "--from", "anthropic", "--to", target, stdin=ANTHROPIC + ANTHROPIC_REST)
    assert done.returncode == 0, done.stderr
    assert "Hi" in done.stdout
    back = run("translate", "--from", target, "--to", "anthropic", stdin=done.stdout)
    assert back.returncode == 0, back.stderr
    assert '"text":"Hi"' in back.stdout
    assert "message_stop" in back.stdout


def test_translate_a_stream_that_was_cut() -> None:
    done = run("translate", "--from", "anthropic", "--to", "openai-chat", stdin=ANTHROPIC)
    assert done.returncode == 1
    assert "Hi" in done.stdout
    assert done.stdout.endswith("data: [DONE]\n\n")
    assert '"error"' in done.stdout
    assert "Traceback" not in done.stderr


def test_translate_to_ndjson_and_to_a_whole_body() -> None:
    done = run(
        *("translate", "--from", "anthropic", "--to", "gateway", "--framing-out", "ndjson"),
        stdin=ANTHROPIC + ANTHROPIC_REST,
    )
    assert [json.loads(line)["type"] for line in done.stdout.split("\n") if line][-1] == "done"
    done = run("translate", "--from", "anthropic", "--to", "openai-chat", "--whole", stdin=ANTHROPIC + ANTHROPIC_REST)
    assert json.loads(done.stdout)["choices"][0]["message"]["content"] == "Hi"


def test_translate_streams() -> None:
    """What has come in is out before more comes in."""
    process = subprocess.Popen(
        [*COMMAND, "translate", "--from", "anthropic", "--to", "llm-stream"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(ANTHROPIC.encode())
    process.stdin.flush()
    seen = b""
    while b'"Hi"' not in seen:
        ready, _, _ = select.select([process.stdout], [], [], PATIENCE)
        assert ready, seen
        seen += os.read(process.stdout.fileno(), 65536)
    rest, _ = process.communicate(ANTHROPIC_REST.encode(), timeout=PATIENCE)
    assert b"stream.end" in rest
    assert process.returncode == 0


def test_replay_serves_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.sse").write_text(ANTHROPIC + ANTHROPIC_REST)
    with started("replay", str(tmp_path), "--as", "anthropic", "--port", "0") as (_, url):
        body = {"model": "mine", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
        assert fetch(f"{url}/v1/messages", body)["content"] == [{"type": "text", "text": "Hi"}]


def test_replay_of_nothing(tmp_path: Path) -> None:
    done = run("replay", str(tmp_path / "none"))
    assert done.returncode == 1
    assert "none" in done.stderr


def test_the_demo() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace.cli.demo", "--once"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "millstone" in done.stdout
    assert "first token" in done.stdout
