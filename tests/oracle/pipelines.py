"""A chain of joins over lists of values, including payload: one join after the other."""

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
"""An intermediate row: its position in each source (the probe side, then each build side), or None."""


@dataclass(frozen=True)
class Reference:
    """Column `column` of source `source`, and column `otherwise` if that is null."""

    source: int
    column: int
    otherwise: Reference | None = None

    def value(self, tables: Sequence[Table], row: Row) -> Any:
        """Return the column's value in this row."""
        position = row[self.source]
        value = None if position is None else tables[self.source][self.column][position]
        return self.otherwise.value(tables, row) if value is None and self.otherwise else value


@dataclass(frozen=True)
class Step:
    """One join: its type, pairs of (earlier column, column of the build side), and which pairs are null-safe.

    Among the build rows with equal keys, a row matches if all `ranges` hold: `earlier column, operator, build column`.
    """

    how: str
    keys: Sequence[tuple[Reference, int]]
    null_safe: Sequence[bool]
    ranges: Sequence[tuple[Reference, str, int]] = ()

    def among(self, tables: Sequence[Table], row: Row, build: Table, found: list[int]) -> list[int]:
        """Return the positions in `found` that an intermediate row matches."""
        return [
            position
            for position in found
            if all(compares(op, ref.value(tables, row), build[column][position]) for ref, op, column in self.ranges)
        ]


def run(tables: Sequence[Table], lengths: Sequence[int], steps: Sequence[Step]) -> list[list[Row]]:
    """Return the input rows of the first join, and the output rows of each join.

    `lengths` are the tables' numbers of rows.
    """
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
