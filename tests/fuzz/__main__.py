"""`python -m tests.fuzz`: random SQL queries, with every eligible join planned as a pipeline, and as Spark plans them.

Rows, schemas and error conditions are compared. Every query that differs is shrunk, and written as a program that runs
it alone. Queries are numbered, so that a run can be split, or continue after another one.

Exit status: 0, or 1 if any query differed.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.fuzz import reproducing
from tests.fuzz.cases import CHAIN, Case, make_case
from tests.fuzz.graphs import SHAPES
from tests.fuzz.running import Runner, Verdict
from tests.fuzz.session import fuzz_session
from tests.fuzz.shrinking import PATIENCE_SECONDS, shrunk
from tests.fuzz.tables import make_universe
from tests.fuzz.tally import Tally

QUERIES_PER_UNIVERSE = 40


def main(argv: Sequence[str] | None = None) -> int:
    """Run as many queries as `argv` requests."""
    arguments = _parser().parse_args(argv)
    numbers: Sequence[int] = range(arguments.first, arguments.first + arguments.queries)
    if arguments.only is not None:
        numbers = [arguments.only]
    with TemporaryDirectory() as folder, fuzz_session() as spark:
        hunt = Hunt(Runner(spark, Path(folder)), arguments.seed, arguments.out, arguments.patience)
        hunt.run(numbers, arguments.match, arguments.shape, show=arguments.only is not None)
    print(hunt.tally)
    return 1 if hunt.tally.differences else 0


class Hunt:
    """Runs the queries of one seed by their numbers, counts them, and reports those that differ."""

    def __init__(self, runner: Runner, seed: int, out: Path | None, patience: float) -> None:
        self.tally = Tally()
        self.found: list[str] = []
        self._runner = runner
        self._seed = seed
        self._out = out
        self._patience = patience

    def run(self, numbers: Iterable[int], match: str = "", shape: str = "", show: bool = False) -> None:
        """Run queries of a shape whose SQL matches; consecutive numbers share their tables."""
        started = time.monotonic()
        by_universe: dict[int, list[int]] = {}
        for number in numbers:
            by_universe.setdefault(number // QUERIES_PER_UNIVERSE, []).append(number)
        for part, of_it in by_universe.items():
            universe = make_universe(f"{self._seed}/{part}")
            different = []
            for number in of_it:
                case = make_case(universe, number)
                if shape not in ("", case.shape) or not re.search(match, case.query.sql(), re.DOTALL):
                    continue
                verdict = self._runner.run(case)
                self.tally.count(case, verdict)
                if show:
                    print(case.query.sql(), verdict.ours.plan, sep="\n\n")
                if verdict.kind:
                    print(f"  number {number} differs: {verdict.kind}", file=sys.stderr, flush=True)
                    different.append((number, case, verdict))
            for number, case, verdict in different:
                self._tell(number, case, verdict)
            seconds = time.monotonic() - started
            print(
                f"  {self.tally.queries:,} queries in {seconds:,.0f} s, up to number {of_it[-1]},"
                f" {sum(self.tally.differences.values())} different",
                file=sys.stderr,
                flush=True,
            )

    def _tell(self, number: int, case: Case, verdict: Verdict) -> None:
        alone = f"python -m tests.fuzz --seed {self._seed} --only {number}"
        lines = [f"DIFFERENT, alone: {alone}", f"{verdict.kind}: {verdict.told}", case.query.sql()]
        if self._patience:
            smaller = shrunk(case, self._differs_like(verdict), self._patience)
            again = self._runner.run(smaller)
            lines += [f"the same, shrunk: {again.kind}: {again.told}", smaller.query.sql(), str(smaller.settings)]
            case, verdict = (smaller, again) if again.kind else (case, verdict)
        if self._out is not None:
            lines.append(f"written to {reproducing.write(self._out, case, verdict, alone)}")
        self.found.append("\n".join(lines))
        print(self.found[-1], flush=True)

    def _differs_like(self, verdict: Verdict) -> Callable[[Case], bool]:
        def is_wrong(case: Case) -> bool:
            try:
                found = self._runner.run(case)
            except Exception:  # these tables cannot be written
                return False
            return found.kind == verdict.kind and found.ours.error == verdict.ours.error

        return is_wrong


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("--queries", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--seed", type=int, default=1, help="which queries (default: 1)")
    parser.add_argument("--first", type=int, default=0, help="number of the first query (default: 0)")
    parser.add_argument("--only", type=int, help="only query number so and so, shown in full")
    parser.add_argument("--match", default="", help="only queries whose SQL matches this regular expression")
    parser.add_argument("--shape", default="", choices=(CHAIN, *SHAPES), help="only queries of this shape")
    parser.add_argument("--out", type=Path, default=Path("build/fuzz"), help="where programs go (default: build/fuzz)")
    parser.add_argument(
        "--patience",
        type=float,
        default=PATIENCE_SECONDS,
        help="seconds to make a query smaller; 0 not to (default: 120)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
