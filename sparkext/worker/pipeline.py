"""The pipeline interpreter: runs a spec over an iterator of record batches. Knows Arrow and the kernels, not Spark.

    input batches ─▶ morsel ─▶ join 0 ─▶ join 1 ─▶ … ─▶ gather payload ─▶ output batches
                      coalesced   └── every arrow carries at most a budget of rows ──┘
                      and split

Every join, and the gather, is a stage that yields an output each time it is asked. `plans.delivery` asks them, depth
first unless told otherwise: what an operator produces within its budget flows all the way down before the operator
resumes, so that at most one output per operator exists at any time (Kawashima & Tatebe, conclusion 3).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkext.build_sides.index_builder import IndexRecipe
from sparkext.build_sides.index_store import BuildSide
from sparkext.config import Settings
from sparkext.errors import ConditionError, SchemaMismatchError
from sparkext.kernels.bounds import Bound
from sparkext.kernels.buffers import Int64Array
from sparkext.kernels.gather import Column, VarBytesOverflowError
from sparkext.kernels.jit import frozen
from sparkext.kernels.keys import NormalisedKeys, cast_key, normalise_keys
from sparkext.kernels.matches import START, Matches, Pairs, probe
from sparkext.kernels.nearest import NearestKeys
from sparkext.kernels.nested_loop import NestedLoop, PairArithmeticError
from sparkext.kernels.range_index import Candidates, RangeKeys
from sparkext.kernels.row_ids import RowIds, row_id_dtype
from sparkext.kernels.threads import pool
from sparkext.parquet.scan import ParquetScan
from sparkext.parquet.statistics import ProbeBounds
from sparkext.plans.delivery import DELIVERIES, Stage, cooperative, depth_first, independent, set_at_a_time
from sparkext.plans.key_types import parse_key_type
from sparkext.plans.morsel import BudgetLimits, OutputSizeController
from sparkext.plans.scan import Split
from sparkext.plans.spec import BUILD_PRESERVING, PROBE, ColumnRef, JoinSpec, PipelineSpec
from sparkext.reports.metrics import NO_TASK, TaskId, TaskMetrics
from sparkext.rows.conditions import holds
from sparkext.rows.morsels import morsels
from sparkext.rows.row_set import RowSet, SourceRows
from sparkext.rows.types import arrow_key_type, conform
from sparkext.worker.theta_condition import FormulaCondition, bind_theta

_ROW_ID_BYTES = 8
_LOOKUP_BYTES = 16  # first and count of every probe row
_PROBE_KIND = {"right": "inner", "full": "left"}
_LEAST_PART_ROWS = 4_096  # of which a thread makes more than it costs to ask it
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}

Found = Matches | Candidates | NestedLoop
"""What a lookup gives: ranges of matches, or something that finds them as they are asked for."""


def index_recipe(spec: PipelineSpec, number: int, hash_mask: int) -> IndexRecipe:
    """Return what the index of join number `number` is made from, and which columns are kept with it."""
    join = spec.joins[number]
    return IndexRecipe(
        key_columns=tuple(key.build for key in join.keys),
        key_types=tuple(arrow_key_type(parse_key_type(key.type)) for key in join.keys),
        null_safe=tuple(key.null_safe for key in join.keys),
        algorithm=join.algorithm,
        hash_mask=hash_mask,
        may_cluster=join.how in ("inner", "left"),
        bounds=tuple((column, arrow_key_type(parse_key_type(name))) for column, name in join.compared),
        inverted=_is_bounded_above_only(join),
        probe_ordered=join.probe_ordered,
        gathered=spec.gathered(number + 1),
    )


def _is_bounded_above_only(join: JoinSpec) -> bool:
    """Return whether the second compared column is never asked to be at least something."""
    second = join.compared[1:]
    return bool(second) and all(pair.op[0] == ">" for pair in join.ranges if (pair.build, pair.type) == second[0])


def probe_bounds(spec: PipelineSpec, builds: Sequence[BuildSide]) -> list[ProbeBounds]:
    """Return what the build sides ask of columns of the probe side: rows outside lack a match that they need.

    A join that may fail has to see all rows that come to it.
    """
    last = next((number for number, join in enumerate(spec.joins, 1) if join.may_fail), len(spec.joins))
    return [
        ProbeBounds(key.probe.column, (bounds[0], bounds[1]) if bounds else None)
        for join, build in [*zip(spec.joins, builds, strict=True)][:last]
        if join.how in ("inner", "semi")
        for key, bounds in zip(join.keys, build.info.key_bounds, strict=True)
        if key.probe.source == PROBE and bounds is not None
    ]


class _Join:
    """One join at run time: its spec, its build side, and for right and full joins which build rows found a match.

    `source` is the number of the build side among the sources of the pipeline.
    """

    def __init__(self, spec: JoinSpec, build: BuildSide, source: int) -> None:
        self.spec = spec
        self.build = build
        self.columns = {} if spec.how == "existence" else build.columns
        self.probe_kind = _PROBE_KIND.get(spec.how, spec.how)
        self.outer = self.probe_kind == "left"
        self.key_types = [arrow_key_type(parse_key_type(key.type)) for key in spec.keys]
        self.null_safe = [key.null_safe for key in spec.keys]
        self.theta = None if spec.theta is None else bind_theta(spec.theta, source, build)
        self.guard = None if spec.guard is None else FormulaCondition(spec.guard, source, build)
        self.looked_up = _looked_up(spec)
        self.tested = () if spec.condition is None else tuple(ColumnRef(*place) for place in spec.condition.columns())
        preserves_build = spec.how in BUILD_PRESERVING
        self.matched = np.zeros(build.rows, dtype=np.uint8) if preserves_build else None

    def keys(self, rows: RowSet) -> NormalisedKeys:
        """Fetch and normalise the probe keys of these rows."""
        if not self.spec.keys:
            return NormalisedKeys(rows.length, None, None, None)
        columns = [
            cast_key(rows.gather(key.probe), key_type)
            for key, key_type in zip(self.spec.keys, self.key_types, strict=True)
        ]
        return normalise_keys(columns, self.null_safe, self.build.info.key_ranges)

    @property
    def tests_pairs(self) -> bool:
        """Whether pairs that are found have to be tested."""
        return self.spec.condition is not None or (self.theta is not None and not self.spec.nested)

    def is_conditional(self, found: Found) -> bool:
        """Whether it takes the pairs of a row, or a look at each, to tell what the join makes of it."""
        return self.tests_pairs or (self.outer and isinstance(found, NestedLoop))

    def is_decided_by(self, columns: Collection[int]) -> bool:
        """Return whether these columns of the probe side say that a row is dropped, for want of a match."""
        spec = self.spec
        known = {ColumnRef(PROBE, column) for column in columns}
        equal = bool(spec.keys) and not spec.ranges and spec.as_of is None
        return spec.how in ("inner", "semi") and equal and known.issuperset(key.probe for key in spec.keys)

    def lookup(self, rows: RowSet) -> Found:
        """Find what these rows match, one match a row where nothing more is asked."""
        as_of = self.spec.as_of
        if as_of is not None:
            values = cast_key(rows.gather(as_of.probe), arrow_key_type(parse_key_type(as_of.type)))
            sought = NearestKeys(self.keys(rows), values, as_of.direction, as_of.exact, as_of.tolerance)
            return self.build.lookup_nearest(sought)
        if self.spec.nested:
            assert self.theta is not None, "or there is nothing to try pairs by"
            found: Found = self.theta.loop(rows)
        elif self.guard is not None and self.guard.may_fail(rows):
            found = self.guard.loop(rows)
        elif self.spec.ranges:
            found = self.build.lookup_ranges(RangeKeys(self.keys(rows), self._bounds(rows)))
        else:
            return self.build.lookup(self.keys(rows))
        pairs_count = self.tests_pairs or self.probe_kind in ("inner", "left")
        return found if isinstance(found, Matches) or pairs_count else found.any()

    def kept(self, candidates: RowSet, until_hit: Int64Array | None) -> npt.NDArray[np.intp] | None:
        """Return which of these pairs fulfil the condition; None for all of them. `until_hit`: see `PairTest.each`."""
        kept = None
        if self.spec.condition is not None:
            kept = np.flatnonzero(holds(self.spec.condition, candidates))
        if self.theta is not None and not self.spec.nested:
            # Only where the rest holds: it may keep this from failing.
            left = candidates if kept is None else candidates.picked(kept)
            rows = until_hit if kept is None or until_hit is None else until_hit[kept]
            passed = np.flatnonzero(self.theta.holds(left, rows))
            kept = passed if kept is None else kept[passed]
        return kept

    def _bounds(self, rows: RowSet) -> list[list[Bound]]:
        """Fetch what bounds each compared build column, for each of these rows; a probe column bounding both once."""
        ranges = self.spec.ranges
        values = {
            (probe, name): cast_key(rows.gather(probe), arrow_key_type(parse_key_type(name)))
            for probe, name in dict.fromkeys((pair.probe, pair.type) for pair in ranges)
        }
        return [
            [
                Bound(_MIRRORED[pair.op], values[pair.probe, pair.type])
                for pair in ranges
                if (pair.build, pair.type) == column
            ]
            for column in self.spec.compared
        ]

    def existence(self, found: npt.NDArray[np.bool_]) -> Sequence[Column]:
        """Return the column that an existence join adds to a morsel's rows. `found` tells which have a match."""
        return [Column.of(pa.array(found))]

    def mark(self, pairs: Pairs) -> None:
        """Remember which build rows have been emitted."""
        if self.matched is not None and pairs.build_rows is not None:
            rows = pairs.build_rows
            self.matched[rows[rows >= 0] if self.outer else rows] = 1

    def unmatched(self, owned: Int64Array) -> RowIds:
        """Return those of the `owned` build rows that no probe row of this task matched."""
        assert self.matched is not None
        rows: RowIds = owned[self.matched[owned] == 0].astype(row_id_dtype(self.build.rows))
        return rows


