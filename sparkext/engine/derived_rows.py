"""Derived build sides: each node derives them by a pipeline of joins, filters and groups over files.

    parts of the files ──▶ pipeline ─┐
    parts of the files ──▶ pipeline ─┼─▶ projection ──▶ rows, cached and indexed like rows of scanned files
                        …            ┘

Each thread runs its own pipelines, one part of the files at a time. All pipelines share the build sides and the sink: a
table of groups is complete when the last pipeline has ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkext.build_sides.cached_rows import CachedRows
from sparkext.build_sides.index_recipe import IndexRecipe, derive_index_recipes
from sparkext.build_sides.index_store import BuildSide
from sparkext.build_sides.sources import BuildSource, IndexedSource, SemiJoinReduction, SourceFiles
from sparkext.config import Settings
from sparkext.engine.join_pipeline import create_operators, create_sink
from sparkext.engine.nodes import Operator, Sink
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.operators.early_drop import DropCounters, DroppingJoin
from sparkext.engine.operators.join import Join
from sparkext.engine.pipeline import Pipeline, Resources
from sparkext.engine.reduced_sources import reduce_sources
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.engine.sources.scanned_splits import ScannedSplits
from sparkext.errors import BuildSideTooLargeError, ConditionError
from sparkext.expressions.arrow_evaluator import ExpressionError, columns, holds, serialise_failing_values
from sparkext.kernels.columns.gather import Column
from sparkext.kernels.runtime.threads import run_each
from sparkext.memory.probes import process_probe
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.adaptive.early_drops import append_drops, has_failing_expressions, has_value_tests, trace_columns
from sparkext.plans.adaptive.join_order import count_movable
from sparkext.plans.expressions.expression import Expression
from sparkext.plans.pipeline.projection import Projection
from sparkext.plans.pipeline.scan import Split
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, PipelineSpec
from sparkext.reports.metrics import NO_TASK, TaskMetrics, sum_operators
from sparkext.rows.collected import CollectedRows
from sparkext.rows.row_set import RowSet
from sparkext.rows.types import conform_columns
from sparkext.storage.fingerprint import fingerprint_of

_WHOLE_FILE = (1 << 63) - 1

_MOST_KEPT = 0.3
"""Upper limit of a build side's rows, as a fraction of the rows it is derived from, if its semi-join is to pay off.

