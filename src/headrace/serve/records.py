"""The log record of a request: one line when it has settled, whatever its end. Never prompts, answers or secrets."""

from __future__ import annotations

import json
import logging
import re

from headrace import engine
from headrace.upstream import TraceContext

logger = logging.getLogger("headrace.requests")


_PLAIN = re.compile(r"[!#-<>-~]+").fullmatch  # printable ASCII without blank, quote and equals sign

MAX_WORD = 200
"""Characters of a value in the log line; callers choose some of them (the model's name)."""


def record(
    outcome: engine.Outcome, *, request_id: str, trace: TraceContext, path: str, stream: bool, lines: bool = True
) -> None:
    """Log one settled request at INFO (where `lines` are wanted: server.access_log), a fault of ours at ERROR."""
    if lines:
        usage, error, ttft = outcome.usage, outcome.error, outcome.ttft
        fields = {
            "request_id": request_id,
            "trace_id": trace.trace_id,
            "path": path,
            "stream": stream,
            "outcome": outcome.kind,
            "status": outcome.status,
            "provider": outcome.provider,
            "model": outcome.model,
            "error": error.code.value if error else None,
            "error_type": error.type if error else None,
            "ttft_ms": None if ttft is None else round(ttft * 1000, 1),
            "duration_ms": round(outcome.duration * 1000, 1),
            "events": outcome.events,
            "bytes_out": outcome.bytes_out,
            "input_tokens": usage.input_tokens if usage else None,
            "output_tokens": usage.output_tokens if usage else None,
            "skipped_frames": outcome.skipped_frames or None,
            "lost": ",".join(sorted(outcome.lost)) or None,
        }
        logger.info("%s", " ".join([f"{name}={_word(value)}" for name, value in fields.items() if value is not None]))
    if outcome.exception is not None:
        logger.error("request_id=%s a codec failed: %s", request_id, type(outcome.exception).__name__)


def _word(value: object) -> str:
    """A value as one word: what a caller wrote can neither break the line nor pass for another field."""
    text = str(value)
    if len(text) > MAX_WORD:
        text = text[:MAX_WORD] + "..."
    return text if _PLAIN(text) else json.dumps(text)
