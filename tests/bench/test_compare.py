"""The performance guard flags a change, but neither noise nor a slower machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from bench.report import compare
from bench.report.result_files import read

CASES = [f"engines.case{number}" for number in range(12)]
ENGINES = {"sparkext": 1.0, "DuckDB": 2.0, "Polars": 1.5}


def write(
    path: Path,
    seed: int,
    factors: Mapping[tuple[str, str], float],
    machine: float = 1.0,
    noise: float = 0.02,
    runs: int = 5,
) -> Path:
    """Write results whose times have `noise` in every run, and half as much in every process."""
    generator = np.random.default_rng(seed)
    lines = [{"facts": {"processor": "made up", "cores": "2"}}]
    for case in CASES:
        for engine, seconds in ENGINES.items():
            process = generator.normal(1, noise / 2)
            times = seconds * machine * factors.get((case, engine), 1.0) * process * generator.normal(1, noise, runs)
            lines.append(
                {
                    "case": case,
                    "scale_factor": 1.0,
                    "threads": 2,
                    "contestant": engine,
                    "ours": engine == "sparkext",
                    "rows": 1000,
                    "seconds": list(times),
                }
            )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def flagged(old: Path, new: Path, effect: float = 0.1) -> dict[str, str]:
    changes, _ = compare.compare(read(old), read(new), effect)
    return {change.key.case: change.verdict for change in changes if change.verdict}


@pytest.mark.parametrize("seed", range(10))
def test_two_runs_of_the_same_are_no_change(tmp_path: Path, seed: int) -> None:
    old = write(tmp_path / "old.jsonl", 2 * seed, {}, noise=0.05)
    new = write(tmp_path / "new.jsonl", 2 * seed + 1, {}, noise=0.05)
    assert flagged(old, new) == {}
    assert compare.main([str(old), str(new)]) == 0


def test_slower_and_faster_cases_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = write(tmp_path / "old.jsonl", 1, {})
    new = write(tmp_path / "new.jsonl", 2, {(CASES[3], "sparkext"): 1.5, (CASES[7], "sparkext"): 0.6})
    assert flagged(old, new) == {CASES[3]: "slower", CASES[7]: "faster"}
    assert compare.main([str(old), str(new)]) == 1
    said = capsys.readouterr().out
    assert "SLOWER" in said
    assert CASES[3] in said
    assert "12 compared: 1 slower, 1 faster" in said


def test_a_slower_machine_is_no_change(tmp_path: Path) -> None:
    old = write(tmp_path / "old.jsonl", 3, {})
    assert flagged(old, write(tmp_path / "new.jsonl", 4, {}, machine=1.4)) == {}


def test_a_change_beside_a_slower_machine_is_found(tmp_path: Path) -> None:
    old = write(tmp_path / "old.jsonl", 3, {})
    new = write(tmp_path / "new.jsonl", 4, {(CASES[0], "sparkext"): 1.4}, machine=1.4)
    assert flagged(old, new) == {CASES[0]: "slower"}


def test_other_engines_are_not_flagged(tmp_path: Path) -> None:
    old = write(tmp_path / "old.jsonl", 3, {})
    assert flagged(old, write(tmp_path / "new.jsonl", 4, {(CASES[0], "DuckDB"): 3.0})) == {}


def test_what_is_smaller_than_the_effect_does_not_matter(tmp_path: Path) -> None:
    changed = {(CASES[2], "sparkext"): 1.3}
    old = write(tmp_path / "old.jsonl", 5, {}, noise=0.005)
    new = write(tmp_path / "new.jsonl", 6, changed, noise=0.005)
    assert flagged(old, new, effect=0.5) == {}
    assert flagged(old, new, effect=0.1) == {CASES[2]: "slower"}


def test_wide_runs_hide_a_change(tmp_path: Path) -> None:
    old = write(tmp_path / "old.jsonl", 7, {}, noise=0.3)
    assert flagged(old, write(tmp_path / "new.jsonl", 8, {(CASES[2], "sparkext"): 1.2}, noise=0.3)) == {}


def test_files_without_a_common_table_cannot_be_compared(tmp_path: Path) -> None:
    old = write(tmp_path / "old.jsonl", 1, {})
    short = write(tmp_path / "new.jsonl", 2, {}, runs=2)
    assert compare.main([str(old), str(short)]) == 2


def test_a_file_without_facts_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bare = tmp_path / "bare.jsonl"
    bare.write_text('{"case": "engines.files"}\n')
    assert compare.main([str(bare), str(bare)]) == 2
    assert "facts" in capsys.readouterr().err
