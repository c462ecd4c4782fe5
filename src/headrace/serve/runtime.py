"""What a running gateway holds: configuration, catalogue of models, connections to providers, the embedded replay.

One Runtime serves all requests of a process that came under its configuration; it does not touch any caller's connection.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping
from functools import cached_property

from headrace import engine
from headrace.access.keys import Key, KeyFile, find_secret
from headrace.config import Catalogue, Config, ModelEntry, Price, Provider
from headrace.metering import ModelPrice, Prices, Recorder
from headrace.metering.tokens import warm
from headrace.serve.bookkeeping import spent
from headrace.serve.endpoint import Endpoint
from headrace.serve.plans import Planner
from headrace.serve.state import State
from headrace.tape import Library, ReplayServer
from headrace.upstream import Client, tls_context
from headrace.upstream.sigv4 import RELOAD_SECONDS

IDLE_CONNECTIONS = 1024
"""Connections kept open to one provider when nothing is asked: many streams that end together often start together."""


_LOOK_EVERY = 2.0
"""Seconds between two looks at the file of keys."""


class Runtime:
    """Start it inside the event loop that serves, close it there."""

    def __init__(
        self, config: Config, *, env: Mapping[str, str] | None = None, recorder: Recorder | None = None
    ) -> None:
        """`recorder`: where usage records go. Raises KeyFileError where the file of keys cannot be used."""
        self.config = config
        self._recorder = recorder
        self.keys = KeyFile(config.keys_file) if config.keys_file is not None else None
        self.prices = Prices({name: _price(price) for name, price in config.prices.items()})
        self._env = os.environ if env is None else env
        self._library = Library.builtin()
        self.catalogue = Catalogue(config, replay_streams=self._library.names)
        self._clients: dict[tuple[str | None, bool], Client] = {}
        self._replay = ReplayServer(self._library)
        self._replaying = any(provider.embedded for provider in config.providers.values())
        self.state: State
        self.endpoints: dict[str, Endpoint] = {}
        self.planner: Planner
        """Set when it has started, as are `state` and `endpoints`."""
        self._looking: asyncio.TimerHandle | None = None
        self._loading: asyncio.TimerHandle | None = None
        self.ready = False

    async def start(self, state: State | None = None) -> None:
        """Start the embedded replay upstream, and load every CA file, so that a wrong one is found now. `state`: of a
        runtime that this one takes over from."""
        if state is None:
            state = State(self.config, self._recorder)
            budgets = self.keys is not None and any(key.has_budget for key in self.keys.keys)
            if self._recorder is not None and budgets and not state.remembers:
                state.prime(*await asyncio.to_thread(spent, self.config))
            state.soon(asyncio.to_thread(self._warm_up))
        self.state = state
        self.endpoints = {name: self._endpoint(name, provider) for name, provider in self.config.providers.items()}
        self.planner = Planner(self.config, self.catalogue, self.endpoints)
        await asyncio.gather(*self._load_credentials())
        if self._replaying:
            await self._replay.start()
        if self.keys is not None:
            self._look_at_keys()
        self.ready = True

    async def aclose(self, *, keep_state: bool = False) -> None:
        """`keep_state`: another runtime goes on with it."""
        self.ready = False
        if self._looking is not None:
            self._looking.cancel()
        if self._loading is not None:
            self._loading.cancel()
        for client in self._clients.values():
            await client.aclose()
        if self._replaying:
            await self._replay.aclose()
        if not keep_state:
            await self.state.aclose()

    def _warm_up(self) -> None:
        """Load the tokenizers of the models that are named, so that no stream waits for the first estimate."""
        candidates = [candidate.model for route in self.config.routes.values() for candidate in route.candidates]
        claims = [claim for provider in self.config.providers.values() for claim in provider.models]
        for model in dict.fromkeys(["", *candidates, *claims]):
            warm(model)

    def authenticate(self, headers: Mapping[str, str]) -> Key | None:
        """Whose request it is, by its headers (lower-case names); None where callers need no key. Raises GatewayError."""
        if self.keys is None:
            return None
        now = time.time()  # noqa: TID251  # keys expire by the calendar
        return self.keys.authenticate(find_secret(headers), now)

    def models(self, headers: Mapping[str, str]) -> list[ModelEntry]:
        """Those that a caller with these headers may use. Raises GatewayError where it needs a key."""
        key = self.authenticate(headers)
        return [entry for entry in self.catalogue.list() if key is None or key.allows(entry.id)]

    def _look_at_keys(self) -> None:
        """Notice a file of keys that has changed."""
        if self.keys is not None:
            self.keys.refresh()
        self._looking = asyncio.get_running_loop().call_later(_LOOK_EVERY, self._look_at_keys)

    def _load_credentials(self) -> list[asyncio.Future[None]]:
        """Look for the credentials that requests are signed with, in threads, and again before temporary ones end."""
        signers = [endpoint.signer for endpoint in self.endpoints.values() if endpoint.signer is not None]
        looking = [signer for signer in signers if not signer.fixed]
        if not looking:
            return []
        loop = asyncio.get_running_loop()
        self._loading = loop.call_later(RELOAD_SECONDS, self._load_credentials)
        return [loop.run_in_executor(None, signer.load) for signer in looking]

    @cached_property
    def limits(self) -> engine.Limits:
        limits = self.config.limits
        return engine.Limits(
            stream_buffer_bytes=limits.stream_buffer_bytes,
            frame_bytes=limits.frame_bytes,
            body_bytes=limits.body_bytes,
        )

    @cached_property
    def timeouts(self) -> engine.Timeouts:
        """Of the caller's side; each candidate has its own for the provider's."""
        timeouts = self.config.timeouts
        return engine.Timeouts(slow_consumer=timeouts.slow_consumer, keepalive=self.config.server.keepalive_interval)

    def _endpoint(self, name: str, provider: Provider) -> Endpoint:
        base_url = provider.base_url.rstrip("/")
        return Endpoint(
            name,
            provider,
            self.config,
            client=self._client(provider),
            base_url=(lambda: self._replay.base_url) if provider.embedded else (lambda: base_url),
            breakers=None if provider.embedded else self.state.breakers,
            env=self._env,
        )

    def _client(self, provider: Provider) -> Client:
        """Providers with the same TLS settings share a client, hence its pools. Raises ValueError for a bad CA file."""
        key = (provider.ca_file, provider.verify)
        client = self._clients.get(key)
        if client is None:
            context = tls_context(ca_file=provider.ca_file, verify=provider.verify)
            client = self._clients[key] = Client(
                max_idle_per_origin=IDLE_CONNECTIONS, ssl_context=context, env=self._env
            )
        return client


def _price(price: Price) -> ModelPrice:
    return ModelPrice(
        input=price.input,
        output=price.output,
        cached=price.cached,
        cache_write=price.cache_write,
        reasoning=price.reasoning,
    )
