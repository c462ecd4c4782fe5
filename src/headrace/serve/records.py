"""The log record of a request: one line when it has settled, whatever its end. Never prompts, answers or secrets."""

from __future__ import annotations

import logging
from typing import Any

from headrace import engine
from headrace.upstream import TraceContext

logger = logging.getLogger("headrace.requests")


def record(outcome: engine.Outcome, *, request_id: str, trace: TraceContext, path: str, stream: bool) -> None:
    """Log one settled request at INFO, a fault of ours at ERROR. Fields also travel as the record's `headrace` dict."""
    usage = outcome.usage
    fields: dict[str, Any] = {
        "request_id": request_id,
        "trace_id": trace.trace_id,
        "path": path,
        "stream": stream,
        "outcome": outcome.kind,
        "status": outcome.status,
        "provider": outcome.provider,
        "model": outcome.model,
        "error": outcome.error.code.value if outcome.error else None,
        "error_type": outcome.error.type if outcome.error else None,
        "ttft_ms": None if outcome.ttft is None else round(outcome.ttft * 1000, 1),
        "duration_ms": round(outcome.duration * 1000, 1),
        "events": outcome.events,
        "bytes_out": outcome.bytes_out,
        "input_tokens": usage.input_tokens if usage else None,
        "output_tokens": usage.output_tokens if usage else None,
        "skipped_frames": outcome.skipped_frames or None,
        "lost": ",".join(sorted(outcome.lost)) or None,
    }
    shown = {name: value for name, value in fields.items() if value is not None}
    logger.info("%s", " ".join(f"{name}={value}" for name, value in shown.items()), extra={"headrace": shown})
    if outcome.exception is not None:
        logger.error("request_id=%s a codec failed: %s", request_id, type(outcome.exception).__name__)
