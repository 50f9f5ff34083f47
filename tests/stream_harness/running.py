"""Runs the query of a case batch by batch, and compares all emitted rows with its oracle."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.running import error_condition
from tests.stream_harness.cases import Case
from tests.stream_harness.cuts import Run
from tests.stream_harness.nodes import Emitted, History, Operator, text
from tests.stream_harness.tables import stream, write_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARALLELISM = 4
"""The largest number of partitions of an operator. Spark's default would be the number of cores."""
_TIMEOUT_SECONDS = 300


@dataclass
class Verdict:
    """The difference between a query and its oracle: its kind and a description, both empty if there is none.

    `late_rows` is the number of dropped rows; `batches` includes those without rows.
    """

    kind: str = ""
    told: str = ""
    rows: int = 0
    late_rows: int = 0
    batches: int = 0

    @property
    def origin(self) -> str:
        """The location of an error in sparkext, or its message."""
        return self.told.splitlines()[-1] if self.kind == "error" else ""


@dataclass
class _Attempts:
    """A sink that stores all rows of each batch, and fails at the requested batch."""

    failing: str = ""
    last: int = -1
    batches: dict[int, list[Emitted]] = field(default_factory=dict)
    contradiction: str = ""

    def __call__(self, frame: DataFrame, batch: int) -> None:
        if self.failing == "before" and batch == self.last:
            raise SinkError
        from pyspark.sql import functions as F

        # PySpark rejects NULL in a struct with NOT NULL fields. These casts make the fields nullable.
        named = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
        columns = [F.col(one.name).cast(one.dataType._as_nullable()) for one in named.schema]
        rows = named.select(*columns, F.spark_partition_id()).toArrow()
        values = zip(*(column.to_pylist() for column in rows.columns), strict=True)
        found = [Emitted(batch, partition, tuple(row)) for *row, partition in values]
        before = self.batches.get(batch)
        if before is not None and Counter(text(one.row) for one in before) != Counter(text(one.row) for one in found):
            self.contradiction = f"batch {batch} emits {len(found)} rows where it emitted {len(before)} before"
        self.batches[batch] = found
        if self.failing == "after" and batch == self.last:
            raise SinkError


class SinkError(Exception):
    """The failure of a sink that a case requests."""


