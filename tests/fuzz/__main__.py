"""`python -m tests.fuzz`: random SQL queries, with every eligible join planned as a pipeline, and as Spark plans them.

Rows, schemas and error conditions are compared. Every query that differs is shrunk, and written as a program that runs
it alone. Queries are numbered, so that a run can be split, or continue after another one.

Exit status: 0, or 1 if any query differed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz.cases import CHAIN
from tests.fuzz.graphs import SHAPES
from tests.fuzz.hunt import Hunt
from tests.fuzz.running import Runner
from tests.support.harness.options import create_parser, list_numbers
from tests.support.harness.session import harness_session


def main(argv: Sequence[str] | None = None) -> int:
    """Run as many queries as `argv` requests."""
    arguments = _parser().parse_args(argv)
    with TemporaryDirectory() as folder, harness_session() as spark:
        hunt = Hunt(Runner(spark, Path(folder)), arguments.seed, arguments.out, arguments.patience)
        hunt.run(list_numbers(arguments), arguments.match, arguments.shape, show=arguments.only is not None)
    print(hunt.tally)
    return 1 if hunt.tally.differences else 0


def _parser() -> argparse.ArgumentParser:
    parser = create_parser("tests.fuzz", __doc__, "--queries", 1000, "build/fuzz")
    parser.add_argument("--match", default="", help="only queries whose SQL matches this regular expression")
    parser.add_argument("--shape", default="", choices=(CHAIN, *SHAPES), help="only queries of this shape")
    return parser


if __name__ == "__main__":
    sys.exit(main())
