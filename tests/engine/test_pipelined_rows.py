"""Build sides that pipelines derive from files: their rows, compared with loops over lists; names; errors."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.config import read_settings
from sparkext.engine.derived_rows import DerivedRows
from sparkext.engine.scanned_files import ScannedFiles
from sparkext.engine.sinks import groups
from sparkext.errors import BuildSideTooLargeError, ConditionError
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.expressions.expression import Expression, column, condition, literal
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.aggregates import AggregateCall, Aggregation
from sparkext.plans.pipeline.projection import Projection, parse_projection
from sparkext.plans.pipeline.scan import DataFile, ScanColumn, ScanSpec, plan_splits
from sparkext.plans.pipeline.spec import ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.rows.collected import CollectedRows

INT = parse_key_type("int64")
BOOL = parse_key_type("bool")
SETTINGS = read_settings({}.get, {})
FACTS = ("k", "v")
OUTPUTS = tuple(ColumnRef(*place) for place in ((0, 0), (0, 1), (1, 1)))
JOINED = PipelineSpec(2, (JoinSpec("inner", (KeyPair(ColumnRef(0, 0), 0, "int64", False),), "auto", "dims"),), OUTPUTS)
KEPT = tuple(Expression("column", None, column=number) for number in range(3))
Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))


def facts(rows: int, distinct: int, nulls: float) -> pa.Table:
    rng = np.random.default_rng(rows)
    keys = pa.array(rng.integers(0, distinct, rows), pa.int64(), mask=rng.random(rows) < nulls)
    return pa.table({"k": keys, "v": pa.array(np.arange(rows), pa.int64())})


DIMS = pa.table({"k": [0, 1, 1, 3, None], "w": [10, 11, 12, 13, 14]})


def scan_of(table: pa.Table, path: Path) -> tuple[ParquetScan, DataFile]:
    if not path.exists():
        pq.write_table(table, path, row_group_size=max(1, table.num_rows // 7))
    spec = ScanSpec(tuple(map(ScanColumn, table.column_names)), table.num_columns, None, case_sensitive=False)
    schema = pa.schema([(f"c{number}", kind) for number, kind in enumerate(table.schema.types)])
    return ParquetScan(spec, schema, 1 << 20), DataFile(str(path), path.stat().st_size)


def source_of(
    tmp_path: Path, table: pa.Table, spec: PipelineSpec, projection: Projection, parts: int = 3
) -> DerivedRows:
    """Return a pipeline over the table in parts. The dimension is every join's build side; all columns are integers."""
    scan, file = scan_of(table, tmp_path / "facts")
    below, dims = scan_of(DIMS, tmp_path / "dims")
    build = ScannedFiles(below, (dims.split(0, 2**62),), 1 << 30, 1)
    return DerivedRows(
        spec,
        scan,
        tuple(plan_splits([file], parts, 1 << 40, 1)),
        tuple(build for _ in spec.joins),
        integers(len(spec.outputs) or len(projection.columns)),
        projection,
        integers(len(projection.columns)),
        SETTINGS,
        1 << 30,
        2,
    )


def integers(columns: int) -> pa.Schema:
    return pa.schema([(f"c{number}", pa.int64()) for number in range(columns)])


def rows_of(source: DerivedRows) -> Counter[Row]:
    count, columns = source.columns()
    found = Counter(zip(*(array.to_pylist() for array in columns), strict=True))
    assert found.total() == count
    return found


def joined(table: pa.Table) -> list[Row]:
    return [
        (k, v, w)
        for k, v in zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True)
        for key, w in zip(DIMS["k"].to_pylist(), DIMS["w"].to_pylist(), strict=True)
        if k is not None and k == key
    ]


@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("rows", "parts"), [(0, 1), (1, 1), (1, 3), (500, 1), (500, 4)])
def test_joins_filters_and_columns(tmp_path: Path, rows: int, parts: int, nulls: float) -> None:
    table = facts(rows, 5, nulls)
    kept = condition("<", column(0, 1, INT), literal("300", INT))
    total = Expression("+", INT, (column(0, 1, INT), column(0, 2, INT)))
    projection = Projection(kept, (KEPT[2], total, KEPT[0]))
    source = source_of(tmp_path, table, JOINED, projection, parts)
    assert rows_of(source) == Counter((w, v + w, k) for k, v, w in joined(table) if v < 300)


