"""Running the application under uvicorn: sockets, limits of the process, the cycle collector, signals."""

from __future__ import annotations

import gc
import logging
import resource
import signal
import socket
from collections.abc import Mapping

import uvicorn

from headrace.config import Config
from headrace.metering import Recorder
from headrace.serve.app import Application
from headrace.serve.bookkeeping import open_recorder
from headrace.serve.protocol import GatewayProtocol

logger = logging.getLogger("headrace.serve")

KEEP_ALIVE_SECONDS = 75
"""An idle caller's connection is kept this long: longer than the usual 60 s of proxies in front, so that they close
first and no request meets a closing connection."""

GRACE_SECONDS = 30
"""On SIGTERM, streams in flight may go on this long."""

BACKLOG = 16_384
_GC_THRESHOLDS = (50_000, 50, 100)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def make_server(
    config: Config, *, env: Mapping[str, str] | None = None, recorder: Recorder | None = None
) -> uvicorn.Server:
    """A uvicorn server for this configuration; run it with `sockets=[bind(...)]`."""
    application = Application(config, env=env, recorder=recorder)
    protocol = GatewayProtocol.bounded(head_bytes=config.limits.head_bytes, head_seconds=config.timeouts.request_head)
    return uvicorn.Server(
        uvicorn.Config(
            application,
            http=protocol,
            ws="none",
            loop="uvloop",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
            backlog=BACKLOG,
        )
    )


def run(config: Config, listener: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT. Blocks."""
    _raise_file_limit()
    recorder = open_recorder(config)
    server = make_server(config, recorder=recorder)
    # What lives from here on was made for requests; the collector need not look at the modules again and again, and
    # the hot path makes no cycles for it to find.
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    for number in (signal.SIGTERM, signal.SIGINT):
        # uvicorn raises the signal that ended it once more, for whoever handled it before: an orderly end is no failure.
        signal.signal(number, lambda *_: None)
    try:
        server.run(sockets=[listener])
    finally:
        if recorder is not None:
            recorder.close()


def _raise_file_limit() -> None:
    """Every stream holds two sockets; the usual soft limit of 1,024 would end at 500 streams."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("the limit of open files stays at %d: %s", soft, error)
