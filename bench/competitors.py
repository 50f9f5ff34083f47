"""The other engines, each with its best documented settings for this job. Every one yields Arrow record batches.

A competitor gets the tables and the number of threads once, before the clock starts, and may convert the tables to its
own form then: what is timed is the joins, the building of hash tables, and the way out to Arrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from bench.workloads import Workload

Run = Callable[[], Iterator[pa.RecordBatch]]


def _select(workload: Workload) -> str:
    """Return the joins as SQL, in the order in which the workload has them."""
    text = f"SELECT {', '.join(workload.schema.names)} FROM {workload.probe}"
    for join in workload.joins:
        condition = " AND ".join(f"{probe} = {build}" for probe, build in join.keys)
        text += f" JOIN {join.build} ON {condition}"
    return text


def duckdb(workload: Workload, threads: int, streaming: bool) -> Run:
    """DuckDB, scanning the Arrow tables; insertion order not preserved, so that nothing is buffered for it.

    Streaming: batches through a reader while the query runs, its buffer raised to 256 MB. Otherwise the whole
    result is made as an Arrow table, which all threads do side by side.
    """
    import duckdb as engine

    connection = engine.connect()
    connection.execute(f"SET threads = {threads}")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute("SET streaming_buffer_size = '256MB'")
    for name, table in workload.tables.items():
        connection.register(name, table)
    query = _select(workload)

    def run() -> Iterator[pa.RecordBatch]:
        relation = connection.sql(query)
        if streaming:
            yield from relation.to_arrow_reader(131_072)
        else:
            yield from relation.to_arrow_table().to_batches()

    return run


def polars(workload: Workload, threads: int, batches: bool) -> Run:
    """Polars, streaming engine; strings are turned into Polars' own form before the clock starts.

    `threads` was set by POLARS_MAX_THREADS before the import. The build side is forced to the smaller table, order is
    not maintained. The result is collected and exported without copying, or collected batch by batch.
    """
    import polars as engine

    if engine.thread_pool_size() != threads:
        raise RuntimeError(f"POLARS_MAX_THREADS gave {engine.thread_pool_size()} threads, not {threads}")
    frames = {name: _polars_frame(table).lazy() for name, table in workload.tables.items()}
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
            parts = query.collect_batches(chunk_size=131_072, maintain_order=False, engine="streaming")
        else:
            parts = iter([query.collect(engine="streaming")])
        for part in parts:
            yield from part.to_arrow(compat_level=newest).to_batches()

    return run


def _polars_frame(table: pa.Table):  # type: ignore[no-untyped-def]
    import polars as engine

    return engine.DataFrame(engine.from_arrow(table, rechunk=False))


def acero(workload: Workload, threads: int) -> Run:
    """pyarrow's Acero: one declaration for the whole chain, read as a stream; the build side is the right one."""
    from pyarrow import acero as engine

    pa.set_cpu_count(threads)
    plan = engine.Declaration("table_source", engine.TableSourceNodeOptions(workload.tables[workload.probe]))
    for join in workload.joins:
        build = engine.Declaration("table_source", engine.TableSourceNodeOptions(workload.tables[join.build]))
        options = engine.HashJoinNodeOptions(
            "inner", [probe for probe, _ in join.keys], [key for _, key in join.keys]
        )
        plan = engine.Declaration("hashjoin", options, inputs=[plan, build])

    def run() -> Iterator[pa.RecordBatch]:
        yield from plan.to_reader(use_threads=threads > 1)

    return run


def datafusion(workload: Workload, threads: int, collect_left: bool) -> Run:
    """DataFusion: tables in as many partitions as threads, batches of 32,768 rows.

    `collect_left`: build sides of any size are built once and shared by all partitions, where the default is to
    repartition both sides by their keys.
    """
    import datafusion as engine

    config = engine.SessionConfig().with_target_partitions(threads).with_batch_size(32_768)
    if collect_left:
        config = config.set("datafusion.optimizer.hash_join_single_partition_threshold", str(1 << 40))
        config = config.set("datafusion.optimizer.hash_join_single_partition_threshold_rows", str(1 << 40))
    context = engine.SessionContext(config)
    for name, table in workload.tables.items():
        batches = table.to_batches()
        context.register_record_batches(name, [batches[part::threads] for part in range(threads)])
    query = _select(workload)

    def run() -> Iterator[pa.RecordBatch]:
        for batch in context.sql(query).execute_stream():
            yield batch.to_pyarrow()

    return run
