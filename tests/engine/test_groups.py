"""The grouping sink, compared with a dictionary: the partial groups that it emits add up to the group."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from bench.engines.deliveries import independently
from sparkext.config import read_settings
from sparkext.engine.delivery import Deliverer, with_threads
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.pipeline import Pipeline, Resources
from sparkext.engine.sinks import groups
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.errors import ConditionError, SchemaMismatchError
from sparkext.plans.expressions.expression import Expression, column, condition, literal
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.aggregates import AggregateCall, Aggregation
from sparkext.plans.pipeline.spec import PipelineSpec

INT, TEXT, DOUBLE = map(parse_key_type, ("int64", "string", "float64"))
K, T, X = column(0, 0, INT), column(0, 1, TEXT), column(0, 2, DOUBLE)
CALLS = (AggregateCall("count", None), AggregateCall("sum", K), AggregateCall("min", T), AggregateCall("avg", X))
KEYED = Aggregation((K, T), CALLS)
SCHEMA = pa.schema(
    [
        *(("k", pa.int64()), ("t", pa.string()), ("count", pa.int64()), ("sum", pa.int64()), ("least", pa.string())),
        *(("total", pa.float64()), ("counted", pa.int64())),
    ]
)
Group = tuple[int, int | None, str | None, float, int]


def rows_of(count: int, distinct: int, nulls: float, seed: int = 3) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)

    def with_nulls(values: list[object]) -> list[object]:
        return [None if rng.random() < nulls else value for value in values]

    keys = rng.integers(0, distinct, count).tolist()
    texts = [f"text {number}" for number in rng.integers(0, 3, count)]
    return pa.record_batch(
        {
            "k": pa.array(with_nulls(keys), pa.int64()),
            "t": pa.array(with_nulls(list(texts)), pa.string()),
            "x": pa.array(with_nulls((rng.integers(-9, 9, count) / 4).tolist()), pa.float64()),
        }
    )


def merged(parts: list[tuple[object, ...]]) -> dict[tuple[object, ...], Group]:
    """Merge partial groups, like Spark's final aggregate."""
    found: dict[tuple[object, ...], Group] = {}
    for *keys, count, total, least, added, counted in parts:
        before = found.get(tuple(keys), (0, None, None, 0.0, 0))
        known = [one for one in (before[1], total) if one is not None]
        texts = [one for one in (before[2], least) if one is not None]
        found[tuple(keys)] = (
            before[0] + count,  # type: ignore[operator]
            sum(known) if known else None,  # type: ignore[arg-type]
            min(texts) if texts else None,  # type: ignore[type-var]
            before[3] + added,  # type: ignore[operator]
            before[4] + counted,  # type: ignore[operator]
        )
    return found


def expected(batch: pa.RecordBatch, keys: int) -> dict[tuple[object, ...], Group]:
    by_group = defaultdict(list)
    for row in zip(*(values.to_pylist() for values in batch.columns), strict=True):
        by_group[row[:keys]].append(row)
    parts = []
    for key, rows in by_group.items():
        known = [k for k, _, _ in rows if k is not None]
        texts = [t for _, t, _ in rows if t is not None]
        numbers = [x for _, _, x in rows if x is not None]
        least = min(texts) if texts else None
        parts.append((*key, len(rows), sum(known) if known else None, least, sum(numbers), len(numbers)))
    return merged(parts)


def pipeline(
    aggregations: Aggregation | tuple[Aggregation, ...],
    schema: pa.Schema = SCHEMA,
    headroom: Callable[[], tuple[int, str] | None] = lambda: None,
    cores: int = 1,
    kept: Expression | None = None,
    delivery: Deliverer = with_threads,
    **given: object,
) -> Pipeline:
    settings = read_settings({f"spark.sparkext.{name.replace('_', '.')}": str(v) for name, v in given.items()}.get, {})
    several = aggregations if isinstance(aggregations, tuple) else (aggregations,)
    spec = PipelineSpec(3, (), (), filter=kept, aggregations=several)
    resources = Resources(headroom, cores=cores, delivery=delivery)
    return create_pipeline(spec, [], schema, settings, resources)


def parts_of(made: Pipeline, batch: pa.RecordBatch, most: int = 100) -> list[tuple[object, ...]]:
    batches = [batch.slice(start, most) for start in range(0, batch.num_rows, most)]
    source = RowBatches(batches, PipelineSpec(3, (), ()), most)
    return [tuple(row.values()) for emitted in made.run(source) for row in emitted.to_pylist()]


