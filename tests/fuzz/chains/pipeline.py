"""Runs a case as a pipeline in this process, and as a query of DuckDB; both return Arrow tables."""

from __future__ import annotations

import itertools
import pickle
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.config import read_settings
from sparkext.engine import delivery
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.measured_order import order_joins
from sparkext.engine.pipeline import Resources
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.kernels.columns import row_ids
from sparkext.plans.adaptive import index_choice as plans_algorithm
from sparkext.plans.expressions.expression import Expression, column, condition
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.spec import BUILD_PRESERVING, AsOf, ColumnRef, JoinSpec, KeyPair, PipelineSpec, RangePair
from sparkext.reports.metrics import NO_TASK, TaskMetrics
from tests.fuzz.chains.cases import Case, Column, Comparison, Join, duckdb_sql, found_name
from tests.fuzz.chains.formulas import with_columns

_INDEXES = {
    "auto": {"hash", "dense", "key set"},
    "hash": {"hash", "dense", "key set"},
    "sort_merge": {"ordered"},
}


class BrokenPromiseError(Exception):
    """A wrong path, even if the rows are right: another index, a batch that is too large, or another schema."""


@dataclass
class Outcome:
    """The rows of a pipeline, and counts of the paths that it ran."""

    table: pa.Table
    paths: Counter[str] = field(default_factory=Counter)


def run_pipeline(case: Case) -> Outcome:
    """Run all joins of a case. A right or full join begins another pipeline, as in Spark."""
    rows = case.tables[0]
    paths: Counter[str] = Counter()
    with _switched(case):
        for first, stop in _segments(case):
            names = case.outputs if stop == len(case.joins) else list(case.columns(stop))
            rows = _Segment(case, rows, first, stop, names).run(paths)
    return Outcome(rows, paths)


def run_duckdb(case: Case, connection: duckdb.DuckDBPyConnection) -> pa.Table:
    """Run the same query in DuckDB, over copies of the tables: it would push filters into Arrow tables."""
    for number, table in enumerate(case.tables):
        connection.register("arrow", table)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE t{number} AS SELECT * FROM arrow")
        connection.unregister("arrow")
    return connection.sql(duckdb_sql(case)).to_arrow_table()


def _segments(case: Case) -> list[tuple[int, int]]:
    """Return the range of joins of every pipeline: its first join, and the one after its last."""
    starts = [0, *(n for n, join in enumerate(case.joins) if n and join.kind in BUILD_PRESERVING)]
    return list(itertools.pairwise([*starts, len(case.joins)]))


