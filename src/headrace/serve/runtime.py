"""What a running gateway holds: configuration, catalogue of models, connections to providers, the embedded replay.

One Runtime serves all requests of a process that came under its configuration; it does not touch any caller's connection.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property

from headrace import engine
from headrace.config import Catalogue, Config, Provider
from headrace.routing.breaker import Breakers, BreakerSettings
from headrace.serve.endpoint import Endpoint
from headrace.serve.plans import Planner
from headrace.tape import Library, ReplayServer
from headrace.upstream import Client, tls_context

IDLE_CONNECTIONS = 1024
"""Connections kept open to one provider when nothing is asked: many streams that end together often start together."""


class Runtime:
    """Start it inside the event loop that serves, close it there."""

    def __init__(self, config: Config, *, env: Mapping[str, str] | None = None) -> None:
        self.config = config
        self._env = os.environ if env is None else env
        self._library = Library.builtin()
        self.catalogue = Catalogue(config, replay_streams=self._library.names)
        self._clients: dict[tuple[str | None, bool], Client] = {}
        self._replay = ReplayServer(self._library)
        self._replaying = any(provider.embedded for provider in config.providers.values())
        self.breakers = Breakers(_breaker_settings(config)) if config.breaker.enabled else None
        self.planner: Planner
        """Set when it has started."""
        self.ready = False

    async def start(self) -> None:
        """Start the embedded replay upstream, and load every CA file, so that a wrong one is found now."""
        endpoints = {name: self._endpoint(name, provider) for name, provider in self.config.providers.items()}
        self.planner = Planner(self.config, self.catalogue, endpoints)
        if self._replaying:
            await self._replay.start()
        self.ready = True

    async def aclose(self) -> None:
        self.ready = False
        for client in self._clients.values():
            await client.aclose()
        if self._replaying:
            await self._replay.aclose()

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
            breakers=None if provider.embedded else self.breakers,
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


def _breaker_settings(config: Config) -> BreakerSettings:
    breaker = config.breaker
    return BreakerSettings(
        error_threshold=breaker.error_threshold,
        window=breaker.window,
        min_requests=breaker.min_requests,
        open_for=breaker.open_for,
        trials=breaker.trials,
    )
