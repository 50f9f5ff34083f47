"""Operators and sinks outside of the package run in its pipeline, with any number of threads and in any delivery."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

import numpy as np
import pyarrow as pa
import pytest

from bench.engines.deliveries import independently
from sparkext.config import read_settings
from sparkext.engine import delivery
from sparkext.engine.delivery import with_threads
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.pipeline import Pipeline, Resources
from sparkext.engine.sinks.gathered_rows import GatheredRows
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.plans.pipeline.spec import ColumnRef, PipelineSpec
from sparkext.reports.metrics import NO_TASK, TaskMetrics
from sparkext.rows.row_set import RowSet

SPEC = PipelineSpec(1, (), (ColumnRef(0, 0),))
SCHEMA = pa.schema([("n", pa.int64())])
DELIVERIES = {"one thread": (1, with_threads), "cooperative": (3, with_threads), "independent": (3, independently)}


class EvenThenOdd:
    """Emits even numbers immediately, and odd ones when it finishes."""

    row_bytes = 8.0

    def __init__(self) -> None:
        self._odd: list[RowSet] = []

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
        is_odd = rows.gather(ColumnRef(0, 0)).to_numpy() % 2 == 1
        self._odd.append(rows.picked(np.flatnonzero(is_odd)))
        yield from within(rows.picked(np.flatnonzero(~is_odd)), budget)

    def finish(self, budget: OperatorBudget) -> Iterator[RowSet]:
        for rows in self._odd:
            yield from within(rows, budget)


def within(rows: RowSet, budget: OperatorBudget) -> Iterator[RowSet]:
    start = 0
    while start < rows.length:
        piece = rows.slice(start, min(budget.next().rows, rows.length - start))
        budget.observe(piece.length, piece.length)
        start += piece.length
        yield piece


class Summed:
    """Sums a column, and emits the sum when it finishes."""

    row_bytes = 8.0
    copies = 1

    def __init__(self) -> None:
        self.total = 0
        self.largest = 0
        self._turn = Lock()

    def process(self, rows: RowSet, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        with self._turn:
            self.total += int(rows.gather(ColumnRef(0, 0)).to_numpy().sum())
            self.largest = max(self.largest, rows.length)
        budget.observe(rows.length, 0)
        return iter(())

    def finish(self, budget: OperatorBudget) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [self.total]})


def run(sink: Summed | GatheredRows, name: str) -> tuple[list[int], TaskMetrics]:
    cores, begin = DELIVERIES[name]
    given = {"morsel.maxRows": "7", "morsel.minRows": "1"}
    settings = read_settings({f"spark.sparkext.{key}": value for key, value in given.items()}.get, {})
    resources = Resources(lambda: None, cores=cores, delivery=begin)
    pipeline = Pipeline([EvenThenOdd()], sink, settings, resources, TaskMetrics(NO_TASK))
    batches = [pa.record_batch({"n": np.arange(start, start + 25)}) for start in range(0, 100, 25)]
    found = pipeline.run(RowBatches(batches, SPEC, 20))
    return [number for batch in found for number in batch.column(0).to_pylist()], pipeline.metrics


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "_LEAST_PART_ROWS", 2)


@pytest.mark.parametrize("name", DELIVERIES)
def test_a_sink_that_emits_when_it_finishes(name: str) -> None:
    sink = Summed()
    found, metrics = run(sink, name)
    assert found == [sum(range(100))]
    assert sink.largest <= 7
    assert [summary["rows_in"] for summary in metrics.operators] == [100, 100]
    assert (metrics.rows_in, metrics.batches_in, metrics.batches_out) == (100, 4, 1)


@pytest.mark.parametrize("name", DELIVERIES)
def test_what_an_operator_holds_back_comes_last(name: str) -> None:
    found, metrics = run(GatheredRows(SPEC.outputs, SCHEMA, []), name)
    assert sorted(found) == list(range(100))
    assert {number % 2 for number in found[:50]} == {0}
    assert [summary["rows_out"] for summary in metrics.operators] == [100, 100]
