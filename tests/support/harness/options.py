"""Options of the command lines that run random cases by their numbers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tests.support.harness.shrinking import PATIENCE_SECONDS


def create_parser(prog: str, description: str | None, counted: str, count: int, out: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all harnesses have; the option `counted` is the number of queries."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument(counted, dest="count", type=int, default=count, help=f"number of queries (default: {count})")
    parser.add_argument("--seed", type=int, default=1, help="which queries (default: 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first query (default: 0)")
    parser.add_argument("--only", type=int, help="number of a single query")
    parser.add_argument("--out", type=Path, default=Path(out), help=f"folder of programs (default: {out})")
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE_SECONDS,
        help="seconds to make a query smaller; 0 not to (default: 120)",
    )
    return parser


def list_numbers(arguments: argparse.Namespace) -> Sequence[int]:
    """Return the numbers of the requested queries."""
    if arguments.only is not None:
        return [arguments.only]
    return range(arguments.first, arguments.first + arguments.count)
