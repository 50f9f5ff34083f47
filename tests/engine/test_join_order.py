"""Joins in every valid order, on complete and on reduced build sides, give the rows of the oracle."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.config import Settings
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.measured_order import find_best_order, order_joins
from sparkext.engine.pipeline import Resources
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.kernels.columns.gather import Column
from sparkext.plans.adaptive.join_order import count_movable, find_prerequisites, find_reducers
from sparkext.plans.expressions.expression import column, condition
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.spec import RANGE_OPERATORS, ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.reports.metrics import NO_TASK, TaskId, TaskMetrics
from sparkext.reports.report import summarise
from sparkext.rows.row_set import RowSet
from tests.engine.test_pipeline import DEFAULTS, KEY_TYPES, Case, cases, make_table, rows_in_order, settings
from tests.oracle.pipelines import Reference, Step
from tests.oracle.rows import canonical_rows
from tests.support.kernel_inputs import FULL_MASK, examples

LONG = parse_key_type("int64")


def orders(spec: PipelineSpec) -> Iterator[list[int]]:
    """Yield every valid order."""
    free, needs = count_movable(spec), find_prerequisites(spec)
    for order in itertools.permutations(range(free)):
        if all(needs[number] <= {*order[:place]} for place, number in enumerate(order)):
            yield [*order, *range(free, len(spec.joins))]


def check(case: Case, order: Sequence[int], with_settings: Settings, cuts: Sequence[int] = ()) -> TaskMetrics:
    metrics = TaskMetrics(NO_TASK)
    resources = Resources(lambda: None)
    pipeline = create_pipeline(case.spec, case.builds, case.schema, with_settings, resources, metrics, order=order)
    bound = with_settings.morsel_max_rows
    rows = rows_in_order(pipeline.run(case.source(cuts, with_settings=with_settings)), case.schema, bound)
    assert sorted(canonical_rows(rows)) == sorted(canonical_rows(case.arrow_values(case.expected)))
    return metrics


@given(case=cases(), data=st.data())
@examples(12)
def test_any_chain_in_any_order(case: Case, data: st.DataObject) -> None:
    total = case.lengths[0] + (case.lengths[1] if case.spec.owner_columns else 0)
    cuts = data.draw(st.lists(st.integers(0, total), max_size=2), label="cuts")
    budget = data.draw(st.sampled_from([1, 7, 131_072]), label="budget")
    mode = data.draw(st.sampled_from(["measured", "query", "random"]), label="mode")
    way = settings(morsel_max_rows=budget, morsel_min_rows=1, debug_join_order=mode)
    for order in orders(case.spec):
        check(case, order, way, cuts)


def star(hows: Sequence[str], null_rate: float = 0.1) -> Case:
    """Return a fan-out, then joins with keys of its build side, of the probe side, and of both."""
    generator = random.Random(5)
    tables = [make_table(generator, rows, null_rate, 6) for rows in (20, 24, 3, 1, 5)]
    keys = [[(Reference(0, 1), 1)], [(Reference(1, 2), 2)], [(Reference(1, 4), 4)], [(Reference(0, 2), 2)]]
    steps = [Step(how, key, [False]) for how, key in zip(hows, keys, strict=True)]
    visible = [number for number, how in enumerate(hows, 1) if how not in ("semi", "anti")]
    outputs = [Reference(0, 0)] + [Reference(source, c) for source in visible for c in (0, 6)]
    return Case(tables, steps, outputs)


@pytest.mark.parametrize("hows", itertools.product(["inner", "left"], ["inner", "semi"], ["anti", "left"], ["left"]))
def test_a_star_in_any_order(hows: Sequence[str]) -> None:
    case = star(hows)
    assert case.expected
    own = check(case, [], settings(debug_join_order="query"))
    assert own.reduced == []
    ran = list(orders(case.spec))
    assert len(ran) == 8
    for order in ran:
        told = check(case, order, settings(debug_join_order="random"), [3, 11])
        assert [operator["operator"] for operator in told.operators] == list(range(5))
        assert [number for number, _ in told.reduced] == ([0] if hows[0] == "inner" else [])
        assert len(told.seconds) == 5


@given(data=st.data())
@examples(40)
def test_any_reduced_build_side(data: st.DataObject) -> None:
    """For any source of the index, and any joins that reduce it, including fan-outs."""
    generator = random.Random(data.draw(st.integers(0, 1 << 32), label="seed"))
    null_rate = data.draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]), label="null rate")
    stride = data.draw(st.sampled_from([1, 1 << 40]), label="stride")
    behind = data.draw(st.lists(st.sampled_from(["inner", "semi", "anti"]), min_size=1, max_size=2), label="behind")
    sizes = [data.draw(st.integers(0, 15), label="rows") for _ in range(len(behind) + 2)]
    tables = [make_table(generator, size, null_rate, stride=stride) for size in sizes]
    keys = data.draw(st.lists(st.sampled_from(sorted(KEY_TYPES)), max_size=2, unique=True), label="keys")
    safe = [data.draw(st.booleans(), label="null-safe") for _ in keys]
    compared = data.draw(st.lists(st.sampled_from(sorted(KEY_TYPES)), max_size=2, unique=True), label="compared")
    ranges = [(Reference(0, c), data.draw(st.sampled_from(RANGE_OPERATORS)), c) for c in compared]
    steps = [Step("inner", [(Reference(0, c), c) for c in keys], safe, ranges)]
    for how in behind:
        column = data.draw(st.sampled_from(sorted(KEY_TYPES)), label="key")
        steps.append(Step(how, [(Reference(1, column), column)], [data.draw(st.booleans())]))
    outputs = [Reference(0, 0), Reference(1, 0), Reference(1, 6)]
    algorithms = [data.draw(st.sampled_from(["auto", "hash", "sort_merge"])) for _ in steps]
    case = Case(tables, steps, outputs, algorithms, data.draw(st.sampled_from([FULL_MASK, 0]), label="hash mask"))
    assert find_reducers(case.spec, 0) == tuple(range(1, len(steps)))
    told = check(case, [], settings(debug_join_order="random", morsel_max_rows=7, morsel_min_rows=1))
    assert [number for number, _ in told.reduced] == ([0] if sizes[0] else [])


def test_a_build_side_is_reduced_once_its_join_has_emitted_as_many_rows() -> None:
    generator = random.Random(8)
    probe, sales = make_table(generator, 40, 0.0, 4), make_table(generator, 12, 0.0, 4)
    buyers = make_table(generator, 1, 0.0, 1)
    steps = [Step("inner", [(Reference(0, 1), 1)], [False]), Step("inner", [(Reference(1, 2), 2)], [False])]
    case = Case([probe, sales, buyers], steps, [Reference(0, 0), Reference(1, 0), Reference(2, 6)])
    assert find_reducers(case.spec, 0) == (1,)
    kept = sum(text == "" for text in sales[2])
    assert 0 < kept <= 6
    cuts = list(range(10, 40, 10))
    ten = settings(morsel_max_rows=10, morsel_min_rows=1)
    told = check(case, [], ten, cuts)
    assert told.reduced == [(0, kept)]
    before = check(case, [], replace(ten, debug_join_order="query"), cuts)
    assert told.operators[0]["rows_in"] == before.operators[0]["rows_in"] == 40
    assert before.operators[1]["rows_out"] == told.operators[1]["rows_out"]
    assert before.operators[0]["rows_out"] > told.operators[0]["rows_out"] > told.operators[1]["rows_out"]
    whole = settings()  # one morsel, after which no decision follows
    assert check(case, [], whole).reduced == []


def test_a_build_side_of_which_most_remains_stays() -> None:
    generator = random.Random(9)
    probe, sales, buyers = (make_table(generator, rows, 0.0, 3) for rows in (40, 12, 9))
    steps = [Step("inner", [(Reference(0, 1), 1)], [False]), Step("semi", [(Reference(1, 2), 2)], [False])]
    case = Case([probe, sales, buyers], steps, [Reference(0, 0), Reference(1, 0)])
    assert check(case, [], settings(morsel_max_rows=10, morsel_min_rows=1), list(range(10, 40, 10))).reduced == []


@pytest.mark.parametrize(
    "reducing, kept", [(range(0, 5000, 3), 1667), (range(4000), None), (range(2500), 2500), ([], 0)]
)
def test_a_large_build_side_is_sampled_first(reducing: Sequence[int], kept: int | None) -> None:
    spec, probe = numbers(("inner", 0), ("semi", 1), rows=6000)
    builds = of(spec, range(5000), reducing)
    way = settings(morsel_max_rows=5000, morsel_min_rows=1)
    metrics = TaskMetrics(NO_TASK)
    pipeline = create_pipeline(spec, builds, pa.schema([("n", pa.int64())]), way, Resources(lambda: None), metrics)
    batches = [pa.record_batch(probe, names=["n"])] * 2
    found = [n for batch in pipeline.run(RowBatches(batches, spec, 5000)) for n in batch.column(0).to_pylist()]
    assert sorted(found) == sorted([*reducing] * 2)
    assert metrics.reduced == ([] if kept is None else [(0, kept)])


def numbers(*joins: tuple[str, int], rows: int = 1000) -> tuple[PipelineSpec, list[pa.Array]]:
    """Return a probe side of `rows` rows 0, 1, …, and a join on each of its columns."""
    made = tuple(
        JoinSpec(how, (KeyPair(ColumnRef(source, 0), 0, "int64", False),), "auto", f"{how} {number}")
        for number, (how, source) in enumerate(joins, 1)
    )
    return PipelineSpec(1, made, (ColumnRef(0, 0),)), [pa.array(range(rows), pa.int64())]


def of(spec: PipelineSpec, *columns: Sequence[int]) -> list[BuildSide]:
    return [
        index_in_memory(
            len(keys), [pa.array(keys, pa.int64())], replace(derive_index_recipe(spec, n, FULL_MASK), gathered=(0,))
        )
        for n, keys in enumerate(columns)
    ]


def morsel(arrays: list[pa.Array]) -> RowSet:
    return RowSet.of_morsel([Column.of(array) for array in arrays], len(arrays[0]))


def test_what_keeps_least_runs_first_and_fan_outs_last() -> None:
    spec, probe = numbers(("inner", 0), ("left", 0), ("anti", 0), ("semi", 0))
    builds = of(spec, [*range(1000)] * 3, range(1000), range(0, 1000, 2), range(0, 1000, 10))
    assert find_best_order(spec, builds, morsel(probe)) == (3, 2, 1, 0)
    assert find_best_order(spec, builds, morsel([probe[0][:63]])) == (0, 1, 2, 3)  # too few to decide


def test_joins_of_build_sides_are_measured_on_their_rows() -> None:
    spec, probe = numbers(("inner", 0), ("inner", 1), ("inner", 1), ("inner", 2))
    builds = of(spec, [*range(1000)] * 4, range(1000), range(0, 1000, 10), range(0, 1000, 20))
    assert find_best_order(spec, builds, morsel(probe)) == (0, 2, 1, 3)
    builds = of(spec, [*range(1000)] * 4, range(1000), range(900), range(0, 1000, 20))
    assert find_best_order(spec, builds, morsel(probe)) == (0, 1, 3, 2)


@pytest.mark.parametrize("kept", [0, 1000])
def test_nothing_left_of_the_sample(kept: int) -> None:
    spec, probe = numbers(("inner", 0), ("inner", 1), ("semi", 0))
    builds = of(spec, range(kept), range(3), range(500))
    assert sorted(find_best_order(spec, builds, morsel(probe))) == [0, 1, 2]


def test_a_nested_loop_is_not_tried() -> None:
    spec, probe = numbers(("inner", 0), ("semi", 0))
    loop = replace(spec.joins[0], keys=(), theta=condition("<", column(0, 0, LONG), column(1, 0, LONG)))
    spec = replace(spec, joins=(loop, spec.joins[1]))
    assert spec.joins[0].nested
    assert find_best_order(spec, of(spec, range(1 << 20), range(900)), morsel(probe)) == (1, 0)


@pytest.mark.parametrize("mode, order", [("measured", [1, 0]), ("query", []), ("random", None)])
def test_the_order_of_a_task(mode: str, order: list[int] | None) -> None:
    """All rows are emitted, including the sampled ones; the report has the order of the query."""
    spec, probe = numbers(("inner", 0), ("semi", 0))
    builds = of(spec, [*range(1000)] * 3, range(0, 1000, 10))
    way = settings(debug_join_order=mode, morsel_max_rows=300, morsel_min_rows=1)
    seen = set()
    for partition in range(8):
        metrics = TaskMetrics(TaskId(0, partition, 0))
        batches = [pa.record_batch(probe, names=["n"])]
        source, ran = order_joins(spec, builds, RowBatches(batches, spec, 300), way, metrics)
        schema = pa.schema([("n", pa.int64())])
        found = pa.Table.from_batches(
            create_pipeline(spec, builds, schema, way, Resources(lambda: None), metrics, order=ran).run(source)
        )
        assert sorted(found.column(0).to_pylist()) == sorted([*range(0, 1000, 10)] * 3)
        assert (metrics.rows_in, metrics.morsels) == (1000, 4)
        assert tuple(metrics.order) == ran
        seen.add(ran)
        told = summarise([join.label for join in spec.joins], [TaskMetrics.from_json(metrics.to_json())])
        inner, semi, _ = told.joins
        if metrics.order == [1, 0]:
            assert (semi.rows_in, semi.rows_out, inner.rows_in, inner.rows_out) == (1000, 100, 100, 300)
            assert "1 of 1 task ran the joins in the order 2, 1" in str(told)
        else:
            assert (inner.rows_in, inner.rows_out, semi.rows_in, semi.rows_out) == (1000, 3000, 3000, 300)
            assert "in the order" not in str(told)
    assert seen == ({(), (1, 0)} if order is None else {tuple(order)})


@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_and_one(rows: int) -> None:
    spec, probe = numbers(("inner", 0), ("semi", 0), rows=rows)
    builds = of(spec, range(2), range(2))
    metrics = TaskMetrics(NO_TASK)
    batches = RowBatches([pa.record_batch(probe, names=["n"])], spec, 10)
    source, order = order_joins(spec, builds, batches, DEFAULTS, metrics)
    pipeline = create_pipeline(spec, builds, pa.schema([("n", pa.int64())]), DEFAULTS, Resources(lambda: None), metrics)
    assert sum(batch.num_rows for batch in pipeline.run(source)) == rows
    assert order == ()
