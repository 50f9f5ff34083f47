"""The top-n sink, compared with sorting all rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from bench.engines.deliveries import independently
from sparkext.config import read_settings
from sparkext.engine.delivery import Deliverer, with_threads
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.pipeline import Pipeline, Resources
from sparkext.engine.sinks import top_rows
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.errors import SchemaMismatchError
from sparkext.kernels.columns.gather import Column
from sparkext.plans.pipeline.spec import ColumnRef, PipelineSpec
from sparkext.plans.pipeline.top import OrderColumn, Top
from sparkext.reports.metrics import TaskMetrics
from sparkext.rows.row_set import RowSet

SCHEMA = pa.schema([("l", pa.list_(pa.int64())), ("t", pa.string()), ("n", pa.int64()), ("x", pa.float64())])
BY_NUMBER = (OrderColumn(2, True, True),)
BY_TEXT = (OrderColumn(1, False, False), OrderColumn(3, True, False), OrderColumn(2, False, True))


def rows_of(count: int, distinct: int = 10**9, nulls: float = 0.1, seed: int = 3) -> pa.RecordBatch:
    """Return a list that identifies rows, a string, a number and a float."""
    rng = np.random.default_rng(seed)

    def column(values: list[Any], arrow_type: pa.DataType) -> pa.Array:
        return pa.array([None if rng.random() < nulls else value for value in values], arrow_type)

    lists = pa.array([[row] * (row % 3) + [row] for row in range(count)], SCHEMA.field(0).type)
    texts = column([f"text {number}" for number in rng.integers(0, min(distinct, 9), count)], pa.string())
    numbers = column(rng.integers(0, distinct, count).tolist(), pa.int64())
    floats = column((rng.integers(-9, 9, count) / 4).tolist(), pa.float64())
    return pa.RecordBatch.from_arrays([lists, texts, numbers, floats], schema=SCHEMA)


def pipeline(
    top: Top,
    headroom: Callable[[], tuple[int, str] | None] = lambda: None,
    cores: int = 1,
    schema: pa.Schema = SCHEMA,
    delivery: Deliverer = with_threads,
    **given: object,
) -> Pipeline:
    settings = read_settings({f"spark.sparkext.{name.replace('_', '.')}": str(v) for name, v in given.items()}.get, {})
    spec = PipelineSpec(4, (), tuple(ColumnRef(0, column) for column in range(4)), top=top)
    resources = Resources(headroom, cores=cores, delivery=delivery)
    return create_pipeline(spec, [], schema, settings, resources)


def emitted(made: Pipeline, batch: pa.RecordBatch, most: int = 100) -> list[pa.RecordBatch]:
    batches = [batch.slice(start, most) for start in range(0, batch.num_rows, most)]
    return list(made.run(RowBatches(batches, PipelineSpec(4, (), ()), most)))


def rows(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def sort_key(order: tuple[OrderColumn, ...], row: dict[str, Any]) -> list[tuple[int, Any]]:
    names = SCHEMA.names
    key: list[tuple[int, Any]] = []
    for by in order:
        value = row[names[by.output]]
        if isinstance(value, str):
            value = tuple(ord(letter) * (1 if by.ascending else -1) for letter in value)
        elif value is not None:
            value *= 1 if by.ascending else -1
        key.append((0 if (value is None) == by.nulls_first else 1, (0,) if value is None else value))
    return key


def check(top: Top, batch: pa.RecordBatch, found: list[dict[str, Any]]) -> None:
    """Assert that the first rows have the right order keys, and that each of them is a row of the input."""
    wanted = sorted(sort_key(top.order, row) for row in batch.to_pylist())[: top.count]
    assert sorted(sort_key(top.order, row) for row in found)[: top.count] == wanted
    given = Counter(map(repr, batch.to_pylist()))
    assert not Counter(map(repr, found)) - given


@pytest.mark.parametrize("order", [BY_NUMBER, BY_TEXT], ids=["number", "text"])
@pytest.mark.parametrize("count", [1, 99, 100, 101, 1000, 1001])
@pytest.mark.parametrize("size", [0, 1, 100, 1000])
def test_the_first_rows(order: tuple[OrderColumn, ...], count: int, size: int) -> None:
    top = Top(count, order)
    batch = rows_of(size)
    for budget in (7, 1_000_000):
        found = rows(emitted(pipeline(top, morsel_maxRows=budget, morsel_minRows=1), batch))
        check(top, batch, found)
        assert len(found) == min(count, size), "and no others, where memory is ample"


@pytest.mark.parametrize("distinct", [1, 3])
@pytest.mark.parametrize("nulls", [0.0, 0.5, 1.0])
def test_ties(distinct: int, nulls: float) -> None:
    batch = rows_of(700, distinct, nulls)
    for order in (BY_NUMBER, BY_TEXT):
        for count in (1, 10, 699):
            found = rows(emitted(pipeline(Top(count, order)), batch))
            check(Top(count, order), batch, found)
            assert len(found) == count


@pytest.mark.parametrize("ascending", [True, False])
def test_rows_that_come_in_order(ascending: bool) -> None:
    """The worst order for a bound, and the best."""
    batch = rows_of(1000, nulls=0.0).sort_by("n")
    top = Top(10, (OrderColumn(2, ascending, True),))
    check(top, batch, rows(emitted(pipeline(top), batch)))


@pytest.mark.parametrize("delivery", [with_threads, independently])
def test_threads(delivery: Deliverer) -> None:
    batch = rows_of(9_000)
    top = Top(40, BY_TEXT)
    made = pipeline(top, cores=2, delivery=delivery, morsel_maxRows=5000)
    found = rows(emitted(made, batch, most=9_000))
    check(top, batch, found)
    assert len(found) == 40


@pytest.mark.parametrize("cores", [1, 3])
@pytest.mark.parametrize("limit", ["LEAST_BYTES", "MOST_BYTES"])
def test_rows_leave_where_memory_is_short(monkeypatch: pytest.MonkeyPatch, limit: str, cores: int) -> None:
    monkeypatch.setattr(top_rows, limit, 0)
    headroom = (lambda: (0, "a limit")) if limit == "LEAST_BYTES" else (lambda: None)
    batch = rows_of(700)
    for count in (1, 50, 699):
        top = Top(count, BY_NUMBER)
        made = pipeline(top, headroom, cores, delivery=independently, morsel_maxRows=50)
        found = rows(emitted(made, batch))
        check(top, batch, found)
        assert count <= len(found) < 700 or count > 50, "the bound stays"


def test_what_is_held_is_a_copy() -> None:
    """The columns of a morsel are freed with it."""
    batch = rows_of(50)
    values = np.arange(50, dtype=np.int64)
    numbers = pa.Array.from_buffers(pa.int64(), 50, [None, pa.py_buffer(values)])
    batch = batch.set_column(2, "n", numbers)
    made = pipeline(Top(100, BY_NUMBER)).run(RowBatches([batch], PipelineSpec(4, (), ()), 100))
    found = next(iter(made))
    values[:] = -1
    assert found["n"].to_pylist() == list(range(50))


def test_nested_columns_whose_elements_have_other_names() -> None:
    """Files may use any element names, and batches with different names cannot be concatenated directly."""
    batches = []
    for start, name in ((0, "item"), (10, "element"), (20, "item")):
        lists = pa.array([[row] for row in range(start, start + 10)], pa.list_(pa.field(name, pa.int64())))
        batches.append(pa.record_batch({"l": lists, "n": list(range(start, start + 10))}))

    class Files:
        def row_sets(self, metrics: TaskMetrics) -> Iterator[RowSet]:
            for batch in batches:
                yield RowSet.of_morsel([Column.of(column) for column in batch.columns], batch.num_rows)

        def confirm(self) -> None:
            pass

    schema = pa.schema([("l", pa.list_(pa.field("element", pa.int64()))), ("n", pa.int64())])
    spec = PipelineSpec(2, (), (ColumnRef(0, 0), ColumnRef(0, 1)), top=Top(25, (OrderColumn(1, False, True),)))
    settings = read_settings({}.get, {})
    made = create_pipeline(spec, [], schema, settings, Resources(lambda: None))
    assert sorted(row["l"] for row in rows(list(made.run(Files())))) == [[row] for row in range(5, 30)]


def test_emitted_within_budgets() -> None:
    batch = rows_of(1000)
    found = emitted(pipeline(Top(500, BY_NUMBER), morsel_maxRows=64, morsel_minRows=1), batch)
    assert max(piece.num_rows for piece in found) == 64
    assert sum(piece.num_rows for piece in found) == 500


def test_the_report_names_it() -> None:
    made = pipeline(Top(5, BY_NUMBER))
    emitted(made, rows_of(1000))
    assert made.metrics.behind == ["top"]
    assert [(one["rows_in"], one["rows_out"]) for one in made.metrics.operators] == [(1000, 5)]


def test_a_column_of_another_type() -> None:
    schema = SCHEMA.set(2, pa.field("n", pa.int32()))
    with pytest.raises(SchemaMismatchError, match="output column 'n' is declared as int32"):
        emitted(pipeline(Top(5, BY_NUMBER), schema=schema), rows_of(10))
