"""The output-size controller: how many rows an operator may produce, decided just before it runs.

Source: Kawashima & Tatebe, "Data delivery between operators in parallel databases", conclusion 3. An output
size fixed in advance either wastes calls or overflows memory, upon which other engines swap or cancel the
query. Here each operator gets a row budget from the memory that is free at that moment, and returns control
when the budget is spent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparkext.plans.adaptive.operator_summary import Decision, OperatorRecord, OperatorSummary

FINAL_OUTPUT_COPIES = 3
"""Copies that exist at once of an output for the JVM: the Arrow batch, its serialised copy, and the JVM's copy."""

# Weight of an initial estimate, in observed rows: the first full morsel outweighs it.
_PRIOR_ROWS = 1024.0
# Factor of older observations after each new one: the estimate follows about the last eight calls.
_RETAINED = 0.875
# A row without payload still costs something, and a cost of zero would allow any number of rows.
_LEAST_ROW_BYTES = 1.0
# An output of this size is always worth a call: a budget is below `min_rows` only if `min_rows` rows would exceed it.
_LEAST_OUTPUT_BYTES = 1 << 20
# A budget that memory has limited at most doubles per call: memory that one operator frees is not available to the next
# at once, and memory that another process frees may be in use again a moment later. A budget falls as fast as the
# headroom does.
_GROWTH = 2


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Limits of every budget, fixed for a task.

    An output has at most `max_rows` rows and `max_bytes` bytes; only a single row may be larger. `memory_fraction` of
    the headroom may be planned with, divided evenly among the tasks that share the same memory, and among the `threads`
    of this task.

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
    """Limits of an operator's next call: the rows that it may produce, and the bytes that it may copy."""

    rows: int
    bytes: int


class _Estimate:
    """A ratio, smoothed exponentially and weighted by rows, so that tiny calls hardly change it."""

    __slots__ = ("_amount", "_rows")

    def __init__(self, prior: float) -> None:
        self._rows = _PRIOR_ROWS
        self._amount = _PRIOR_ROWS * prior

    def observe(self, amount: int, rows: int) -> float:
        """Add the observed `amount` of `rows` rows, and return the new ratio."""
        if rows:
            self._rows = self._rows * _RETAINED + rows
            self._amount = self._amount * _RETAINED + amount
        else:
            # More output of rows that were counted before. Older observations keep their weight, or the divisor would
            # decay to 0.
            self._amount += amount
        return self._amount / self._rows


