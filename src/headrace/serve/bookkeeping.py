"""From the configuration to the places where usage records go."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from headrace.config import Config
from headrace.metering import FileSink, LedgerSink, Recorder, RedisSink, Sink, Total, open_ledger


def usage_folder(config: Config, env: Mapping[str, str] | None = None) -> Path:
    """Where this machine's records wait, and by default the ledger is."""
    if config.usage.folder is not None:
        return Path(config.usage.folder)
    env = os.environ if env is None else env
    base = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local", "state")
    return Path(base) / "headrace"


def ledger_url(config: Config, env: Mapping[str, str] | None = None) -> str:
    return config.usage.ledger or f"sqlite:///{usage_folder(config, env) / 'usage.db'}"


def spent(config: Config, env: Mapping[str, str] | None = None) -> tuple[dict[str, float], dict[str, float]]:
    """What each key (by id) has cost in the present day and month (UTC), by the ledger. Raises OSError."""
    now = datetime.now(UTC)
    day, month = now.strftime("%Y-%m-%d"), now.strftime("%Y-%m-01")
    ledger = open_ledger(ledger_url(config, env))
    try:
        today, lately = (ledger.totals("key", since=since) for since in (day, month))
    finally:
        ledger.close()
    return _costs(today), _costs(lately)


def _costs(totals: list[Total]) -> dict[str, float]:
    return {total.group: (total.cost_usd or 0.0) + (total.other_cost_usd or 0.0) for total in totals if total.group}


def open_recorder(config: Config, env: Mapping[str, str] | None = None) -> Recorder | None:
    """Raises OSError where the folder or the ledger cannot be used, ImportError where a client library is missing."""
    usage = config.usage
    if not usage.enabled:
        return None
    folder = usage_folder(config, env)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    sinks: list[Sink] = [LedgerSink(ledger_url(config, env))]
    if usage.file is not None:
        sinks.append(FileSink(Path(usage.file)))
    if usage.redis_stream is not None and config.redis is not None:
        sinks.append(RedisSink(config.redis.url, usage.redis_stream))
    return Recorder(folder / "journal", sinks)
