"""The pipeline interpreter against the oracle: chains of joins, with every budget, in order."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.config import Settings, read_settings
from sparkext.engine import delivery
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.operators import join as join_module
from sparkext.engine.pipeline import Pipeline, Resources
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.errors import SchemaMismatchError
from sparkext.kernels.columns import gather, row_ids
from sparkext.kernels.indexes.matches import Pairs
from sparkext.kernels.runtime.jit import JIT_ENABLED
from sparkext.plans.adaptive import index_choice as plans_algorithm
from sparkext.plans.pipeline.spec import RANGE_OPERATORS, ColumnRef, JoinSpec, KeyPair, PipelineSpec, RangePair
from tests.oracle import pipelines as oracle
from tests.oracle.pipelines import Reference, Step
from tests.oracle.rows import canonical_rows
from tests.support.kernel_inputs import FULL_MASK, examples

DEFAULTS = read_settings(lambda _: None, {})
Headroom = Callable[[], "tuple[int, str] | None"]
HEADROOMS: dict[str, Headroom] = {
    "unknown": lambda: None,
    "tiny": lambda: (1, "cgroup"),
    "huge": lambda: (1 << 60, "cgroup"),
    "negative": lambda: (-5, "rlimit"),
}

# Every table of these tests has these columns; the middle ones are keys.
TYPES = [pa.int64(), pa.int64(), pa.string(), pa.float64(), pa.decimal128(30, 2), pa.list_(pa.int32()), pa.string()]
KEY_TYPES = {1: "int64", 2: "string", 3: "float64", 4: "decimal(30,2)"}
FLOATS = [0.0, -0.0, 1.5, float("nan"), float("inf")]


def settings(**changes: Any) -> Settings:
    return replace(DEFAULTS, **changes)


def rows_bound(budget: int | None) -> Settings:
    """Return settings under which no operator may emit more rows than this."""
    return DEFAULTS if budget is None else settings(morsel_max_rows=budget, morsel_min_rows=1)


def arrow_reference(reference: Reference) -> ColumnRef:
    otherwise = None if reference.otherwise is None else arrow_reference(reference.otherwise)
    return ColumnRef(reference.source, reference.column, otherwise)


def make_table(
    generator: random.Random, rows: int, null_rate: float, distinct: int = 4, stride: int = 1
) -> list[list[Any]]:
    """Return columns as Python values: row number, four key columns with few values, two of payload.

    A large `stride` prevents direct addressing of integer keys.
    """

    def column(value: Callable[[], Any]) -> list[Any]:
        return [None if generator.random() < null_rate else value() for _ in range(rows)]

    return [
        list(range(rows)),
        column(lambda: generator.randrange(distinct) * stride),
        column(lambda: "key" * generator.randrange(distinct)),
        column(lambda: generator.choice(FLOATS[:distinct])),
        column(lambda: generator.randrange(distinct) * 10**20),
        column(lambda: [generator.randrange(9)] * generator.randrange(3)),
        column(lambda: "payload " * generator.randrange(4)),
    ]


def arrays_of(table: Sequence[Sequence[Any]], types: Sequence[pa.DataType] = TYPES) -> list[pa.Array]:
    return [pa.array(column, kind) for column, kind in zip(table, types, strict=True)]


def build_side(arrays: Sequence[pa.Array], rows: int, join: JoinSpec, hash_mask: int) -> BuildSide:
    recipe = derive_index_recipe(PipelineSpec(0, (join,), ()), 0, hash_mask)
    build = index_in_memory(rows, arrays, replace(recipe, gathered=tuple(range(len(arrays)))))
    if join.ranges:
        assert build.index.kind == "range"
        return build
    addressed = "key set" if join.tests_keys else "dense"
    allowed = {"ordered"} if join.algorithm == "sort_merge" else {"hash", addressed}
    assert build.index.kind in (allowed if join.keys else {"all rows"})
    return build


def batches_of(
    arrays: Sequence[pa.Array], rows: int, cuts: Sequence[int], types: Sequence[pa.DataType] = TYPES
) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches that end at `cuts`; equal cuts give empty batches."""
    schema = pa.schema([(f"c{number}", kind) for number, kind in enumerate(types)])
    whole = pa.RecordBatch.from_arrays(list(arrays), schema=schema)
    for start, stop in itertools.pairwise([0, *sorted(cuts), rows]):
        yield whole.slice(start, stop - start)


