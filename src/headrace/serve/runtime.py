"""What a running gateway holds: configuration, catalogue of models, connections to providers, the embedded replay.

One Runtime serves all requests of a process. It turns a model's name into everything that a request to its provider
needs; it does not touch any caller's connection.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property

from headrace import engine
from headrace.config import (
    AmbiguousModel,
    Catalogue,
    Config,
    CredentialError,
    Provider,
    Resolved,
    UnknownModel,
    api_key,
)
from headrace.formats import FORMATS
from headrace.formats.base import Format, ReaderOptions, Target, WireRequest, WriterOptions
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, InvalidRequest
from headrace.model.request import Request, Tool
from headrace.serve.driver import Call
from headrace.tape import Library, ReplayServer
from headrace.upstream import Client, HttpRequest, TraceContext, tls_context

IDLE_CONNECTIONS = 1024
"""Connections kept open to one provider when nothing is asked: many streams that end together often start together."""


class Prepared:
    """One request, ready to run: the engine's view of the provider, the call to make, and what could not be said."""

    __slots__ = ("call", "lost", "resolved", "timeouts", "upstream")

    def __init__(
        self,
        resolved: Resolved,
        upstream: engine.Upstream,
        timeouts: engine.Timeouts,
        call: Call,
        lost: tuple[str, ...],
    ) -> None:
        self.resolved = resolved
        self.upstream = upstream
        self.timeouts = timeouts
        self.call = call
        self.lost = lost


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
        self.ready = False

    async def start(self) -> None:
        """Start the embedded replay upstream, and load every CA file, so that a wrong one is found now."""
        for provider in self.config.providers.values():
            self._client(provider)
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

    def resolve(self, name: str) -> Resolved:
        """Who answers. Raises GatewayError: 404 for an unknown name, 400 for an ambiguous or a missing one."""
        if not name:
            if self.config.default_route is None:
                raise InvalidRequest("model is missing, and no default_route is configured", param="model")
            name = self.config.default_route
        try:
            return self.catalogue.resolve(name)
        except UnknownModel as error:
            message = f"{error}. GET /v1/models lists the models, provider/model names any model of a provider"
            raise GatewayError(
                ErrorInfo(code=ErrorCode.MODEL_NOT_FOUND, message=message, type="model_not_found", param="model")
            ) from None
        except AmbiguousModel as error:
            raise InvalidRequest(str(error), param="model") from None

    def prepare(
        self,
        request: Request,
        answer: Format,
        *,
        trace: TraceContext,
        forwarded: Mapping[str, str],
    ) -> Prepared:
        """The call to the provider that `request.model` names. `forwarded`: the caller's headers, lower-case names.

        Raises GatewayError where the request cannot be said in the provider's format, or the key cannot be read.
        """
        resolved = self.resolve(request.model)
        provider, name = resolved.provider, resolved.provider_name
        fmt = FORMATS[provider.format]
        wire = fmt.write_request(
            request,
            Target(
                model=resolved.model,
                vendor=provider.vendor,
                stream=request.stream,
                path=provider.path,
                quirks=provider.quirks,
            ),
        )
        timeouts = provider.timeouts or self.config.timeouts
        waits = engine.Timeouts(
            first_token=timeouts.first_token,
            request=timeouts.request,
            idle_stream=timeouts.idle_stream,
            slow_consumer=timeouts.slow_consumer,
            keepalive=self.config.server.keepalive_interval,
            pings_count=provider.pings_count,
        )
        upstream = engine.Upstream(
            provider=name,
            model=resolved.model,
            format=fmt,
            framing=fmt.framings[0],
            reader_options=ReaderOptions(
                provider=name,
                vendor=provider.vendor,
                quirks=provider.quirks,
                passthrough=fmt is answer,
                tools=tuple(tool.name for tool in request.tools if isinstance(tool, Tool)),
            ),
            timeouts=waits,
            malformed=provider.malformed,
        )
        call = Call(
            provider=name,
            client=self._client(provider),
            request=HttpRequest(
                method="POST",
                url=self._base_url(provider) + wire.path,
                headers=self._headers(name, provider, fmt, wire, trace, forwarded),
                body=wire.body,
            ),
            connect_timeout=timeouts.connect,
            proxy="" if provider.embedded else provider.proxy,
        )
        return Prepared(resolved, upstream, waits, call, wire.lost)

    def writer_options(
        self, request: Request, prepared: Prepared, answer: Format, *, request_id: str, created: int
    ) -> WriterOptions:
        return WriterOptions(
            request=request,
            request_id=request_id,
            created=created,
            model=prepared.resolved.model,
            provider=prepared.resolved.provider_name,
            passthrough=prepared.upstream.format is answer,
            lost=prepared.lost,
        )

    def _headers(
        self,
        name: str,
        provider: Provider,
        fmt: Format,
        wire: WireRequest,
        trace: TraceContext,
        forwarded: Mapping[str, str],
    ) -> list[tuple[str, str]]:
        try:
            key = api_key(name, provider, self._env)
        except CredentialError as error:
            raise GatewayError(
                ErrorInfo(code=ErrorCode.INTERNAL_ERROR, message=str(error), type="credential", provider=name)
            ) from None
        headers = {header.lower(): (header, value) for header, value in wire.headers}
        for header in fmt.forwarded_headers:
            if header in forwarded:
                headers[header] = (header, forwarded[header])
        if key is not None:
            headers.update((header.lower(), (header, value)) for header, value in fmt.auth_headers(key.reveal()))
        headers["traceparent"] = ("traceparent", trace.traceparent)
        if trace.tracestate:
            headers["tracestate"] = ("tracestate", trace.tracestate)
        headers.update((header.lower(), (header, value)) for header, value in provider.headers.items())
        return list(headers.values())

    def _base_url(self, provider: Provider) -> str:
        return self._replay.base_url if provider.embedded else provider.base_url.rstrip("/")

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
