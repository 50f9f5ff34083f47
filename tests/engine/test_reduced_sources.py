"""Build sides reduced by semi-joins: queries give the same rows as with complete build sides."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkext.build_sides.sources import BuildSource
from sparkext.config import Settings, read_settings
from sparkext.engine.derived_rows import DerivedRows, ReducedRows
from sparkext.engine.join_pipeline import EmittedBatches
from sparkext.engine.operators import early_drop
from sparkext.engine.pipeline_plan import PipelinePlan
from sparkext.engine.pipeline_task import PipelineTask
from sparkext.engine.reduced_sources import reduce_sources
from sparkext.engine.scanned_files import ScannedFiles
from sparkext.engine.task_sources import ProbeBatches
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.expressions.expression import Expression, column, condition, literal
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.aggregates import AggregateCall, Aggregation
from sparkext.plans.pipeline.projection import Projection
from sparkext.plans.pipeline.scan import ScanColumn, ScanSpec, Split
from sparkext.plans.pipeline.spec import ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.reports.metrics import TaskMetrics

INT = parse_key_type("int64")
SETTINGS = read_settings({}.get, {})
AS_ASKED = replace(SETTINGS, debug_join_order="query")
JOINED = PipelineSpec(
    3,
    (JoinSpec("inner", (KeyPair(ColumnRef(0, 1), 0, "int64", False),), "auto", "inner"),),
    (ColumnRef(0, 0), ColumnRef(1, 1), ColumnRef(0, 2)),
)
KINDS = ("inner", "left", "semi", "anti", "existence")
Row = tuple[Any, ...]


class Reported:
    metrics: TaskMetrics

    def report(self, metrics: TaskMetrics) -> None:
        self.metrics = metrics


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))


def integers(columns: int) -> pa.Schema:
    return pa.schema([(f"c{number}", pa.int64()) for number in range(columns)])


def table(seed: int, rows: int, ranges: tuple[int, ...], nulls: float = 0.1) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = [pa.array(rng.integers(0, most, rows), pa.int64(), mask=rng.random(rows) < nulls) for most in ranges]
    return pa.table(dict(zip("abc", columns, strict=False)))


def scanned(path: Path, rows: pa.Table, test: Expression | None = None) -> ScannedFiles:
    if not path.exists():
        pq.write_table(rows, path, row_group_size=max(1, rows.num_rows // 5))
    spec = ScanSpec(tuple(map(ScanColumn, rows.column_names)), rows.num_columns, test, case_sensitive=False)
    scan = ParquetScan(spec, integers(rows.num_columns), 1 << 20)
    return ScannedFiles(scan, (Split(str(path), 0, 2**62, ()),), 1 << 30, 2)


def below(number: int, most: int) -> Expression:
    return condition("<", column(0, number, INT), literal(str(most), INT))


def join(how: str, *keys: tuple[int, int, int]) -> JoinSpec:
    pairs = tuple(KeyPair(ColumnRef(source, at), build, "int64", False) for source, at, build in keys)
    return JoinSpec(how, pairs, "auto", how)


def answered(
    spec: PipelineSpec, sources: tuple[BuildSource, ...], settings: Settings = SETTINGS
) -> tuple[Counter[Row], list[int]]:
    """Return the rows of a query over some probe rows, and the number of rows of each build side."""
    reported, probe = Reported(), table(1, 2000, (200, 40))
    schema = pa.schema(
        [
            (f"c{at}", pa.bool_() if ref.source and spec.joins[ref.source - 1].how == "existence" else pa.int64())
            for at, ref in enumerate(spec.outputs)
        ]
    )
    plan = PipelinePlan(spec, sources, schema)
    task = PipelineTask(ProbeBatches(), plan, EmittedBatches(), reported, settings=settings, tasks_sharing=1)
    batches = task(pa.RecordBatch.from_arrays(batch.columns, schema=integers(2)) for batch in probe.to_batches(500))
    found = Counter(row for batch in batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True))
    return found, [index["build_rows"] for index in reported.metrics.indexes]


@pytest.mark.parametrize("in_vain", [False, True])
@pytest.mark.parametrize("drops", ["inner", "semi"])
@pytest.mark.parametrize("how", KINDS)
def test_scans_drop_what_is_found_by_dropped_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, drops: str, in_vain: bool
) -> None:
    """Even if the reducing joins are stopped because they drop too few rows."""
    if in_vain:
        monkeypatch.setattr(early_drop.DropCounters, "too_few", property(lambda seen: seen.rows_in > 0))
    small = scanned(tmp_path / "small", table(2, 300, (200, 100)), below(1, 10))
    large = scanned(tmp_path / "large", table(3, 9000, (40, 200, 1000)))
    seen = (ColumnRef(2, 0 if how == "existence" else 2),) if how in ("inner", "left", "existence") else ()
    outputs = (ColumnRef(0, 0), ColumnRef(0, 1), *seen)
    spec = PipelineSpec(2, (join(drops, (0, 0, 0)), join(how, (0, 1, 0), (0, 0, 1))), outputs)
    assert isinstance(reduce_sources(spec, (small, large), SETTINGS)[1], ReducedRows)
    rows, sizes = answered(spec, (small, large))
    expected, whole = answered(spec, (small, large), AS_ASKED)
    assert rows == expected
    assert rows
    assert (sizes[0], whole[1]) == (whole[0], 9000)
    assert sizes[1] < (9000 if in_vain else 2000)


def pipelined(facts: ScannedFiles, dims: ScannedFiles, spec: PipelineSpec) -> DerivedRows:
    kept = tuple(Expression("column", None, column=number) for number in range(3))
    parts = ((replace(facts.splits[0], length=20_000),), (replace(facts.splits[0], start=20_000),))
    limits = (SETTINGS, 1 << 30, 2)
    sources = (dims,) * len(spec.joins)
    return DerivedRows(spec, facts.scan, parts, sources, integers(3), Projection(None, kept), integers(3), *limits)


def test_pipelines_drop_within(tmp_path: Path) -> None:
    """A filtered table reduces a dimension, which reduces the rows within another pipeline."""
    nations = scanned(tmp_path / "nations", table(4, 60, (25, 100), 0.0), below(1, 10))
    suppliers = scanned(tmp_path / "suppliers", table(5, 1000, (300, 25)))
    facts = scanned(tmp_path / "facts", table(6, 9000, (200, 300, 50)))
    inner = PipelineSpec(3, (join("inner", (0, 1, 0)),), (ColumnRef(0, 0), ColumnRef(1, 1), ColumnRef(0, 2)))
    build = pipelined(facts, suppliers, inner)
    spec = PipelineSpec(
        2, (join("inner", (0, 0, 0)), join("inner", (1, 1, 0))), (ColumnRef(0, 0), ColumnRef(1, 2), ColumnRef(2, 1))
    )
    source = reduce_sources(spec, (build, nations), SETTINGS)[0]
    assert isinstance(source, ReducedRows)
    assert isinstance(source.sources[0], ReducedRows)
    rows, sizes = answered(spec, (build, nations))
    expected, whole = answered(spec, (build, nations), AS_ASKED)
    assert rows == expected
    assert rows
    assert sizes[0] < whole[0] // 3


def test_groups_are_dropped_before_they_are_made(tmp_path: Path) -> None:
    small = scanned(tmp_path / "small", table(2, 300, (200, 100)), below(1, 10))
    facts = scanned(tmp_path / "facts", table(6, 9000, (200, 300, 50)))
    calls = (AggregateCall("min", column(0, 1, INT)), AggregateCall("count", column(0, 2, INT)))
    inner = PipelineSpec(3, (), (), aggregations=(Aggregation((column(0, 0, INT),), calls, whole=True),))
    build = pipelined(facts, small, inner)
    spec = PipelineSpec(
        2, (join("semi", (0, 0, 0)), join("inner", (0, 0, 0))), (ColumnRef(0, 0), ColumnRef(2, 1), ColumnRef(2, 2))
    )
    rows, sizes = answered(spec, (small, build))
    expected, whole = answered(spec, (small, build), AS_ASKED)
    assert rows == expected
    assert rows
    assert sizes[1] < whole[1] // 3


def test_what_drops_few_rows_is_not_asked(tmp_path: Path) -> None:
    small = scanned(tmp_path / "small", table(2, 300, (200, 100)), below(1, 90))
    large = scanned(tmp_path / "large", table(3, 9000, (200, 40, 1000)))
    spec = PipelineSpec(2, (join("semi", (0, 0, 0)), join("inner", (0, 0, 0))), (ColumnRef(0, 0), ColumnRef(2, 2)))
    rows, sizes = answered(spec, (small, large))
    assert (rows, sizes[1]) == (answered(spec, (small, large), AS_ASKED)[0], 9000)


def test_an_index_of_all_rows_is_used_where_there_is_one(tmp_path: Path) -> None:
    small = scanned(tmp_path / "small", table(2, 300, (200, 100)), below(1, 10))
    large = scanned(tmp_path / "large", table(3, 9000, (200, 40, 1000)))
    spec = PipelineSpec(2, (join("semi", (0, 0, 0)), join("inner", (0, 0, 0))), (ColumnRef(0, 0), ColumnRef(2, 2)))
    expected, _ = answered(spec, (small, large), AS_ASKED)
    assert answered(spec, (small, large)) == (expected, [expected_rows(small), 9000])


def expected_rows(source: ScannedFiles) -> int:
    return source.columns()[0]


def test_names_tell_by_what_rows_were_dropped(tmp_path: Path) -> None:
    large = scanned(tmp_path / "large", table(3, 9000, (200, 40, 1000)))
    spec = PipelineSpec(2, (join("semi", (0, 0, 0)), join("inner", (0, 0, 0))), (ColumnRef(0, 0), ColumnRef(2, 2)))
    names = {large.digest()}
    for most in (10, 20):
        small = scanned(tmp_path / "small", table(2, 300, (200, 100)), below(1, most))
        source = reduce_sources(spec, (small, large), SETTINGS)[1]
        names.add(source.digest())
    assert len(names) == 3


def test_what_may_fail_drops_nothing_elsewhere(tmp_path: Path) -> None:
    """Its error would be reported for the wrong build side."""
    failing = condition(
        "<", Expression("%", INT, (literal("1", INT), column(0, 0, INT)), checked=True), literal("1", INT)
    )
    facts = scanned(tmp_path / "facts", table(6, 900, (200, 300, 50)), below(1, 10))
    inner = PipelineSpec(3, (), (ColumnRef(0, 0), ColumnRef(0, 1), ColumnRef(0, 2)))
    build = replace(
        pipelined(facts, facts, inner),
        projection=Projection(failing, pipelined(facts, facts, inner).projection.columns),
    )
    large = scanned(tmp_path / "large", table(3, 90_000, (200, 40, 1000)))
    spec = PipelineSpec(2, (join("semi", (0, 0, 0)), join("inner", (0, 0, 0))), (ColumnRef(0, 0), ColumnRef(2, 2)))
    assert reduce_sources(spec, (build, large), SETTINGS)[1] is large
    above = replace(pipelined(facts, facts, JOINED), sources=(build,))
    assert reduce_sources(spec, (above, large), SETTINGS)[1] is large
    harmless = replace(above, sources=(replace(build, projection=Projection(None, build.projection.columns)),))
    assert isinstance(reduce_sources(spec, (harmless, large), SETTINGS)[1], ReducedRows)
