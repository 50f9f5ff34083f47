"""More rows and bytes than 32 bits count, through a task and through Spark."""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path

from bench.harness import Bench, Case

NOTES = """\
Tests that are too large for each change: each prints a summary, and fails if an answer is not exact. Cases that begin
with spark or transform start Spark with 2 GiB of heap; the others are one process. Cases with text also need up to 6
GiB of disk. Seconds and memory of each, measured on two cores that were also busy with other work, with all processes
and the pages of mapped files:

    pairs             11 s   0.3 GiB
    rows              23 s   1.1 GiB
    build-text        59 s   6.5 GiB
    probe-text        31 s   4.5 GiB
    spark-pairs      142 s   0.9 GiB
    transform-pairs  423 s   0.8 GiB
    spark-rows       122 s   1.9 GiB
    transform-text    84 s   1.5 GiB
    spark-text       155 s  10.2 GiB"""

_TITLES = {
    "pairs": "2.2 billion pairs of one key, out of one task",
    "rows": "2.2 billion rows of Parquet files, into one task",
    "build-text": "a build side with 2.1 GiB of text in one column, and as its key",
    "probe-text": "row groups with 2.1 GiB of text: plain, in a dictionary, and after nulls",
    "spark-pairs": "the pairs through Spark, with the extension",
    "transform-pairs": "the pairs as a transform, without the extension",
    "spark-rows": "the rows through Spark, and by Spark's own plan",
    "transform-text": "2.1 GiB of text from the JVM as the probe side of one task of a transform",
    "spark-text": "2.1 GiB of text from the JVM and from files, on either side",
}


def cases() -> list[Case]:
    """Return one case for each input."""
    return [
        Case(f"limits.{name}", title, partial(_run, name), scaled=False, named=True) for name, title in _TITLES.items()
    ]


def _run(name: str, bench: Bench) -> None:
    from bench.cases.memory import large_inputs

    with tempfile.TemporaryDirectory(prefix="sparkext-limits-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder  # the folder of cached indexes, too
        print(getattr(large_inputs, name.replace("-", "_"))(Path(folder)), flush=True)