class Runner:
    """Runs cases in a session, one after the other, each in a folder of its own."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self._folder = spark, folder
        self._settings: dict[str, str] = {}
        self._numbers = 0

    def run(self, case: Case) -> Verdict:
        """Run a case, and remove its files."""
        self._numbers += 1
        folder = self._folder / f"case {self._numbers}"
        try:
            return _Query(self, case, folder).verdict()
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def configure(self, settings: dict[str, str]) -> None:
        """Set these keys, and unset the keys that were set before."""
        for key in self._settings.keys() - settings.keys():
            self.spark.conf.unset(key)
        for key, value in settings.items():
            if self._settings.get(key) != value:
                self.spark.conf.set(key, value)
        self._settings = settings


class _Query:
    """The query of one case, from its first start to its last batch."""

    def __init__(self, runner: Runner, case: Case, folder: Path) -> None:
        self.spark, self._runner, self._case, self._folder = runner.spark, runner, case, folder
        self._sink = _Attempts()

    def stream(self, number: int) -> DataFrame:
        described = self._case.streams[number]
        folders = [self._input(number, place) for place in range(len(described.sources))]
        return stream(self.spark, described, folders)

    def _input(self, stream: int, source: int) -> Path:
        return self._folder / f"stream {stream} {source}"

    @property
    def _checkpoint(self) -> Path:
        return self._folder / "state" / self._case.checkpoint

    def verdict(self) -> Verdict:
        verdict = Verdict()
        first = 0
        if told := self._precede():
            return Verdict("error of the predecessor", told)
        for run in self._case.runs:
            error = self._run(run, first, self._case.query)
            if error:
                verdict.kind, verdict.told = "error", error
                return verdict
            first += run.batches
        history = self._history()
        found = [one for batch in sorted(self._sink.batches) for one in self._sink.batches[batch]]
        verdict.rows, verdict.batches = len(found), len(self._sink.batches)
        verdict.late_rows = sum(
            len(history.late(number)) for number, one in enumerate(self._case.streams) if one.delay is not None
        )
        if self._sink.contradiction:
            verdict.kind, verdict.told = "another attempt", self._sink.contradiction
        elif strays := self._strays():
            verdict.kind, verdict.told = "files", f"written outside of the checkpoint: {strays}"
        elif told := self._case.query.difference(history, found):
            verdict.kind, verdict.told = "rows", told
        return verdict

    def _precede(self) -> str:
        """Run the predecessor over all batches and remove its files; return its error, or an empty text."""
        if self._case.predecessor is None:
            return ""
        batches = sum(run.batches for run in self._case.runs)
        error = self._run(Run(batches, self._case.runs[0].partitions), 0, self._case.predecessor)
        shutil.rmtree(self._folder)
        self._sink = _Attempts()
        return error

    def _run(self, run: Run, first: int, operator: Operator) -> str:
        """Start a query, let it read its batches, and return its error, or an empty text."""
        for number, described in enumerate(self._case.streams):
            for place, source in enumerate(described.sources):
                write_batches(described, source, self._input(number, place), first, run.batches)
        self._runner.configure(
            {
                **self._case.settings,
                "spark.sql.shuffle.partitions": str(run.partitions),
                "spark.sql.leafNodeDefaultParallelism": str(PARALLELISM),
            }
        )
        committed = len(_numbered(self._checkpoint / "commits")) if self._checkpoint.exists() else 0
        self._sink.failing, self._sink.last = run.fails, committed + run.batches - 1
        try:
            out = operator.frame(self)
            writer = out.writeStream.option("checkpointLocation", str(self._checkpoint)).trigger(availableNow=True)
            query = writer.foreachBatch(self._sink).start()
            if not query.awaitTermination(_TIMEOUT_SECONDS):
                query.stop()
                return f"it has not ended after {_TIMEOUT_SECONDS} seconds"
        except Exception as error:  # no error of any type is expected
            if run.fails and SinkError.__name__ in str(error):
                return ""
            return described(error)
        return f"batch {self._sink.last} did not fail" if run.fails else ""

    def _history(self) -> History:
        offsets = [_offset(path) for path in _numbered(self._checkpoint / "offsets")]
        batches = max((len(source.batches) for one in self._case.streams for source in one.sources), default=0)
        thresholds = [0] * batches
        read = -1
        for number, (_, last) in enumerate(offsets):
            for batch in range(read + 1, last + 1):
                thresholds[batch] = offsets[number - 1][0] if number else 0
            read = max(read, last)
        assert read == batches - 1, f"batches up to {read} have been read of {batches}"
        return History(self.spark, self._case.streams, tuple(thresholds), offsets[-1][0])

    def _strays(self) -> list[str]:
        """Return the files of the case that are neither input nor in the checkpoint."""
        inside = {*self._checkpoint.parents, self._checkpoint}
        found = self._folder / "state"
        places = [one for one in found.rglob("*") if one not in inside and self._checkpoint not in one.parents]
        return sorted(str(one.relative_to(found)) for one in places)[:5]


def _numbered(folder: Path) -> list[Path]:
    """Return the entries of one of Spark's logs in numerical order."""
    found = [path for path in folder.iterdir() if path.name.isdigit()] if folder.exists() else []
    return sorted(found, key=lambda path: int(path.name))


def _offset(path: Path) -> tuple[int, int]:
    """Return the watermark of a batch in µs, and the number of the last batch of files that it has read."""
    _, metadata, *sources = path.read_text().splitlines()
    read = {json.loads(source)["logOffset"] for source in sources if source != "-"}
    assert len(read) <= 1, f"sources are at different batches: {sources}"
    return int(json.loads(metadata)["batchWatermarkMs"]) * 1000, max(read, default=-1)


_SAYS = re.compile(r"^(?:Caused by)?[: ]{0,2}[\w.]*(?:Error|Exception|Invalid)\w*:|^\[[A-Z_.]+\]")
_WRAPS = re.compile(
    r"^\[STREAM_FAILED\] Query \[.*?\] terminated with exception: "
    r"|^\[FOREACH_BATCH_USER_FUNCTION_ERROR\].*|.*PythonException: An exception was thrown from the Python worker:"
)
_FRAME = re.compile(r'File ".*?(sparkext/[^"]*)", line (\d+), in (\w+)')


def described(error: Exception) -> str:
    """Return the condition of an error, its message without plans and stacks, and the innermost frame in sparkext."""
    told = [_WRAPS.sub("", _WRAPS.sub("", line)) for line in str(error).splitlines() if _SAYS.match(line)]
    frames = [" ".join(found) for found in _FRAME.findall(str(error))]
    lines = [error_condition(error), *filter(None, dict.fromkeys(told)), *frames[-1:]]
    return "\n".join(line[:600] for line in lines)
