"""The other engines, each with its best documented settings for this job. Every one yields Arrow record batches.

A competitor gets the tables and the number of threads once, before the clock starts, and may convert the tables to its
own form then: what is timed is the joins, the building of hash tables, and the way out to Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.workloads import Workload

Run = Callable[[], Iterator[pa.RecordBatch]]
Query = Callable[[str, Mapping[str, Path]], list[tuple[Any, ...]]]
"""The rows of a query over Parquet files by the names of its tables; they are read anew whenever it is asked."""


def _select(workload: Workload) -> str:
    """Return the joins as SQL, in the order in which the workload has them."""
    text = f"SELECT {', '.join(workload.schema.names)} FROM {workload.probe}"
    for join in workload.joins:
        condition = " AND ".join(f"{probe} = {build}" for probe, build in join.keys)
        text += f" JOIN {join.build} ON {condition}"
    return text


def duckdb_connection(threads: int) -> Any:
    """Open a database in memory; insertion order not preserved, so that nothing is buffered for its sake."""
    import duckdb as engine

    connection = engine.connect()
    connection.execute(f"SET threads = {threads}")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET streaming_buffer_size = '256MB'")
    return connection


def duckdb(workload: Workload, threads: int, own_tables: bool = False, folder: Path | None = None) -> Run:
    """DuckDB, read as a stream.

    It scans the Arrow tables; with `own_tables` tables of its own form that were filled before the clock starts; with
    a `folder` the tables' Parquet files there.
    """
    connection = duckdb_connection(threads)
    for name, table in workload.tables.items():
        if folder is not None:
            columns = ", ".join(table.schema.names)
            connection.execute(f"CREATE VIEW {name} AS SELECT {columns} FROM '{folder / name}.parquet'")
            continue
        connection.register(f"{name}_arrow" if own_tables else name, table)
        if own_tables:
            connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_arrow")
    query = _select(workload)

    def run() -> Iterator[pa.RecordBatch]:
        yield from connection.sql(query).to_arrow_reader(131_072)

    return run


def polars(workload: Workload, threads: int, batches: bool, folder: Path | None = None) -> Run:
    """Polars, streaming engine; strings are turned into Polars' own form before the clock starts.

    With a `folder` it reads the tables' Parquet files there.

    `threads` was set by POLARS_MAX_THREADS before the import. The build side is forced to the smaller table, order is
    not maintained. The result is collected and exported without copying, or collected batch by batch.
    """
    import polars as engine

    if engine.thread_pool_size() != threads:
        raise RuntimeError(f"POLARS_MAX_THREADS gave {engine.thread_pool_size()} threads, not {threads}")
    frames = {
        name: _polars_frame(table).lazy()
        if folder is None
        else engine.scan_parquet(folder / f"{name}.parquet").select(table.schema.names)
        for name, table in workload.tables.items()
    }
    query = frames[workload.probe]
    for join in workload.joins:
        query = query.join(
            frames[join.build],
            left_on=[probe for probe, _ in join.keys],
            right_on=[build for _, build in join.keys],
            how="inner",
            coalesce=False,
            maintain_order="none",
            build_side="force_right",
        )
    newest = engine.CompatLevel.newest()

    def run() -> Iterator[pa.RecordBatch]:
        if batches:
            parts = query.collect_batches(maintain_order=False, engine="streaming")
        else:
            parts = iter([query.collect(engine="streaming")])
        for part in parts:
            yield from part.to_arrow(compat_level=newest).to_batches()

    return run


def _polars_frame(table: pa.Table) -> Any:
    import polars as engine

    return engine.DataFrame(engine.from_arrow(table, rechunk=False))


def acero(workload: Workload, threads: int) -> Run:
    """pyarrow's Acero: one declaration for the whole chain, read as a stream; the build side is the right one."""
    from pyarrow import acero as engine

    pa.set_cpu_count(threads)
    plan = engine.Declaration("table_source", engine.TableSourceNodeOptions(workload.tables[workload.probe]))
    for join in workload.joins:
        build = engine.Declaration("table_source", engine.TableSourceNodeOptions(workload.tables[join.build]))
        options = engine.HashJoinNodeOptions("inner", [probe for probe, _ in join.keys], [key for _, key in join.keys])
        plan = engine.Declaration("hashjoin", options, inputs=[plan, build])

    def run() -> Iterator[pa.RecordBatch]:
        yield from plan.to_reader(use_threads=threads > 1)

    return run


def datafusion(workload: Workload, threads: int, partitioned: bool) -> Run:
    """DataFusion: tables in as many partitions as threads, build sides on the left, join order as written.

    Left to itself, DataFusion 55 builds the last hash table over the probe side (it flattens the joins, and its
    estimate of their size is too low), which takes five times as long: the rules that reorder are switched off.
    Build sides are shared by all partitions, or, with `partitioned`, both sides are repartitioned by their keys.
    """
    import datafusion as engine

    limit = 0 if partitioned else 1 << 40
    config = (
        engine.SessionConfig()
        .with_target_partitions(threads)
        .set("datafusion.optimizer.join_reordering", "false")
        .set("datafusion.optimizer.enable_join_dynamic_filter_pushdown", "false")
        .set("datafusion.optimizer.hash_join_single_partition_threshold", str(limit))
        .set("datafusion.optimizer.hash_join_single_partition_threshold_rows", str(limit))
    )
    context = engine.SessionContext(config)
    context.remove_optimizer_rule("eliminate_cross_join")
    for name, table in workload.tables.items():
        batches = table.to_batches()
        context.register_record_batches(name, [batches[part::threads] for part in range(threads)])

    def run() -> Iterator[pa.RecordBatch]:
        frame = context.table(workload.probe)
        for join in workload.joins:
            frame = context.table(join.build).join(
                frame,
                left_on=[build for _, build in join.keys],
                right_on=[probe for probe, _ in join.keys],
                how="inner",
                coalesce_duplicate_keys=False,
            )
        for batch in frame.select(*workload.schema.names).execute_stream():
            yield batch.to_pyarrow()

    return run


def duckdb_queries(threads: int) -> Query:
    """DuckDB, whose database is opened before the clock starts, as sessions and thread pools of the others are."""
    connection = duckdb_connection(threads)
    connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")  # as Spark's is

    def rows(text: str, tables: Mapping[str, Path]) -> list[tuple[Any, ...]]:
        for name, path in tables.items():
            connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
        return list(connection.execute(text).fetchall())

    return rows


def datafusion_queries(threads: int) -> Query:
    """DataFusion with as many partitions as threads, and filters pushed into its reader of Parquet."""
    import datafusion as engine

    def rows(text: str, tables: Mapping[str, Path]) -> list[tuple[Any, ...]]:
        config = (
            engine.SessionConfig()
            .with_target_partitions(threads)
            .set("datafusion.execution.parquet.pushdown_filters", "true")
            .set("datafusion.sql_parser.default_null_ordering", "nulls_min")  # as Spark's is
        )
        context = engine.SessionContext(config)
        for name, path in tables.items():
            context.register_parquet(name, str(path))
        columns = context.sql(text).to_arrow_table().columns
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    return rows