class Case:
    """A chain of joins over random tables, in the forms of the oracle and of the pipeline."""

    def __init__(
        self,
        tables: Sequence[Sequence[Sequence[Any]]],
        steps: Sequence[Step],
        outputs: Sequence[Reference],
        algorithms: Sequence[str] | None = None,
        hash_mask: int = FULL_MASK,
    ) -> None:
        self.tables = tables
        self.lengths = [len(table[0]) for table in tables]
        self.steps = steps
        self.outputs = outputs
        joins = tuple(
            JoinSpec(
                step.how,
                tuple(
                    KeyPair(arrow_reference(reference), column, KEY_TYPES[column], safe)
                    for (reference, column), safe in zip(step.keys, step.null_safe, strict=True)
                ),
                algorithm,
                f"join {number}",
                ranges=tuple(
                    RangePair(arrow_reference(reference), op, column, KEY_TYPES[column])
                    for reference, op, column in step.ranges
                ),
            )
            for number, (step, algorithm) in enumerate(zip(steps, algorithms or ["auto"] * len(steps), strict=True))
        )
        preserving = joins[0].how in ("right", "full")
        self.spec = PipelineSpec(
            len(TYPES), joins, tuple(arrow_reference(output) for output in outputs), 2 if preserving else 0
        )
        self.builds = [
            build_side(arrays_of(table), len(table[0]), join, hash_mask)
            for table, join in zip(tables[1:], joins, strict=True)
        ]
        self.schema = pa.schema([(f"out{i}", TYPES[output.column]) for i, output in enumerate(outputs)])
        self.stages = oracle.run(tables, self.lengths, steps)

    @property
    def expected(self) -> list[list[Any]]:
        return [[output.value(self.tables, row) for output in self.outputs] for row in self.stages[-1]]

    def source(
        self, cuts: Sequence[int] = (), owned: Sequence[int] | None = None, with_settings: Settings = DEFAULTS
    ) -> RowBatches:
        return RowBatches(self.input(cuts, owned), self.spec, with_settings.morsel_max_rows)

    def input(self, cuts: Sequence[int] = (), owned: Sequence[int] | None = None) -> Iterator[pa.RecordBatch]:
        """Return the probe side; for a right or full join, build row ids are mixed in."""
        arrays = arrays_of(self.tables[0])
        if not self.spec.owner_columns:
            return batches_of(arrays, self.lengths[0], cuts)
        owned = range(self.lengths[1]) if owned is None else owned
        total = self.lengths[0] + len(owned)
        # Row r of the input is a probe row if r is even and probe rows are left.
        order = sorted(
            [(2 * i, i, None) for i in range(self.lengths[0])] + [(2 * i + 1, None, o) for i, o in enumerate(owned)]
        )
        ids = pa.array([owner for _, _, owner in order], pa.int64())
        picks = pa.array([probe for _, probe, _ in order], pa.int64())
        shuffled = pa.array(["only for the shuffle"] * total)
        columns = [ids, shuffled, *(array.take(picks) for array in arrays)]
        return batches_of(columns, total, cuts, [pa.int64(), pa.string(), *TYPES])

    def pipeline(self, with_settings: Settings = DEFAULTS, headroom: Headroom = HEADROOMS["unknown"]) -> Pipeline:
        spec = pickle.loads(pickle.dumps(self.spec))
        return create_pipeline(spec, self.builds, self.schema, with_settings, Resources(headroom))

    def check(
        self,
        with_settings: Settings = DEFAULTS,
        headroom: Headroom = HEADROOMS["unknown"],
        cuts: Sequence[int] = (),
        bound: int | None = None,
    ) -> Pipeline:
        """Assert the oracle's rows, in its order without ranges, and that every batch has its schema and its bound."""
        pipeline = self.pipeline(with_settings, headroom)
        rows = rows_in_order(
            pipeline.run(self.source(cuts, with_settings=with_settings)),
            self.schema,
            bound or with_settings.morsel_max_rows,
        )
        got, expected = canonical_rows(rows), canonical_rows(self.arrow_values(self.expected))
        ranged = any(step.ranges for step in self.steps)
        assert sorted(got) == sorted(expected) if ranged else got == expected
        return pipeline

    def arrow_values(self, rows: list[list[Any]]) -> list[list[Any]]:
        """Return oracle rows in the types that Arrow returns (integers in decimal columns become decimals)."""
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self.outputs)
        arrays = [pa.array(list(column), field.type) for column, field in zip(columns, self.schema, strict=False)]
        return [list(row) for row in zip(*(array.to_pylist() for array in arrays), strict=True)] if arrays else rows


