"""Writes a case down as a program that runs it alone, with its tables, settings and query in full."""

from __future__ import annotations

import re
from pathlib import Path
from pprint import pformat

from tests.fuzz.cases import Case
from tests.fuzz.running import Verdict, case_sql
from tests.fuzz.storage import values_sql


def reproducer(case: Case, verdict: Verdict, alone: str) -> str:
    """Return the program. Its comments have the difference, the command that finds the query, and the tables as SQL."""
    told = "\n".join(f"# {line}" for line in f"{verdict.kind}: {verdict.told}".splitlines())
    tables = "\n".join(
        f"# {table.name}, as {table.storage.way}:\n"
        + "\n".join(f"#   {line}" for line in values_sql(table).splitlines())
        for table in case.universe.tables
    )
    return f'''# Found by: {alone}
{told}
{tables}
import datetime
from decimal import Decimal

from tests.fuzz.replaying import replay
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


def write(folder: Path, case: Case, verdict: Verdict, alone: str, suffix: str = "") -> Path:
    """Write the program into a folder; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"\W", "_", f"case_{case.name}{suffix}") + ".py")
    path.write_text(reproducer(case, verdict, alone), encoding="utf-8")
    return path
