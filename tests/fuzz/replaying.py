"""Runs the case of a program that `reproducing` has written."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.cases import Case
from tests.fuzz.running import Runner, case_sql
from tests.fuzz.session import fuzz_session
from tests.fuzz.sql import Query
from tests.fuzz.tables import Universe


def replay(universe: Universe, query: Query, settings: dict[str, str]) -> None:
    """Run a query with and without the extension; print it, the extension's plan, and the difference of the results."""
    case = Case("replayed", universe, query, settings)
    with TemporaryDirectory() as folder, fuzz_session() as spark:
        verdict = Runner(spark, Path(folder)).run(case)
    print(case_sql(case), verdict.ours.plan, verdict.kind or "no difference", verdict.told, sep="\n\n")
