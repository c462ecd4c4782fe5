"""The life of one request without I/O: hold-back, deadlines, backpressure, errors, cancellation, one terminal event.

A driver makes a `Stream`, feeds it what happens, carries out the commands that come back and writes the bytes.
"""

from headrace.engine.codecs import JSON
from headrace.engine.commands import (
    Abort,
    Command,
    Connect,
    Cut,
    Finish,
    Outcome,
    Pause,
    Quality,
    Resume,
    SendHead,
    Settle,
    Tried,
    routing_block,
)
from headrace.engine.meter import Meter
from headrace.engine.plan import Circuit, Plan
from headrace.engine.settings import Caller, Limits, Timeouts, Upstream
from headrace.engine.stream import Stream

__all__ = [
    "JSON",
    "Abort",
    "Caller",
    "Circuit",
    "Command",
    "Connect",
    "Cut",
    "Finish",
    "Limits",
    "Meter",
    "Outcome",
    "Pause",
    "Plan",
    "Quality",
    "Resume",
    "SendHead",
    "Settle",
    "Stream",
    "Timeouts",
    "Tried",
    "Upstream",
    "routing_block",
]