@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("rows", "distinct"), [(0, 1), (1, 1), (700, 1), (700, 700), (300_000, 200_000)])
def test_groups_come_out_once(tmp_path: Path, rows: int, distinct: int, nulls: float) -> None:
    """Even if rows rarely share groups, so that later rows are passed through."""
    table = facts(rows, distinct, nulls)
    calls = (AggregateCall("count", None), AggregateCall("sum", column(0, 1, INT)))
    spec = PipelineSpec(2, (), (), aggregations=(Aggregation((column(0, 0, INT),), calls, whole=True),))
    source = source_of(tmp_path, table, spec, Projection(None, KEPT))
    expected: dict[Any, list[int]] = defaultdict(list)
    for k, v in zip(table["k"].to_pylist(), table["v"].to_pylist(), strict=True):
        expected[k].append(v)
    assert rows_of(source) == Counter((k, len(values), sum(values)) for k, values in expected.items())


def test_groups_that_do_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "LEAST_BYTES", 0)
    monkeypatch.setattr(groups.OperatorBudget, "usable_bytes", lambda budget: 100.0)
    aggregation = Aggregation((column(0, 0, INT),), (AggregateCall("count", None),), whole=True)
    spec = PipelineSpec(2, (), (), aggregations=(aggregation,))
    source = source_of(tmp_path, facts(500, 500, 0), spec, Projection(None, KEPT[:2]))
    with pytest.raises(
        BuildSideTooLargeError, match=r"the groups of the build side do not fit in memory: the first \d+"
    ):
        source.columns()


def test_one_row_budgets(tmp_path: Path) -> None:
    table = facts(60, 5, 0.2)
    source = source_of(tmp_path, table, JOINED, Projection(None, KEPT))
    hostile = replace(source, settings=replace(SETTINGS, morsel_max_rows=1, morsel_min_rows=1))
    assert rows_of(hostile) == Counter(joined(table))


def test_pipelines_of_pipelines(tmp_path: Path) -> None:
    table = facts(400, 5, 0.1)
    inner = source_of(tmp_path, table, JOINED, Projection(None, KEPT))
    outer = replace(inner, sources=(replace(inner, spec=JOINED),))
    rows = list(zip(*(values.to_pylist() for values in table.columns), strict=True))
    assert rows_of(outer) == Counter((k, v, other) for k, v in rows for key, other, _ in joined(table) if k == key)


def test_an_index_is_kept_until_a_file_below_changes(tmp_path: Path) -> None:
    source = source_of(tmp_path, facts(100, 5, 0), JOINED, Projection(None, KEPT))
    recipe = derive_index_recipe(JOINED, 0, -1)
    assert not source.open(recipe).reused
    assert source.open(recipe).reused
    labelled = replace(JOINED, joins=(replace(JOINED.joins[0], label="another wording"),))
    (whole,) = ((split,) for split in plan_splits([scan_of(DIMS, tmp_path / "facts")[1]], 1, 1 << 40, 1)[0])
    same = replace(source, spec=labelled, parts=(whole,))
    assert same.digest() == source.digest()
    others = {
        replace(source, projection=Projection(None, (KEPT[1], KEPT[1], KEPT[2]))).digest(),
        replace(source, spec=replace(JOINED, outputs=(OUTPUTS[1], *OUTPUTS[1:]))).digest(),
        source.digest(),
    }
    for name in ("dims", "facts"):
        os.utime(tmp_path / name, (1, 1))
        others.add(source.digest())
    assert len(others) == 5


@pytest.mark.parametrize("place", ["column", "filter", "below"])
def test_what_fails_is_told_with_its_values(tmp_path: Path, place: str) -> None:
    quotient = Expression("%", INT, (literal("1", INT), column(0, 0, INT)), checked=True)
    test = condition("=", quotient, literal("0", INT))
    projection = Projection(
        test if place == "filter" else None, (quotient if place == "column" else KEPT[0], *KEPT[1:])
    )
    source = source_of(tmp_path, facts(50, 2, 0), JOINED, projection)
    told = {"column": "column 0 of the result", "filter": "the filter of the result"}
    told["below"] = f"build side 1: {told['column']}"
    if place == "below":
        failing = replace(source, projection=Projection(None, (quotient, *KEPT[1:])))
        source = replace(source, sources=(failing,))
    with pytest.raises(ConditionError, match=rf'^{told[place]} fails on {{"0.0": 0}}$'):
        source.collect(CollectedRows(lambda rows, size: None))


def test_projections_are_read() -> None:
    data = {"filter": None, "columns": [{"op": "column", "type": None, "source": 0, "column": 1}]}
    assert parse_projection(data) == Projection(None, (KEPT[1],))
    with pytest.raises(ValueError, match="not an expression"):
        parse_projection({"columns": [{"op": "nonsense", "type": "int64", "args": []}]})
