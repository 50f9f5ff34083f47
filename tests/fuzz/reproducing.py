"""A case as a program that runs it alone, with its tables, settings and query in full."""

from __future__ import annotations

from pathlib import Path
from pprint import pformat
from tempfile import TemporaryDirectory

from tests.fuzz.cases import Case
from tests.fuzz.running import Runner, Verdict, case_sql
from tests.fuzz.sql import Query
from tests.fuzz.storage import values_sql
from tests.fuzz.tables import Universe
from tests.support.harness.reproducing import describe_origin
from tests.support.harness.session import harness_session


def reproducer(case: Case, verdict: Verdict, alone: str) -> str:
    """Return the program. Its comments have the difference, the command that finds the query, and the tables as SQL."""
    tables = "\n".join(
        f"# {table.name}, as {table.storage.way}:\n"
        + "\n".join(f"#   {line}" for line in values_sql(table).splitlines())
        for table in case.universe.tables
    )
    return f'''{describe_origin(verdict, alone)}
{tables}
import datetime
from decimal import Decimal

from tests.fuzz.reproducing import replay
from tests.fuzz.sql import *
from tests.fuzz.tables import Column, Storage, Table, Universe

nan, inf = float("nan"), float("inf")
UNIVERSE = {pformat(case.universe, width=140)}
SETTINGS = {pformat(case.settings, width=100)}
QUERY = {pformat(case.query, width=140)}
SQL = r"""
{case_sql(case)}
"""
if __name__ == "__main__":
    replay(UNIVERSE, QUERY, SETTINGS)
'''


def replay(universe: Universe, query: Query, settings: dict[str, str]) -> None:
    """Run a query with and without the extension; print it, the extension's plan, and the difference of the results."""
    case = Case("replayed", universe, query, settings)
    with TemporaryDirectory() as folder, harness_session() as spark:
        verdict = Runner(spark, Path(folder)).run(case)
    print(case_sql(case), verdict.ours.plan, verdict.kind or "no difference", verdict.told, sep="\n\n")
