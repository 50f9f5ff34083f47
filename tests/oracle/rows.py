"""Gathers and compares rows as Python lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def take(values: Sequence[Any], rows: Iterable[int]) -> list[Any]:
    """Return `values` at `rows`; a row of -1 is missing and gives None."""
    return [None if row < 0 else values[row] for row in rows]


def canonical(value: Any) -> Any:
    """Return a stand-in that distinguishes values like users do: types and signs count, all NaNs are equal."""
    if isinstance(value, float):
        return "NaN" if value != value else repr(value)
    if isinstance(value, dict):
        return {name: canonical(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [canonical(item) for item in value]
    return value


def canonical_rows(rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return rows in comparable and printable form, in their order."""
    return [repr(canonical(list(row))) for row in rows]
