"""What is kept of a request when it has settled, whatever its end: a log line, and a usage record for the ledger.

Never prompts, answers or secrets.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from headrace import engine
from headrace.access.keys import Key
from headrace.metering import AttemptRecord, RecordedUsage, UsageRecord
from headrace.model.request import Request
from headrace.model.usage import Usage
from headrace.upstream import TraceContext

logger = logging.getLogger("headrace.requests")


_PLAIN = re.compile(r"[!#-<>-~]+").fullmatch  # printable ASCII without blank, quote and equals sign

MAX_WORD = 200
"""Characters of a value in the log line; callers choose some of them (the model's name)."""


def log(
    outcome: engine.Outcome, *, request_id: str, trace: TraceContext, path: str, stream: bool, lines: bool = True
) -> None:
    """Log one settled request at INFO (where `lines` are wanted: server.access_log), a fault of ours at ERROR."""
    if lines and logger.isEnabledFor(logging.INFO):
        # Without Logger.info: it would look through the stack for a place in the code that says nothing here.
        text = _line(outcome, request_id, trace.trace_id, path, stream)
        logger.handle(logger.makeRecord(logger.name, logging.INFO, __file__, 0, text, (), None))
    if outcome.exception is not None:
        logger.error("request_id=%s a codec failed: %s", request_id, type(outcome.exception).__name__)


MAX_ATTRIBUTES = 32
_RESERVED = frozenset({"request_id", "trace_id", "idempotency_key", "key", "key_name"})
"""Keys of a request's metadata that mean something, or that only a caller's key can say; the others say whom the request
is for."""


def usage_record(
    outcome: engine.Outcome,
    request: Request,
    *,
    request_id: str,
    trace: TraceContext,
    route: str | None,
    format: str,
    price_source: str | None,
    key: Mapping[str, str],
) -> UsageRecord:
    """The record of a settled request. `key`: who asked, where callers authenticate."""
    now = datetime.now(UTC)
    ttft = outcome.ttft
    return UsageRecord(
        record_id=os.urandom(16).hex(),
        request_id=request_id,
        timestamp=now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z",
        attribution={**_attribution(request), **key},
        model=request.model[:MAX_WORD],
        route=route,
        provider=outcome.provider,
        provider_model=outcome.model[:MAX_WORD],
        format=format,
        stream=request.stream,
        outcome=outcome.kind,
        error=outcome.error.code.value if outcome.error else None,
        status=outcome.status,
        usage=_counts(outcome.usage, outcome.quality),
        price_source=price_source,
        attempts=[
            AttemptRecord(
                provider=tried.provider,
                model=tried.model[:MAX_WORD],
                code=tried.code,
                ms=round(tried.ms, 1),
                usage=_counts(tried.usage, tried.quality) if tried.code is not None else None,
            )
            for tried in outcome.attempts
        ],
        failovers=outcome.failovers,
        ttft_ms=None if ttft is None else round(ttft * 1000, 1),
        duration_ms=round(outcome.duration * 1000, 1),
        trace_id=trace.trace_id,
    )


def owner(key: Key | None) -> dict[str, str]:
    """Whose request it was, as a record says it."""
    return {} if key is None else {**key.metadata, "key": key.id, "key_name": key.name}


def used_tokens(outcome: engine.Outcome) -> int:
    """Tokens of all attempts."""
    return sum([tried.usage.total_tokens or 0 for tried in outcome.attempts if tried.usage is not None])


def used_cost(outcome: engine.Outcome) -> float | None:
    """USD of all attempts; None where one of them has no price."""
    costs = [tried.usage.cost_usd for tried in outcome.attempts if tried.usage is not None]
    return None if None in costs else sum([cost for cost in costs if cost is not None])


def _counts(usage: Usage | None, quality: engine.Quality | None) -> RecordedUsage | None:
    if usage is None:
        return None
    return RecordedUsage(
        prompt_tokens=usage.input_tokens or 0,
        completion_tokens=usage.output_tokens or 0,
        total_tokens=usage.total_tokens or 0,
        cached_tokens=usage.cached_tokens or 0,
        cache_write_tokens=usage.cache_write_tokens or 0,
        reasoning_tokens=usage.reasoning_tokens or 0,
        cost_usd=usage.cost_usd,
        quality=quality or "estimated",
    )


def _attribution(request: Request) -> dict[str, str]:
    """The request's metadata as names and short texts; the user it names itself."""
    found = {"user": request.user[:MAX_WORD]} if request.user else {}
    for name, value in request.metadata.items():
        if name not in _RESERVED and isinstance(value, str | int | float) and len(found) < MAX_ATTRIBUTES:
            found[name[:MAX_WORD]] = str(value)[:MAX_WORD]
    return found


def _line(outcome: engine.Outcome, request_id: str, trace_id: str, path: str, stream: bool) -> str:
    """The fields that have a value, as `name=value` words."""
    usage, error, ttft = outcome.usage, outcome.error, outcome.ttft
    line = (
        f"request_id={_word(request_id)} trace_id={trace_id} path={path} stream={stream} outcome={outcome.kind}"
        f" provider={_word(outcome.provider)} model={_word(outcome.model)}"
        f" duration_ms={outcome.duration * 1000:.1f} events={outcome.events} bytes_out={outcome.bytes_out}"
    )
    if outcome.status is not None:
        line += f" status={outcome.status}"
    if error is not None:
        line += f" error={error.code.value} error_type={_word(error.type)}"
    if ttft is not None:
        line += f" ttft_ms={ttft * 1000:.1f}"
    if usage is not None:
        line += f" input_tokens={usage.input_tokens} output_tokens={usage.output_tokens}"
        if usage.cost_usd is not None:
            line += f" cost_usd={usage.cost_usd:.6f}"
    if outcome.failovers or len(outcome.attempts) > 1:
        line += f" attempts={len(outcome.attempts)} failovers={outcome.failovers}"
    if outcome.skipped_frames:
        line += f" skipped_frames={outcome.skipped_frames}"
    if outcome.lost:
        line += f" lost={_word(','.join(sorted(outcome.lost)))}"
    return line


def _word(value: object) -> str:
    """A value as one word: what a caller wrote can neither break the line nor pass for another field."""
    text = str(value)
    if len(text) > MAX_WORD:
        text = text[:MAX_WORD] + "..."
    return text if _PLAIN(text) else json.dumps(text)
