"""A chain of joins over lists of values: one join after the other, payload and all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.oracle.joins import join
from tests.oracle.ranges import compares

Table = Sequence[Sequence[Any]]
"""Columns, each a list of values."""

Row = tuple[int | None, ...]
"""A row so far: per source (the probe side, then each build side) the position in it, or None."""


@dataclass(frozen=True)
class Reference:
    """Column `column` of source `source`, and where that is null the column `otherwise`."""

    source: int
    column: int
    otherwise: Reference | None = None

    def value(self, tables: Sequence[Table], row: Row) -> Any:
        """What the column holds in this row."""
        position = row[self.source]
        value = None if position is None else tables[self.source][self.column][position]
        return self.otherwise.value(tables, row) if value is None and self.otherwise else value


@dataclass(frozen=True)
class Step:
    """One join: its kind, pairs of (column so far, column of the build side), and which pairs are null-safe.

    Of the build rows with equal keys, those match for which all `ranges` hold: `column so far, operator, build column`.
    """

    how: str
    keys: Sequence[tuple[Reference, int]]
    null_safe: Sequence[bool]
    ranges: Sequence[tuple[Reference, str, int]] = ()

    def among(self, tables: Sequence[Table], row: Row, build: Table, found: list[int]) -> list[int]:
        """The positions in `found` that a row so far matches."""
        return [
            position
            for position in found
            if all(compares(op, ref.value(tables, row), build[column][position]) for ref, op, column in self.ranges)
        ]


def run(tables: Sequence[Table], lengths: Sequence[int], steps: Sequence[Step]) -> list[list[Row]]:
    """The rows that enter the first join, and those that leave each join. `lengths` are the tables' rows."""
    rows: list[Row] = [(position,) for position in range(lengths[0])]
    stages = [rows]
    for number, step in enumerate(steps, 1):
        left = [tuple(reference.value(tables, row) for reference, _ in step.keys) for row in rows]
        right = [
            tuple(tables[number][column][position] for _, column in step.keys) for position in range(lengths[number])
        ]
        nothing: Row = (None,) * number
        among = partial(_among, tables, rows, step, tables[number])
        pairs = join(left, right, step.how, step.null_safe, among)
        rows = [((nothing if a is None else rows[a]) + (b,)) for a, b in pairs]
        stages.append(rows)
    return stages


def _among(
    tables: Sequence[Table], rows: Sequence[Row], step: Step, build: Table, position: int, found: list[int]
) -> list[int]:
    return step.among(tables, rows[position], build, found)
