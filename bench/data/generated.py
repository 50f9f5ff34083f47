"""Generated tables as Parquet files, cached for later runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.harness import Bench, step

Columns = Mapping[str, Any]
SEED = 20_240_607


def written(
    bench: Bench, name: str, tables: Callable[[], Mapping[str, Columns]], row_group: int = 1 << 20
) -> dict[str, Path]:
    """Write the tables as Parquet files under this name, unless an earlier run has; return the file of each.

    After a change of the generator, remove the folder or use another name: existing files are not checked.
    """
    folder = bench.folder(name)
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / "complete"
    if not made.exists():
        with step(f"writing {folder}"):
            for table, columns in tables().items():
                pq.write_table(pa.table(dict(columns)), folder / f"{table}.parquet", row_group_size=row_group)
            made.touch()
    return {path.stem: path for path in sorted(folder.glob("*.parquet"))}


def in_files(table: pa.Table, folder: Path, files: int = 8) -> Path:
    """Write the rows of a table into `files` files of a new folder, in about equal parts; return the folder."""
    folder.mkdir(parents=True)
    size = -(-table.num_rows // files)
    for number in range(files):
        pq.write_table(table.slice(number * size, size), folder / f"{number}.parquet")
    return folder


def star(rows: int, dimension_rows: int, dimensions: int) -> dict[str, Columns]:
    """Return a fact table with a random key of each dimension, and dimensions in random order with one value each."""
    generator = np.random.default_rng(SEED)
    fact: dict[str, Any] = {"f_value": generator.integers(0, 1000, rows)}
    tables: dict[str, Columns] = {"fact": fact}
    for number in range(1, dimensions + 1):
        fact[f"f_key{number}"] = generator.integers(0, dimension_rows, rows)
        tables[f"dim{number}"] = {
            f"d{number}_key": generator.permutation(dimension_rows),
            f"d{number}_value": generator.integers(0, 1000, dimension_rows),
        }
    return tables


def power_law_edges(edges: int, nodes: int, power: float) -> tuple[np.ndarray, np.ndarray]:
    """Return both ends of random edges. Expected in- and out-degrees fall with the given power of a node's rank."""
    generator = np.random.default_rng(SEED)
    weights = np.arange(1, nodes + 1) ** -power
    shares = np.cumsum(weights / weights.sum())
    numbers = generator.permutation(nodes)
    # Each direction ranks the nodes differently: high out-degree does not imply high in-degree.
    other = generator.permutation(nodes)
    source = numbers[np.searchsorted(shares, generator.random(edges)).clip(max=nodes - 1)]
    target = other[np.searchsorted(shares, generator.random(edges)).clip(max=nodes - 1)]
    return source, target
