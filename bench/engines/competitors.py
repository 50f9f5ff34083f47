"""The other engines, each with its best documented settings for these joins. All yield Arrow record batches.

A competitor receives the tables and the number of threads once, before the clock starts, and may then convert the
tables to its own format. The timed part is building hash tables, joining, and exporting the result to Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.data.workloads import Workload

Run = Callable[[], Iterator[pa.RecordBatch]]
Query = Callable[[str, Mapping[str, Path]], list[tuple[Any, ...]]]
"""Returns the rows of a SQL query over Parquet files, given by table name. Each call reads the files anew."""


def _select(workload: Workload) -> str:
    """Return the joins as SQL, in the order of the workload."""
    text = f"SELECT {', '.join(workload.schema.names)} FROM {workload.probe}"
    for join in workload.joins:
        condition = " AND ".join(f"{probe} = {build}" for probe, build in join.keys)
        text += f" JOIN {join.build} ON {condition}"
    return text


def duckdb_connection(threads: int) -> Any:
    """Open a database in memory. It does not preserve insertion order, which would require buffering."""
    import duckdb as engine

    connection = engine.connect()
    connection.execute(f"SET threads = {threads}")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET streaming_buffer_size = '256MB'")
    return connection


def duckdb(workload: Workload, threads: int, own_tables: bool = False, folder: Path | None = None) -> Run:
    """Return a run of DuckDB, whose result is read as a stream.

    It scans the Arrow tables. With `own_tables`, it scans tables in DuckDB's own format, which are filled before the
    clock starts. With a `folder`, it reads the tables' Parquet files there.
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
    """Return a run of Polars' streaming engine. Strings are converted to Polars' format before the clock starts.

    With a `folder`, it reads the tables' Parquet files there.

    `threads` has to be the value of POLARS_MAX_THREADS at the import of Polars. The build side is forced to the smaller
    table, and row order is not maintained. The result is collected and exported without a copy, or, with `batches`,
    collected batch by batch.
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
        query = polars_join(query, frames[join.build], *zip(*join.keys, strict=True))
    newest = engine.CompatLevel.newest()

    def run() -> Iterator[pa.RecordBatch]:
        if batches:
            parts = query.collect_batches(maintain_order=False, engine="streaming")
        else:
            parts = iter([query.collect(engine="streaming")])
        for part in parts:
            yield from part.to_arrow(compat_level=newest).to_batches()

    return run


def polars_join(probe: Any, build: Any, probe_keys: Sequence[str], build_keys: Sequence[str]) -> Any:
    """Join lazy frames of Polars, with the build side on the right, without maintaining row order."""
    return probe.join(
        build,
        left_on=list(probe_keys),
        right_on=list(build_keys),
        coalesce=False,
        maintain_order="none",
        build_side="force_right",
    )


def _polars_frame(table: pa.Table) -> Any:
    import polars as engine

    return engine.DataFrame(engine.from_arrow(table, rechunk=False))


def acero(workload: Workload, threads: int) -> Run:
    """Return a run of pyarrow's Acero: one declaration for the chain, read as a stream; build sides on the right."""
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
    """Return a run of DataFusion, with as many partitions as threads, build sides on the left, and joins as written.

    The rules that reorder joins are switched off. With them, DataFusion 55 builds the last hash table over the probe
    side, because it flattens the joins and underestimates their size, and needs five times as long. All partitions
    share the build sides; with `partitioned`, both sides are repartitioned by their keys instead.
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
    """Return DuckDB's query function. Like sessions of other engines, its database opens before the clock starts."""
    connection = duckdb_connection(threads)
    connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")  # as in Spark

    def rows(text: str, tables: Mapping[str, Path]) -> list[tuple[Any, ...]]:
        for name, path in tables.items():
            connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
        return list(connection.execute(text).fetchall())

    return rows


def datafusion_queries(threads: int) -> Query:
    """Return DataFusion's query function, with a partition per thread, and with filters pushed into Parquet scans."""
    import datafusion as engine

    def rows(text: str, tables: Mapping[str, Path]) -> list[tuple[Any, ...]]:
        config = (
            engine.SessionConfig()
            .with_target_partitions(threads)
            .set("datafusion.execution.parquet.pushdown_filters", "true")
            .set("datafusion.sql_parser.default_null_ordering", "nulls_min")  # as in Spark
        )
        context = engine.SessionContext(config)
        for name, path in tables.items():
            context.register_parquet(name, str(path))
        columns = context.sql(text).to_arrow_table().columns
        return list(zip(*(column.to_pylist() for column in columns), strict=True))

    return rows
