"""Runs the tasks of an `ordered` like Spark, batch by batch, without Spark: in any order, repeated, and partially."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparkext.plans.streams.order_table import OrderTable, create_first_table
from sparkext.streaming.ordered.description import OrderedRows
from sparkext.streaming.ordered.merge_task import MergeTask
from sparkext.streaming.ordered.order_task import SplitKeysTask, WholeKeysTask
from sparkext.streaming.ordered.send_task import OrderedSendTask
from sparkext.streaming.state.micro_batch import MicroBatch
from tests.streaming.tasks import Rows, batch_of, begin_batch, properties_of, rows_of, task


@dataclass
class OrderedQuery:
    """A query with one `ordered`, and its checkpoint. `watermark` is Spark's watermark for the next batch, in µs.

    `declared` is the schema of the rows that Spark sends, if it differs from that of `ordered`.
    """

    ordered: OrderedRows
    checkpoint: Path
    draw: random.Random
    batch: int = 0
    run: int = 0
    watermark: int = 0
    declared: pa.Schema | None = None
    _before: int = 0
    emitted: list[list[Rows]] = field(default_factory=list)
    late: Rows = field(default_factory=list)
    progress: Counter[str] = field(default_factory=Counter)

    def restart(self, partitions: int | None = None, **changed: Any) -> None:
        """Stop the query, and begin another run, perhaps with another number of partitions."""
        self.run += 1
        if partitions is not None:
            changed |= {"partitions": partitions, "table": create_first_table(partitions)}
        self.ordered = replace(self.ordered, token=f"run {self.run}", **changed)

    def process(self, partitions: Sequence[Rows]) -> list[Rows]:
        """Run a batch and commit it; return the rows of each partition of the result."""
        found = self.attempt(partitions)
        self.batch += 1
        self._before = self.watermark
        self.emitted.append(found)
        return found

    def attempt(self, partitions: Sequence[Rows]) -> list[Rows]:
        """Run a batch without committing it."""
        self.progress.clear()
        late: Rows = []
        begin_batch(self.properties(), self.batch, self._before, self.watermark)
        keys = tuple(range(self.ordered.partitions))
        blocks: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for number, rows in enumerate([*partitions, []]):
            # A task runs twice. Each partition may receive either attempt, whose rows must be equivalent.
            attempts = [self._sent(number, rows) for _ in range(2)]
            for partition in keys:
                blocks[partition] += self.draw.choice(attempts)[partition]
        found: list[Rows] = []
        merged: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        for partition in self.draw.sample(keys, len(keys)):
            self.draw.shuffle(blocks[partition])
            for block in self._run(SplitKeysTask(self.ordered, keys), blocks[partition]) if self.ordered.splits else ():
                merged[block.column(0)[0].as_py()].append(block)
            found.append(self._emitted(self._run(WholeKeysTask(self.ordered), blocks[partition]), late))
        for partition in keys if self.ordered.splits else ():
            self.draw.shuffle(merged[partition])
            found.append(self._emitted(self._run(MergeTask(self.ordered), merged[partition]), late))
        self.late = late
        return found

    def properties(self) -> dict[str, str]:
        return properties_of(f"file:{self.checkpoint}", self.run, self.batch)

    def _sent(self, number: int, rows: Rows) -> dict[int, list[pa.RecordBatch]]:
        rows = self.draw.sample(rows, len(rows))
        schema = self.declared or self.ordered.input_schema
        batches, at = [], 0
        while at < len(rows):
            size = self.draw.choice([1, 7, 1_000])
            batches.append(batch_of(rows[at : at + size], schema))
            at += size
        sent: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        with task(number, self.properties()):
            for block in OrderedSendTask(self.ordered, tuple(range(self.ordered.partitions)))(batches):
                sent[block.column(0)[0].as_py()].append(block)
        return sent

    def _run(self, run: Any, blocks: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
        with task(self.draw.randrange(9), self.properties()):
            if self.draw.random() < 0.2:  # an attempt that ends early
                next(iter(run(blocks)), None)
            return [*run(blocks)]

    def _emitted(self, batches: list[pa.RecordBatch], late: Rows) -> Rows:
        """Return the rows of results, and add late rows to `late`."""
        rows: Rows = []
        for batch in batches:
            width = len(self.ordered.result_schema)
            progress = batch.column(batch.num_columns - 1)
            if not progress.null_count:
                self.progress.update(progress[0].as_py())
            elif self.ordered.keeps_late and not batch.column(width).null_count:
                late += rows_of(pa.RecordBatch.from_struct_array(batch.column(width)))
            else:
                rows += rows_of(batch.select(range(width)))
        return rows


def table_of(query: OrderedQuery) -> OrderTable:
    """Return the table that assigns the rows of the next batch to partitions."""
    begin_batch(query.properties(), query.batch, query._before, query.watermark)
    with task(0, query.properties()):
        return query.ordered.plan(query.ordered.state(MicroBatch.of_this_task())).table
