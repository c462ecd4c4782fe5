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
    if lines and logger.isEnabledFor(logging.INFO):
        # Without Logger.info: it would look through the stack for a place in the code that says nothing here.
        text = _line(outcome, request_id, trace.trace_id, path, stream)
        logger.handle(logger.makeRecord(logger.name, logging.INFO, __file__, 0, text, (), None))
    if outcome.exception is not None:
        logger.error("request_id=%s a codec failed: %s", request_id, type(outcome.exception).__name__)


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
