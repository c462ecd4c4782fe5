"""The log record of a request: one line when it has settled, whatever its end. Never prompts, answers or secrets."""

from __future__ import annotations

import json
import logging
from typing import Any

from headrace import engine
from headrace.upstream import TraceContext

logger = logging.getLogger("headrace.requests")


MAX_WORD = 200
"""Characters of a value in the log line; callers choose some of them (the model's name)."""


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
    line = " ".join(f"{name}={_word(value)}" for name, value in shown.items())
    logger.info("%s", line, extra={"headrace": shown})
    if outcome.exception is not None:
        logger.error("request_id=%s a codec failed: %s", request_id, type(outcome.exception).__name__)


def _word(value: object) -> str:
    """A value as one word: what a caller wrote can neither break the line nor pass for another field."""
    text = str(value)
    if len(text) > MAX_WORD:
        text = text[:MAX_WORD] + "..."
    plain = text.isprintable() and not any(character in text for character in ' "=')
    return text if plain else json.dumps(text)
