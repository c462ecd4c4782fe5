"""`make demo`: the gateway on the embedded replay upstream, and one answer streamed before your eyes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import socket

import uvloop
from rich.console import Console

from headrace.cli.chat import Screen, ask
from headrace.config import load
from headrace.formats import FORMATS
from headrace.model.content import Text
from headrace.model.request import Message, Request
from headrace.serve.server import bind, make_server

MODEL = "replay/reasoning"
PORT = 8080


def main() -> None:
    """Runs until Ctrl+C, or with --once until the answer has ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="end after the answer")
    once = parser.parse_args().once
    logging.basicConfig(level=logging.WARNING)
    try:
        listener = bind("127.0.0.1", PORT)
    except OSError:
        listener = bind("127.0.0.1", 0)
    with contextlib.suppress(KeyboardInterrupt):
        raise SystemExit(uvloop.run(_demo(listener, once=once)))


async def _demo(listener: socket.socket, *, once: bool) -> int:
    console = Console(highlight=False, markup=False)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    server = make_server(load(None, {}), env={})
    serving = asyncio.get_running_loop().create_task(server.serve(sockets=[listener]))
    while not server.started:
        if serving.done():
            await serving
            return 1
        await asyncio.sleep(0.01)
    console.print(f"Headrace listens on {url}. Asking {MODEL} in LLM-Stream 1.0:\n", style="bold")
    request = Request(
        model=MODEL, messages=[Message(role="user", parts=[Text(text="What is a headrace?")])], stream=True
    )
    answer = await ask(url, FORMATS["llm_stream"], request, None, Screen(console).show)
    console.print(f"\n\n{answer.summary()}", style="dim")
    if answer.failure is not None:
        console.print(answer.failure, style="red")
    if once:
        server.should_exit = True
    else:
        console.print(_invitation(url))
    await serving
    return 1 if answer.failure is not None else 0


def _invitation(url: str) -> str:
    return (
        f"\nStill listening; Ctrl+C ends it. In another terminal:\n\n"
        f"  curl -N {url}/v1/chat/completions -H 'content-type: application/json' \\\n"
        f'    -d \'{{"model":"replay/text","stream":true,"messages":[{{"role":"user","content":"Hello"}}]}}\'\n\n'
        f"  .venv/bin/headrace chat --url {url} --as anthropic --model replay/parallel-tools 'What is the weather?'\n"
    )


if __name__ == "__main__":
    main()
