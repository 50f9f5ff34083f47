"""Shrinks a failing case by removing parts one by one, as long as it still fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tests.fuzz.chains.cases import Case, Join
from tests.support.harness.shrinking import omit_parts, shrink

_PATIENCE_SECONDS = 60.0
_PLAIN_SWITCHES: dict[str, Any] = {"cores": 1, "headroom": None, "batch_rows": 100_000, "least_part_rows": 4_096}


def shrunk(case: Case, is_wrong: Callable[[Case], bool]) -> Case:
    """Return the smallest failing case found within a minute, always continuing with the first one that fails."""
    return shrink(case, [_smaller], is_wrong, _PATIENCE_SECONDS)


def _smaller(case: Case) -> Iterator[Case]:
    """Yield cases with one part less, the largest reductions first."""
    yield from _fewer_joins(case)
    yield from _fewer_rows(case)
    yield from _simpler_joins(case)
    yield from _fewer_columns(case)
    for setting in case.settings:
        yield replace(case, settings={name: value for name, value in case.settings.items() if name != setting})
    for switch, plain in _PLAIN_SWITCHES.items():
        if case.switches[switch] != plain:
            yield replace(case, switches={**case.switches, switch: plain})


def _fewer_joins(case: Case) -> Iterator[Case]:
    for joins in range(1, len(case.joins)):
        there = case.columns(joins)
        outputs = [name for name in there if name.endswith(("_id", "_found"))]
        yield replace(case, joins=case.joins[:joins], tables=case.tables[: joins + 1], outputs=outputs)


def _fewer_rows(case: Case) -> Iterator[Case]:
    """Yield cases without halves of a table, quarters, and so on down to single rows."""
    for number, table in enumerate(case.tables):
        for kept in omit_parts(list(range(table.num_rows))):
            tables = list(case.tables)
            tables[number] = table.take(pa.array(kept, pa.int64()))
            yield replace(case, tables=tables)


def _simpler_joins(case: Case) -> Iterator[Case]:
    for number, join in enumerate(case.joins):
        for simpler in _simpler(join):
            joins = list(case.joins)
            joins[number] = simpler
            yield replace(case, joins=joins)


def _simpler(join: Join) -> Iterator[Join]:
    has_more = join.formula is not None or join.as_of is not None
    for part in ("condition", "ranges", "keys"):
        there = getattr(join, part)
        for place in range(len(there)):
            fewer: Any = replace(join, **{part: there[:place] + there[place + 1 :]})
            if fewer.keys or fewer.ranges or has_more:
                yield fewer
    formula = join.formula
    if formula is not None:
        if join.keys:
            yield replace(join, formula=None)
        for argument in formula.args:
            if argument.type == "bool":
                yield replace(join, formula=argument)


def _fewer_columns(case: Case) -> Iterator[Case]:
    for name in case.outputs:
        if not name.endswith("_id"):
            yield replace(case, outputs=[other for other in case.outputs if other != name])
    named = " ".join([*map(_named, case.joins), *case.outputs])
    for number, table in enumerate(case.tables):
        for name in table.column_names:
            if name not in named and not name.endswith("_id"):
                tables = list(case.tables)
                tables[number] = table.drop_columns([name])
                yield replace(case, tables=tables)


def _named(join: Join) -> str:
    near = join.as_of
    return join.sql() if near is None else f"{join.sql()} {near.left.name} {near.right.name}"
