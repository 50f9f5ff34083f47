"""A fixed part of `python -m tests.fuzz.chains`: random chains as pipelines in this process, compared with DuckDB."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.fuzz.chains.__main__ import Check, pipeline_check, run
from tests.fuzz.chains.cases import COMBINATIONS, KINDS, Case, make_case
from tests.fuzz.chains.pipeline import Outcome, difference, run_pipeline
from tests.fuzz.chains.shrinking import shrunk

SEED = 8
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
    for kind in ("hash", "dense", "key set", "ordered", "range", "all rows"):
        assert tally.paths[f"index {kind}"], tally.paths
        assert tally.paths[f"index {kind} clustered"] or kind in ("key set", "range", "all rows"), tally.paths
    assert tally.cases - tally.empty > CASES / 2 and tally.rows > 1_000


def test_as_many_cases_as_there_are_combinations_cover_all() -> None:
    for start in (0, len(COMBINATIONS)):
        numbers = range(start, start + 40)
        assert len({make_case(SEED, number).combination for number in numbers}) == 40
    assert make_case(SEED, 3).combination == make_case(SEED, 3 + len(COMBINATIONS)).combination
    assert make_case(SEED, 3).describe() == make_case(SEED, 3).describe()


def test_what_is_wrong_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """A missing row, a surplus row and another sign of zero are reported, with the command that runs the case."""
    case = replace(make_case(SEED, 0), outputs=["s0_id", "x"])
    rows = pa.table({"s0_id": [1, 2, None], "x": [0.0, float("nan"), None]})
    assert not difference(case, rows, rows.take([2, 0, 1]))
    assert "missing (1, 0.0)" in difference(case, rows.slice(1), rows)
    assert "surplus (2, nan)" in difference(case, pa.concat_tables([rows, rows.slice(1, 1)]), rows)
    assert "missing (1, -0.0)" in difference(case, rows, rows.set_column(1, "x", [[-0.0, float("nan"), None]]))

    def wrong(_: object) -> tuple[Outcome, list[str]]:
        raise ValueError("no such luck")

    alone = f"python -m tests.fuzz.chains --seed {SEED} --through pipeline --case 4"
    assert run("pipeline", SEED, [4], wrong).problems == [alone]
    told, _, shrunk_told = capsys.readouterr().out.partition("the same, shrunk:")
    assert "ValueError: no such luck" in told and "ValueError: no such luck" in shrunk_told


def test_what_is_wrong_is_shrunk() -> None:
    """As long as a certain row of the probe side and the last output are present."""
    case = next(case for case in (make_case(SEED, number) for number in range(300)) if _is_large(case))
    row = case.tables[0].num_rows // 2

    def is_wrong(smaller: Case) -> bool:
        return row in smaller.tables[0].column("s0_id").to_pylist() and case.outputs[-1] in smaller.outputs

    small = shrunk(case, is_wrong)
    assert small.tables[0].column("s0_id").to_pylist() == [row]
    assert [table.num_rows for table in small.tables[1:]] == [0] * len(small.joins)
    assert [name for name in small.outputs if not name.endswith("_id")] == [case.outputs[-1]]
    assert small.settings == {} and small.switches["cores"] == 1
    assert all(len(join.keys) + len(join.ranges) == 1 for join in small.joins)
    assert run_pipeline(small).table.num_rows <= 1


def _is_large(case: Case) -> bool:
    plain = all(join.as_of is None and join.formula is None for join in case.joins)
    is_payload = case.outputs[-1].startswith("s0") and not case.outputs[-1].endswith("_id")
    return plain and is_payload and len(case.joins) == 2 and case.tables[0].num_rows > 30
