"""A case as a program that runs it alone, with its rows, operators and settings in full."""

from __future__ import annotations

from pathlib import Path
from pprint import pformat
from tempfile import TemporaryDirectory

from tests.stream_harness.cases import Case
from tests.stream_harness.running import Runner, Verdict
from tests.support.harness.reproducing import describe_origin
from tests.support.harness.session import harness_session
from tests.support.sessions import STREAMS


def reproducer(case: Case, verdict: Verdict, alone: str) -> str:
    """Return the program. Its comments describe the difference, and the command that draws the case again."""
    return f"""{describe_origin(verdict, alone)}
import datetime
from decimal import Decimal

from tests.stream_harness.cases import Case
from tests.stream_harness.columns import Column, Derivation
from tests.stream_harness.cuts import Run
from tests.stream_harness.functions import Chained
from tests.stream_harness.operators.continuous import Continuous
from tests.stream_harness.operators.inputs import Input
from tests.stream_harness.operators.joins import StreamJoin
from tests.stream_harness.operators.nearest import NearestJoin
from tests.stream_harness.operators.order import Ordered
from tests.stream_harness.reproducing import replay
from tests.stream_harness.sources import Source, Stream

nan, inf = float("nan"), float("inf")
CASE = {pformat(case, width=140, sort_dicts=False)}

if __name__ == "__main__":
    replay(CASE)
"""


def replay(case: Case) -> None:
    """Run a case, and print how its result differs."""
    with TemporaryDirectory() as folder, harness_session(extended=False, **STREAMS) as spark:
        verdict = Runner(spark, Path(folder)).run(case)
    print(verdict.kind or "no difference", verdict.told, sep="\n\n")
