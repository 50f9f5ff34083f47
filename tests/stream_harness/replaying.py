"""Runs the case of a program that `reproducing` has written."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from tests.stream_harness.cases import Case
from tests.stream_harness.running import Runner
from tests.stream_harness.session import harness_session


def replay(case: Case) -> None:
    """Run a case, and print how its result differs."""
    with TemporaryDirectory() as folder, harness_session() as spark:
        verdict = Runner(spark, Path(folder)).run(case)
    print(verdict.kind or "no difference", verdict.told, sep="\n\n")