def _looked_up(spec: JoinSpec) -> tuple[ColumnRef, ...]:
    """Return the columns that are gathered to look up rows of a join."""
    compared = [key.probe for key in spec.keys] + [pair.probe for pair in spec.ranges]
    return tuple(compared if spec.as_of is None else [*compared, spec.as_of.probe])


class Pipeline:
    """A spec bound to its build sides, for one task. `run` may be called once; `metrics` is complete afterwards.

    `output_schema` is what the result is declared to be: every batch is held against it. `headroom` reads the free
    memory (bytes and the name of the binding limit, or None if unknown), `tasks` counts those that draw on it, and
    `reclaim` gives back what was freed (see `OutputSizeController`). The task owns `cores`.
    """

    def __init__(
        self,
        spec: PipelineSpec,
        builds: Sequence[BuildSide],
        output_schema: pa.Schema,
        settings: Settings,
        headroom: Callable[[], tuple[int, str] | None],
        tasks: Callable[[str], int] = lambda limit: 1,
        reclaim: Callable[[], bool] = lambda: False,
        cores: int = 1,
        task: TaskId = NO_TASK,
    ) -> None:
        if len(builds) != len(spec.joins):
            raise ValueError(f"{len(spec.joins)} joins need as many build sides, got {len(builds)}")
        self._spec = spec
        self._joins = [_Join(*of) for of in zip(spec.joins, builds, range(1, len(builds) + 1), strict=True)]
        self._schema = output_schema
        self._settings = settings
        self._delivery = DELIVERIES[settings.delivery]
        self._threads = cores if self._delivery.parallel else 1
        limits = BudgetLimits(
            settings.morsel_min_rows,
            settings.morsel_max_rows,
            settings.morsel_max_bytes,
            settings.memory_fraction,
            self._threads,
            self._delivery.rows,
        )
        self._controller = OutputSizeController(
            self._row_bytes(), limits, headroom, tasks, reclaim, keep_decisions=settings.report_decisions
        )
        self._spending = Lock()
        self._seconds = [0.0] * (len(self._joins) + 1)
        self.metrics = TaskMetrics(task)

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join all batches; yield output batches, none of them empty. Raises `ConditionError`."""
        return self._measured(self._morsels(morsels(self._counted(batches), self._settings.morsel_max_rows)))

    def run_scanned(self, scan: ParquetScan, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        """Read these splits and join their rows; yield output batches, none of them empty. Raises `ConditionError`."""
        self.metrics.scan = scan.metrics
        return self._measured(self._scanned(scan, splits))

    def _measured(self, results: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        started = time.perf_counter()
        try:
            for batch in results:
                self.metrics.batches_out += 1
                yield batch
        except PairArithmeticError as error:
            raise ConditionError(f"the condition of join {error}") from error
        except VarBytesOverflowError as error:
            raise SchemaMismatchError("a single string or binary value holds more than 2 GiB") from error
        finally:
            # Also where a LIMIT stops the task early, or an error does.
            self._finish_metrics(started)

    def _scanned(self, scan: ParquetScan, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        row_sets = scan.row_sets(filter(partial(self._may_match, scan), splits))
        for batch in self._delivered(0, self._counted_in(row_sets)):
            scan.check_unchanged()  # a LIMIT may ask for no more
            yield batch
        scan.check_unchanged()

    def _may_match(self, scan: ParquetScan, split: Split) -> bool:
        """Return whether the partition that a split belongs to has a match wherever rows without one are dropped."""
        partitions = {number for number, column in enumerate(scan.spec.columns) if column.partition is not None}
        deciding = [join for join in self._joins if join.is_decided_by(partitions)]
        row = {number: Column.of(scan.constant(split.values, number, 1)) for number in partitions} if deciding else {}
        return all(join.build.lookup(join.keys(RowSet.of_morsel(row, 1))).matched for join in deciding)

    def _counted_in(self, row_sets: Iterable[RowSet]) -> Iterator[RowSet]:
        for rows in row_sets:
            self.metrics.morsels += 1
            self.metrics.rows_in += rows.length
            yield rows

    def _morsels(self, incoming: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        owned: list[Int64Array] = []
        probe_schemas: list[pa.Schema] = []
        yield from self._delivered(0, self._probe_rows(incoming, owned, probe_schemas))
        if owned:
            yield from self._delivered(1, self._unmatched_build_rows(np.concatenate(owned), probe_schemas[0]))

    def _probe_rows(
        self, incoming: Iterator[pa.RecordBatch], owned: list[Int64Array], probe_schemas: list[pa.Schema]
    ) -> Iterator[RowSet]:
        """Yield the probe rows of each morsel; collect which build rows the task owns, and how the probe side looks."""
        for morsel in incoming:
            self.metrics.morsels += 1
            probe, owned_rows = self._split_owned(morsel)
            self.metrics.rows_in += probe.num_rows
            if owned_rows is not None:
                owned.append(owned_rows)
            if not probe_schemas:
                probe_schemas.append(probe.schema)
            if probe.num_rows:
                yield RowSet.of_morsel([Column.of(column) for column in probe.columns], probe.num_rows)

    def _delivered(self, first: int, row_sets: Iterable[RowSet]) -> Iterator[pa.RecordBatch]:
        """Push rows through join number `first` and all that follow it, in the way that is asked for."""
        stages: list[Stage] = [partial(self._joined, number) for number in range(first, len(self._joins))]
        stages.append(self._gather)
        if self._delivery.by_sets and self._threads == 1:
            yield from set_at_a_time(stages, row_sets, None)
        elif self._threads == 1:
            yield from depth_first(stages, row_sets)
        elif self._settings.threads == "independent" and not self._delivery.by_sets:
            yield from independent(stages, row_sets, self._threads)
        else:
            with pool(self._threads) as executor:
                if self._delivery.by_sets:
                    yield from set_at_a_time(stages, row_sets, executor)
                else:
                    yield from cooperative(stages, row_sets, _parts, executor, self._threads)

    def _counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        expected = self._spec.owner_columns + self._spec.probe_columns
        for batch in batches:
            if batch.num_columns != expected:
                raise SchemaMismatchError(
                    f"the probe side arrived with {batch.num_columns} columns, the pipeline was planned for {expected}"
                )
            self.metrics.batches_in += 1
            yield batch

    def _split_owned(self, morsel: pa.RecordBatch) -> tuple[pa.RecordBatch, Int64Array | None]:
        """Part probe rows from the build row ids that were shuffled along with them (see `PipelineSpec`)."""
        if not self._spec.owner_columns:
            return morsel, None
        ids = morsel.column(0)
        probe = morsel.select(range(self._spec.owner_columns, morsel.num_columns))
        if ids.null_count < len(ids):
            probe = probe.filter(ids.is_null())
        return probe, self._owned(ids.drop_null().to_numpy(zero_copy_only=False))

    def _owned(self, ids: Int64Array) -> Int64Array:
        """Return the build rows that these ids mean: themselves, or the rows of these parts."""
        if self._spec.owned_by is None or not ids.size:
            return ids
        parts = self._joins[0].columns[self._spec.owned_by].take(None, missing=False).to_numpy(zero_copy_only=False)
        return np.flatnonzero(np.isin(parts, ids))

    def _joined(self, operator: int, rows: RowSet) -> Iterator[RowSet]:
        """Emit what join number `operator` makes of these rows."""
        join = self._joins[operator]
        # Of keys that are copied to be looked up, no more than a budget at a time.
        for piece in self._pieces(operator, rows, join.looked_up):
            started = time.perf_counter()
            matches = join.lookup(piece)
            self._spent(operator, started)
            results = self._conditional if join.is_conditional(matches) else self._unconditional
            yield from results(operator, piece, matches)

    def _pieces(self, operator: int, rows: RowSet, references: Sequence[ColumnRef]) -> Iterator[RowSet]:
        """Part rows of which columns have to be copied to be looked at."""
        if not rows.copies(references):
            yield rows
            return
        yield from rows.pieces(references, self._controller.most_bytes(operator))

    def _spent(self, operator: int, started: float) -> None:
        with self._spending:
            self._seconds[operator] += time.perf_counter() - started

    def _unconditional(self, operator: int, rows: RowSet, matches: Found) -> Iterator[RowSet]:
        """Emit what a join makes of these rows, a budget at a time."""
        join = self._joins[operator]
        for pairs in self._pairs(operator, rows.length, matches, join.probe_kind):
            join.mark(pairs)
            if join.spec.how == "existence":
                assert isinstance(matches, Matches), "one match a row is all that is asked"
                yield rows.joined(pairs, join.existence(matches.first >= 0), join.outer)
            else:
                yield rows.joined(pairs, join.columns, join.outer)

    def _conditional(self, operator: int, rows: RowSet, matches: Found) -> Iterator[RowSet]:
        """The same for a join with a condition beside its keys: which rows match is known when all pairs were tried."""
        join = self._joins[operator]
        found = np.zeros(rows.length, dtype=np.bool_)
        for pairs in self._pairs(operator, rows.length, matches, "inner"):
            probe_rows = np.arange(pairs.length) if pairs.probe_rows is None else pairs.probe_rows
            tried = 0
            pairs_tried = rows.joined(pairs, join.build.columns, outer=False)
            for candidates in self._pieces(operator, pairs_tried, join.tested):
                started = time.perf_counter()
                of_piece = probe_rows[tried : tried + candidates.length]
                # What comes behind the first match of a row is not looked at, where that match is all that counts.
                counts = join.probe_kind in ("inner", "left")
                kept = join.kept(candidates, None if counts else np.where(found[of_piece], -1, of_piece))
                found[of_piece if kept is None else of_piece[kept]] = True
                tried += candidates.length
                given = candidates if kept is None else candidates.picked(kept)
                self._spent(operator, started)
                if given.length and join.probe_kind in ("inner", "left"):
                    yield given
        yield from self._decided(operator, rows, found)

    def _decided(self, operator: int, rows: RowSet, found: npt.NDArray[np.bool_]) -> Iterator[RowSet]:
        """Emit what a join makes of each of these rows once, now that it is known which found a match."""
        join = self._joins[operator]
        kind = join.probe_kind
        if kind == "inner":
            return
        wanted = np.arange(rows.length) if kind == "existence" else np.flatnonzero(found == (kind == "semi"))
        ids = frozen(wanted.astype(row_id_dtype(rows.length)))
        start = 0
        while start < ids.size:
            piece = ids[start : start + self._controller.budget(operator).rows]
            build_rows = {"left": np.full_like(piece, -1), "existence": piece}.get(kind)
            columns = join.existence(found) if kind == "existence" else join.columns
            yield rows.joined(Pairs(piece.size, piece, build_rows), columns, join.outer)
            self._controller.observe(operator, 0, piece.size, None)
            start += piece.size

    def _pairs(self, operator: int, rows_in: int, matches: Found, kind: str) -> Iterator[Pairs]:
        """Expand matches, a budget at a time. Budgets are decided when the next pairs are asked for."""
        if not isinstance(matches, Matches):
            yield from self._found_pairs(operator, matches, kind)
            return
        remaining = matches.output_rows(kind)
        cursor = START
        while remaining:
            started = time.perf_counter()
            budget = self._controller.budget(operator).rows
            before = cursor.row
            pairs, cursor = probe(matches, kind, cursor, budget, remaining)
            remaining -= pairs.length
            used = cursor.row - before if remaining else rows_in
            rows_in -= used
            self._controller.observe(operator, used, pairs.length, None)
            self._spent(operator, started)
            yield pairs
        if rows_in:
            self._controller.observe(operator, rows_in, 0, None)

    def _found_pairs(self, operator: int, candidates: Candidates | NestedLoop, kind: str) -> Iterator[Pairs]:
        """Find matches, a budget at a time."""
        cursor, ended = START, False
        while not ended:
            started = time.perf_counter()
            budget = self._controller.budget(operator).rows
            before = cursor.row
            pairs, cursor, ended = candidates.probe(kind, cursor, budget)
            self._controller.observe(operator, cursor.row - before, pairs.length, None)
            self._spent(operator, started)
            if pairs.length:
                yield pairs

    def _gather(self, rows: RowSet) -> Iterator[pa.RecordBatch]:
        """Fetch the payload, in as many batches as its budget asks for."""
        gather = len(self._joins)
        start = 0
        while start < rows.length:
            budget = self._controller.budget(gather)
            started = time.perf_counter()
            piece = rows.slice(start, min(budget.rows, rows.length - start))
            piece = piece.slice(0, next(piece.within(self._spec.outputs, budget.bytes)))
            batch = self._output_batch(piece)
            self._spent(gather, started)
            self._controller.observe(gather, piece.length, piece.length, batch.nbytes)
            start += piece.length
            yield batch

    def _output_batch(self, rows: RowSet) -> pa.RecordBatch:
        """Gather all output columns."""
        arrays = [self._output(rows, number, ref) for number, ref in enumerate(self._spec.outputs)]
        # Rows without columns are as many nulls where a column is declared, else structs of no field.
        if not arrays and len(self._schema):
            arrays = [pa.nulls(rows.length, self._schema.field(0).type)]
        if arrays:
            return pa.RecordBatch.from_arrays(arrays, names=self._schema.names)
        return pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), rows.length, [None]))

    def _output(self, rows: RowSet, number: int, reference: ColumnRef) -> pa.Array:
        """Gather one output column and hold it against the declared type."""
        array = rows.gather(reference)
        field = self._schema.field(number)
        try:
            return conform(array, field.type)
        except pa.ArrowException as error:
            raise SchemaMismatchError(
                f"output column {field.name!r} is declared as {field.type}, the pipeline produced {array.type}: {error}"
            ) from error

    def _unmatched_build_rows(self, owned: Int64Array, probe_schema: pa.Schema) -> Iterator[RowSet]:
        """Emit the build rows that no probe row matched, with nulls for the probe side (right and full joins)."""
        join = self._joins[0]
        rows = join.unmatched(owned)
        no_probe = [Column.of(pa.array([], field.type)) for field in probe_schema]
        start = 0
        while start < rows.size:
            length = min(self._controller.budget(0).rows, rows.size - start)
            missing = SourceRows(frozen(np.full(length, -1, dtype=rows.dtype)), missing=True)
            build_rows = SourceRows(frozen(rows[start : start + length]))
            self._controller.observe(0, 0, length, None)
            yield RowSet(length, (no_probe, join.columns), (missing, build_rows))
            start += length

    def _row_bytes(self) -> list[float]:
        """First estimates of a row's size per operator: row ids and lookups for joins, payload for the gather."""
        sizes = [float(_ROW_ID_BYTES * (number + 2) + _LOOKUP_BYTES) for number in range(len(self._joins))]
        payload = 0.0
        for reference in self._spec.outputs:
            join = None if reference.source == PROBE else self._joins[reference.source - 1]
            if join is None or join.spec.how == "existence":
                payload += _ROW_ID_BYTES
            else:
                payload += join.columns[reference.column].value_bytes
        return [*sizes, payload]

    def _finish_metrics(self, started: float) -> None:
        self.metrics.operators = self._controller.summaries()
        self.metrics.seconds = self._seconds
        # Decisions are timed by the clock that never jumps; it is set by the other one here, once, when all are made.
        epoch = time.time() - time.monotonic()
        self.metrics.decisions = [
            (epoch + decision.time, decision.operator, decision.headroom, decision.budget, decision.produced)
            for decision in self._controller.decisions
        ]
        self.metrics.indexes = [{**vars(join.build.info), "reused": join.build.reused} for join in self._joins]
        self.metrics.elapsed_seconds = time.perf_counter() - started
        self.metrics.started = time.time() - self.metrics.elapsed_seconds


def _parts(rows: RowSet, threads: int) -> list[RowSet]:
    """Divide rows among threads, as far as that pays."""
    return rows.parts(max(1, min(threads, rows.length // _LEAST_PART_ROWS)))
