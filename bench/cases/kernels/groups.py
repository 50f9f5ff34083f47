"""The aggregation kernels alone, compared with native engines: one thread, Arrow tables in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from bench.data.keys import spread
from bench.data.workloads import BATCH_ROWS
from bench.engines.competitors import duckdb_connection
from bench.harness import Bench, Case, Contestant, measure, report, step, verify

ROWS = 10_000_000
FEW, MANY = 1000, 1_000_000
NOTES = f"""\
Measured: GROUP BY with count(*) and sum(int64) over {ROWS:,} rows in morsels of {BATCH_ROWS:,}, from Arrow tables in
memory to an Arrow table of the groups. Keys are in random order, unless the title of the case says otherwise. There are
no nulls.
Left out: the conversion of the table when another engine receives it (Polars converts strings to views, DuckDB fills
its own table). If an engine has several forms, all are checked, and the form that is fastest in the warm-up is
timed."""


def cases() -> list[Case]:
    """Return one case per shape of the keys."""
    titles = {
        "few": "1,000 groups, int64, dense",
        "few-sparse": "1,000 groups, int64, spread over 64 bits",
        "many": "1 M groups, int64, dense",
        "many-sparse": "1 M groups, int64, spread over 64 bits",
        "sorted-sparse": "1 M groups, int64, spread over 64 bits, row after row of a group",
        "pair": "1,000 groups, two int64, spread over 64 bits",
        "pair-many": "1 M groups, two int64, spread over 64 bits",
        "flags": "6 groups, two texts of one byte: those of TPC-H query 1",
        "int-text": "10,000 groups, int32 and a text of up to ten bytes",
        "text": "1,000 groups, text of twelve digits",
        "text-many": "1 M groups, text of twelve digits",
    }
    return [
        Case(f"groups.{name}", title, partial(_run, name), scaled=False, threads=1) for name, title in titles.items()
    ]


def _run(name: str, bench: Bench) -> None:
    with step("making the table"):
        table = _table(name, bench.sized(ROWS))
    keys = table.column_names[:-1]
    forms = {
        "sparkext": partial(_ours, table),
        "DuckDB, Arrow table": partial(_duckdb, table, own_table=False),
        "DuckDB, own table": partial(_duckdb, table, own_table=True),
        "Polars": partial(_polars, table, any_threads=bench.tiny),
        "DataFusion": partial(_datafusion, table),
    }
    contestants = [
        Contestant(form, run=run, answer=partial(_digest, run, keys), ours=form == "sparkext", group=form.split(",")[0])
        for form, make in forms.items()
        for run in [make()]
    ]
    answer = verify(contestants)
    assert isinstance(answer, tuple)
    print(f"{table.num_rows:,} rows, {answer[0]:,} groups; all engines agree on them")
    report(bench, measure(bench, contestants), table.num_rows)


def _table(name: str, rows: int) -> pa.Table:
    random = np.random.default_rng(1)
    groups = {"flags": 6, "int-text": 10_000}.get(name, MANY if "many" in name or "sorted" in name else FEW)
    ids = random.integers(0, groups, rows)
    if name == "sorted-sparse":
        ids = np.arange(rows) // max(rows // groups, 1)
    columns: dict[str, Any]
    if name == "flags":
        flags = pa.array(["A", "N", "R"]), pa.array(["F", "O"])
        columns = {"a": flags[0].take(pa.array(ids % 3)), "b": flags[1].take(pa.array(ids // 3))}
    elif name == "int-text":
        texts = pa.array(["TRUCK", "REG AIR", "AIR", "FOB", "MAIL", "RAIL", "SHIP", "", "BY COURIER", "PIGEON"])
        columns = {"a": (ids // 10).astype(np.int32), "b": texts.take(pa.array(ids % 10))}
    elif name.startswith("text"):
        columns = {"a": pa.array([f"{number:012d}" for number in range(groups)]).take(pa.array(ids))}
    elif name.startswith("pair"):
        columns = {"a": spread(ids // 10), "b": spread(ids % 10)}
    else:
        columns = {"a": spread(ids) if "sparse" in name else ids}
    table = pa.table({**columns, "v": random.integers(-1000, 1000, rows)})
    return pa.Table.from_batches(table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS))


def _digest(run: Callable[[], pa.Table], keys: list[str]) -> tuple[int, str]:
    """Return the number of groups, and a checksum of all keys, counts and sums."""
    table = run()
    names = [*keys, "n", "s"]
    types = [
        pa.int64() if name in ("n", "s") else pa.large_string() if "string" in str(kind) else kind
        for name, kind in zip(names, table.schema.types, strict=True)
    ]
    table = table.rename_columns(names).cast(pa.schema(list(zip(names, types, strict=True))))
    table = table.sort_by([(key, "ascending") for key in keys]).combine_chunks()
    digest = hashlib.sha256()
    for column in table.columns:
        for buffer in pa.concat_arrays([column.chunk(0)]).buffers()[1:]:
            digest.update(buffer)
    return table.num_rows, digest.hexdigest()


def _ours(table: pa.Table) -> Callable[[], pa.Table]:
    from sparkext.kernels.groups.accumulators import accumulator
    from sparkext.kernels.groups.group_table import GroupTable

    morsels = [batch.columns for batch in table.to_batches()]
    types = table.schema.types[:-1]

    def run() -> pa.Table:
        groups, count, total = GroupTable(types), accumulator("count"), accumulator("sum", pa.int64())
        for *keys, values in morsels:
            numbers = groups.numbers(keys)
            count.add(numbers, groups.count, None)
            total.add(numbers, groups.count, values)
        columns = [*groups.keys(0, groups.count), *count.states(0, groups.count), *total.states(0, groups.count)]
        return pa.table(columns, names=[f"c{number}" for number in range(len(columns))])

    return run


def _select(table: pa.Table) -> str:
    keys = ", ".join(table.column_names[:-1])
    return f"SELECT {keys}, count(*) AS n, sum(v) AS s FROM t GROUP BY {keys}"


def _duckdb(table: pa.Table, own_table: bool) -> Callable[[], pa.Table]:
    connection = duckdb_connection(1)
    connection.register("arrow" if own_table else "t", table)
    if own_table:
        connection.execute("CREATE TABLE t AS SELECT * FROM arrow")
    return lambda: connection.sql(_select(table)).to_arrow_table()


def _polars(table: pa.Table, any_threads: bool) -> Callable[[], pa.Table]:
    import polars as engine

    if engine.thread_pool_size() != 1 and not any_threads:
        raise RuntimeError(f"POLARS_MAX_THREADS gave {engine.thread_pool_size()} threads, not 1")
    frame = engine.DataFrame(engine.from_arrow(table, rechunk=False))
    query = frame.lazy().group_by(table.column_names[:-1])
    result = query.agg(engine.len().cast(engine.Int64).alias("n"), engine.col("v").sum().alias("s"))
    newest = engine.CompatLevel.newest()
    return lambda: result.collect(engine="streaming").to_arrow(compat_level=newest)


def _datafusion(table: pa.Table) -> Callable[[], pa.Table]:
    import datafusion as engine

    context = engine.SessionContext(engine.SessionConfig().with_target_partitions(1))
    context.register_record_batches("t", [table.to_batches()])
    return lambda: context.sql(_select(table)).to_arrow_table()
