"""Sorted runs of batches: complete, without duplicates, few, and compacted from existing runs."""

from __future__ import annotations

import pytest

from sparkext.plans.streams.runs import FAN_OUT, LEVELS, BatchRun, list_compactions_before, list_runs_before

MOST = FAN_OUT**LEVELS


@pytest.mark.parametrize("batch", [0, 1, 7, 8, 9, 63, 64, 65, 511, 512, 513, 4095, 4096, 4097, 3 * MOST + 12345 % MOST])
def test_every_batch_lies_in_one_run(batch: int) -> None:
    runs = list_runs_before(batch)
    assert [one for run in runs for one in range(run.first, run.last + 1)] == list(range(batch))
    assert len(runs) <= batch // MOST + LEVELS * (FAN_OUT - 1)


def test_a_run_is_merged_of_those_before() -> None:
    before: set[BatchRun] = set()
    for batch in range(1, 5_000):
        runs = set(list_runs_before(batch))
        new = {run for run in runs - before if run.parts}
        merged = list_compactions_before(batch)
        assert new <= set(merged)
        there = before | {BatchRun(batch - 1, batch - 1)}
        for run in merged:
            assert set(run.parts) <= there
            there.add(run)
        before = runs


def test_parts() -> None:
    assert BatchRun(3, 3).parts == ()
    assert BatchRun(8, 15).parts == tuple(BatchRun(at, at) for at in range(8, 16))
    assert BatchRun(64, 127).parts[1] == BatchRun(72, 79) and len(BatchRun(64, 127).parts) == FAN_OUT
