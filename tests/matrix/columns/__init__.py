"""The columns of formats that keep what the matrix must know of them in one module each. A new one is a line below."""

from __future__ import annotations

from .base import Column

_COLUMNS: tuple[Column, ...] = ()

COLUMNS: dict[str, Column] = {column.name: column for column in _COLUMNS}
