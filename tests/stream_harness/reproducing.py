"""Writes a case down as a program that runs it alone, with its rows, operators and settings in full."""

from __future__ import annotations

import re
from pathlib import Path
from pprint import pformat

from tests.stream_harness.cases import Case
from tests.stream_harness.running import Verdict


def reproducer(case: Case, verdict: Verdict, alone: str) -> str:
    """Return the program. Its comments describe the difference, and the command that draws the case again."""
    told = "\n".join(f"# {line}" for line in f"{verdict.kind}: {verdict.told}".splitlines())
    return f"""# Found by: {alone}
{told}
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
from tests.stream_harness.replaying import replay
from tests.stream_harness.sources import Source, Stream

nan, inf = float("nan"), float("inf")
CASE = {pformat(case, width=140, sort_dicts=False)}

if __name__ == "__main__":
    replay(CASE)
"""


def write(folder: Path, case: Case, verdict: Verdict, alone: str) -> Path:
    """Write the program into a folder; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (re.sub(r"\W", "_", f"case_{case.name}") + ".py")
    path.write_text(reproducer(case, verdict, alone), encoding="utf-8")
    return path
