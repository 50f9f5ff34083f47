"""A fixed part of `python -m bench.fuzz`: random chains as pipelines in this process, held against DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from bench.fuzz import Check, pipeline_check, run
from bench.fuzz_cases import COMBINATIONS, KINDS, make_case
from bench.fuzz_pipeline import Outcome, difference

SEED = 6
CASES = 60


@pytest.fixture(scope="module")
def check() -> Iterator[Check]:
    with pipeline_check() as check:
        yield check


def test_random_chains(check: Check, capsys: pytest.CaptureFixture[str]) -> None:
    tally = run("pipeline", SEED, range(CASES), check)
    assert not tally.problems, capsys.readouterr().out
    assert tally.cases == len(tally.combinations) == CASES
    assert {combination.kind for combination in tally.combinations} == set(KINDS)
    for kind in ("hash", "dense", "ordered", "range"):
        assert tally.paths[f"index {kind}"], tally.paths
        assert tally.paths[f"index {kind} clustered"] or kind == "range", tally.paths
    assert tally.cases - tally.empty > CASES / 2 and tally.rows > 1_000


def test_as_many_cases_as_there_are_combinations_cover_all() -> None:
    for start in (0, len(COMBINATIONS)):
        numbers = range(start, start + 40)
        assert len({make_case(SEED, number).combination for number in numbers}) == 40
    assert make_case(SEED, 3).combination == make_case(SEED, 3 + len(COMBINATIONS)).combination
    assert make_case(SEED, 3).describe() == make_case(SEED, 3).describe()


def test_what_is_wrong_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A row too few, a row too many, another sign of zero; and how to run the case alone."""
    case = replace(make_case(SEED, 0), outputs=["s0_id", "x"])
    rows = pa.table({"s0_id": [1, 2, None], "x": [0.0, float("nan"), None]})
    assert not difference(case, rows, rows.take([2, 0, 1]))
    assert "missing (1, 0.0)" in difference(case, rows.slice(1), rows)
    assert "surplus (2, nan)" in difference(case, pa.concat_tables([rows, rows.slice(1, 1)]), rows)
    assert "missing (1, -0.0)" in difference(case, rows, rows.set_column(1, "x", [[-0.0, float("nan"), None]]))

    def wrong(_: object) -> tuple[Outcome, list[str]]:
        raise ValueError("no such luck")

    alone = f"python -m bench.fuzz --seed {SEED} --through pipeline --case 4"
    assert run("pipeline", SEED, [4], wrong).problems == [alone]
    assert "ValueError: no such luck" in capsys.readouterr().out
