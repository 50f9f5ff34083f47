"""`python -m tests.stream_harness`: random streaming queries, compared with one batch over the same rows.

Every query that differs is shrunk, and written as a program that runs it alone. Queries are numbered, so that a run can
be split, or continue after another one.

Exit status: 0, or 1 if any query differed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.shrinking import PATIENCE_SECONDS
from tests.stream_harness.cases import KINDS
from tests.stream_harness.hunt import Hunt
from tests.stream_harness.session import harness_session


def main(argv: Sequence[str] | None = None) -> int:
    """Run as many queries as `argv` requests."""
    arguments = _parser().parse_args(argv)
    numbers: Sequence[int] = range(arguments.first, arguments.first + arguments.cases)
    if arguments.only is not None:
        numbers = [arguments.only]
    kinds = [kind for kind in KINDS if arguments.operator in kind]
    with TemporaryDirectory() as folder, harness_session() as spark:
        hunt = Hunt(arguments.seed, kinds, arguments.out, arguments.patience, arguments.quick)
        hunt.run(spark, Path(folder), numbers, arguments.threads)
    print(hunt.tally)
    return 1 if hunt.tally.differences else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.stream_harness", description=__doc__)
    parser.add_argument("--cases", type=int, default=100, help="number of queries (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="which queries (default: 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first query (default: 0)")
    parser.add_argument("--only", type=int, help="number of a single query")
    parser.add_argument(
        "--operator", default="", help=f"only queries of kinds with this in their name: {', '.join(KINDS)}"
    )
    parser.add_argument("--quick", action="store_true", help="smaller queries, as the suite runs them")
    parser.add_argument("--threads", type=int, default=2, help="queries that run at a time (default: 2)")
    parser.add_argument(
        "--out", type=Path, default=Path("build/streams"), help="folder of programs (default: build/streams)"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE_SECONDS,
        help="seconds to make a query smaller; 0 not to (default: 120)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
