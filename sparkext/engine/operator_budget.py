"""The budgets of a pipeline's operators, shared by the threads of a task."""

from __future__ import annotations

import time
from threading import Lock

from sparkext.plans.adaptive.output_size import Budget, BudgetLimits, OutputSizeController

ARRAY_BYTES = 2**31 - 2**20
"""Most bytes of strings in one Arrow array, with some reserve: its offsets are 32 bits wide."""


class OperatorBudget:
    """The budget of operator number `operator`, requested before each output and updated after it.

    Threads of a task may share it. `turn` is held during calls of the controller: its operators share one.
    """

    def __init__(self, controller: OutputSizeController, operator: int, turn: Lock) -> None:
        """Bind an operator of a controller."""
        self._controller = controller
        self._operator = operator
        self._turn = turn
        self.seconds = 0.0
        """Time spent in the operator, summed over all threads."""

    @classmethod
    def aside(cls, row_bytes: float, rows: int) -> OperatorBudget:
        """Return a budget of `rows` rows for an operator outside the pipeline, which appears in no report."""
        limits = BudgetLimits(1, rows, ARRAY_BYTES, 1.0)
        return cls(OutputSizeController([row_bytes], limits, lambda: None, keep_decisions=0), 0, Lock())

    def next(self) -> Budget:
        """Return the limits of the next output."""
        with self._turn:
            return self._controller.budget(self._operator)

    def most_bytes(self) -> int:
        """Return how many bytes may be copied to inspect rows before any output is produced."""
        return self._controller.most_bytes(self._operator)

    def usable_bytes(self) -> float:
        """Return how many more bytes may be held between outputs, infinite if unknown."""
        return self._controller.usable_bytes()

    def observe(self, rows_in: int, rows_out: int, bytes_out: int | None = None) -> None:
        """Record the input and output of the operator's last call (see `OutputSizeController.observe`)."""
        with self._turn:
            self._controller.observe(self._operator, rows_in, rows_out, bytes_out)

    def add_time_since(self, started: float) -> None:
        """Add the time since `started`, a reading of `time.perf_counter`, to `seconds`."""
        seconds = time.perf_counter() - started
        with self._turn:
            self.seconds += seconds
