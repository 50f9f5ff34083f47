"""Metrics of tasks are added up."""

from __future__ import annotations

import pytest

from sparkext.reports.metrics import NO_TASK, TaskMetrics, append_metrics


def summary(rows: int) -> dict[str, object]:
    return {
        "operator": 0,
        "calls": 1,
        "budget_min": rows,
        "budget_median": rows,
        "budget_max": rows,
        "headroom_min": None,
        "headroom_limit": None,
        "rows_in": rows,
        "rows_out": 2 * rows,
        "budget_counts": [[rows, 1]],
    }


def ran(rows: int, index: str) -> TaskMetrics:
    return TaskMetrics(
        NO_TASK,
        operators=[summary(rows)],  # type: ignore[list-item]
        seconds=[rows / 4],
        indexes=[{"kind": index}],
        rows_in=rows,
        batches_in=1,
        morsels=1,
        batches_out=2,
        elapsed_seconds=float(rows),
        reduced=[(0, 5)],
    )


def test_a_task_that_ran_several_forms_of_a_pipeline() -> None:
    """The indexes are those of the first form; counts are sums."""
    both = append_metrics(append_metrics(TaskMetrics(NO_TASK), ran(8, "dense")), ran(4, "hash"))
    assert both.indexes == [{"kind": "dense"}] and both.reduced == [(0, 5)]
    assert (both.rows_in, both.batches_in, both.morsels, both.batches_out) == (12, 2, 2, 4)
    assert both.seconds == pytest.approx([3.0]) and both.elapsed_seconds == pytest.approx(12.0)
    [operator] = both.operators
    assert (operator["rows_in"], operator["rows_out"], operator["budget_min"], operator["budget_max"]) == (12, 24, 4, 8)