def rows_in_order(batches: Iterator[pa.RecordBatch], schema: pa.Schema, bound: int) -> list[list[Any]]:
    rows: list[list[Any]] = []
    for batch in batches:
        batch.validate(full=True)
        assert 1 <= batch.num_rows <= bound
        assert batch.schema == schema
        columns = [column.to_pylist() for column in batch.columns]
        rows.extend(list(row) for row in zip(*columns, strict=True)) if columns else rows.extend([[]] * batch.num_rows)
    return rows


HOWS = ["inner", "left", "semi", "anti", "right", "full"]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    generator = random.Random(draw(st.integers(0, 1 << 32), label="seed"))
    joins = draw(st.integers(1, 3), label="joins")
    null_rate = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]), label="null rate")
    sizes = [draw(st.integers(0, 12 if joins < 3 else 7), label="rows") for _ in range(joins + 1)]
    stride = draw(st.sampled_from([1, 1 << 40]), label="stride")
    tables = [make_table(generator, size, null_rate, stride=stride) for size in sizes]
    steps: list[Step] = []
    visible = [0]
    for number in range(joins):
        how = draw(st.sampled_from(HOWS if number == 0 else HOWS[:4]), label="how")
        keys, null_safe = [], []
        for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3, 0]), label="keys")):
            column = draw(st.sampled_from(sorted(KEY_TYPES)))
            keys.append((Reference(draw(st.sampled_from(visible)), column), column))
            null_safe.append(draw(st.booleans()))
        ranges = []
        if draw(st.booleans(), label="ranged"):
            compared = draw(st.lists(st.sampled_from(sorted(KEY_TYPES)), min_size=1, max_size=2), label="compared")
            for column in draw(st.lists(st.sampled_from(compared), min_size=1, max_size=4), label="comparisons"):
                op = draw(st.sampled_from(RANGE_OPERATORS), label="operator")
                ranges.append((Reference(draw(st.sampled_from(visible)), column), op, column))
        if how in ("right", "full") and not keys and not ranges:
            how = "inner"
        steps.append(Step(how, keys, null_safe, ranges))
        if how not in ("semi", "anti"):
            visible.append(number + 1)
    outputs = [Reference(source, 0) for source in visible]
    outputs += [
        Reference(draw(st.sampled_from(visible)), draw(st.integers(1, len(TYPES) - 1)))
        for _ in range(draw(st.integers(0, 3), label="payload columns"))
    ]
    algorithms = [draw(st.sampled_from(["auto", "hash", "sort_merge"])) for _ in steps]
    hash_mask = draw(st.sampled_from([FULL_MASK, 0]), label="hash mask")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_ids, "NARROW_ROWS", draw(st.sampled_from([0, 1 << 31]), label="narrow below"))
        patch.setattr(plans_algorithm, "CLUSTERED_ROWS_PER_KEY", draw(st.sampled_from([1, 4]), label="rows per key"))
        return Case(tables, steps, outputs, algorithms, hash_mask)


@given(case=cases(), data=st.data())
@examples(150)
def test_any_chain(case: Case, data: st.DataObject) -> None:
    total = case.lengths[0] + (case.lengths[1] if case.spec.owner_columns else 0)
    cuts = data.draw(st.lists(st.integers(0, total), max_size=4), label="cuts")
    budget = data.draw(st.sampled_from([1, 2, 7, None]), label="budget")
    headroom = data.draw(st.sampled_from(sorted(HEADROOMS)), label="headroom")
    case.check(rows_bound(budget), HEADROOMS[headroom], cuts)


