"""The columns of formats that keep what the matrix must know of them in one module each. A new one is a line below."""

from __future__ import annotations

from .base import Column
from .bedrock import BEDROCK

_COLUMNS: tuple[Column, ...] = (BEDROCK,)

COLUMNS: dict[str, Column] = {column.name: column for column in _COLUMNS}
