"""One provider of the configuration, ready to be asked: everything about its requests that no request changes.

What a request adds (its body, its trace, its caller's headers) is added when it is sent, once for each attempt. The
trade-off: the candidates that the engine sees are made once for each model and kept, a bounded number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from headrace import engine
from headrace.config import Config, CredentialError, Provider, api_key, aws_keys
from headrace.formats import FORMATS
from headrace.formats.base import Format, ReaderOptions, Target, WireRequest
from headrace.formats.json import merged
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, InvalidRequest
from headrace.model.request import Request, Tool
from headrace.routing.breaker import Breakers
from headrace.serve.driver import Call
from headrace.upstream import AwsKeys, Client, HttpRequest, SigningError, SigV4Signer, TraceContext

_KEPT = 1024


class Endpoint:
    """`base_url` is asked for each time: the embedded provider's is known only when it has started."""

    def __init__(
        self,
        name: str,
        provider: Provider,
        config: Config,
        *,
        client: Client,
        base_url: Callable[[], str],
        breakers: Breakers | None,
        env: Mapping[str, str],
    ) -> None:
        self.name = name
        self.provider = provider
        self.format: Format = FORMATS[provider.format]
        self._client = client
        self._base_url = base_url
        self._breakers = breakers
        self._env = env
        timeouts = provider.timeouts or config.timeouts
        self._connect_timeout = timeouts.connect
        self._proxy = "" if provider.embedded else provider.proxy
        self.timeouts = engine.Timeouts(
            first_token=timeouts.first_token,
            request=timeouts.request,
            idle_stream=timeouts.idle_stream,
            slow_consumer=timeouts.slow_consumer,
            keepalive=config.server.keepalive_interval,
            pings_count=provider.pings_count,
        )
        self._headers = [(header.lower(), (header, value)) for header, value in provider.headers.items()]
        self._plain: dict[tuple[str, bool], engine.Upstream] = {}
        self.signer = _signer(name, provider, env)
        """Signs its requests, where they have to be signed."""

    def upstream(self, model: str, request: Request, answer: Format) -> engine.Upstream:
        """A model of this provider as the engine sees it."""
        passthrough = self.format is answer
        if request.tools:
            tools = tuple([tool.name for tool in request.tools if isinstance(tool, Tool)])
            return self._upstream(model, passthrough, tools)
        kept = self._plain.get((model, passthrough))
        if kept is None:
            if len(self._plain) >= _KEPT:
                self._plain.clear()
            kept = self._plain[model, passthrough] = self._upstream(model, passthrough, ())
        return kept

    def _upstream(self, model: str, passthrough: bool, tools: tuple[str, ...]) -> engine.Upstream:
        provider = self.provider
        return engine.Upstream(
            provider=self.name,
            model=model,
            format=self.format,
            framing=self.format.framings[0],
            reader_options=ReaderOptions(
                provider=self.name,
                vendor=provider.vendor,
                quirks=provider.quirks,
                passthrough=passthrough,
                tools=tools,
            ),
            timeouts=self.timeouts,
            malformed=provider.malformed,
            circuit=None if self._breakers is None else self._breakers.circuit(self.name, model),
        )

    def call(
        self,
        request: Request,
        model: str,
        parameters: Mapping[str, Any],
        *,
        trace: TraceContext,
        forwarded: Mapping[str, str],
    ) -> Call:
        """The call that asks this provider. `parameters` are laid over the request's body; `forwarded`: the caller's
        headers, lower-case names.

        Raises GatewayError where the request cannot be said in the provider's format, or the key cannot be read.
        """
        provider = self.provider
        if request.bound and self.format.name != request.format:
            raise InvalidRequest(
                f"{request.bound[0]}: refers to state that {self.name} does not have, since it speaks another format. "
                "Send the whole conversation instead",
                param=request.bound[0],
            )
        if parameters:
            own = merged(request.extensions.get(provider.vendor) or {}, parameters)
            request = msgspec.structs.replace(request, extensions={**request.extensions, provider.vendor: own})
        wire = self.format.write_request(
            request,
            Target(
                model=model,
                vendor=provider.vendor,
                stream=request.stream,
                path=provider.path,
                quirks=provider.quirks,
            ),
        )
        asked = HttpRequest(
            method="POST",
            url=self._base_url() + wire.path,
            headers=self._all_headers(wire, trace, forwarded),
            body=wire.body,
        )
        return Call(
            provider=self.name,
            client=self._client,
            request=asked if self.signer is None else self._signed(asked, self.signer),
            connect_timeout=self._connect_timeout,
            proxy=self._proxy,
            lost=wire.lost,
        )

    def _signed(self, request: HttpRequest, signer: SigV4Signer) -> HttpRequest:
        try:
            return signer.sign(request)
        except SigningError as error:
            raise self._without_credentials(error) from None

    def _without_credentials(self, error: Exception) -> GatewayError:
        return GatewayError(
            ErrorInfo(code=ErrorCode.INTERNAL_ERROR, message=str(error), type="credential", provider=self.name)
        )

    def _all_headers(
        self, wire: WireRequest, trace: TraceContext, forwarded: Mapping[str, str]
    ) -> list[tuple[str, str]]:
        try:
            key = api_key(self.name, self.provider, self._env)
        except CredentialError as error:
            raise self._without_credentials(error) from None
        headers = {header.lower(): (header, value) for header, value in wire.headers}
        for header in self.format.forwarded_headers:
            if header in forwarded:
                headers[header] = (header, forwarded[header])
        if key is not None:
            headers.update(
                [(header.lower(), (header, value)) for header, value in self.format.auth_headers(key.reveal())]
            )
        headers["traceparent"] = ("traceparent", trace.traceparent)
        if trace.tracestate:
            headers["tracestate"] = ("tracestate", trace.tracestate)
        headers.update(self._headers)
        return list(headers.values())


def _signer(name: str, provider: Provider, env: Mapping[str, str]) -> SigV4Signer | None:
    """Raises ValueError where requests have to be signed and nothing is there to do it."""
    if provider.aws is None:
        return None
    try:
        keys = aws_keys(provider.aws, env)
        return SigV4Signer(
            provider.aws.region, keys=None if keys is None else AwsKeys(*keys), profile=provider.aws.profile
        )
    except (CredentialError, ValueError) as error:
        raise ValueError(f"provider {name}: {error}") from None
