"""Usage records to test with."""

from __future__ import annotations

from typing import Any

from headrace.metering import RecordedUsage, UsageRecord


def record(record_id: str, **more: Any) -> UsageRecord:
    usage = RecordedUsage(prompt_tokens=100, completion_tokens=20, total_tokens=120, cost_usd=0.5)
    fields: dict[str, Any] = {
        "record_id": record_id,
        "request_id": f"req-{record_id}",
        "timestamp": "2026-03-04T05:06:07Z",
        "model": "fast",
        "provider": "openai",
        "provider_model": "gpt-5",
        "usage": usage,
        **more,
    }
    return UsageRecord(**fields)
