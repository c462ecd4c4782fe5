"""Running the application under uvicorn: sockets, limits of the process, the cycle collector, signals, the orderly end.

The rule of the end: nobody new is let in, streams in flight may finish within the grace period, and whoever is still
there then is told so in the caller's own format. Nothing is cancelled from outside: a cancelled task is a broken
connection to the caller, `StreamDriver.cancel` is an error event, its settlement and a proper end of the body.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import socket
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from headrace.config import Config
from headrace.metering import Recorder
from headrace.serve import hub_http, websocket
from headrace.serve.app import Application
from headrace.serve.bookkeeping import open_recorder
from headrace.serve.hub_websocket import HubSession
from headrace.serve.protocol import GatewayProtocol
from headrace.serve.reload import UNUSABLE, Source, watch
from headrace.serve.websocket import WebSocketConnection

if TYPE_CHECKING:
    from headrace.serve.rpc.grpc_server import GrpcListener

logger = logging.getLogger("headrace.serve")

KEEP_ALIVE_SECONDS = 75
"""An idle caller's connection is kept this long: longer than the usual 60 s of proxies in front, so that they close
first and no request meets a closing connection."""

FLUSH_SECONDS = 5.0
"""After the grace period: what callers have to read the last bytes. Those who do not read are cut off."""

SHUTTING_DOWN = "The gateway is shutting down"

BACKLOG = 16_384
_GC_THRESHOLDS = (50_000, 50, 100)
_POLL = 0.05
_TASKS_SECONDS = 1.0
"""What requests have to notice that their connection was cut."""


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket; `shared`: with others that are shared and on the same port. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def reserve(host: str, port: int) -> socket.socket:
    """A port for listeners that bind it themselves, with SO_REUSEPORT, for as long as the socket lives. Raises OSError."""
    with bind(host, port) as probe:  # first without sharing: nobody else has it
        port = probe.getsockname()[1]
    holder = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind((host, port))
    except OSError:
        holder.close()
        raise
    return holder


class GatewayServer(uvicorn.Server):
    """uvicorn's server with our way to end, and with a configuration that can change while it runs.

    Three of its methods are replaced: `startup` (extended by what runs beside the requests), `handle_exit` and
    `shutdown`. uvicorn's own `shutdown` cancels the tasks of requests when the grace period is over and does not wait
    for what they still write; its `handle_exit` raises the signal once more after an orderly end, as if it were none.

    `source`: where a new configuration comes from. `lifeline`: in a worker, a file descriptor that becomes readable when
    its supervisor has died. Both are set before it runs.
    """

    def __init__(self, config: uvicorn.Config, application: Application, protocol: type[GatewayProtocol]) -> None:
        super().__init__(config)
        self.application = application
        self.source: Source | None = None
        self.lifeline: int | None = None
        self.hurry = False
        """Whether the grace period is over already."""
        self._protocol = protocol
        self._watching: asyncio.Task[None] | None = None
        self.grpc: GrpcListener | None = None
        """Set when it has started, where the configuration asks for it."""

    async def use(self, config: Config) -> None:
        """Serve the requests to come under `config`. Raises what `Application.reload` raises; nothing has changed then."""
        await self.application.reload(config)
        self.adopt(config)

    def adopt(self, config: Config) -> None:
        """Take what concerns connections, not requests, from `config`."""
        self._protocol.head_bytes = config.limits.head_bytes
        self._protocol.head_seconds = config.timeouts.request_head
        serving = self.config.ws
        assert isinstance(serving, type)
        assert issubclass(serving, WebSocketConnection)
        serving.max_message = config.limits.body_bytes
        self.config.timeout_graceful_shutdown = config.server.shutdown_grace  # type: ignore[assignment]  # only we use it

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            try:
                await self._start_grpc()
            except UNUSABLE:
                for server in self.servers:
                    server.close()
                await self.lifespan.shutdown()
                raise
        loop = asyncio.get_running_loop()
        if self.source is not None:
            self._watching = loop.create_task(watch(self.source, self.use))
        if self.lifeline is not None:
            loop.add_reader(self.lifeline, self._orphaned)

    async def _start_grpc(self) -> None:
        """Raises OSError where it cannot listen, ImportError where the extra is not installed."""
        config = self.application.runtime.config
        if config.server.grpc is None:
            return
        try:
            from headrace.serve.rpc.grpc_server import GrpcListener
        except ImportError as error:
            raise ImportError(f"server.grpc needs an extra: pip install headrace[grpc] ({error})") from None
        listener = GrpcListener(
            self.application, config.server.grpc, self.application.in_flight, max_message=config.limits.body_bytes
        )
        await listener.start()
        self.grpc = listener
        logger.info("gRPC is served on %s:%d", config.server.grpc.host, listener.port)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal begins an orderly end, the second one ends the grace period.

        A worker's process group, its terminal and its service manager may all send what its supervisor passes on as well;
        so only the supervisor counts signals, and sends SIGQUIT for the second one.
        """
        if self.lifeline is None:
            self.hurry = self.should_exit
        elif sig == signal.SIGINT:
            return
        else:
            self.hurry = self.hurry or sig == signal.SIGQUIT
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.application.drain()
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        if self._watching is not None:
            self._watching.cancel()
        grace = self.config.timeout_graceful_shutdown or 0
        grpc_end: asyncio.Task[None] | None = None
        if self.grpc is not None:
            await self.grpc.drain()
            grpc_end = asyncio.get_running_loop().create_task(self.grpc.stop(grace + FLUSH_SECONDS))
        if live := len(self.application.live):
            logger.info("shutting down: the streams in flight (%d) may go on for %g s", live, grace)
        if not await self._emptied(grace, self._let_go, unless=lambda: self.hurry):
            if live := len(self.application.live):
                logger.warning("shutting down: the streams that still run (%d) are ended with an error", live)
            await self._emptied(FLUSH_SECONDS, self._end_streams)
            await self._emptied(_TASKS_SECONDS, self._cut)
            for task in self.server_state.tasks:
                task.cancel()
        if self.grpc is not None and grpc_end is not None:
            await self.grpc.stop(0)
            await grpc_end
        await self.lifespan.shutdown()

    async def _emptied(
        self, seconds: float, push: Callable[[], object], *, unless: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait until no connection and no request is left, pushing all the while; False where that took too long."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            push()
            # A closed connection leaves the set only when the loop comes to it.
            await asyncio.sleep(0)
            rpcs = self.grpc is not None and self.grpc.busy
            if not self.server_state.connections and not self.server_state.tasks and not rpcs:
                return True
            if loop.time() >= end or unless():
                return False
            await asyncio.sleep(_POLL)

    def _let_go(self) -> None:
        """Close idle connections, and have the others close after their answer. More than once, as a connection that was
        just being accepted comes late."""
        for connection in list(self.server_state.connections):
            connection.shutdown()

    def _end_streams(self) -> None:
        """More than once, as a request that was still being read becomes a stream late."""
        self.application.cancel(SHUTTING_DOWN)
        self._let_go()

    def _cut(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    def _orphaned(self) -> None:
        assert self.lifeline is not None
        asyncio.get_running_loop().remove_reader(self.lifeline)
        if not self.should_exit:
            logger.error("the supervisor has died; this worker ends when its streams have")
            self.should_exit = True


def make_server(
    config: Config, *, env: Mapping[str, str] | None = None, recorder: Recorder | None = None
) -> GatewayServer:
    """A server for this configuration; run it with `sockets=[bind(...)]`. Raises what Runtime raises."""
    application = Application(config, env=env, recorder=recorder)
    protocol = GatewayProtocol.serving(
        application, head_bytes=config.limits.head_bytes, head_seconds=config.timeouts.request_head
    )
    settings = uvicorn.Config(
        application,
        http=protocol,
        ws=WebSocketConnection.serving(
            application,
            max_message=config.limits.body_bytes,
            sessions={
                websocket.PATH: websocket.Events,
                hub_http.PATH: HubSession.serving(application.hubs.negotiations),
            },
        ),
        loop="uvloop",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        backlog=BACKLOG,
    )
    server = GatewayServer(settings, application, protocol)
    server.adopt(config)
    return server


def run(config: Config, listener: socket.socket, source: Source, *, lifeline: int | None = None) -> bool:
    """Serve until SIGTERM or SIGINT; SIGHUP has the configuration read anew. Blocks. False where it could not start,
    for reasons that the log tells. `lifeline`: see GatewayServer."""
    raise_file_limit()
    recorder: Recorder | None = None
    try:
        recorder = open_recorder(config)
        server = make_server(config, recorder=recorder)
        server.source, server.lifeline = source, lifeline
        _take_signals(server, source)
        freeze()
        server.run(sockets=[listener])
    except UNUSABLE as error:
        logger.error("cannot start: %s", error)
        return False
    except SystemExit:  # uvicorn's word for a start that failed; the application has told the reason
        return False
    finally:
        if recorder is not None:
            recorder.close()
    return True


def _take_signals(server: GatewayServer, source: Source) -> None:
    """From here to the end of the process no signal kills it. A worker is born with signals blocked: now they may come."""
    handlers: dict[int, Callable[[int, FrameType | None], None]] = {
        signal.SIGTERM: server.handle_exit,
        signal.SIGINT: server.handle_exit,
        signal.SIGHUP: lambda *_: source.ask(),
    }
    if server.lifeline is not None:
        handlers[signal.SIGQUIT] = server.handle_exit
    for number, handler in handlers.items():
        signal.signal(number, handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def freeze() -> None:
    """What lives by now was made for the whole run: the collector need not look at the modules again and again, and the
    hot path makes no cycles for it to find."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def raise_file_limit() -> None:
    """Every stream holds two sockets; the usual soft limit of 1,024 would end at 500 streams."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        logger.warning("the limit of open files stays at %d: %s", soft, error)