@pytest.mark.parametrize("budget", [1, 7, None])
@pytest.mark.parametrize("algorithm", ["auto", "sort_merge"])
@pytest.mark.parametrize("how", [*HOWS, "cross"])
@pytest.mark.parametrize("column", KEY_TYPES)
def test_every_kind_of_join(how: str, column: int, algorithm: str, budget: int | None) -> None:
    generator = random.Random(f"{how} {column}")
    tables = [make_table(generator, 14, 0.2, distinct=5), make_table(generator, 11, 0.2, distinct=3)]
    keys = [] if how == "cross" else [(Reference(0, column), column)]
    outputs = [Reference(0, 0), Reference(0, 6), Reference(0, 5)]
    if how not in ("semi", "anti"):
        outputs += [Reference(1, 0), Reference(1, 2), Reference(1, 4), Reference(1, 5)]
    for null_safe in (False, True):
        steps = [Step("inner" if how == "cross" else how, keys, [null_safe] * len(keys))]
        case = Case(tables, steps, outputs, [algorithm])
        assert case.expected
        case.check(rows_bound(budget), cuts=[3, 3, 5])


@pytest.mark.parametrize("algorithm", ["auto", "sort_merge"])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("column", KEY_TYPES)
def test_many_rows_a_key(how: str, column: int, algorithm: str) -> None:
    """Payload is from a copy in key order, unless the join requires build row ids or no payload."""
    generator = random.Random(f"{how} {column}")
    tables = [make_table(generator, 9, 0.2, distinct=4), make_table(generator, 50, 0.2, distinct=3)]
    outputs = [Reference(0, 0)] + ([] if how in ("semi", "anti") else [Reference(1, c) for c in (0, 2, 5, 6)])
    case = Case(tables, [Step(how, [(Reference(0, column), column)], [False])], outputs, [algorithm])
    assert case.builds[0].info.clustered == (how in ("inner", "left"))
    assert ("order" in case.builds[0].info.reason) == (how in ("inner", "left"))
    for budget in (1, 7, None):
        case.check(rows_bound(budget), cuts=[3, 3, 5])


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("probe_rows, build_rows", [(0, 5), (5, 0), (0, 0), (1, 1)])
def test_empty_sides(how: str, probe_rows: int, build_rows: int) -> None:
    generator = random.Random(1)
    tables = [make_table(generator, probe_rows, 0.0, distinct=1), make_table(generator, build_rows, 0.0, distinct=1)]
    outputs = [Reference(0, 0), Reference(0, 5)] + (
        [] if how in ("semi", "anti") else [Reference(1, 0), Reference(1, 6)]
    )
    for algorithm in ("auto", "sort_merge"):
        Case(tables, [Step(how, [(Reference(0, 1), 1)], [False])], outputs, [algorithm]).check()


def test_no_batches_at_all() -> None:
    case = three_joins()
    assert list(case.pipeline().run(RowBatches([], case.spec, 1000))) == []


def three_joins(rows: int = 12) -> Case:
    """Return joins with keys from the probe side and from both earlier build sides."""
    generator = random.Random(5)
    tables = [make_table(generator, rows, 0.1) for _ in range(4)]
    steps = [
        Step("left", [(Reference(0, 1), 1)], [False]),
        Step("inner", [(Reference(1, 2), 2), (Reference(0, 1), 1)], [True, False]),
        Step("left", [(Reference(2, 4), 4)], [False]),
    ]
    return Case(tables, steps, [Reference(source, 0) for source in range(4)] + [Reference(3, 6), Reference(1, 5)])


@pytest.mark.parametrize("headroom", HEADROOMS)
def test_budgets_follow_the_headroom(headroom: str) -> None:
    """No batch exceeds the controller's limit: the minimum if memory is scarce, otherwise the maximum."""
    case = three_joins()
    limits = settings(morsel_max_rows=50, morsel_min_rows=3)
    short = headroom in ("tiny", "negative")
    pipeline = case.check(limits, HEADROOMS[headroom], bound=3 if short else 50)
    for operator in pipeline.metrics.operators:
        assert operator["budget_min"] == operator["budget_max"] == (3 if short else 50)


def test_a_headroom_that_changes_during_the_run() -> None:
    readings = itertools.cycle([None, (1, "cgroup"), (1 << 50, "rlimit"), (4096, "cgroup")])
    three_joins().check(settings(morsel_max_rows=20, morsel_min_rows=1), lambda: next(readings))


