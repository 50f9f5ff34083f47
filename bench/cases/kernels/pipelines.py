"""The pipeline over Arrow tables in memory, compared with native engines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from bench.data.workloads import Workload
from bench.harness import Bench, Case, Contestant, measure, report, step, verify

OURS = "sparkext"
NAMED = ("sparse-shuffled", "composite-int32", "many-to-many-sparse")
NOTES = """\
Measured: from Arrow tables in memory to the last Arrow record batch of the result. This includes building every hash
table or index, all joins, and the payload of all columns of all tables. The same consumer reads the batches of every
engine one by one, counts their rows, and reads the first and the last byte of each buffer.
engines.files: the same from Parquet files in the page cache, including reading and decoding them.
Left out in the other cases: reading files, and the conversion of the tables when an engine receives them (Polars
converts strings to views, DuckDB fills its own tables). If an engine has several forms, all are checked, and the form
that is fastest in the warm-up is timed. cpu s: the median processor time of all threads of the process."""


def cases() -> list[Case]:
    """Return one case per workload, on all cores, or on the numbers of threads in `--threads`."""
    all_cores = (len(os.sched_getaffinity(0)),)
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
    return [
        *(
            Case(f"engines.{name}", title, partial(_run, name), threaded=all_cores, named=name in NAMED)
            for name, title in titles.items()
        ),
        Case("engines.files", "the same as clustered, from Parquet files", _run_from_files, threaded=all_cores),
    ]


def _workload(name: str, bench: Bench) -> Workload:
    from bench.data import workloads

    with step("loading"):
        if name.startswith("many-to-many"):
            synthetic = workloads.many_to_many(bench.sized(2_000_000), bench.sized(200_000), 10)
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


def _run_from_files(bench: Bench) -> None:
    from sparkext.cli.tpch import ensure_tables

    folder = ensure_tables(bench.scale_factor, bench.data)
    workload = _workload("clustered", bench)
    _compete(bench, workload, _file_forms(workload, folder, bench.threads))


def _run(name: str, bench: Bench) -> None:
    workload = _workload(name, bench)
    _compete(bench, workload, forms_of(workload, bench.threads))


def _compete(bench: Bench, workload: Workload, forms: list[Form]) -> None:
    from bench.engines.answers import Answer

    contestants = [contestant_of(form, workload) for form in forms]
    answer = verify(contestants)
    assert isinstance(answer, Answer)
    print(f"{answer.rows:,} rows, {len(workload.schema)} columns; all engines agree on rows and checksums")
    report(bench, measure(bench, contestants), answer.rows)


class Form(NamedTuple):
    """One configuration of one engine."""

    engine: str
    form: str
    batches: Callable[[], Iterator[pa.RecordBatch]]


def forms_of(workload: Workload, threads: int) -> list[Form]:
    """Return all engines over Arrow tables."""
    from bench.engines import competitors, in_memory

    return [
        Form(OURS, "", lambda: in_memory.run(workload, threads)),
        Form("DuckDB", "Arrow tables", competitors.duckdb(workload, threads, own_tables=False)),
        Form("DuckDB", "own tables", competitors.duckdb(workload, threads, own_tables=True)),
        Form("Polars", "collect", competitors.polars(workload, threads, batches=False)),
        Form("Polars", "collect_batches", competitors.polars(workload, threads, batches=True)),
        Form("Acero", "", competitors.acero(workload, threads)),
        Form("DataFusion", "shared build", competitors.datafusion(workload, threads, partitioned=False)),
        Form("DataFusion", "partitioned", competitors.datafusion(workload, threads, partitioned=True)),
    ]


def _file_forms(workload: Workload, folder: Path, threads: int) -> list[Form]:
    from bench.engines import competitors, from_files

    return [
        Form(OURS, "", lambda: from_files.run(workload, folder, threads)),
        Form("DuckDB", "", competitors.duckdb(workload, threads, folder=folder)),
        Form("Polars", "collect", competitors.polars(workload, threads, batches=False, folder=folder)),
        Form("Polars", "collect_batches", competitors.polars(workload, threads, batches=True, folder=folder)),
    ]


def contestant_of(form: Form, workload: Workload) -> Contestant:
    """Return a contestant that consumes all batches, and whose answer is a checksum of them."""
    from bench.engines.answers import answer_of

    return Contestant(
        f"{form.engine}, {form.form}" if form.form else form.engine,
        run=lambda: consume(form.batches()),
        answer=lambda: answer_of(form.batches(), workload.schema),
        ours=form.engine == OURS,
        group=form.engine,
    )


def consume(batches: Iterator[pa.RecordBatch]) -> int:
    """Read every batch and both ends of its buffers, and count the rows."""
    rows = 0
    for batch in batches:
        for column in batch.columns:
            for buffer in column.buffers():
                if buffer is not None and buffer.size:
                    _ = buffer[0] + buffer[buffer.size - 1]
        rows += batch.num_rows
    return rows
