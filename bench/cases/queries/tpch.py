"""TPC-H's 22 queries, planned by the extension's auto mode, by Spark, and by other engines."""

from __future__ import annotations

from pathlib import Path

from bench.cases.queries import comparison as queries
from bench.harness import Bench, Case

NOTES = queries.NOTES
QUERIES = range(1, 23)
"""The numbers of TPC-H's queries."""
TINY_QUERIES = (3, 12)
_FOLDER = Path(__file__).parents[2] / "data" / "tpch_queries"


def cases() -> list[Case]:
    """Return the only case: all queries in one table."""
    return [Case("tpch.queries", "the 22 queries", _run)]


def _run(bench: Bench) -> None:
    queries.compare(bench, tables(bench), texts(bench))


def tables(bench: Bench) -> dict[str, Path]:
    """Return the files by table, after generating them if they do not exist."""
    from sparkext.cli import tpch

    folder = tpch.ensure_tables(bench.scale_factor, bench.data)
    return {name: folder / f"{name}.parquet" for name in tpch.TABLES}


def texts(bench: Bench) -> dict[str, str]:
    """Return the texts of the queries by name; only two queries if the data is tiny."""
    return {f"q{number:02}": query(number) for number in (TINY_QUERIES if bench.tiny else QUERIES)}


def query(number: int) -> str:
    """Return the text of a query with the specification's validation parameters, in Spark's SQL."""
    return (_FOLDER / f"q{number:02}.sql").read_text()