class OutputSizeController:
    """Gives every operator of one task's pipeline its row budget, and adapts to the outputs that it observes.

    Operators are numbered along the chain: one per join, then the gather of the payload. The pipeline runs
    depth first: an operator's output flows all the way down before the operator resumes, so each holds at
    most one output at a time. Outputs of operators before i exist already, and the measured headroom excludes
    them. The outputs of i and of later operators are still to be produced, and must fit together:

        usable = headroom × memory_fraction / (tasks × threads)
        rows × c[i] + Σ (j > i) min(rows × F[j], most[j]) × c[j]  <=  usable

    `tasks` is the number of tasks that share the binding limit. c[j] is the cost of an output row of operator
    j in bytes (three times its size for the gather: the Arrow batch, its serialised copy, and the JVM's copy).
    F[j] = fanout[i+1] × … × fanout[j] is the number of rows of operator j per row of i. A later operator never
    holds more than most[j] rows, its maximum by `max_rows` and `max_bytes`, however large the fan-out. The
    budget is the largest number of rows that satisfies the inequality. It is raised to `min_rows`, or to the
    rows of a mebibyte if these are fewer, and to one at least, so that progress is always possible. It is
    limited to `max_rows` and `max_bytes`: larger outputs exceed the caches and gain nothing. A budget that
    memory has limited is followed by one of at most twice as many rows.

    Example: two joins and a gather, with rows of 16, 24 and 100 bytes. The second join finds 4 matches per row,
    and 10 MB are usable. The first join may produce 10,000,000 / (16 + 4 × 24 + 4 × 3 × 100) = 7,621 rows. Then
    10,000,000 − 7,621 × 16 bytes are left: the second join may produce 30,487 rows, and so may the gather, each
    in one call. If the first join used all usable memory, the later operators would have tiny budgets.

    Rows differ in size, so a budget also limits the bytes that an operator copies: it stops before the row that
    would exceed them. Row sizes start from the schema and fan-outs from 1; both follow the observations. With an
    unknown headroom, budgets are the upper bounds. One controller serves one task. Its threads must not call
    `budget` and `observe` at the same time.

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
        clock: Callable[[], float] = lambda: 0.0,
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
            Returns the free memory in bytes and the name of the binding limit; None if unknown.
        tasks:
            Returns the number of tasks that share a limit, given by name, at this moment.
        reclaim:
            Called when memory is about to limit a budget: releases memory that was freed but retained, and returns
            whether it released any.
        clock:
            Seconds, for the record of decisions; constant by default.
        keep_decisions:
            Most decisions to record, over all operators together.
        final_copies:
            Copies of the last operator's output in memory at a time.
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
        self._limited_rows: list[int | None] = [None] * len(row_bytes)
        self._fanouts = [1.0] * len(row_bytes)
        # With this much memory all operators may hold their largest outputs at once, whatever rows cost, unless a
        # single row is larger than `max_bytes`.
        self._ample = limits.max_bytes * sum(self._copies)
        self._largest = [self._largest_budget(operator) for operator in range(len(row_bytes))]
        keep_each = keep_decisions // len(row_bytes)
        self._records = [OperatorRecord(operator, keep_each) for operator in range(len(row_bytes))]

    def budget(self, operator: int) -> Budget:
        """Return the limits of `operator`'s next call: at least one row, at most the bounds."""
        headroom = self._headroom()
        usable = self._usable(headroom)
        if usable >= self._ample and self._limited_rows[operator] is None:
            budget = self._largest[operator]
        else:
            fitting = self._fitting_rows(operator, usable)
            if fitting < self._most_rows(operator) and self._reclaim():
                headroom = self._headroom()
                usable = self._usable(headroom)
                fitting = self._fitting_rows(operator, usable)
            budget = Budget(self._limit_rows(operator, fitting), self._bytes(operator, usable))
        self._records[operator].record_decision(self._clock(), headroom, budget.rows)
        return budget

    def most_bytes(self, operator: int) -> int:
        """Return the bytes that `operator` may copy to inspect rows before it produces any. No decision is recorded."""
        return self._bytes(operator, self._usable(self._headroom()))

    def usable_bytes(self) -> float:
        """Return the bytes that may be planned with at this moment, infinite if unknown. No decision is recorded."""
        return self._usable(self._headroom())

    def observe(self, operator: int, rows_in: int, rows_out: int, bytes_out: int | None) -> None:
        """Record the input and output of `operator`'s last call, directly after it ran.

        `rows_in` are the input rows that the call used up: a row whose matches span several calls counts in
        one of them only. `bytes_out` is the size of the output, counted once; None if unknown.
        """
        self._fanouts[operator] = self._ratios[operator].observe(rows_out, rows_in)
        if bytes_out is not None and rows_out:
            size = self._sizes[operator].observe(bytes_out, rows_out)
            self._costs[operator] = max(size, _LEAST_ROW_BYTES) * self._copies[operator]
            self._largest[operator] = self._largest_budget(operator)
        self._records[operator].produced(rows_in, rows_out)

    @property
    def decisions(self) -> list[Decision]:
        """Decisions in order of time: all decisions of a short task, an even sample per operator for a long one."""
        return sorted(decision for record in self._records for decision in record.decisions())

    def summaries(self) -> list[OperatorSummary]:
        """Return the statistics of every operator, along the chain."""
        return [record.summary() for record in self._records]

    def _limit_rows(self, operator: int, fitting: float) -> int:
        """Return the rows that fit, within the bounds, and at most twice the last budget if memory limited that one."""
        limits = self._limits
        most = self._most_rows(operator)
        least = max(1, min(limits.min_rows, most, int(_LEAST_OUTPUT_BYTES / self._row_size(operator))))
        rows = most if fitting >= most else max(int(fitting), least)
        last_rows = self._limited_rows[operator]
        if last_rows is not None:
            rows = min(rows, max(last_rows * _GROWTH, least))
        self._limited_rows[operator] = rows if rows < most else None
        return rows

    def _largest_budget(self, operator: int) -> Budget:
        return Budget(self._most_rows(operator), self._limits.max_bytes)

    def _most_rows(self, operator: int) -> int:
        return max(1, min(self._limits.max_rows, int(self._limits.max_bytes / self._row_size(operator))))

    def _row_size(self, operator: int) -> float:
        return self._costs[operator] / self._copies[operator]

    def _bytes(self, operator: int, usable: float) -> int:
        allowed = max(usable / self._copies[operator], _LEAST_OUTPUT_BYTES)
        return int(min(self._limits.max_bytes, allowed))

    def _usable(self, headroom: tuple[int, str] | None) -> float:
        if headroom is None:
            return math.inf
        return headroom[0] * self._share / max(1, self._tasks(headroom[1]))

    def _fitting_rows(self, operator: int, usable: float) -> float:
        """Return the largest number of rows that satisfies the inequality of the class's docstring.

        A sum of minima is the least over all ways to pick one side of each minimum. So the answer is a maximum over
        all sets S of later operators: the rows that fit if the operators in S hold `most` rows and all other later
        operators follow the fan-out:

            (usable − Σ (S) most × c) / (c[i] + Σ (not S) F × c)

        An operator with a larger F / most reaches `most` with fewer rows, so only the sets S of all later operators
        but the k with the smallest F / most are tried.
        """
        limit = self._most_rows(operator)
        later = self._later(operator)
        per_row = self._costs[operator]
        held_bytes = sum(most * cost for _, _, most, cost in later)
        best = (usable - held_bytes) / per_row
        if best >= limit:
            return best
        for _, fanout, most, cost in later:
            held_bytes -= most * cost
            per_row += fanout * cost
            best = max(best, (usable - held_bytes) / per_row)
        return best

    def _later(self, operator: int) -> list[tuple[float, float, int, float]]:
        """Return (F / most, F, most, cost per row) of every later operator, the smallest F / most first."""
        later = []
        fanout = 1.0
        for number in range(operator + 1, len(self._costs)):
            fanout *= self._fanouts[number]
            most = self._most_rows(number)
            later.append((fanout / most, fanout, most, self._costs[number]))
        later.sort()
        return later
