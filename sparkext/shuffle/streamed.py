"""Rows streamed to partitions that join them at the same time: the description for both ends, and a task's files.

A worker and its JVM task share the folder of local files. The JVM task copies the load table of a run into this folder,
where a routing worker reads it. It also reads the workers' proposals and measurements from there.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparkext.plans.shuffle.load_table import BucketReport, Interval, LoadTable
from sparkext.storage.container import private_file
from sparkext.storage.local_folder import beside_task

HOME = -1
"""The group of all buckets whose home is a partition; other groups are single buckets."""


@dataclass(frozen=True)
class StreamedExchange:
    """The number of buckets and partitions, and the name of the run, used in file names."""

    buckets: int
    partitions: int
    run: str

    def group(self, bucket: int, partition: int) -> int:
        """Return the group of build rows for a bucket in a partition: `HOME`, or the bucket if it was moved there."""
        return HOME if bucket % self.partitions == partition else bucket


class TaskFiles:
    """The files of this task, in the folder of local files."""

    def __init__(self, run: str) -> None:
        """Begin without having read the load table."""
        self._run = run
        self._last_modified = 0

    def load_table(self) -> LoadTable | None:
        """Return the load table, None if it has not changed since the last call or does not exist."""
        path = self._path("load_table")
        try:
            modified = path.stat().st_mtime_ns
            if modified == self._last_modified:
                return None
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        self._last_modified = modified
        return LoadTable.from_json(text)

    def propose(self, interval: Interval) -> None:
        """Write a proposal."""
        self._write("proposal", interval.to_json())

    def write_report(self, report: BucketReport) -> None:
        """Write the measurements of each bucket."""
        self._write("loads", report.to_json())

    def _write(self, name: str, text: str) -> None:
        with private_file(self._path(name)) as stream:
            stream.write(text.encode())

    def _path(self, name: str) -> Path:
        path = beside_task(self._run, name)
        assert path is not None, "called in a task"
        return path
