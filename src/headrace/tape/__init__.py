"""The tape: recorded and scripted streams, and a provider made of them.

`ReplayServer` is a real HTTP server that answers as a provider of any served format, from the streams of a `Library`,
in their own rhythm, with faults on request. It is the embedded provider of the default configuration, the program
behind `headrace replay`, and the other end of most tests.
"""

from __future__ import annotations

from headrace.tape.faults import FAULTS, Fault, FaultError, Faults, fault_table
from headrace.tape.library import Library, LibraryError, Skipped
from headrace.tape.record import Recorder, read_recording
from headrace.tape.recording import Piece, Recording, RecordingError
from headrace.tape.script import Script, ScriptError
from headrace.tape.server import ReplayServer, SeenRequest

__all__ = [
    "FAULTS",
    "Fault",
    "FaultError",
    "Faults",
    "Library",
    "LibraryError",
    "Piece",
    "Recorder",
    "Recording",
    "RecordingError",
    "ReplayServer",
    "Script",
    "ScriptError",
    "SeenRequest",
    "Skipped",
    "fault_table",
    "read_recording",
]
