"""llama.cpp's server, as a program of its own: `python -m tests.inference.server MODEL.gguf`.

It prints its address and serves until its standard input is closed, so that it never outlives the tests.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ALIAS = "tiny"
"""The model's name."""


@contextlib.contextmanager
def inference_server(model: Path) -> Iterator[str]:
    """The address of a server of this model."""
    command = [sys.executable, "-m", __name__, str(model)]
    log = model.with_suffix(".log")
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            address = process.stdout.readline().decode().strip()
            if not address.startswith("http://"):
                raise RuntimeError(f"the inference server does not start: {log.read_text(errors='replace')[-2000:]}")
            yield address
        finally:
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def main() -> None:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = sys.argv[1]
    parameters.model_alias = {ALIAS}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = 4096
    parameters.n_parallel = 2
    parameters.cpuparams.n_threads = 1
    parameters.warmup = False
    parameters.use_jinja = True
    parameters.endpoint_slots = True
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
