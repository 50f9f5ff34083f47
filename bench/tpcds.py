"""TPC-DS queries, stars and hard joins, planned by the extension's auto mode, by Spark, and by other engines."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from bench import queries
from bench.harness import Bench, Case, step
from sparkext.errors import EnvironmentProblemError

NOTES = """\
Measured: as in tpch. Of the 99 queries those whose joins are hard: 72 (inventory by item alone, a week compared
afterwards), 93 and 24 (sales with their returns, on two keys), 25 (these with what the same customers then ordered from
the catalog), 16 and 95 (EXISTS, and a join of web sales with themselves, many to many). And those that are stars, sales
with a few small tables: 3, 7, 42, 43, 52, 55, 96 and 98; 15 and 19 have customers with their addresses beside these.
Parameters are the specification's; tables are made by tpcgen-cli."""

QUERIES = (3, 7, 15, 16, 19, 24, 25, 42, 43, 52, 55, 72, 93, 95, 96, 98)
TINY_QUERIES = (7, 93)
_FOLDER = Path(__file__).parent / "tpcds_queries"


def cases() -> list[Case]:
    """Return the only case: all queries in one table."""
    return [Case("tpcds.queries", "16 queries, stars and hard joins", _run)]


def _run(bench: Bench) -> None:
    tables = {path.stem: path for path in sorted(ensure_tables(bench).glob("*.parquet"))}
    numbers = TINY_QUERIES if bench.tiny else QUERIES
    queries.compare(bench, tables, {f"q{number:02}": query(number) for number in numbers})


def query(number: int) -> str:
    """Return the text of a query."""
    return (_FOLDER / f"q{number:02}.sql").read_text()


def ensure_tables(bench: Bench) -> Path:
    """Return the folder with a Parquet file for each table, after generating the tables if it does not exist.

    Raises
    ------
    EnvironmentProblemError
        tpcgen-cli is not installed, or failed.
    """
    folder = bench.data.parent / "tpcds" / f"sf{bench.scale_factor:g}"
    if folder.is_dir():
        return folder
    beside = Path(sys.executable).parent / "tpcgen-cli"
    generator = str(beside) if os.access(beside, os.X_OK) else shutil.which("tpcgen-cli")
    if generator is None:
        raise EnvironmentProblemError('tpcgen-cli, which makes the tables, is missing: pip install "tpcgen-cli>=4"')
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        with step(f"generating TPC-DS tables, scale factor {bench.scale_factor:g}"):
            command = [generator, "tpcds", "parquet", "-s", f"{bench.scale_factor:g}", f"--output-dir={partial}"]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            raise EnvironmentProblemError(f"tpcgen-cli failed: {ended.stderr[-500:]}")
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder
