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

from tests.stream_harness.cases import KINDS
from tests.stream_harness.hunt import Hunt
from tests.support.harness.options import create_parser, list_numbers
from tests.support.harness.session import harness_session
from tests.support.sessions import STREAMS


def main(argv: Sequence[str] | None = None) -> int:
    """Run as many queries as `argv` requests."""
    arguments = _parser().parse_args(argv)
    kinds = [kind for kind in KINDS if arguments.operator in kind]
    with TemporaryDirectory() as folder, harness_session(extended=False, **STREAMS) as spark:
        hunt = Hunt(arguments.seed, kinds, arguments.out, arguments.patience, arguments.quick)
        hunt.run(spark, Path(folder), list_numbers(arguments), arguments.threads)
    print(hunt.tally)
    return 1 if hunt.tally.differences else 0


def _parser() -> argparse.ArgumentParser:
    parser = create_parser("tests.stream_harness", __doc__, "--cases", 100, "build/streams")
    parser.add_argument(
        "--operator", default="", help=f"only queries of kinds with this in their name: {', '.join(KINDS)}"
    )
    parser.add_argument("--quick", action="store_true", help="smaller queries, as the suite runs them")
    parser.add_argument("--threads", type=int, default=2, help="queries that run at a time (default: 2)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