@pytest.mark.parametrize("budget", [1, 5, 1000])
def test_no_operator_produces_more_than_its_budget(monkeypatch: pytest.MonkeyPatch, budget: int) -> None:
    case = three_joins(rows=20 if JIT_ENABLED else 8)
    produced: list[int] = []
    probe = join_module.probe

    def spy(*args: Any) -> Any:
        pairs, cursor = probe(*args)
        assert isinstance(pairs, Pairs)
        produced.append(pairs.length)
        return pairs, cursor

    monkeypatch.setattr(join_module, "probe", spy)
    case.check(rows_bound(budget))
    assert max(produced) <= budget
    assert len(produced) >= sum(len(stage) for stage in case.stages[1:]) / budget


def test_output_is_lazy_and_small_whatever_the_fan_out() -> None:
    """The first rows of a cross join of 10^10 rows are emitted immediately, in a batch within budget."""
    rows = 100_000
    join = JoinSpec("inner", (), "auto", "cross")
    spec = PipelineSpec(1, (join, join), (ColumnRef(0, 0), ColumnRef(2, 0)))
    column = pa.array(np.arange(rows))
    builds = [build_side([column], rows, join, FULL_MASK) for _ in range(2)]
    schema = pa.schema([("a", pa.int64()), ("b", pa.int64())])
    thousand = settings(morsel_max_rows=1000, morsel_min_rows=1)
    batches = create_pipeline(spec, builds, schema, thousand, Resources(lambda: None)).run(
        RowBatches([pa.record_batch({"k": column})], spec, 1000)
    )
    for number in range(3):
        batch = next(batches)
        assert batch.column(0).to_pylist() == [0] * 1000
        assert batch.column(1).to_pylist() == list(range(1000 * number, 1000 * (number + 1)))
    batches.close()


def test_one_key_with_many_matches() -> None:
    many = 300_000 if JIT_ENABLED else 3_000
    join = JoinSpec("inner", (KeyPair(ColumnRef(0, 0), 0, "int64", False),), "auto", "skew")
    spec = PipelineSpec(1, (join,), (ColumnRef(0, 0), ColumnRef(1, 1)))
    arrays = [pa.array(np.full(many, 7)), pa.array(np.arange(many))]
    builds = [build_side(arrays, many, join, FULL_MASK)]
    schema = pa.schema([("k", pa.int64()), ("row", pa.int64())])
    thousand = settings(morsel_max_rows=1000, morsel_min_rows=1)
    pipeline = create_pipeline(spec, builds, schema, thousand, Resources(lambda: None))
    found = list(pipeline.run(RowBatches([pa.record_batch({"k": [3, 7, None]})], spec, 1000)))
    assert {batch.num_rows for batch in found} == {1000}
    table = pa.Table.from_batches(found)
    assert table.column(0).unique().to_pylist() == [7]
    assert np.array_equal(table.column(1).to_numpy(), np.arange(many))


@pytest.mark.parametrize("how", HOWS)
def test_zero_payload_columns(how: str) -> None:
    """Only the number of rows remains (Spark prunes all columns below a count)."""
    generator = random.Random(2)
    tables = [make_table(generator, rows, 0.2) for rows in (9, 8)]
    case = Case(tables, [Step(how, [(Reference(0, 1), 1)], [False])], [])
    assert len(case.expected) > 7 or how in ("semi", "anti")
    case.check(rows_bound(7))


def test_metrics_count_rows_of_every_operator() -> None:
    case = three_joins()
    for budget in (1, 7, None):
        metrics = case.check(rows_bound(budget), cuts=[2, 6, 6]).metrics
        counts = [len(stage) for stage in case.stages]
        assert metrics.rows_in == counts[0]
        assert metrics.batches_in == 4
        assert [operator["rows_in"] for operator in metrics.operators] == counts
        assert [operator["rows_out"] for operator in metrics.operators] == [*counts[1:], counts[-1]]
        assert metrics.batches_out == metrics.operators[-1]["calls"]
        assert [index["kind"] for index in metrics.indexes] == [build.index.kind for build in case.builds]
        assert len(metrics.seconds) == 4


# Right and full joins: the owner of a build row emits it if it has no match.


