"""The life of one request without I/O: hold-back, deadlines, backpressure, errors, cancellation, one terminal event.

A driver makes a `Stream`, feeds it what happens, carries out the commands that come back and writes the bytes.
"""

from headrace.engine.codecs import JSON
from headrace.engine.commands import Abort, Command, Connect, Finish, Outcome, Pause, Resume, SendHead, Settle
from headrace.engine.settings import Caller, Limits, Timeouts, Upstream
from headrace.engine.stream import Stream

__all__ = [
    "JSON",
    "Abort",
    "Caller",
    "Command",
    "Connect",
    "Finish",
    "Limits",
    "Outcome",
    "Pause",
    "Resume",
    "SendHead",
    "Settle",
    "Stream",
    "Timeouts",
    "Upstream",
]