@pytest.mark.parametrize("nulls", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("rows", [0, 1, 99, 100, 101, 1000])
@pytest.mark.parametrize("budget", [1, 7, 1_000_000])
def test_groups(rows: int, nulls: float, budget: int) -> None:
    batch = rows_of(rows, 20, nulls)
    parts = parts_of(pipeline(KEYED, morsel_maxRows=budget, morsel_minRows=1), batch)
    assert merged(parts) == expected(batch, 2)
    assert len(parts) == len(expected(batch, 2)), "each group once, where memory is ample"


@pytest.mark.parametrize("rows", [0, 1, 1000])
def test_one_group_of_all_rows(rows: int) -> None:
    batch = rows_of(rows, 20, 0.2)
    (part,) = parts_of(pipeline(Aggregation((), CALLS), pa.schema(list(SCHEMA)[2:])), batch)
    assert merged([part]) == (expected(batch, 0) or {(): (0, None, None, 0.0, 0)})


NULL_K, NULL_T = literal(None, INT), literal(None, TEXT)
ROLLUP = (KEYED, Aggregation((K, NULL_T), CALLS), Aggregation((NULL_K, NULL_T), CALLS))


def rolled_up(batch: pa.RecordBatch) -> dict[tuple[object, ...], Group]:
    """Return the merged groups of all levels of `ROLLUP`, without a grouping id."""
    found = [(*key, *group) for key, group in expected(batch, 2).items()]
    found += [(k, None, *group) for (k,), group in expected(batch, 1).items()]
    found += [(None, None, *group) for group in expected(batch, 0).values()]
    return merged(found)


@pytest.mark.parametrize("rows", [0, 1, 99, 100, 101, 1000])
@pytest.mark.parametrize("budget", [1, 7, 1_000_000])
def test_rows_that_are_grouped_several_times(rows: int, budget: int) -> None:
    batch = rows_of(rows, 20, 0.1)
    parts = parts_of(pipeline(ROLLUP, morsel_maxRows=budget, morsel_minRows=1), batch)
    assert merged(parts) == rolled_up(batch)
    assert len(parts) == sum(len(expected(batch, keys)) for keys in (0, 1, 2))


@pytest.mark.parametrize("cores", [1, 3])
def test_several_groupings_leave_where_memory_is_short(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(groups, "LEAST_BYTES", 0)
    batch = rows_of(3000, 20, 0.1)
    made = pipeline(ROLLUP, headroom=lambda: (0, "a limit"), cores=cores, delivery=independently, morsel_maxRows=200)
    parts = parts_of(made, batch)
    assert merged(parts) == rolled_up(batch)
    assert len([part for part in parts if part[:2] == (None, None)]) > 3, "the total in parts, too"


def test_each_grouping_has_its_own_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "SAMPLE_ROWS", 500)
    batch = rows_of(3000, 10**12, 0.0)
    swapped = (Aggregation((K, NULL_T), CALLS), Aggregation((NULL_K, T), CALLS), Aggregation((NULL_K, NULL_T), CALLS))
    parts = parts_of(pipeline(swapped), batch)
    assert len(parts) == 3000 + 3 + 1, "rows of the first pass, and the others share groups"


def test_constant_keys() -> None:
    kinds = {"decimal(38,2)": "1.50", "binary": "x", "bool": "true", "date": "3", "float64": "NaN", "string": ""}
    keys = tuple(literal(text, parse_key_type(kind)) for kind, text in kinds.items())
    nulls = tuple(literal(None, parse_key_type(kind)) for kind in kinds)
    types = [pa.decimal128(38, 2), pa.binary(), pa.bool_(), pa.date32(), pa.float64(), pa.string()]
    schema = pa.schema([*zip(kinds, types, strict=True), ("n", pa.int64())])
    made = pipeline((Aggregation(keys, CALLS[:1]), Aggregation(nulls, CALLS[:1])), schema)
    (one, other) = parts_of(made, rows_of(10, 3, 0.1))
    assert str(one[:4]) == "(Decimal('1.50'), b'x', True, datetime.date(1970, 1, 4))"
    assert math.isnan(one[4]) and one[5:] == ("", 10)  # type: ignore[arg-type]
    assert other == (*[None] * 6, 10)


@pytest.mark.parametrize("delivery", [with_threads, independently])
@pytest.mark.parametrize("ignore_nulls", [True, False])
def test_first_and_last_in_the_order_of_rows(delivery: Deliverer, ignore_nulls: bool) -> None:
    batch = rows_of(20_000, 7, 0.3)
    calls = tuple(AggregateCall(name, X, ignore_nulls=ignore_nulls) for name in ("first", "last"))
    states = [(name, kind) for name in ("first", "last") for kind in (pa.float64(), pa.bool_())]
    schema = pa.schema([("k", pa.int64()), *((f"{name} {kind}", kind) for name, kind in states)])
    made = pipeline(Aggregation((K,), calls), schema, cores=3, delivery=delivery, morsel_maxRows=5000)
    seen = defaultdict(list)
    for k, _, x in zip(*(values.to_pylist() for values in batch.columns), strict=True):
        if x is not None or not ignore_nulls:
            seen[k].append(x)
    parts = parts_of(made, batch, most=10_000)
    assert {k: rest for k, *rest in parts} == {k: [xs[0], True, xs[-1], True] for k, xs in seen.items()}


@pytest.mark.parametrize("cores", [1, 3])
def test_groups_leave_where_memory_is_short(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    monkeypatch.setattr(groups, "LEAST_BYTES", 0)
    batch = rows_of(3000, 20, 0.1)
    made = pipeline(KEYED, headroom=lambda: (0, "a limit"), cores=cores, delivery=independently, morsel_maxRows=200)
    parts = parts_of(made, batch)
    assert merged(parts) == expected(batch, 2)
    assert len(parts) > 2 * len(expected(batch, 2)), "in parts"


def test_rows_that_share_no_group_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "SAMPLE_ROWS", 500)
    batch = rows_of(3000, 10**12, 0.0)
    parts = parts_of(pipeline(KEYED), batch)
    assert merged(parts) == expected(batch, 2)
    again = pa.concat_batches([batch.slice(0, 1000), batch.slice(0, 1000), batch.slice(0, 1000)])
    parts = parts_of(pipeline(KEYED), again)
    assert merged(parts) == expected(again, 2)
    assert len(parts) > 2000, "rows behind the sample are groups of their own, although they share some"


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("nulls", [0.0, 0.3])
def test_clustered_rows_leave_as_their_groups_end(monkeypatch: pytest.MonkeyPatch, cores: int, nulls: float) -> None:
    monkeypatch.setattr(groups, "CLUSTERED_GROUPS", 20)
    batch = rows_of(3000, 150, nulls)
    clustered = batch.sort_by([("k", "descending"), ("t", "ascending")])
    made = pipeline(KEYED, cores=cores, delivery=independently, morsel_maxRows=100)
    parts, known = parts_of(made, clustered), expected(clustered, 2)
    assert merged(parts) == known
    assert len(known) < len(parts) <= len(known) + 30, "all leave early, and none in parts but where pieces end"
    assert len(parts_of(pipeline(KEYED, morsel_maxRows=100), batch)) == len(known), "rows in no order do not"


def test_whole_groups_stay_however_their_rows_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "CLUSTERED_GROUPS", 20)
    batch = rows_of(3000, 150, 0.0).sort_by("k")
    parts = parts_of(pipeline(replace(KEYED, whole=True)), batch)
    assert merged(parts) == expected(batch, 2) and len(parts) == len(expected(batch, 2))


