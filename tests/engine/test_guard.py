"""Range joins whose conditions may fail: by the index if nothing fails, otherwise pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.config import read_settings
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.operators.join_matches import JoinMatches
from sparkext.engine.pipeline import Resources
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.engine.sources.scanned_splits import ScannedSplits, find_probe_bounds
from sparkext.errors import ConditionError
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.indexes.nested_loop import NestedLoop
from sparkext.kernels.indexes.range_index import Candidates
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.adaptive.output_size import BudgetLimits, OutputSizeController
from sparkext.plans.expressions import expression
from sparkext.plans.expressions.expression import Expression, among, condition, literal
from sparkext.plans.expressions.key_types import KeyType
from sparkext.plans.pipeline.scan import ScanColumn, ScanSpec, Split
from sparkext.plans.pipeline.spec import BUILD_PRESERVING, ColumnRef, JoinSpec, KeyPair, PipelineSpec, RangePair
from sparkext.predicates.theta_condition import CompiledCondition
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet
from tests.support.kernel_inputs import FULL_MASK

MOST = 2**31 - 1
Spans = list[tuple[int | None, int]]
SPANS: Spans = [(0, 9), (5, 30), (MOST, MOST), (None, 4)]
FAR: Spans = [(MOST, MOST), (MOST - 1, 4)]


INT = KeyType("int32")


def column(source: int, number: int) -> Expression:
    return expression.column(source, number, INT)


def added(one: Expression, other: Expression) -> Expression:
    return Expression("+", INT, (one, other), checked=True)


SUM = added(column(0, 0), literal("10", INT))
GUARD = condition("and", condition(">=", column(0, 0), column(1, 0)), condition("<=", SUM, column(1, 1)))
"""x >= low AND x + 10 <= high"""
RANGES = (
    RangePair(ColumnRef(0, 0), ">=", 0, "int32"),
    RangePair(ColumnRef(0, 1), "<=", 1, "int32"),
)


def spec_of(how: str) -> PipelineSpec:
    gives_build = how not in ("semi", "anti")
    outputs = (ColumnRef(0, 0), *([ColumnRef(1, 0)] if gives_build else []))
    owner_columns = int(how in BUILD_PRESERVING)
    return PipelineSpec(2, (JoinSpec(how, (), "auto", "", ranges=RANGES, guard=GUARD),), outputs, owner_columns)


def build_of(spec: PipelineSpec, spans: Spans) -> BuildSide:
    columns = [pa.array(ends, pa.int32()) for ends in zip(*spans, strict=True)]
    return index_in_memory(len(spans), columns, derive_index_recipe(spec, 0, FULL_MASK))


def probe_of(values: Sequence[int | None]) -> list[pa.Array]:
    """Return the values, and the values plus ten, which wrap around."""
    wrapped = [None if x is None else int(np.int64(x + 10).astype(np.int32)) for x in values]
    return [pa.array(values, pa.int32()), pa.array(wrapped, pa.int32())]


def expected(values: Sequence[int | None], how: str, spans: Spans) -> list[tuple[int | None, ...]]:
    known = [(x, low, high) for x in values for low, high in spans if x is not None and low is not None]
    pairs = [(x, low) for x, low, high in known if x >= low and x + 10 <= high]
    matched = {x for x, _ in pairs}
    rest = [x for x in values if x not in matched]
    unmatched = [
        (None, low)
        for low, high in spans
        if not any(low is not None and x >= low and x + 10 <= high for x, *_ in known)
    ]
    return {
        "inner": pairs,
        "right": [*pairs, *unmatched],
        "full": [*pairs, *((x, None) for x in rest), *unmatched],
        "left": [*pairs, *((x, None) for x in rest)],
        "semi": [(x,) for x in values if x in matched],
        "anti": [(x,) for x in rest],
    }[how]


def run(how: str, values: Sequence[int | None], spans: Spans) -> list[tuple[int | None, ...]]:
    spec = spec_of(how)
    schema = pa.schema([(f"c{number}", pa.int32()) for number in range(len(spec.outputs))])
    settings = read_settings(lambda _: None, {})
    pipeline = create_pipeline(spec, [build_of(spec, spans)], schema, settings, Resources(lambda: None))
    arrays, names = probe_of(values), ["x", "more"]
    if how in BUILD_PRESERVING:  # this task owns all rows of the build side
        nulls = [pa.nulls(len(spans), array.type) for array in arrays]
        arrays = [pa.concat_arrays(pair) for pair in zip(arrays, nulls, strict=True)]
        arrays.insert(0, pa.array([None] * len(values) + list(range(len(spans))), pa.int64()))
        names.insert(0, "owner")
    batch = pa.RecordBatch.from_arrays(arrays, names=names)
    found = pipeline.run(RowBatches([batch], spec, settings.morsel_max_rows))
    return [row for out in found for row in zip(*(c.to_pylist() for c in out.columns), strict=True)]


def order(row: tuple[int | None, ...]) -> list[tuple[bool, int]]:
    return [(value is None, value or 0) for value in row]


HOW = ["inner", "left", "semi", "anti", "right", "full"]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize(
    ("values", "spans", "by_index"),
    [
        ([3, 7, None, -5, 20, MOST - 10], SPANS, True),
        ([-3, 7, None, 20, -(2**31)], SPANS, True),
        ([], SPANS, True),
        ([MOST - 5, 3, MOST - 5], FAR, False),
    ],
    ids=["up to the limit", "negative", "no row", "what might fail"],
)
def test_rows(how: str, values: list[int | None], spans: Spans, by_index: bool) -> None:
    spec = spec_of(how)
    rows = RowSet.of_morsel([Column.of(array) for array in probe_of(values)], len(values))
    build = build_of(spec, spans)
    guard = spec.joins[0].guard
    assert guard is not None and CompiledCondition(guard, 1, build).may_fail(rows) is not by_index
    if how in ("inner", "left"):
        budget = OperatorBudget(OutputSizeController([1.0], BudgetLimits(1, 1, 1, 1.0), lambda: None), 0, Lock())
        found = JoinMatches(spec.joins[0], how, build, 1).lookup(rows, budget).pairs
        assert isinstance(found, Candidates if by_index else NestedLoop)
    assert sorted(run(how, values, spans), key=order) == sorted(expected(values, how, spans), key=order)


@pytest.mark.parametrize("how", HOW)
def test_what_fails(how: str) -> None:
    told = r"the condition of join 1 fails on \{\"0.0\": 2147483642, \"1.0\": 0, \"1.1\": 9\}"
    with pytest.raises(ConditionError, match=told):
        run(how, [3, MOST - 5], SPANS)


def test_row_groups_are_read_for_what_may_fail() -> None:
    """The key range of a later join excludes rows, unless an earlier join may fail on them."""
    keyed = JoinSpec("inner", (KeyPair(ColumnRef(0, 0), 0, "int32", False),), "auto", "")
    for first in (spec_of("inner").joins[0], JoinSpec("inner", (), "auto", "", ranges=RANGES)):
        spec = PipelineSpec(2, (first, keyed), ())
        builds = [
            index_in_memory(2, [pa.array([1, 2], pa.int32())] * 2, derive_index_recipe(spec, number, FULL_MASK))
            for number in range(2)
        ]
        assert [bound.keys for bound in find_probe_bounds(spec, builds)] == ([] if first.may_fail else [(1, 2)])


def test_partitions_are_read_for_what_may_fail(tmp_path: Path) -> None:
    """The partition value of a split has no match in a later join, but an earlier join may fail on its rows."""
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table(probe_of([1]), names=["x", "more"]), path)
    columns = (ScanColumn("x"), ScanColumn("more"), ScanColumn("p", 0))
    scan = ParquetScan(ScanSpec(columns, 3, None, False), pa.schema([(one.name, pa.int32()) for one in columns]), 1000)
    keyed = JoinSpec("inner", (KeyPair(ColumnRef(0, 2), 0, "int32", False),), "auto", "")
    for first in (spec_of("inner").joins[0], JoinSpec("inner", (), "auto", "", ranges=RANGES)):
        spec = PipelineSpec(3, (first, keyed), ())
        builds = [
            index_in_memory(2, [pa.array([1, 2], pa.int32())] * 2, derive_index_recipe(spec, number, FULL_MASK))
            for number in range(2)
        ]
        for value, is_read in (("2", True), ("3", first.may_fail)):
            splits = ScannedSplits(scan, [Split(str(path), 0, path.stat().st_size, (value,))], spec, builds)
            assert sum(rows.length for rows in splits.row_sets(TaskMetrics(0))) == is_read


FAILS_LATER = condition("<=", added(column(0, 0), column(1, 0)), column(1, 1))
"""x + low <= high, which fails only for the last of these spans."""
MATCHES_FIRST: Spans = [(8, 0), (1, 9), (MOST, MOST)]
ODD = among(column(0, 0), ("1", "3", "5", "7"))
"""x is one of these numbers: a test in addition to the formula, which Arrow evaluates."""


@pytest.mark.parametrize("how", ["semi", "anti", "existence"])
@pytest.mark.parametrize("form", ["guarded", "guarded, and more", "nested", "nested, and more"])
@pytest.mark.parametrize("rows", [1, 3, 5_000])
def test_nothing_is_tried_behind_the_first_match_of_a_row(how: str, form: str, rows: int) -> None:
    """Whether all conditions are compiled, or Arrow tests one of them: Spark does not evaluate further pairs."""
    beside = ODD if "more" in form else None
    if "guarded" in form:
        ranges = (RangePair(ColumnRef(0, 0), "<=", 1, "int32"),)
        join = JoinSpec(how, (), "auto", "", beside, ranges, theta=FAILS_LATER, guard=FAILS_LATER)
    else:
        join = JoinSpec(how, (), "auto", "", beside, theta=FAILS_LATER)
    outputs = (ColumnRef(0, 0), *([ColumnRef(1, 0)] if how == "existence" else []))
    spec = PipelineSpec(1, (join,), outputs)
    schema = pa.schema([("x", pa.int32()), ("found", pa.bool_())][: len(outputs)])
    settings = read_settings(lambda _: None, {})

    def found(values: Sequence[int]) -> list[tuple[Any, ...]]:
        spans = [MATCHES_FIRST[0]] * 2_500 + MATCHES_FIRST
        pipeline = create_pipeline(spec, [build_of(spec, spans)], schema, settings, Resources(lambda: None))
        batch = pa.record_batch([pa.array(values, pa.int32())], ["x"])
        batches = list(pipeline.run(RowBatches([batch], spec, 10_000)))
        return [row for out in batches for row in zip(*(c.to_pylist() for c in out.columns), strict=True)]

    values = [1, 3, 5][:rows] * max(1, rows // 3)
    every = {"semi": [(x,) for x in values], "anti": [], "existence": [(x, True) for x in values]}
    assert found(values) == every[how]
    # 9 does not satisfy the formula, and 4 does not satisfy the additional test.
    for unmatched in ([9], [*values, 9] if beside is None else [*values, 4]):
        with pytest.raises(ConditionError, match="the condition of join 1 fails"):
            found(unmatched)