@pytest.mark.parametrize("how", ["right", "full"])
def test_only_owned_build_rows_come_unmatched(how: str) -> None:
    generator = random.Random(3)
    tables = [make_table(generator, rows, 0.2) for rows in (6, 30)]
    case = Case(tables, [Step(how, [(Reference(0, 2), 2)], [False])], [Reference(0, 0), Reference(1, 0)])
    unmatched = [row for row in case.expected if row[0] is None]
    matched = [row for row in case.expected if row[0] is not None]
    assert len(unmatched) > 4
    for owned in ([], [row[1] for row in unmatched[::2]], [29, 0, 13]):
        got = rows_in_order(case.pipeline().run(case.source(owned=owned)), case.schema, 1 << 20)
        assert got[: len(matched)] == matched
        absent = {row[1] for row in unmatched}
        assert got[len(matched) :] == [[None, row] for row in owned if row in absent]


@pytest.mark.parametrize("how", ["right", "full"])
@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_tasks_that_share_the_keys_give_each_build_row_once(how: str, tasks: int) -> None:
    """As in Spark's shuffle: one task has all rows of a key, and so all matches of the build rows that it owns."""
    generator = random.Random(4)
    probe, build = make_table(generator, 40, 0.2, distinct=5), make_table(generator, 30, 0.2, distinct=9)
    step = Step(how, [(Reference(0, 1), 1)], [False])
    follow = Step("left", [(Reference(1, 2), 2)], [False])
    outputs = [Reference(0, 0), Reference(1, 0), Reference(2, 0), Reference(1, 6)]
    whole = Case([probe, build, build], [step, follow], outputs)

    def task_of(key: Any) -> int:
        return 0 if key is None else int(key) % tasks

    got: list[list[Any]] = []
    for task in range(tasks):
        mine = [row for row in range(40) if task_of(probe[1][row]) == task]
        case = Case([[[column[row] for row in mine] for column in probe], build, build], [step, follow], outputs)
        owned = [row for row in range(30) if task_of(build[1][row]) == task]
        got += rows_in_order(
            case.pipeline(rows_bound(7)).run(case.source([5, 20], owned, rows_bound(7))), case.schema, 7
        )
    assert sorted(canonical_rows(got)) == sorted(canonical_rows(whole.arrow_values(whole.expected)))


def test_a_task_with_build_rows_but_no_probe_rows() -> None:
    generator = random.Random(6)
    tables = [make_table(generator, 0, 0.0), make_table(generator, 5, 0.3)]
    outputs = [Reference(0, column) for column in range(len(TYPES))] + [Reference(1, 0)]
    case = Case(tables, [Step("full", [(Reference(0, 1), 1)], [True])], outputs)
    assert len(case.expected) == 5
    case.check(cuts=[2])


@pytest.mark.parametrize("left, right", [("int32", "int64"), ("int64", "int32"), ("int64", "int64"), ("int8", "int64")])
def test_the_key_of_a_full_join_with_using_is_whichever_side_has_it(left: str, right: str) -> None:
    """The key has the wider type of the two, without losing digits: `coalesce(left, right)` in Spark."""
    far = {"int8": 100, "int32": 2**31 - 1, "int64": 2**40}
    probe, build = [1, far[left], None], [1, far[right] - 5, None]
    using = ColumnRef(0, 0, ColumnRef(1, 0), "int64")
    full = JoinSpec("full", (KeyPair(ColumnRef(0, 0), 0, "int64", False),), "auto", "using")
    # The second join is on the key of the first.
    left_join = JoinSpec("left", (KeyPair(using, 0, "int64", False),), "auto", "next")
    spec = PipelineSpec(1, (full, left_join), (using, ColumnRef(2, 0)), 1)
    types = {"int8": pa.int8(), "int32": pa.int32(), "int64": pa.int64()}
    build_arrays = [pa.array(build, types[right])]
    next_arrays = [pa.array([1, *far.values(), *(value - 5 for value in far.values())], pa.int64())]
    builds = [build_side(build_arrays, 3, full, FULL_MASK), build_side(next_arrays, 7, left_join, FULL_MASK)]
    schema = pa.schema([("k", pa.int64()), ("next", pa.int64())])
    batch = pa.record_batch(
        {"owner": pa.array([None] * 3 + [0, 1, 2], pa.int64()), "k": pa.array([*probe, None, None, None], types[left])}
    )
    pipeline = create_pipeline(spec, builds, schema, DEFAULTS, Resources(lambda: None))
    got = rows_in_order(pipeline.run(RowBatches([batch], spec, 1000)), schema, 10)
    assert sorted(got, key=repr) == sorted(
        [[1, 1], [far[left]] * 2, [None, None], [far[right] - 5] * 2, [None, None]], key=repr
    )


