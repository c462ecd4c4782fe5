"""The command line: `headrace serve | chat | translate | replay | config`.

Exit codes, for scripts (`codes.py`): 0 done, 1 the answer failed or was cut, 2 the command is wrong, 3 the endpoint
cannot be reached, 4 the configuration is wrong.
"""

from __future__ import annotations

from headrace.cli.main import main

__all__ = ["main"]