class _Segment:
    """The joins of a case from `first` to before `stop`, as one pipeline over `probe`."""

    def __init__(self, case: Case, probe: pa.Table, first: int, stop: int, outputs: Sequence[str]) -> None:
        self.case = case
        self.probe = probe
        self.joins = case.joins[first:stop]
        self.builds = case.tables[first + 1 : stop + 1]
        self.settings = read_settings(lambda _: None, case.settings)
        self.places = {
            name: ColumnRef(source, column)
            for source, table in enumerate([probe, *self.builds])
            for column, name in enumerate(table.column_names)
        }
        for source, join in enumerate(self.joins, 1):
            if join.kind == "existence":
                self.places[found_name(first + source)] = ColumnRef(source, 0)
        types = case.columns(stop)
        self.schema = pa.schema([(name, types[name]) for name in outputs])
        preserving = self.joins[0].kind in BUILD_PRESERVING
        self.spec = PipelineSpec(
            probe.num_columns,
            tuple(self._join(source, join) for source, join in enumerate(self.joins, 1)),
            tuple(self.places[name] for name in outputs),
            2 if preserving else 0,
        )

    def run(self, paths: Counter[str]) -> pa.Table:
        """Return the joined rows; count the paths that ran in `paths`."""
        spec = pickle.loads(pickle.dumps(self.spec))
        builds = [self._build_side(spec, number) for number in range(len(self.joins))]
        headroom = self.case.switches["headroom"]
        resources = Resources(
            lambda: None if headroom is None else (headroom, "cgroup"), cores=self.case.switches["cores"]
        )
        metrics = TaskMetrics(NO_TASK)
        rows = RowBatches(self._input(), spec, self.settings.morsel_max_rows)
        source, order = order_joins(spec, builds, rows, self.settings, metrics)
        pipeline = create_pipeline(spec, builds, self.schema, self.settings, resources, metrics, order=order)
        batches = list(pipeline.run(source))
        for batch in batches:
            self._check(batch)
        if pipeline.metrics.rows_in != self.probe.num_rows or pipeline.metrics.batches_out != len(batches):
            raise BrokenPromiseError("rows or batches are not counted as they went in and came out")
        paths.update(f"index {build.index.kind}" + " clustered" * build.info.clustered for build in builds)
        paths["another order of joins"] += bool(metrics.order)
        paths["reduced build sides"] += len(metrics.reduced)
        paths["batches"] += len(batches)
        return pa.Table.from_batches(batches, self.schema)

    def _join(self, source: int, join: Join) -> JoinSpec:
        near = join.as_of
        return JoinSpec(
            join.kind,
            tuple(
                KeyPair(self.places[key.left.name], self._build_column(key), key.type, key.op == "<=>")
                for key in join.keys
            ),
            self.settings.algorithm,
            join.sql(),
            self._condition(join.condition),
            tuple(
                RangePair(self.places[pair.left.name], pair.op, self._build_column(pair), pair.type)
                for pair in join.ranges
            ),
            None
            if near is None
            else AsOf(
                self.places[near.left.name],
                self.places[near.right.name].column,
                near.type,
                near.direction,
                near.exact,
                near.tolerance,
            ),
            None if join.formula is None else with_columns(join.formula, self._number),
        )

    def _condition(self, compared: Sequence[Comparison]) -> Expression | None:
        leaves = []
        for pair in compared:
            places = [self.places[side.name] for side in (pair.left, pair.right)]
            operands = [column(place.source, place.column, parse_key_type(pair.type)) for place in places]
            leaves.append(condition(pair.op, *operands))
        return condition("and", *leaves) if leaves else None

    def _number(self, node: Expression) -> Expression:
        place = self.places[Column(node.source, node.column).name]
        return column(place.source, place.column, node.type)

    def _build_column(self, comparison: Comparison) -> int:
        return self.places[comparison.right.name].column

    def _build_side(self, spec: PipelineSpec, number: int) -> BuildSide:
        table = self.builds[number].combine_chunks()
        arrays = [_whole(column) for column in table.columns]
        build = index_in_memory(
            table.num_rows, arrays, derive_index_recipe(spec, number, self.settings.debug_hash_mask)
        )
        join = self.joins[number]
        expected = _INDEXES[self.settings.algorithm] if join.keys else {"all rows"}
        if join.ranges or join.as_of:
            expected = {"range"}
        if build.index.kind not in expected:
            raise BrokenPromiseError(f"join {number} has an index {build.index.kind}, expected one of {expected}")
        return build

    def _input(self) -> Iterator[pa.RecordBatch]:
        """Yield the probe side in batches. For a right or full join, build row ids are mixed in randomly."""
        table = self.probe
        if self.spec.owner_columns:
            owned = self.builds[0].num_rows
            order = list(range(table.num_rows + owned))
            random.Random(self.case.switches["shuffle"]).shuffle(order)
            is_probe = [number < table.num_rows for number in order]
            picks = [number if here else None for number, here in zip(order, is_probe, strict=True)]
            owners = [None if here else n - table.num_rows for n, here in zip(order, is_probe, strict=True)]
            columns = [_whole(column).take(pa.array(picks, pa.int64())) for column in table.columns]
            head = [pa.array(owners, pa.int64()), pa.array(["only for the shuffle"] * len(order), pa.string())]
            table = pa.table([*head, *columns], names=[f"c{number}" for number in range(len(columns) + 2)])
        yield from table.combine_chunks().to_batches(max_chunksize=self.case.switches["batch_rows"])

    def _check(self, batch: pa.RecordBatch) -> None:
        batch.validate(full=True)
        bound = self.settings.morsel_max_rows
        if not 1 <= batch.num_rows <= bound:
            raise BrokenPromiseError(f"a batch of {batch.num_rows} rows, where {bound} are the most")
        if batch.schema != self.schema:
            raise BrokenPromiseError(f"a batch of schema {batch.schema}, expected {self.schema}")


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


@contextmanager
def _switched(case: Case) -> Iterator[None]:
    """Lower thresholds, so that small tables take the paths of large ones."""
    places: list[tuple[Any, str, str]] = [
        (delivery, "_LEAST_PART_ROWS", "least_part_rows"),
        (row_ids, "NARROW_ROWS", "narrow_rows"),
        (plans_algorithm, "CLUSTERED_ROWS_PER_KEY", "clustered_rows_per_key"),
    ]
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    for module, name, switch in places:
        setattr(module, name, case.switches[switch])
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def difference(case: Case, got: pa.Table, expected: pa.Table, most: int = 8) -> str:
    """Return how two results differ as multisets of rows; an empty text if they are equal.

    -0.0 differs from 0.0, and all NaNs are equal.
    """
    got, expected = _ordered(case, got), _ordered(case, expected.cast(got.schema))
    if got.num_rows == expected.num_rows and all(
        _same(one, other) for one, other in zip(got.columns, expected.columns, strict=True)
    ):
        return ""
    ours, theirs = (Counter(map(repr, zip(*(c.to_pylist() for c in t.columns), strict=True))) for t in (got, expected))
    lines = [f"{got.num_rows} rows, expected {expected.num_rows}"]
    lines += [f"  missing {row}" for row in itertools.islice((theirs - ours).elements(), most)]
    lines += [f"  surplus {row}" for row in itertools.islice((ours - theirs).elements(), most)]
    return "\n".join(lines)


def _ordered(case: Case, table: pa.Table) -> pa.Table:
    """Sort by the row numbers of all sources, which are unique together."""
    keys = [(name, "ascending") for name in case.outputs if name.endswith("_id")]
    return table.take(pc.sort_indices(table, sort_keys=keys)) if table.num_rows else table


def _same(one: pa.ChunkedArray, other: pa.ChunkedArray) -> bool:
    if not pa.types.is_floating(one.type):
        return bool(one.equals(other))
    return bool(_bits(one).equals(_bits(other)))


def _bits(column: pa.ChunkedArray) -> pa.Array:
    """Return floating point numbers as their bits, with one bit pattern for all NaNs."""
    array = _whole(column)
    array = pc.if_else(pc.is_nan(array), pa.scalar(float("nan"), array.type), array)
    return array.view(pa.int32() if array.type == pa.float32() else pa.int64())