# Types, and values that do not fit.


TYPED_JOIN = JoinSpec("inner", (KeyPair(ColumnRef(0, 0), 0, "int64", False),), "auto", "typed")
TYPED = PipelineSpec(1, (TYPED_JOIN,), (ColumnRef(0, 0), ColumnRef(1, 1)))


def typed_rows(*batches: pa.RecordBatch) -> RowBatches:
    return RowBatches(batches, TYPED, DEFAULTS.morsel_max_rows)


def one_join(
    output: pa.DataType,
    payload: pa.Array,
    name: str = "price",
    with_settings: Settings = DEFAULTS,
    headroom: Headroom = HEADROOMS["unknown"],
) -> tuple[Pipeline, pa.RecordBatch]:
    """Return a pipeline whose output `name` has type `output` and is computed from `payload`, and its input."""
    keys = pa.array(range(len(payload)), pa.int64())
    builds = [build_side([keys, payload], len(payload), TYPED_JOIN, FULL_MASK)]
    schema = pa.schema([("key", pa.int64()), (name, output)])
    pipeline = create_pipeline(TYPED, builds, schema, with_settings, Resources(headroom))
    return pipeline, pa.record_batch({"key": keys})


@pytest.mark.parametrize(
    "declared, produced",
    [
        (pa.int32(), pa.array([2**40])),
        (pa.int64(), pa.array(["text"])),
        (pa.int64(), pa.array([1.5])),
        (pa.int64(), pa.array([[1]])),
        (pa.struct([("x", pa.int64())]), pa.array([1])),
        (pa.date32(), pa.array([b"binary"])),
        (pa.decimal128(5, 2), pa.array([10**6])),
    ],
    ids=lambda value: str(value.type if isinstance(value, pa.Array) else value),
)
def test_a_type_that_does_not_fit_names_its_column(declared: pa.DataType, produced: pa.Array) -> None:
    pipeline, batch = one_join(declared, produced)
    with pytest.raises(SchemaMismatchError, match="'price'"):
        list(pipeline.run(typed_rows(batch)))


def test_large_strings_come_out_as_declared() -> None:
    pipeline, batch = one_join(pa.string(), pa.array(["a", None, "c"], pa.large_string()))
    (output,) = pipeline.run(typed_rows(batch))
    assert output.schema.field("price").type == pa.string()
    assert output.column("price").to_pylist() == ["a", None, "c"]


def test_a_probe_side_of_another_width_is_refused() -> None:
    pipeline, _ = one_join(pa.string(), pa.array(["a"]))
    with pytest.raises(SchemaMismatchError, match="2 columns, but the pipeline was planned for 1"):
        list(pipeline.run(typed_rows(pa.record_batch({"a": [1], "b": [2]}))))


def test_every_join_needs_its_build_side() -> None:
    case = three_joins()
    with pytest.raises(ValueError, match="3 joins need one build side each, got 2"):
        create_pipeline(case.spec, case.builds[:2], case.schema, DEFAULTS, Resources(lambda: None))


def test_batches_hold_as_many_strings_as_they_may() -> None:
    payload = ["x" * size for size in (30, 30, 30, 30, 0, 90, 10, 1, 100, 99, 500, 3)]
    pipeline, batch = one_join(pa.string(), pa.array(payload), with_settings=settings(morsel_max_bytes=300))
    found = list(pipeline.run(typed_rows(batch, batch)))
    assert [value for output in found for value in output.column("price").to_pylist()] == payload * 2
    for output in found:
        assert output.num_rows == 1 or sum(len(value) + 4 for value in output.column("price").to_pylist()) <= 300
    assert 4 < len(found) < 24
    assert pipeline.metrics.batches_out == len(found)


