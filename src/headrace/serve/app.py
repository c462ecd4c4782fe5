"""The ASGI application: inference paths to the streaming driver, everything else to the ordinary pages.

Any ASGI server can run it (`headrace.serve.app:Application(config)`); `server.py` runs it under uvicorn.

The rule of a new configuration: a request is served to its end by the runtime it began with. `reload` puts a new runtime
in front for the requests to come; the old one goes when its last stream has ended. The trade-off: until then two sets of
connections to the providers are open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from headrace.config import Config
from headrace.metering import Recorder
from headrace.model.errors import ErrorCode
from headrace.serve.driver import Send, StreamDriver
from headrace.serve.hub_http import NEGOTIATE, PATH, Hubs
from headrace.serve.inference import Inference, Receive
from headrace.serve.negotiation import PLACES
from headrace.serve.pages import RPC_PREFIX, method_not_allowed, needs_extra, pages
from headrace.serve.rpc.in_flight import InFlight
from headrace.serve.runtime import Runtime
from headrace.serve.ticker import Ticker

logger = logging.getLogger("headrace.serve")

_HUB = frozenset({PATH, NEGOTIATE})
"""Its connections outlive requests, and configurations."""

_RETIRE_POLL = 0.1
"""Seconds between two looks whether an old runtime is still needed."""

_RETIRE_SECONDS = 1.0
"""An old runtime may take so long to close when the process ends."""


class Application:
    """One gateway process, as ASGI 3 sees it."""

    def __init__(
        self, config: Config, *, env: Mapping[str, str] | None = None, recorder: Recorder | None = None
    ) -> None:
        self._env = env
        self._recorder = recorder
        self.in_flight = InFlight()
        """Calls of gRPC and Connect."""
        self._current = _Generation(config, env, recorder, self.in_flight)
        self._retired: set[_Generation] = set()
        self._retiring: set[asyncio.Task[None]] = set()
        self._draining = False
        self.hubs = Hubs(self, workers=config.server.workers)

    @property
    def runtime(self) -> Runtime:
        """Of the requests to come."""
        return self._current.runtime

    @property
    def ticker(self) -> Ticker:
        """Of the requests to come."""
        return self._current.ticker

    @property
    def live(self) -> frozenset[StreamDriver]:
        """The streams in flight, whatever configuration they began under."""
        return self._current.ticker.live.union(*(generation.ticker.live for generation in self._retired))

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] in _HUB:
            await self.hubs(scope, receive, send)
        elif scope["type"] == "http":
            generation = self.enter()
            try:
                await generation.serve(scope, receive, send)
            finally:
                generation.leave()
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            raise ValueError(f"connections of type {scope['type']!r} are not served")

    def enter(self) -> _Generation:
        """What serves a request that begins now; `leave` it when the request is over."""
        self._current.requests += 1
        return self._current

    async def reload(self, config: Config) -> None:
        """Serve the requests to come under `config`, with what the process knows already (its `State`).

        Raises what Runtime and its start raise, for what cannot be used; then everything stays as it was.
        """
        generation = _Generation(config, self._env, self._recorder, self.in_flight)
        try:
            await generation.runtime.start(self.runtime.state)
        except BaseException:
            await generation.runtime.aclose(keep_state=True)
            raise
        if self._draining:
            await generation.runtime.aclose(keep_state=True)
            return
        old, self._current = self._current, generation
        self._retired.add(old)
        task = asyncio.get_running_loop().create_task(self._retire(old))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    def drain(self) -> None:
        """Be ready no more: the process is about to end. What is in flight goes on."""
        self._draining = True
        self.runtime.ready = False
        self.hubs.shutdown()

    def cancel(self, message: str) -> int:
        """End every stream in flight with an error event in its caller's format; how many there were."""
        live = self.live
        for driver in live:
            try:
                driver.cancel(ErrorCode.CANCELLED, message, 503)  # asked elsewhere, it may succeed
            except Exception:  # one stream's fault must not keep the others from their end
                logger.exception("a stream could not be ended")
        return len(live)

    async def _retire(self, generation: _Generation) -> None:
        while generation.busy:  # noqa: ASYNC110  # nobody tells when the last stream is gone, and nobody is in a hurry
            await asyncio.sleep(_RETIRE_POLL)
        self._retired.discard(generation)
        await generation.aclose(keep_state=True)

    async def start(self) -> None:
        """Raises OSError or ValueError for a configuration that cannot be used."""
        await self.runtime.start()

    async def aclose(self) -> None:
        """When nothing is in flight any more."""
        self.drain()
        if self._retiring:  # with no stream left they are about to end
            await asyncio.wait(self._retiring, timeout=_RETIRE_SECONDS)
        for generation in list(self._retired):
            await generation.aclose(keep_state=True)
        await self._current.aclose()

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.start()
        except (OSError, ValueError) as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})


class _Generation:
    """What serves the requests that came under one configuration."""

    def __init__(
        self, config: Config, env: Mapping[str, str] | None, recorder: Recorder | None, in_flight: InFlight
    ) -> None:
        self._in_flight = in_flight
        self.runtime = Runtime(config, env=env, recorder=recorder)
        self.ticker = Ticker()
        self.requests = 0
        self.inference = Inference(self.runtime, self.ticker)
        self._pages = pages(self.runtime, lambda: len(self.ticker.live))

    @property
    def busy(self) -> bool:
        """A stream may outlive its request for a moment, and a request is there before its stream."""
        return self.requests > 0 or bool(self.ticker.live)

    def leave(self) -> None:
        self.requests -= 1

    async def serve(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["path"].startswith(RPC_PREFIX):
            await self._serve_rpc(scope, receive, send)
            return
        places = PLACES.find(scope["path"], scope["query_string"].decode("latin-1"))
        if not places:
            await self._pages(dict(scope), receive, send)
        elif scope["method"] == "POST":
            await self.inference(places[0], scope, receive, send)
        else:
            refusal = method_not_allowed(scope["method"], scope["path"], "POST")
            await refusal(dict(scope), receive, send)

    async def _serve_rpc(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Connect and gRPC-Web; what they need is loaded with the first call."""
        try:
            from headrace.serve.rpc import connect
        except ImportError:
            await needs_extra(dict(scope), receive, send)
            return
        await connect.serve(self.inference, self._in_flight, scope, receive, send)

    async def aclose(self, *, keep_state: bool = False) -> None:
        self.ticker.close()
        await self.runtime.aclose(keep_state=keep_state)
