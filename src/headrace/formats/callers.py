"""Formats that there are callers of and no providers: the half of a Format that they do not have.

UI protocols are such. Whoever configures a provider of one is told so when the configuration is read; these functions are
what stands in the places that are never reached then.
"""

from __future__ import annotations

from typing import Any, NoReturn


def no_provider(*_: Any) -> NoReturn:
    """Raises NotImplementedError."""
    raise NotImplementedError("there are no providers of this format, only callers")