@pytest.mark.parametrize("free", [0, 1 << 20, 8 << 20])
def test_wide_rows_stay_within_what_memory_allows(free: int) -> None:
    """200 rows of 100 KB and one of 20 MB: batches of a mebibyte, a sixth of the headroom, or one row."""
    payload = ["x" * 100_000] * 200 + ["y" * 20_000_000] + ["z"]
    pipeline, batch = one_join(pa.string(), pa.array(payload), headroom=lambda: (free, "cgroup"))
    most = max(1 << 20, free // 6)
    count = 0
    for output in pipeline.run(typed_rows(batch)):
        assert output.num_rows == 1 or output.nbytes <= most
        count += output.num_rows
    assert count == len(payload)


NESTED: dict[str, tuple[pa.DataType, Callable[[bytes], Any]]] = {
    "list": (pa.list_(pa.binary()), lambda value: [value[:1], value[1:]]),
    "struct": (pa.struct([("x", pa.int64()), ("y", pa.list_(pa.binary()))]), lambda value: {"x": 1, "y": [value]}),
    "map": (pa.map_(pa.string(), pa.binary()), lambda value: [("a", b""), ("b", value)]),
}


@pytest.mark.parametrize("kind", NESTED)
def test_a_nested_value_of_100_mb_stays_within_what_memory_allows(kind: str) -> None:
    """Its small neighbours hide it in their average: it is emitted alone, and they by the budget."""
    arrow_type, made = NESTED[kind]
    payload = pa.array([made(b"tiny" * (row % 5)) for row in range(3_000)], arrow_type)
    payload = pa.concat_arrays([payload, pa.array([made(b"x" * 100_000_000)], arrow_type), payload])
    pipeline, batch = one_join(arrow_type, payload, headroom=lambda: (0, "cgroup"))
    rows = []
    for output in pipeline.run(typed_rows(batch)):
        assert output.num_rows == 1 or output.nbytes <= 1 << 20
        rows.append(output.num_rows)
    assert sum(rows) == len(payload) and 1 in rows


def test_outputs_of_nested_values_stay_below_their_limit() -> None:
    payload = pa.array([[b""]] * 98 + [[b"x" * 1_000_000]] * 2, pa.list_(pa.binary()))
    pipeline, _ = one_join(payload.type, payload, with_settings=settings(morsel_max_bytes=21_464_350))
    rows = [output.num_rows for output in pipeline.run(typed_rows(pa.record_batch({"key": [98, 99] * 15})))]
    assert rows == [21, 9]


def test_a_row_that_no_batch_can_hold_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "MAX_VAR_BYTES", 100)
    monkeypatch.setattr(gather, "_ONE_PASS_BYTES", 0)
    payload = pa.array(["short", "x" * 101])
    pipeline, batch = one_join(pa.string(), payload, with_settings=settings(morsel_max_bytes=100))
    with pytest.raises(SchemaMismatchError, match="more than 2 GiB"):
        list(pipeline.run(typed_rows(batch)))


def test_string_keys_of_later_joins_are_copied_by_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of a later join are gathered for all rows of an earlier one, whatever the length of their strings."""
    generator = random.Random(8)
    tables = [make_table(generator, 20, 0.1) for _ in range(3)]
    steps = [Step("inner", [(Reference(0, 1), 1)], [False]), Step("inner", [(Reference(1, 2), 2)], [False])]
    case = Case(tables, steps, [Reference(source, 0) for source in range(3)])
    monkeypatch.setattr(gather, "MAX_VAR_BYTES", 100)
    monkeypatch.setattr(gather, "_ONE_PASS_BYTES", 0)
    assert sum(len("key" * 3) for _ in case.stages[1]) > 200
    case.check(settings(morsel_max_bytes=100))


@pytest.mark.parametrize("cores", [1, 3])
def test_any_number_of_threads_gives_the_same_rows(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_LEAST_PART_ROWS", 2)
    for how in ("inner", "left", "right", "full"):
        generator = random.Random(17)
        tables = [make_table(generator, size, 0.2) for size in (60, 30, 20)]
        steps = [Step(how, [(Reference(0, 1), 1)], [False]), Step("left", [(Reference(1, 3), 3)], [True])]
        case = Case(tables, steps, [Reference(source, 0) for source in range(3)])
        way = settings(morsel_max_rows=8, morsel_min_rows=1)
        pipeline = create_pipeline(case.spec, case.builds, case.schema, way, Resources(lambda: None, cores=cores))
        got = rows_in_order(pipeline.run(case.source([10, 30], with_settings=way)), case.schema, 8)
        expected = canonical_rows(case.arrow_values(case.expected))
        if cores > 1:
            assert sorted(canonical_rows(got)) == sorted(expected)
        else:
            assert canonical_rows(got) == expected
        assert pipeline.metrics.batches_out > 0
