"""Chains of inner joins over Parquet files under an aggregate, as queries for every engine.

All engines return one row: a count and sums over all rows of the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.engines.competitors import Query

Answer = tuple[int, ...]
Paths = Mapping[str, Path]


@dataclass(frozen=True)
class Chain:
    """A chain: `joins` are (build table, probe key, build key); `sums` are integer columns of any of the tables."""

    probe: str
    joins: Sequence[tuple[str, str, str]]
    sums: Sequence[str]

    def sql(self, hint: str = "") -> str:
        """Return the query, with this Spark join hint on every build side."""
        names = ", ".join(build for build, _, _ in self.joins)
        hints = f"/*+ {hint}({names}) */ " if hint else ""
        sums = ", ".join(f"sum({column}) AS sum_{column}" for column in self.sums)
        joins = "".join(f" JOIN {build} ON {probe} = {key}" for build, probe, key in self.joins)
        return f"SELECT {hints}count(*) AS n, {sums} FROM {self.probe}{joins}"

    @property
    def tables(self) -> list[str]:
        """All tables, the probe side first."""
        return [self.probe, *(build for build, _, _ in self.joins)]


def engines(chain: Chain, paths: Paths, threads: int) -> dict[str, Callable[[], Answer]]:
    """Return a function for each other engine, by name. Each call reads the files anew, as in a Spark session."""
    from bench.engines.competitors import datafusion_queries

    return {
        "DuckDB": duckdb(chain.sql(), paths, threads),
        "Polars": lambda: polars(chain, paths),
        "DataFusion": partial(_one_row, datafusion_queries(threads), chain.sql(), paths),
        "Acero": lambda: acero(chain, paths, threads),
    }


def duckdb(query: str, paths: Paths, threads: int) -> Callable[[], Answer]:
    """Return a function that runs a query with one result row in DuckDB."""
    from bench.engines.competitors import duckdb_queries

    return partial(_one_row, duckdb_queries(threads), query, paths)


def _one_row(ask: Query, query: str, paths: Paths) -> Answer:
    [row] = ask(query, paths)
    return tuple(map(int, row))


def polars(chain: Chain, paths: Paths) -> Answer:
    """Run the chain in Polars' streaming engine, with the chain's build sides, without maintaining row order."""
    import polars as engine

    from bench.engines.competitors import polars_join

    query = engine.scan_parquet(paths[chain.probe])
    for build, probe_key, build_key in chain.joins:
        query = polars_join(query, engine.scan_parquet(paths[build]), [probe_key], [build_key])
    sums = [engine.col(column).sum().alias(f"sum_{column}") for column in chain.sums]
    [row] = query.select(engine.len().alias("n"), *sums).collect(engine="streaming").rows()
    return tuple(row)


def acero(chain: Chain, paths: Paths, threads: int) -> Answer:
    """Run the chain in pyarrow's Acero, as one declaration over scans of the required columns."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    from pyarrow import acero as engine

    pa.set_cpu_count(threads)
    needed = {*chain.sums, *(key for _, *keys in chain.joins for key in keys)}

    def scan(name: str) -> engine.Declaration:
        source = ds.dataset(paths[name])
        columns = {column: ds.field(column) for column in source.schema.names if column in needed}
        return engine.Declaration("scan", engine.ScanNodeOptions(source, columns=columns))

    def kept(plan: engine.Declaration, columns: Sequence[str]) -> engine.Declaration:
        fields = [ds.field(column) for column in columns]
        return engine.Declaration("project", engine.ProjectNodeOptions(fields, list(columns)), inputs=[plan])

    def columns_of(name: str) -> list[str]:
        return [column for column in ds.dataset(paths[name]).schema.names if column in needed]

    columns = columns_of(chain.probe)
    plan = kept(scan(chain.probe), columns)
    for name, probe_key, build_key in chain.joins:
        build = columns_of(name)
        options = engine.HashJoinNodeOptions("inner", [probe_key], [build_key])
        plan = engine.Declaration("hashjoin", options, inputs=[plan, kept(scan(name), build)])
        columns += build
    aggregates = [([], "count_all", None, "n"), *((column, "sum", None, f"sum_{column}") for column in chain.sums)]
    plan = engine.Declaration("aggregate", engine.AggregateNodeOptions(aggregates), inputs=[plan])
    table = plan.to_table(use_threads=threads > 1)
    return tuple(table.column(name)[0].as_py() for name in table.column_names)
