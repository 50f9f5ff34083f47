"""Joins for the comparison of engines, over Arrow tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.data.keys import padded, spread
from sparkext.cli.demo import COLUMNS, JOINS, PROBE_SIDE
from sparkext.cli.tpch import ensure_tables

BATCH_ROWS = 131_072
_SEED = 20_240_607


@dataclass(frozen=True)
class Join:
    """An inner equi-join with table `build` on (probe column, build column) pairs."""

    build: str
    keys: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Workload:
    """A chain of inner joins over one probe table. The result has every column of every table."""

    tables: Mapping[str, pa.Table]
    probe: str
    joins: tuple[Join, ...]

    @property
    def schema(self) -> pa.Schema:
        """Columns of the result: the probe table's, then each build table's, in join order."""
        names = [self.probe, *(join.build for join in self.joins)]
        return pa.schema([field.remove_metadata() for name in names for field in self.tables[name].schema])

    def key_columns(self) -> dict[str, set[str]]:
        """Return the key columns of each table."""
        keys: dict[str, set[str]] = {name: set() for name in self.tables}
        for join in self.joins:
            for probe_key, build_key in join.keys:
                keys[self.probe].add(probe_key)
                keys[join.build].add(build_key)
        return keys


def load_table(folder: Path, name: str, columns: tuple[str, ...]) -> pa.Table:
    """Read a TPC-H table; string views, which Spark does not send, become strings."""
    table = pq.read_table(folder / f"{name}.parquet", columns=list(columns))
    fields = [field.remove_metadata() for field in table.schema]
    plain = [
        field.with_type(pa.string()) if field.type == pa.string_view() else field
        for field in (field.with_nullable(True) for field in fields)
    ]
    return in_batches(table.cast(pa.schema(plain)))


def in_batches(table: pa.Table) -> pa.Table:
    """Split a table into batches of `BATCH_ROWS` rows, which all engines receive."""
    return pa.Table.from_batches(
        table.combine_chunks().to_batches(max_chunksize=BATCH_ROWS), table.schema.remove_metadata()
    )


def tpch(scale_factor: float, data: Path) -> Workload:
    """Return lineitem ⋈ orders ⋈ supplier ⋈ part, with rows in the order of generation."""
    folder = ensure_tables(scale_factor, data)
    tables = {name: load_table(folder, name, columns) for name, columns in COLUMNS.items()}
    return Workload(tables, PROBE_SIDE, tuple(Join(name, ((probe, build),)) for name, probe, build in JOINS))


def shuffled(workload: Workload) -> Workload:
    """Return the workload with the probe table's rows in random order."""
    table = workload.tables[workload.probe]
    order = np.random.default_rng(_SEED).permutation(table.num_rows)
    picked = in_batches(table.combine_chunks().take(pa.array(order)))
    return replace(workload, tables={**workload.tables, workload.probe: picked})


def with_keys(workload: Workload, change: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> Workload:
    """Return the workload with `change` applied to every key column."""
    tables = {}
    for name, keys in workload.key_columns().items():
        table = workload.tables[name]
        for key in sorted(keys):
            place = table.schema.get_field_index(key)
            table = table.set_column(place, key, change(table.column(key)))
        tables[name] = in_batches(table)
    return replace(workload, tables=tables)


def sparse(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Spread integer keys over all 64 bits."""
    return pa.chunked_array([pa.array(spread(column.to_numpy()))])


def as_text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return integer keys as text of twelve digits."""
    return padded(column, 12)


def composite(workload: Workload, dtype: pa.DataType) -> Workload:
    """Return lineitem ⋈ orders on two columns: the order key split into thousands and the rest."""
    tables = {
        "lineitem": _split(workload.tables["lineitem"], "l_orderkey", dtype),
        "orders": _split(workload.tables["orders"], "o_orderkey", dtype),
    }
    keys = tuple((f"l_orderkey_{part}", f"o_orderkey_{part}") for part in ("high", "low"))
    return Workload(tables, "lineitem", (Join("orders", keys),))


def _split(table: pa.Table, key: str, dtype: pa.DataType) -> pa.Table:
    values = table.column(key).to_numpy()
    for part, numbers in (("low", values % 1000), ("high", values // 1000)):
        table = table.add_column(0, f"{key}_{part}", pa.array(numbers).cast(dtype))
    return in_batches(table.drop_columns([key]))


def many_to_many(probe_rows: int, build_rows: int, fan_out: int) -> Workload:
    """Return a join in which every probe row matches `fan_out` build rows. Keys are dense, in random order."""
    rng = np.random.default_rng(_SEED)
    distinct = build_rows // fan_out
    build_keys = rng.permutation(np.repeat(np.arange(distinct, dtype=np.int64), fan_out))
    probe = pa.table(
        {
            "p_key": rng.integers(0, distinct, probe_rows),
            "p_id": np.arange(probe_rows, dtype=np.int64),
            "p_value": rng.integers(0, 1000, probe_rows).astype(np.int32),
        }
    )
    numbers = pa.array(np.arange(build_rows, dtype=np.int64))
    name = pc.binary_join_element_wise("name ", numbers.cast(pa.string()), "")
    build = pa.table({"b_key": build_keys, "b_id": numbers, "b_name": name})
    return Workload(
        {"probe": in_batches(probe), "build": in_batches(build)},
        "probe",
        (Join("build", (("p_key", "b_key"),)),),
    )