def test_passing_keys_have_one_zero_and_one_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "SAMPLE_ROWS", 1)
    nan = np.frombuffer(b"\x01\0\0\0\0\0\xf8\xff", dtype=np.float64)[0]
    values = pa.array([1.5, -0.0, nan, None, -0.0])
    empty = pa.nulls(5, pa.string())
    batch = pa.record_batch({"k": pa.nulls(5, pa.int64()), "t": empty, "x": values})
    made = pipeline(Aggregation((X,), CALLS[:1]), pa.schema([("x", pa.float64()), ("n", pa.int64())]))
    found = [key for key, _ in parts_of(made, batch, most=1)]
    assert found[0] == 1.5 and found[3] is None
    assert [math.copysign(1, found[place]) for place in (1, 4)] == [1, 1]  # type: ignore[arg-type]
    assert np.float64(found[2]).tobytes() == np.float64(np.nan).tobytes()  # type: ignore[arg-type]


@pytest.mark.parametrize("cores", [1, 3])
def test_threads(cores: int) -> None:
    batch = rows_of(20_000, 700, 0.1)
    for delivery in (with_threads, independently):
        made = pipeline(KEYED, cores=cores, delivery=delivery, morsel_maxRows=5000)
        assert merged(parts_of(made, batch, most=10_000)) == expected(batch, 2)


def test_a_filter_before_groups() -> None:
    batch = rows_of(1000, 20, 0.1)
    made = pipeline(KEYED, kept=condition("<", K, literal("5", INT)))
    kept = batch.filter(pa.array([k is not None and k < 5 for k in batch["k"].to_pylist()]))
    assert merged(parts_of(made, batch)) == expected(kept, 2)
    assert made.metrics.behind == ["filter", "group"]
    assert [summary["rows_in"] for summary in made.metrics.operators] == [1000, kept.num_rows]


def test_what_fails_says_so() -> None:
    batch = rows_of(100, 20, 0.0)
    large = literal(str(2**62), INT)
    product = Expression("*", INT, (column(0, 0, INT), large), checked=True)
    schema = pa.schema([("sum", pa.int64())])
    with pytest.raises(ConditionError, match=r'expression 0 of the groups fails on \{"0\.0": \d+\}'):
        parts_of(pipeline(Aggregation((), (AggregateCall("sum", product),)), schema), batch)
    with pytest.raises(ConditionError, match="a sum of integers overflows"):
        parts_of(pipeline(Aggregation((), (AggregateCall("sum", large, checked=True),)), schema), batch)
    wrapped = parts_of(pipeline(Aggregation((), (AggregateCall("sum", large),)), schema), batch)
    assert wrapped == [(0,)]
    with pytest.raises(SchemaMismatchError, match="the groups have columns of types"):
        parts_of(pipeline(Aggregation((), (AggregateCall("min", T),)), schema), batch)
    with pytest.raises(SchemaMismatchError, match="the groups have 5 columns, expected 1"):
        parts_of(pipeline(Aggregation((), CALLS), schema), batch)
