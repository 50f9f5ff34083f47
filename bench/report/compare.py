"""`python -m bench compare OLD NEW` reports times that have changed by more than noise.

Two kinds of noise are separated from changes. First, runs of one contestant differ: the ratio of the medians is
bootstrapped, and its whole confidence interval has to exceed the limit. Second, processes differ, by the state of the
machine and by the layout of memory. The other engines, whose code is the same in both files, measure this noise: their
median change is divided out of ours, and the limit is three times their spread if that is more than `--effect`.

Exit status: 0, 1 if this package has become slower in any case, 2 if the files cannot be compared.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from bench.report.result_files import Key, Results, Timed, read
from sparkext.wording import format_table

RESAMPLES = 4000
CONFIDENCE = 0.99
LEAST_CONTROLS = 5
LEAST_RUNS = 3
_MAD_TO_DEVIATION = 1.4826


@dataclass(frozen=True)
class Noise:
    """Noise, measured with unchanged engines: logarithms of the drift, and of the largest change that is noise."""

    drift: float
    limit: float
    controls: int


@dataclass(frozen=True)
class Change:
    """Ratio of new to old time of one contestant, without the drift: the estimate and its confidence interval."""

    key: Key
    contestant: str
    old: float
    new: float
    ratio: float
    low: float
    high: float
    verdict: str


def main(argv: Sequence[str] | None = None) -> int:
    """Compare two result files, and print the changes."""
    parser = argparse.ArgumentParser(
        prog="bench compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--effect", type=float, default=0.1, help="smaller changes do not matter (default: 0.1)")
    given = parser.parse_args(argv)
    try:
        old, new = read(given.old), read(given.new)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 2
    for name in ("processor", "cores", "memory", "python", "java", "packages"):
        before, after = old.facts.get(name, "unknown"), new.facts.get(name, "unknown")
        if before != after:
            print(f"{name} differs: {before} / {after}")
    changes, noise = compare(old, new, given.effect)
    if not changes:
        print(f"the files have no table in common that this package was timed in {LEAST_RUNS} times", file=sys.stderr)
        return 2
    _print(changes, noise)
    _print_missing(old, new)
    return 1 if any(change.verdict == "slower" for change in changes) else 0


def compare(old: Results, new: Results, effect: float) -> tuple[list[Change], Noise]:
    """Compare the times of all contestants of this package in `new` with their times in `old`."""
    before, after = _by_contestant(old), _by_contestant(new)
    common = [name for name in after if name in before]
    noise = _noise([_log_ratio(before[name], after[name]) for name in common if not after[name].ours], effect)
    ours = [name for name in common if after[name].ours]
    return [_change(before[name], after[name], noise) for name in ours if _enough(before[name], after[name])], noise


def _enough(old: Timed, new: Timed) -> bool:
    return min(len(old.seconds), len(new.seconds)) >= LEAST_RUNS


def _by_contestant(results: Results) -> dict[tuple[Key, str], Timed]:
    return {(key, timed.contestant): timed for key, table in results.tables().items() for timed in table}


def _log_ratio(old: Timed, new: Timed) -> float:
    return math.log(median(new.seconds) / median(old.seconds))


def _noise(logs: Sequence[float], effect: float) -> Noise:
    """Return drift and limit. With fewer than `LEAST_CONTROLS` ratios, the drift is 0 and the limit is the effect."""
    least = math.log1p(effect)
    if len(logs) < LEAST_CONTROLS:
        return Noise(0.0, least, len(logs))
    drift = median(logs)
    deviation = _MAD_TO_DEVIATION * median(abs(each - drift) for each in logs)
    return Noise(drift, max(least, 3 * deviation), len(logs))


def _change(old: Timed, new: Timed, noise: Noise) -> Change:
    logs = _resampled(old.seconds, new.seconds) - noise.drift
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(logs, [tail, 1 - tail])
    verdict = "slower" if low > noise.limit else "faster" if high < -noise.limit else ""
    return Change(
        new.key,
        new.contestant,
        median(old.seconds),
        median(new.seconds),
        math.exp(_log_ratio(old, new) - noise.drift),
        math.exp(low),
        math.exp(high),
        verdict,
    )


def _resampled(old: Sequence[float], new: Sequence[float]) -> np.ndarray:
    """Return logarithms of the ratio of medians, for samples redrawn from the runs of each side."""
    generator = np.random.default_rng(1)
    medians = [np.median(generator.choice(np.asarray(runs), (RESAMPLES, len(runs))), axis=1) for runs in (old, new)]
    return np.log(medians[1]) - np.log(medians[0])


def _print(changes: Sequence[Change], noise: Noise) -> None:
    print(
        f"{noise.controls} times of other engines: drift {math.exp(noise.drift) - 1:+.1%}, taken off;"
        f" changes of less than {math.exp(noise.limit) - 1:.1%} are noise or do not matter\n"
    )
    found = sorted((change for change in changes if change.verdict), key=lambda change: -change.ratio)
    rows = [
        [
            change.verdict.upper() if change.verdict == "slower" else change.verdict,
            str(change.key),
            change.contestant,
            f"{change.old:.3f}",
            f"{change.new:.3f}",
            f"{change.ratio:.2f}",
            f"{change.low:.2f} - {change.high:.2f}",
        ]
        for change in found
    ]
    if rows:
        print(format_table(["", "case", "contestant", "old s", "new s", "ratio", "99% interval"], rows, left=range(3)))
    counts = {verdict: sum(change.verdict == verdict for change in changes) for verdict in ("slower", "faster")}
    print(f"{len(changes)} compared: {counts['slower']} slower, {counts['faster']} faster")


def _print_missing(old: Results, new: Results) -> None:
    missing = {key.case for key in old.tables()} - {key.case for key in new.tables()}
    if missing:
        print(f"not in the new file: {', '.join(sorted(missing))}")


if __name__ == "__main__":
    sys.exit(main())
