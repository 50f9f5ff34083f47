"""Statistics of an operator in one task, or in all tasks of a run: budgets, headrooms, rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypedDict

# Budgets are counted by their four leading bits: the error of the median is at most 1/8, and 0 for powers of two.
_LEADING_BITS = 4


class Decision(NamedTuple):
    """One budget decision, and the rows then `produced`. `time` is read from the controller's clock, in seconds."""

    time: float
    operator: int
    headroom: int | None
    limit: str | None
    budget: int
    produced: int


class OperatorSummary(TypedDict):
    """Statistics of one operator, in one task or merged over many tasks; JSON-serialisable.

    Budgets are in rows, `headroom_min` in bytes. `headroom_limit` is the name of the limit that left this headroom.
    They are None if there was no decision or the headroom was unknown. `budget_counts` are pairs of a budget, rounded
    down to four leading bits, and how often an operator received it: merged counts give the median over many tasks.
    """

    operator: int
    calls: int
    budget_min: int | None
    budget_median: int | None
    budget_max: int | None
    headroom_min: int | None
    headroom_limit: str | None
    rows_in: int
    rows_out: int
    budget_counts: list[list[int]]


class OperatorRecord:
    """Statistics of one operator, and a sample of its decisions that covers the whole task evenly.

    Whenever the sample is full, it drops every other decision and doubles its stride: the last few hundred calls alone
    would cover only the last fraction of a second. Each operator has its own sample because calls of a chain alternate
    regularly, and a stride over all calls could miss some operators altogether.
    """

    __slots__ = (
        "_counts",
        "_keep",
        "_last",
        "_operator",
        "_pending",
        "_repeats",
        "_sample",
        "_stride",
        "budget_max",
        "budget_min",
        "calls",
        "headroom_limit",
        "headroom_min",
        "rows_in",
        "rows_out",
    )

    def __init__(self, operator: int, keep: int) -> None:
        self._operator = operator
        self._keep = keep
        self._stride = 1
        self._sample: list[Decision] = []
        self._pending: tuple[float, tuple[int, str] | None, int] | None = None
        self._counts: dict[int, int] = {}
        self._last: int | None = None
        self._repeats = 0
        self.calls = self.rows_in = self.rows_out = 0
        self.budget_min: int | None = None
        self.budget_max: int | None = None
        self.headroom_min: int | None = None
        self.headroom_limit: str | None = None

    def record_decision(self, now: float, headroom: tuple[int, str] | None, budget: int) -> None:
        """Record a budget that was just given."""
        if headroom is not None and (self.headroom_min is None or headroom[0] < self.headroom_min):
            self.headroom_min, self.headroom_limit = headroom
        if budget != self._last:
            self._count_last()
            self._last = budget
        self._repeats += 1
        if self._keep and self.calls % self._stride == 0:
            self._pending = (now, headroom, budget)
        self.calls += 1

    def _count_last(self) -> None:
        """Add the last budget to the counts, as often as it was given consecutively."""
        budget, self._repeats, repeats = self._last, 0, self._repeats
        if budget is None or not repeats:
            return
        if self.budget_min is None or budget < self.budget_min:
            self.budget_min = budget
        if self.budget_max is None or budget > self.budget_max:
            self.budget_max = budget
        shift = max(budget.bit_length() - _LEADING_BITS, 0)
        rounded = budget >> shift << shift
        self._counts[rounded] = self._counts.get(rounded, 0) + repeats

    def produced(self, rows_in: int, rows_out: int) -> None:
        """Record the rows that the operator used up and produced with its last budget."""
        self.rows_in += rows_in
        self.rows_out += rows_out
        if self._pending is not None:
            now, headroom, budget = self._pending
            free, limit = headroom or (None, None)
            self._pending = None
            self._sample.append(Decision(now, self._operator, free, limit, budget, rows_out))
            if len(self._sample) > self._keep:
                del self._sample[1::2]
                self._stride *= 2

    def decisions(self) -> list[Decision]:
        """Return the sampled decisions in order of time."""
        return list(self._sample)

    def summary(self) -> OperatorSummary:
        """Return the statistics as a plain dictionary."""
        self._count_last()
        return {
            "operator": self._operator,
            "calls": self.calls,
            "budget_min": self.budget_min,
            "budget_median": _median(self._counts, self.budget_min, self.budget_max),
            "budget_max": self.budget_max,
            "headroom_min": self.headroom_min,
            "headroom_limit": self.headroom_limit,
            "rows_in": self.rows_in,
            "rows_out": self.rows_out,
            "budget_counts": [[budget, count] for budget, count in sorted(self._counts.items())],
        }


def merge_summaries(tasks: Iterable[Sequence[OperatorSummary]]) -> list[OperatorSummary]:
    """Return one summary per operator, merged from the summaries of many tasks in any order; associative."""
    grouped: dict[int, list[OperatorSummary]] = {}
    for summaries in tasks:
        for summary in summaries:
            grouped.setdefault(summary["operator"], []).append(summary)
    return [_merge_operator(operator, grouped[operator]) for operator in sorted(grouped)]


def _merge_operator(operator: int, parts: list[OperatorSummary]) -> OperatorSummary:
    counts: dict[int, int] = {}
    for part in parts:
        for budget, count in part["budget_counts"]:
            counts[budget] = counts.get(budget, 0) + count
    budget_min = min((part["budget_min"] for part in parts if part["budget_min"] is not None), default=None)
    budget_max = max((part["budget_max"] for part in parts if part["budget_max"] is not None), default=None)
    tightest = min(parts, key=_headroom_order)
    return {
        "operator": operator,
        "calls": sum(part["calls"] for part in parts),
        "budget_min": budget_min,
        "budget_median": _median(counts, budget_min, budget_max),
        "budget_max": budget_max,
        "headroom_min": tightest["headroom_min"],
        "headroom_limit": tightest["headroom_limit"],
        "rows_in": sum(part["rows_in"] for part in parts),
        "rows_out": sum(part["rows_out"] for part in parts),
        "budget_counts": [[budget, count] for budget, count in sorted(counts.items())],
    }


def _headroom_order(part: OperatorSummary) -> tuple[float, str]:
    """Return the sort key: least headroom first, unknown last.

    The limit's name breaks ties, so the order of tasks does not matter.
    """
    headroom = part["headroom_min"]
    return (math.inf if headroom is None else headroom, part["headroom_limit"] or "")


def _median(counts: dict[int, int], lowest: int | None, highest: int | None) -> int | None:
    """Return the lower median of rounded budgets, clamped to the exact extremes; None without budgets."""
    if lowest is None or highest is None:
        return None
    below_middle = (sum(counts.values()) + 1) // 2
    for budget in sorted(counts):
        below_middle -= counts[budget]
        if below_middle <= 0:
            return min(max(budget, lowest), highest)
    return highest
