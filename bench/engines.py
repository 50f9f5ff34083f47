"""The pipeline over Arrow tables in memory, against engines that are native code throughout."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from bench.harness import Bench, Case, Contestant, measure, report, step, verify
from bench.workloads import Workload

NOTES = """\
Measured: from the Arrow tables in memory to the last Arrow record batch of the result: building every hash table or
index, all joins, and the payload of all columns of all tables. One consumer takes the batches one by one, counts
their rows and looks at the first and last byte of each buffer, the same for all.
Left out: reading files, and what an engine does to the tables when they are handed to it (Polars turns strings into
views). Cores: processor time of the whole process over wall time."""


def cases() -> list[Case]:
    """One case per workload, each on every number of threads."""
    titles = {
        "clustered": "lineitem, orders, supplier, part: keys as TPC-H generates them",
        "shuffled": "the same, lineitem in random order",
        "sparse": "the same as clustered, keys spread over 64 bits: hash indexes",
        "sparse-shuffled": "the same as shuffled, keys spread over 64 bits: hash indexes",
        "strings": "the same as clustered, keys as text of twelve digits",
        "composite": "lineitem, orders: a key of two int64 columns",
        "composite-int32": "lineitem, orders: a key of two int32 columns",
        "many-to-many": "2 M probe rows, 200 K build rows, 10 matches each",
        "many-to-many-sparse": "the same, keys spread over 64 bits: hash index",
    }
    return [Case(f"engines.{name}", title, _runner(name), threaded=True) for name, title in titles.items()]


def _runner(name: str) -> Callable[[Bench], None]:
    return lambda bench: run(bench, _workload(name, bench))


def _workload(name: str, bench: Bench) -> Workload:
    from bench import workloads

    with step("loading"):
        if name.startswith("many-to-many"):
            synthetic = workloads.many_to_many(2_000_000, 200_000, 10)
            return workloads.with_keys(synthetic, workloads.sparse) if "sparse" in name else synthetic
        tables = workloads.tpch(bench.scale_factor, bench.data)
        if name.startswith("composite"):
            return workloads.composite(tables, pa.int32() if "int32" in name else pa.int64())
        if "shuffled" in name:
            tables = workloads.shuffled(tables)
        if "sparse" in name:
            tables = workloads.with_keys(tables, workloads.sparse)
        if name == "strings":
            tables = workloads.with_keys(tables, workloads.as_text)
        return tables


def run(bench: Bench, workload: Workload) -> None:
    """Check, time and report all engines on one workload."""
    from bench.answers import Answer

    contestants = [_contestant(name, *entry, workload) for name, entry in _engines(workload, bench.threads).items()]
    answer = verify(contestants)
    assert isinstance(answer, Answer)
    print(f"{answer.rows:,} rows, {len(workload.schema)} columns; all engines agree on rows and checksums")
    report(bench, measure(contestants, bench.runs), answer.rows)


def _engines(
    workload: Workload, threads: int
) -> dict[str, tuple[Callable[[], Iterator[pa.RecordBatch]], bool]]:
    """Name, way to run, and whether it is ours."""
    from bench import competitors, in_memory

    return {
        "sparkext": (lambda: in_memory.run(workload, threads), True),
        "DuckDB, stream": (competitors.duckdb(workload, threads, streaming=True), False),
        "DuckDB, table": (competitors.duckdb(workload, threads, streaming=False), False),
        "Polars, collect": (competitors.polars(workload, threads, batches=False), False),
        "Polars, batches": (competitors.polars(workload, threads, batches=True), False),
        "Acero": (competitors.acero(workload, threads), False),
        "DataFusion": (competitors.datafusion(workload, threads, collect_left=False), False),
        "DataFusion, collect left": (competitors.datafusion(workload, threads, collect_left=True), False),
    }


def _contestant(
    name: str, batches: Callable[[], Iterator[pa.RecordBatch]], ours: bool, workload: Workload
) -> Contestant:
    from bench.answers import answer_of

    return Contestant(
        name,
        run=lambda: consume(batches()),
        answer=lambda: answer_of(batches(), workload.schema),
        ours=ours,
    )


def consume(batches: Iterator[pa.RecordBatch]) -> int:
    """Take every batch, look at both ends of its buffers, and count its rows."""
    rows = 0
    for batch in batches:
        for column in batch.columns:
            for buffer in column.buffers():
                if buffer is not None and buffer.size:
                    _ = buffer[0] + buffer[buffer.size - 1]
        rows += batch.num_rows
    return rows
