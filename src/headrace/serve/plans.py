"""From the model that a request names to the plan of whom to ask, and to the calls that ask them.

A name is a provider's model (asked alone), or a route. A route's plan holds the candidates in the order of its strategy;
where the route allows no other model, only deployments of the model that comes first.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from headrace import engine
from headrace.config import (
    AmbiguousModel,
    Catalogue,
    Config,
    Resolved,
    Retry,
    Route,
    RoutedTo,
    UnknownModel,
)
from headrace.formats.base import Format
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError, InvalidRequest
from headrace.model.request import Request
from headrace.routing.order import by_weight
from headrace.routing.retry import RetryPolicy
from headrace.serve.driver import Call
from headrace.serve.endpoint import Endpoint
from headrace.upstream import TraceContext

_SHORTEST, _LONGEST = 0.25, 3600
"""Bounds of an interval of interim usage events, in seconds; the first is that of the clock of all deadlines."""


class Planned:
    """One request, planned: `plan` for the engine, `call` for the driver."""

    __slots__ = ("_choices", "_forwarded", "_request", "_trace", "plan", "route", "usage_interval")

    def __init__(
        self,
        plan: engine.Plan,
        choices: Sequence[tuple[Endpoint, Mapping[str, Any]]],
        request: Request,
        trace: TraceContext,
        forwarded: Mapping[str, str],
        *,
        route: str | None,
        usage_interval: float | None,
    ) -> None:
        self.plan = plan
        self.route = route
        """The route's name, where the request named one."""
        self.usage_interval = _asked_interval(request) or usage_interval
        self._choices = choices
        self._request = request
        self._trace = trace
        self._forwarded = forwarded

    def call(self, candidate: int) -> Call:
        """The call to a candidate of the plan. Raises GatewayError where it cannot be asked."""
        endpoint, parameters = self._choices[candidate]
        model = self.plan.candidates[candidate].model
        return endpoint.call(self._request, model, parameters, trace=self._trace, forwarded=self._forwarded)

    def names(self, asked: str) -> list[str]:
        """What the request's model goes by: as it was asked for, and as the provider's own where it is no route."""
        first = self.plan.candidates[0]
        return [asked or self.route or "", *([] if self.route else [f"{first.provider}/{first.model}", first.model])]


class Planner:
    """Plans requests by a configuration. `rng` decides what is left to chance: draws and jitter."""

    def __init__(
        self,
        config: Config,
        catalogue: Catalogue,
        endpoints: Mapping[str, Endpoint],
        *,
        rng: random.Random | None = None,
    ) -> None:
        self._config = config
        self._catalogue = catalogue
        self._endpoints = endpoints
        self._rng = rng or random.Random()  # noqa: S311  # spreads load; nothing secret depends on it
        self._retry = _policy(config.retry)

    def plan(self, request: Request, answer: Format, *, trace: TraceContext, forwarded: Mapping[str, str]) -> Planned:
        """Raises GatewayError: 404 for an unknown name, 400 for an ambiguous or a missing one."""
        found = self._resolve(request.model)
        if isinstance(found, Resolved):
            endpoint = self._endpoints[found.provider_name]
            plan = engine.Plan(
                (endpoint.upstream(found.model, request, answer),),
                retry=self._retry,
                deadline=self._config.timeouts.deadline,
                rng=self._rng,
            )
            return Planned(plan, [(endpoint, {})], request, trace, forwarded, route=None, usage_interval=None)
        route = found.route
        candidates = [route.candidates[position] for position in self._order(route)]
        if not route.cross_model:
            candidates = [candidate for candidate in candidates if candidate.identity == candidates[0].identity]
        choices = [(self._endpoints[candidate.provider], candidate.parameters) for candidate in candidates]
        plan = engine.Plan(
            [
                endpoint.upstream(candidate.model, request, answer)
                for candidate, (endpoint, _) in zip(candidates, choices, strict=True)
            ],
            strategy=route.strategy,
            retry=self._retry if route.retry is None else _policy(route.retry),
            max_failovers=route.max_failovers,
            hedge_after=route.hedge_after,
            deadline=route.deadline or self._config.timeouts.deadline,
            rng=self._rng,
        )
        return Planned(plan, choices, request, trace, forwarded, route=found.name, usage_interval=route.usage_interval)

    def _order(self, route: Route) -> list[int]:
        if route.strategy == "weighted":
            return by_weight([candidate.weight for candidate in route.candidates], self._rng)
        return list(range(len(route.candidates)))

    def _resolve(self, name: str) -> Resolved | RoutedTo:
        if not name:
            if self._config.default_route is None:
                raise InvalidRequest("model is missing, and no default_route is configured", param="model")
            name = self._config.default_route
        try:
            return self._catalogue.resolve(name)
        except UnknownModel as error:
            message = f"{error}. GET /v1/models lists the models, provider/model names any model of a provider"
            raise GatewayError(
                ErrorInfo(code=ErrorCode.MODEL_NOT_FOUND, message=message, type="model_not_found", param="model")
            ) from None
        except AmbiguousModel as error:
            raise InvalidRequest(str(error), param="model") from None


def _asked_interval(request: Request) -> float | None:
    """How often the request itself wants interim usage (`extensions["vendor:headrace"].usage_interval`, seconds).

    Raises InvalidRequest where that is no sensible number.
    """
    own = request.extensions.get("headrace")
    asked = own.get("usage_interval") if isinstance(own, dict) else None
    if asked is None:
        return None
    if isinstance(asked, bool) or not isinstance(asked, int | float) or not _SHORTEST <= asked <= _LONGEST:
        where = "extensions.vendor:headrace.usage_interval"
        raise InvalidRequest(f"{where}: Expected a number of seconds from {_SHORTEST} to {_LONGEST}", param=where)
    return float(asked)


def _policy(retry: Retry) -> RetryPolicy:
    return RetryPolicy(attempts=retry.attempts, base=retry.backoff, cap=retry.backoff_max)
