"""Runs the tasks of a stream join like Spark, batch by batch, without Spark: in any order, repeated, and partially."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext

from sparkext.asof.stream_as_of_task import StreamAsOfJoinTask
from sparkext.plans.streams import runs
from sparkext.streaming.join.description import StreamJoin
from sparkext.streaming.join.join_task import StreamJoinTask
from sparkext.streaming.join.send_task import PartitionIdsTask, StreamJoinSendTask
from sparkext.streaming.state.micro_batch import CHECKPOINT, RETAINED, RUN, SECRETS, MicroBatch

Rows = list[tuple[Any, ...]]


@contextmanager
def task(partition: int, properties: dict[str, str]) -> Iterator[None]:
    """Simulate a Spark task with these local properties."""
    context = TaskContext()
    context._partitionId = partition
    context._stageId = context._attemptNumber = 0
    context._cpus = 1
    context._localProperties = properties
    TaskContext._setTaskContext(context)
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


def properties_of(checkpoint: str, run: int, batch: int) -> dict[str, str]:
    """Return the local properties that the driver sets for tasks."""
    return {CHECKPOINT: checkpoint, RUN: str(run), "streaming.sql.batchId": str(batch)}


def begin_batch(properties: dict[str, str], batch: int, before: int, watermark: int) -> None:
    """Write the watermarks (µs) of the previous batch and of this one, as Spark does."""
    with task(0, properties):
        offsets = MicroBatch.of_this_task().checkpoint / "offsets"
    offsets.clear()
    for number, time in ((batch - 1, before), (batch, watermark)):
        (offsets / str(number)).claim(f'v1\n{{"batchWatermarkMs":{time // 1000}}}\n')


def on_a_node(folder: Path, monkeypatch: pytest.MonkeyPatch, fan_out: int) -> None:
    """Store indexes in a folder, and compact runs of `fan_out` batches, so that few batches suffice for a test."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    monkeypatch.setattr(runs, "FAN_OUT", fan_out)


@dataclass
class Query:
    """A query with one join, and its checkpoint. `watermark` is Spark's watermark for the next batch, in µs.

    `declared` is the schema of the rows that Spark sends for each side, if it differs from the join's. `retained` is
    the number of batches by which the query may be reset, if it is not Spark's default. `s3a` has the settings of the
    checkpoint's bucket.
    """

    join: StreamJoin
    checkpoint: Path | str
    draw: random.Random
    batch: int = 0
    run: int = 0
    watermark: int = 0
    declared: tuple[pa.Schema, ...] | None = None
    retained: int | None = None
    s3a: Mapping[str, str] = field(default_factory=dict)
    _before: int = 0
    emitted: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    progress: Counter[str] = field(default_factory=Counter)

    def restart(self, **changed: Any) -> None:
        """Stop the query, and begin another run, with some fields of the join changed."""
        self.run += 1
        self.join = StreamJoin(**{**vars(self.join), "token": f"run {self.run}", **changed})

    def properties(self) -> dict[str, str]:
        checkpoint = str(self.checkpoint) if isinstance(self.checkpoint, str) else f"file:{self.checkpoint}"
        told = {SECRETS: json.dumps(dict(self.s3a))}
        if self.retained is not None:
            told[RETAINED] = str(self.retained)
        return properties_of(checkpoint, self.run, self.batch) | told

    def process(self, left: Sequence[Rows], right: Sequence[Rows]) -> Counter[tuple[Any, ...]]:
        """Run a batch and commit it; `left` and `right` are the rows of each partition of a source."""
        self.progress.clear()
        found = self.attempt(left, right)
        self.commit()
        self.emitted += found
        return found

    def commit(self) -> None:
        self.batch += 1
        self._before = self.watermark

    def attempt(
        self, left: Sequence[Rows], right: Sequence[Rows], only: Sequence[int] | None = None
    ) -> Counter[tuple[Any, ...]]:
        """Run a batch, or only some of its partitions, without committing it."""
        blocks, keys = self.blocks(left, right), range(self.join.partitions)
        found: Counter[tuple[Any, ...]] = Counter()
        for partition in self.draw.sample(keys, len(keys)) if only is None else only:
            self.draw.shuffle(blocks[partition])
            found += self._joined(partition, blocks[partition])
        return found

    def blocks(self, left: Sequence[Rows], right: Sequence[Rows]) -> dict[int, list[pa.RecordBatch]]:
        """Return the blocks that the tasks of both sides send to each partition in a batch."""
        begin_batch(self.properties(), self.batch, self._before, self.watermark)
        blocks: dict[int, list[pa.RecordBatch]] = defaultdict(list)
        keys = tuple(range(self.join.partitions))
        if self.join.waits:
            for row in PartitionIdsTask(self.join, keys)([]):
                blocks[row.column(0)[0].as_py()].append(row)
        for side, partitions in enumerate((left, right)):
            task_of_side = StreamJoinSendTask(self.join, side, keys)
            for number, rows in enumerate(partitions):
                # Rows are in any order. A task runs twice: each partition may receive either attempt, which must be
                # equivalent.
                attempts = [self._sent(task_of_side, side, number, rows) for _ in range(2)]
                for partition in keys:
                    blocks[partition] += self.draw.choice(attempts).get(partition, [])
        return blocks

    def _sent(self, send: StreamJoinSendTask, side: int, number: int, rows: Rows) -> dict[int, list[pa.RecordBatch]]:
        schema = self.join.sides[side].rows if self.declared is None else self.declared[side]
        rows = self.draw.sample(rows, len(rows))
        batches, at = [], 0
        while at < len(rows):
            size = self.draw.choice([1, 7, 1_000])
            batches.append(batch_of(rows[at : at + size], schema))
            at += size
        with task(2 * number + side, self.properties()):
            sent: dict[int, list[pa.RecordBatch]] = defaultdict(list)
            for batch in send(batches):
                sent[batch.column(0)[0].as_py()].append(batch)
            return sent

    def _joined(self, partition: int, blocks: list[pa.RecordBatch]) -> Counter[tuple[Any, ...]]:
        with task(self.draw.randrange(9), self.properties()):  # Spark may coalesce partitions
            joining = StreamAsOfJoinTask(self.join) if self.join.is_as_of else StreamJoinTask(self.join)
            if self.draw.random() < 0.2:  # an attempt that ends early
                next(iter(joining(blocks)), None)
            found: Counter[tuple[Any, ...]] = Counter()
            for batch in joining(blocks):
                *columns, progress = batch.columns
                if progress.null_count:
                    found.update(rows_of(pa.RecordBatch.from_arrays(columns, names=batch.schema.names[:-1])))
                else:
                    self.progress.update(progress[0].as_py())
            return found


def batch_of(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    columns = [pa.array([row[number] for row in rows], kind) for number, kind in enumerate(schema.types)]
    named = [field.with_name(f"c{number}") for number, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(named))


def rows_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [tuple(map(plain, row)) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


def plain(value: Any) -> Any:
    """Return a value, with lists and dictionaries as text, so that rows are hashable."""
    return repr(value) if isinstance(value, (list, dict)) else value