Measured in TPC-H at scale factor 3, as CPU time to derive all build sides relative to no semi-joins: 0.6 with a
fraction of 0.08 (query 7), 1.4 with a fraction of 0.49 (query 21). The limit is between these.
"""


@dataclass(frozen=True)
class DerivedRows(CachedRows):
    """The projected output of a pipeline over the files of a scan.

    Each thread reads one of `parts` at a time. `emitted` is the schema of the pipeline's output, `schema` is the
    schema after the projection. Rows that lack a match in any of `dropping` may be left out.

    Raises
    ------
    ConditionError
        An expression fails on a row.
    """

    NOT_IN_FINGERPRINT: ClassVar[Mapping[str, str]] = {
        **CachedRows.NOT_IN_FINGERPRINT,
        "parts": "the division of work: rows are in the order of the files, which are covered",
        "settings": "how rows are derived; recipes, which are covered, have the settings of indexes",
    }

    spec: PipelineSpec
    scan: ParquetScan
    parts: tuple[tuple[Split, ...], ...]
    sources: tuple[BuildSource, ...]
    emitted: pa.Schema
    projection: Projection
    schema: pa.Schema
    settings: Settings
    max_bytes: int
    threads: int
    dropping: tuple[SemiJoinReduction, ...] = field(default=(), kw_only=True)

    def digest(self) -> str:
        """Return a fingerprint of the plan and of all files below it in their current versions."""
        files = [replace(split, length=_WHOLE_FILE) for split in self._splits() if split.start == 0]
        identities = self.scan.identities(split.path for split in files)
        return fingerprint_of(self, self._recipes(), files, identities)

    def collect(self, rows: CollectedRows) -> tuple[pa.Table, Sequence[str]]:
        """Run the pipeline over all parts."""
        base = self.spec
        droppings = self.open_reductions()
        spec, order = append_drops(base, tuple(drop.join for drop, _ in droppings))
        builds = [
            open_source(IndexedSource(source, recipe), number)
            for number, (source, recipe) in enumerate(zip(self.sources, self._recipes(), strict=True))
        ]
        made_by = [line for build in builds for line in build.info.made_by]
        builds += [build for _, build in droppings]
        dropped = {len(base.joins) + number: DropCounters() for number in range(len(droppings))}
        sink = create_sink(spec, builds, self.emitted, self.settings)
        # Join orders are not measured: each part would measure its own sample.
        settings = replace(self.settings, debug_join_order="query")
        tasks: list[TaskMetrics] = []
        started = time.perf_counter()

        def keep(number: int, batches: Iterator[pa.RecordBatch]) -> None:
            for position, batch in enumerate(batches):
                rows.add((number, position), self._project(batch))

        def run(number: int, part: tuple[Split, ...]) -> None:
            with rows.turn():
                metrics = TaskMetrics(NO_TASK)
                operators = create_operators(spec, builds, settings, metrics, order)
                operators = _use_dropping_joins(operators, order, dropped)
                pipeline = self._pipeline(operators, _SharedSink(sink), metrics, order)
                keep(number, pipeline.run(ScannedSplits(self.scan, part, spec, builds)))
            tasks.append(metrics)

        parts = self._regroup_parts()
        run_each(run, range(len(parts)), parts, threads=self.threads)
        keep(len(parts), self._pipeline([], sink, TaskMetrics(NO_TASK)).run(RowBatches((), spec, 1)))
        table = rows.table(self.schema)
        return table, [*made_by, _summarise_steps(spec, tasks, table.num_rows, time.perf_counter() - started)]

    def open_reductions(self) -> list[tuple[SemiJoinReduction, BuildSide]]:
        """Open the build sides of `dropping`, except those whose semi-joins drop too few rows (see `_MOST_KEPT`).

        A build side that does not fit in memory is left out: the join that needs it reports the error.
        """
        reductions = []
        for drop in self.dropping:
            with suppress(BuildSideTooLargeError):
                build = drop.source.open()
                if build.rows <= _MOST_KEPT * drop.source.source.rows_read():
                    reductions.append((drop, build))
        return reductions

    def rows_read(self) -> int:
        """Return the number of rows in the files that the pipeline reads."""
        return self.scan.rows_of(self._splits())

    def files(self) -> SourceFiles:
        """Return the files of the pipeline and of its build sides."""
        spec, below = self.spec, [source.files() for source in self.sources]
        known_files = [files for files in below if files is not None]
        is_selective = (
            any(test is not None for test in (spec.filter, self.projection.filter))
            or has_value_tests(self.scan.spec.filter)
            or any(
                join.how in ("inner", "semi", "anti") and files is not None and files.is_selective
                for join, files in zip(spec.joins, below, strict=True)
            )
        )
        may_fail = (
            any(call.checked for aggregation in spec.aggregations for call in aggregation.calls)
            or count_movable(spec) < len(spec.joins)
            or has_failing_expressions(spec, self.projection)
            or any(files.may_fail for files in known_files)
        )
        size = sum(count_split_bytes(self.scan, split) for part in self.parts for split in part)
        return SourceFiles(size + sum(files.bytes for files in known_files), is_selective, may_fail)

    def reduced(self, reductions: Sequence[SemiJoinReduction], settings: Settings) -> CachedRows:
        """Return the pipeline with those reductions that can be pushed down, and with reduced build sides."""
        return self.reduced_from(self._reduce_sources(settings), reductions, settings)

    def reduced_from(
        self, all_rows: CachedRows, reductions: Sequence[SemiJoinReduction], settings: Settings
    ) -> CachedRows:
        """Return the pipeline with the reductions that can be pushed down, or `all_rows` if there are none.

        `all_rows`: the same rows without reductions.
        """
        pushed = [
            replace(reduction, join=join)
            for reduction in reductions
            if (join := self._push_down(reduction.join)) is not None
        ]
        if not pushed:
            return all_rows
        fields = {**vars(self), "dropping": tuple(pushed)}
        return ReducedRows(**fields, whole=all_rows)._reduce_sources(settings)

    def _push_down(self, join: JoinSpec) -> JoinSpec | None:
        """Return a semi-join of the result as a join of the pipeline, None if that might change the result."""
        probe_columns = trace_columns(self.spec, self.projection, tuple(key.probe.column for key in join.keys))
        if probe_columns is None:
            return None
        keys = tuple(replace(key, probe=column) for key, column in zip(join.keys, probe_columns, strict=True))
        return replace(join, keys=keys)

    def _reduce_sources(self, settings: Settings) -> CachedRows:
        """Return the same pipeline over reduced build sides."""
        spec, _ = append_drops(self.spec, tuple(drop.join for drop in self.dropping))
        sources = [*self.sources, *(drop.source for drop in self.dropping)]
        below = reduce_sources(spec, sources, settings)
        return replace(self, sources=tuple(below[number] for number in range(len(self.sources))))

    def _splits(self) -> list[Split]:
        """Return the splits of all parts, in file order."""
        return sorted((split for part in self.parts for split in part), key=lambda split: (split.path, split.start))

    def _regroup_parts(self) -> list[list[Split]]:
        """Regroup the splits in file order, into parts that are at most as long as the longest of `parts`."""
        limit = max((sum(split.length for split in part) for part in self.parts), default=0)
        parts: list[list[Split]] = []
        size = 0
        for split in self._splits():
            size += split.length
            if not parts or size > limit:
                parts.append([])
                size = split.length
            parts[-1].append(split)
        return parts

    def _recipes(self) -> list[IndexRecipe]:
        return derive_index_recipes(self.spec, self.settings.debug_hash_mask)

    def _pipeline(
        self, operators: Sequence[Operator], sink: Sink, metrics: TaskMetrics, order: Sequence[int] = ()
    ) -> Pipeline:
        resources = Resources(process_probe().headroom, lambda limit: self.threads)
        return Pipeline(operators, sink, self.settings, resources, metrics, order)

    def _project(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = RowSet.of_morsel([Column.of(column) for column in batch.columns], batch.num_rows)
        if self.projection.filter is not None:
            rows = rows.picked(np.flatnonzero(self._holds(self.projection.filter, rows)))
        computed = [column for column in self.projection.columns if column.op != "column"]
        try:
            values = dict(zip(computed, columns(computed, rows), strict=True))
        except ExpressionError as error:
            failed = computed[error.expression]
            number = self.projection.columns.index(failed)
            failing_values = serialise_failing_values(failed, rows, error.row)
            raise ConditionError(f"column {number} of the result fails on {failing_values}") from error
        arrays = [
            rows.gather(ColumnRef(PROBE, column.column)) if column.op == "column" else values[column]
            for column in self.projection.columns
        ]
        return conform_columns(arrays, self.schema)

    def _holds(self, condition: Expression, rows: RowSet) -> npt.NDArray[np.bool_]:
        try:
            return holds(condition, rows)
        except ExpressionError as error:
            failing_values = serialise_failing_values(condition, rows, error.row)
            raise ConditionError(f"the filter of the result fails on {failing_values}") from error


@dataclass(frozen=True)
class ReducedRows(DerivedRows):
    """A reduced build side. If the index of all rows (`whole`) is cached, `ReducedRows` uses it instead."""

    whole: CachedRows

    def entry(self, recipe: IndexRecipe) -> Path:
        """Return the path of this index in the cache, or the path of the index of all rows if that is cached."""
        path = self.whole.entry(recipe)
        return path if path.exists() else super().entry(recipe)

    def collect(self, rows: CollectedRows) -> tuple[pa.Table, Sequence[str]]:
        """Run the pipeline. If its semi-joins would drop too few rows, collect `whole`: a scan copies no rows."""
        return super().collect(rows) if self.open_reductions() else self.whole.collect(rows)

    def _open_cached(self, recipe: IndexRecipe) -> BuildSide:
        if self.whole.entry(recipe).exists():
            return self.whole.open(recipe)
        return super()._open_cached(recipe)


def count_split_bytes(scan: ParquetScan, split: Split) -> int:
    """Return the bytes of a split that its file has."""
    size = int(scan.identity(split.path)[1])
    return max(0, min(split.length, size - split.start))


def _use_dropping_joins(
    operators: list[Operator], order: Sequence[int], counters: Mapping[int, DropCounters]
) -> list[Operator]:
    """Replace the joins in `counters` by `DroppingJoin`, which stops looking up rows if most of them match."""
    for position, number in enumerate(order):
        join = operators[position]
        if number in counters and isinstance(join, Join):
            operators[position] = DroppingJoin(join, counters[number])
    return operators


def _summarise_steps(spec: PipelineSpec, tasks: Sequence[TaskMetrics], rows: int, seconds: float) -> str:
    """Return a one-line summary of a pipeline's steps, row counts and run time."""
    row_counts = [summary["rows_in"] for summary in sum_operators(tasks)]
    names = [f"{join.how} {join.label}" for join in spec.joins] + ["filter"] * (spec.filter is not None)
    names.append("groups" if spec.aggregations else "rows")
    steps = ", ".join(f"{count:,} into {name}" for count, name in zip(row_counts, names, strict=False))
    return f"{steps}: {rows:,} rows in {seconds:.3f} s"


SOURCE = -1
"""The join number of the derived probe side."""


def open_source(source: IndexedSource, number: int) -> BuildSide:
    """Open the build side of join `number`, or the probe side (`SOURCE`). A ConditionError names the build side."""
    try:
        return source.open()
    except ConditionError as error:
        raise ConditionError(f"build side {number + 1}: {error}") from None  # only one exception is reported to the JVM


class _SharedSink:
    """A sink shared by several pipelines: `finish` emits nothing, so no pipeline empties it."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.row_bytes, self.copies = sink.row_bytes, sink.copies

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        return self._sink.process(rows, budget)

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        return iter(())
