"""The output-size controller: how many rows an operator may produce, decided just before it runs.

Source: Kawashima & Tatebe, "Data delivery between operators in parallel databases", conclusion 3. An output
size fixed in advance either wastes calls or overflows memory, at which point others swap or cancel the
query. Here each operator gets a row budget from the memory that is free at that moment, and hands control
up when the budget is spent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import NamedTuple

from sparkext.plans.operator_summary import Decision, OperatorRecord, OperatorSummary

ARRAY_BYTES = 2**31 - 2**20
"""Bytes that the strings of one Arrow array can hold, less some: its offsets are 32 bits wide."""

FINAL_OUTPUT_COPIES = 3
"""Rows leave for the JVM as an Arrow batch, its serialised copy, and what the JVM reads of that, all at once."""

# Rows that an estimate is worth before anything was observed: outweighed by the first full morsel.
_PRIOR_ROWS = 1024.0
# What remains of older observations after each new one: the estimate follows the last eight or so calls.
_RETAINED = 0.875
# A row without payload still costs something, and a cost of zero would allow any number of rows.
_LEAST_ROW_BYTES = 1.0
# So much is always worth a call: fewer rows than `min_rows` are asked for only where they take more than this.
_LEAST_OUTPUT_BYTES = 1 << 20
# A budget that memory has cut grows back in steps: what one operator frees is not the next one's at once, and what
# another process frees for a moment is gone in the next. It falls as fast as the headroom does.
_GROWTH = 2


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """What a budget must respect, fixed for a task.

    An output has at most `max_rows` rows and takes at most `max_bytes`, but for a single row that takes more.
    `memory_fraction` of the headroom may be planned with, divided evenly over the tasks that draw on the same memory,
    and over the `threads` of this one. `fixed_rows`: every output has so many, whatever memory there is; only what one
    Arrow array can hold bounds it.

    Raises
    ------
    ValueError
        A value is out of range.
    """

    min_rows: int
    max_rows: int
    max_bytes: int
    memory_fraction: float
    threads: int = 1
    fixed_rows: int | None = None

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if not 1 <= self.min_rows <= self.max_rows:
            raise ValueError(f"expected 1 <= min_rows <= max_rows, got {self.min_rows} and {self.max_rows}")
        if self.max_bytes < 1:
            raise ValueError(f"expected max_bytes of at least 1, got {self.max_bytes}")
        if not 0.0 < self.memory_fraction <= 1.0:
            raise ValueError(f"expected memory_fraction above 0 and at most 1, got {self.memory_fraction}")
        if self.threads < 1:
            raise ValueError(f"expected threads of at least 1, got {self.threads}")


class Budget(NamedTuple):
    """What an operator may produce in the call about to run: so many rows, and of what it copies so many bytes."""

    rows: int
    bytes: int


class _Estimate:
    """A ratio, smoothed exponentially and weighted by rows, so that tiny calls sway it little."""

    __slots__ = ("_amount", "_rows")

    def __init__(self, prior: float) -> None:
        self._rows = _PRIOR_ROWS
        self._amount = _PRIOR_ROWS * prior

    def observe(self, amount: int, rows: int) -> float:
        """Add `amount` that `rows` rows gave, and return the new ratio."""
        if rows:
            self._rows = self._rows * _RETAINED + rows
            self._amount = self._amount * _RETAINED + amount
        else:
            # More from rows that were counted before: nothing ages, or the divisor would shrink to nothing.
            self._amount += amount
        return self._amount / self._rows


class OutputSizeController:
    """Gives every operator of one task's pipeline its row budget, and learns from what it then produced.

    Operators are numbered along the chain: one per join, then the gather of the payload. The pipeline runs
    depth first: an operator's output flows all the way down before the operator resumes, so each holds at
    most one output at a time. Outputs before operator i exist already and are missing from the measured
    headroom; i's own output and those after it are still to come, and must fit together:

        usable = headroom × memory_fraction / (tasks × threads)
        rows × c[i] + Σ (j > i) min(rows × F[j], most[j]) × c[j]  <=  usable

    where `tasks` draw on the limit that binds, c[j] is what a row of operator j's output costs in bytes (three
    times its size for the gather: the Arrow batch, its serialised copy, and the JVM's), and F[j] =
    fanout[i+1] × … × fanout[j] is how many rows of operator j follow from one of i. A later operator never
    holds more than most[j], what `max_rows` and `max_bytes` allow, however large the fan-out. The budget is the
    largest number of rows that satisfies this, raised to `min_rows` or to as many as a mebibyte holds, one at
    least (progress is always possible), and cut to `max_rows` and `max_bytes` (larger outputs fall out of the
    caches and gain nothing). One that memory has cut is followed by one of twice as many rows at most.

    Example: two joins and a gather, rows of 16, 24 and 100 bytes, the second join finds 4 matches per row,
    10 MB are usable. The first join may produce 10,000,000 / (16 + 4 × 24 + 4 × 3 × 100) = 7,621 rows. The
    second finds 10,000,000 − 7,621 × 16 bytes left, may produce 30,487 rows, and so does the gather: one
    call each. Were the first join to take all that is free, the others would crawl.

    Rows differ in size, so an operator is also told how many bytes it may copy, and stops before the row that
    would exceed them. Sizes of rows start from the schema and fan-outs from 1; both follow what is observed.
    An unknown headroom gives the upper bounds. One controller serves one task; its threads take turns.

    Source: Kawashima & Tatebe, "Data delivery between operators in parallel databases", conclusion 3.
    """

    # An operator call takes about 1 ms and may spend 1% of that here and on reading the headroom. Measured
    # with timeit on CPython 3.11, budget() + observe() of the first operator, which plans for the whole
    # chain, without the headroom: 2.3 µs if memory is ample, else 3.3, 4.1 and 5 µs for chains of 2, 4 and 6.

    def __init__(
        self,
        row_bytes: Sequence[float],
        limits: BudgetLimits,
        headroom: Callable[[], tuple[int, str] | None],
        tasks: Callable[[str], int] = lambda limit: 1,
        reclaim: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
        keep_decisions: int = 256,
        final_copies: int = FINAL_OUTPUT_COPIES,
    ) -> None:
        """Start with estimates only.

        Parameters
        ----------
        row_bytes:
            Estimated bytes of an output row, one entry per operator: row ids for joins, payload for the
            gather.
        limits:
            Bounds of every budget and this task's share of the memory.
        headroom:
            Reads the free memory: bytes and the name of the limit that leaves no more, None if unknown.
        tasks:
            Counts the tasks that draw on what a limit, by its name, leaves at this moment.
        reclaim:
            Asked when memory is about to cut a budget: gives back what was freed and kept, and tells whether it did.
        clock:
            Seconds, for the record of decisions.
        keep_decisions:
            Most decisions to keep, over all operators together.
        final_copies:
            How often an output of the last operator lies in memory at a time.
        """
        if not row_bytes:
            raise ValueError("expected the row size of at least one operator, got none")
        self._limits = limits
        self._share = limits.memory_fraction / limits.threads
        self._headroom = headroom
        self._tasks = tasks
        self._reclaim = reclaim
        self._clock = clock
        self._copies = [1] * (len(row_bytes) - 1) + [final_copies]
        self._sizes = [_Estimate(size) for size in row_bytes]
        self._costs = [
            max(size, _LEAST_ROW_BYTES) * copies for size, copies in zip(row_bytes, self._copies, strict=True)
        ]
        self._ratios = [_Estimate(1.0) for _ in row_bytes]
        self._cut: list[int | None] = [None] * len(row_bytes)
        self._turn = Lock()
        self._fanouts = [1.0] * len(row_bytes)
        # With so much, every operator may hold its most at once, whatever rows cost, unless one alone takes more.
        self._ample = limits.max_bytes * sum(self._copies)
        self._adapts = limits.fixed_rows is None
        self._largest = [self._largest_budget(operator) for operator in range(len(row_bytes))]
        keep_each = keep_decisions // len(row_bytes)
        self._records = [OperatorRecord(operator, keep_each) for operator in range(len(row_bytes))]

    def budget(self, operator: int) -> Budget:
        """What `operator` may produce in the call about to run: at least one row, at most the bounds."""
        headroom = self._headroom()
        with self._turn:
            usable = self._usable(headroom)
            if self._adapts and usable >= self._ample and self._cut[operator] is None:
                budget = self._largest[operator]
            else:
                fitting = self._fitting_rows(operator, usable)
                if self._adapts and fitting < self._most_rows(operator) and self._reclaim():
                    headroom = self._headroom()
                    usable = self._usable(headroom)
                    fitting = self._fitting_rows(operator, usable)
                budget = Budget(self._bounded(operator, fitting), self._bytes(operator, usable))
            self._records[operator].decided(self._clock(), headroom, budget.rows)
        return budget

    def most_bytes(self, operator: int) -> int:
        """Bytes that `operator` may copy to look at rows before it produces any. Counts as no decision."""
        return self._bytes(operator, self._usable(self._headroom()))

    def usable_bytes(self) -> float:
        """Bytes that may be planned with at this moment, infinite if that is not known. Counts as no decision."""
        return self._usable(self._headroom())

    def observe(self, operator: int, rows_in: int, rows_out: int, bytes_out: int | None) -> None:
        """Record what `operator` made of its budget, directly after it ran.

        `rows_in` are the input rows that the call used up: a row whose matches span several calls counts in
        one of them only. `bytes_out` is the size of the output, counted once, None if not known.
        """
        with self._turn:
            self._fanouts[operator] = self._ratios[operator].observe(rows_out, rows_in)
            if bytes_out is not None and rows_out:
                size = self._sizes[operator].observe(bytes_out, rows_out)
                self._costs[operator] = max(size, _LEAST_ROW_BYTES) * self._copies[operator]
                self._largest[operator] = self._largest_budget(operator)
            self._records[operator].produced(rows_in, rows_out)

    @property
    def decisions(self) -> list[Decision]:
        """Decisions in order of time: all of a short task, an even sample per operator of a long one."""
        return sorted(decision for record in self._records for decision in record.decisions())

    def summaries(self) -> list[OperatorSummary]:
        """The aggregates of every operator, along the chain."""
        return [record.summary() for record in self._records]

    def _bounded(self, operator: int, fitting: float) -> int:
        """Bring the rows that fit within the bounds, and let them grow back in steps where memory has cut them."""
        limits = self._limits
        if limits.fixed_rows is not None:
            return limits.fixed_rows
        most = self._most_rows(operator)
        least = max(1, min(limits.min_rows, most, int(_LEAST_OUTPUT_BYTES / self._row_size(operator))))
        rows = most if fitting >= most else max(int(fitting), least)
        before = self._cut[operator]
        if before is not None:
            rows = min(rows, max(before * _GROWTH, least))
        self._cut[operator] = rows if rows < most else None
        return rows

    def _largest_budget(self, operator: int) -> Budget:
        return Budget(self._most_rows(operator), self._limits.max_bytes)

    def _most_rows(self, operator: int) -> int:
        return max(1, min(self._limits.max_rows, int(self._limits.max_bytes / self._row_size(operator))))

    def _row_size(self, operator: int) -> float:
        return self._costs[operator] / self._copies[operator]

    def _bytes(self, operator: int, usable: float) -> int:
        if self._limits.fixed_rows is not None:
            return ARRAY_BYTES
        allowed = max(usable / self._copies[operator], _LEAST_OUTPUT_BYTES)
        return int(min(self._limits.max_bytes, allowed))

    def _usable(self, headroom: tuple[int, str] | None) -> float:
        if headroom is None:
            return math.inf
        return headroom[0] * self._share / max(1, self._tasks(headroom[1]))

    def _fitting_rows(self, operator: int, usable: float) -> float:
        """The largest number of rows that satisfies the inequality of the class's docstring.

        A sum of minima is the least over all ways to pick one side of each, so the answer is the greatest,
        over all sets S, of what fits if the later operators in S hold their most rows and the others follow
        the fan-out:

            (usable − Σ (S) most × c) / (c[i] + Σ (others) F × c)

        A large F / most reaches the most first, so only S = "all but the k smallest of these" can be the answer.
        """
        limit = self._most_rows(operator)
        later = self._later(operator)
        per_row = self._costs[operator]
        held = sum(most * cost for _, _, most, cost in later)
        best = (usable - held) / per_row
        if best >= limit:
            return best
        for _, fanout, most, cost in later:
            held -= most * cost
            per_row += fanout * cost
            best = max(best, (usable - held) / per_row)
        return best

    def _later(self, operator: int) -> list[tuple[float, float, int, float]]:
        """Return of every later operator F / most, F, most, and its cost per row; the smallest F / most first."""
        later = []
        fanout = 1.0
        for number in range(operator + 1, len(self._costs)):
            fanout *= self._fanouts[number]
            most = self._most_rows(number)
            later.append((fanout / most, fanout, most, self._costs[number]))
        later.sort()
        return later
