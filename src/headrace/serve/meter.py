"""One request's meter: the engine asks it for estimates, prices and budgets; it knows the request and who is asked.

Estimates are made only when somebody needs them: most providers count for themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.engine import Upstream
from headrace.metering import Prices
from headrace.metering.tokens import count, count_request
from headrace.model.errors import ErrorCode, ErrorInfo, GatewayError
from headrace.model.request import Budget, Request
from headrace.model.usage import Usage
from headrace.serve.endpoint import Endpoint


class RequestMeter:
    """An `engine.Meter`. `budget`: what the request (and its key) may still use."""

    __slots__ = ("_endpoints", "_prices", "_prompt", "_request", "budget", "limited", "price_source")

    def __init__(
        self, request: Request, prices: Prices, endpoints: Mapping[str, Endpoint], budget: Budget | None = None
    ) -> None:
        self._request = request
        self._prices = prices
        self._endpoints = endpoints
        self._prompt: int | None = None
        self.budget = budget
        self.limited = budget is not None
        self.price_source: str | None = None
        """Whose prices were used last."""

    def prompt_tokens(self, upstream: Upstream) -> int:
        """By the first candidate that is asked about: others would differ by little, and cost as much again."""
        if self._prompt is None:
            self._prompt = count_request(self._request, upstream.model)
        return self._prompt

    def output_tokens(self, upstream: Upstream, texts: Sequence[str]) -> int:
        return count("".join(texts), upstream.model)

    def cost(self, upstream: Upstream, usage: Usage) -> float | None:
        endpoint = self._endpoints[upstream.provider]
        provider = endpoint.provider
        found = self._prices.cost(
            usage,
            provider=upstream.provider,
            vendor=provider.vendor,
            model=upstream.model,
            base_url=provider.base_url,
        )
        if found is not None:
            self.price_source = found.source
            return found.usd
        if usage.cost_usd is not None:
            self.price_source = f"provider {upstream.provider}"
        return None

    def limit_cost(self, left: float | None) -> None:
        """Hold the answer against what is left of its key's budget, too."""
        if left is None:
            return
        own = self.budget
        most = left if own is None or own.max_cost_usd is None else min(left, own.max_cost_usd)
        self.budget = Budget(max_cost_usd=most, max_tokens=None if own is None else own.max_tokens)
        self.limited = True

    def worst_case(self, upstream: Upstream) -> tuple[int, float | None]:
        """Tokens and USD that the request can come to with this candidate, as far as it says so itself: without
        `max_tokens` only the prompt is sure."""
        prompt = self.prompt_tokens(upstream)
        output = (self._request.max_tokens or 0) * max(1, self._request.n)
        provider = self._endpoints[upstream.provider].provider
        cost = self._prices.worst_case(
            input_tokens=prompt,
            output_tokens=output,
            provider=upstream.provider,
            vendor=provider.vendor,
            model=upstream.model,
            base_url=provider.base_url,
        )
        return prompt + output, None if cost is None else cost.usd

    def check(self, upstream: Upstream) -> None:
        """Raise the error of a budget that the worst case does not fit in; nothing where there is none.

        An answer without `max_tokens` is held against what is left while it streams, not against a guess.
        """
        budget = self.budget
        if budget is None:
            return
        tokens, cost = self.worst_case(upstream)
        error = over(budget, tokens, cost, "The request may use")
        if error is not None:
            raise error

    def exceeded(self, upstream: Upstream, output_tokens: int) -> ErrorInfo | None:
        budget = self.budget
        if budget is None:
            return None
        prompt = self.prompt_tokens(upstream)
        used = Usage(input_tokens=prompt, output_tokens=output_tokens)
        error = over(budget, prompt + output_tokens, self.cost(upstream, used), "The answer has used")
        return None if error is None else error.info


class BudgetExceeded(GatewayError):
    """A budget does not allow the request, or what it has come to."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorInfo(code=ErrorCode.BUDGET_EXCEEDED, message=message, type="budget_exceeded"))


def over(budget: Budget, tokens: int, cost: float | None, what: str) -> BudgetExceeded | None:
    """The error of tokens or USD beyond a budget. An unknown cost cannot be held against a limit of costs."""
    if budget.max_tokens is not None and tokens > budget.max_tokens:
        return BudgetExceeded(f"{what} {tokens} tokens, and the budget is {budget.max_tokens}")
    if budget.max_cost_usd is not None and cost is not None and cost > budget.max_cost_usd:
        return BudgetExceeded(f"{what} {cost:.6f} USD, and the budget is {budget.max_cost_usd:.6f}")
    return None
