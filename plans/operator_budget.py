"""The output-size controller as one operator sees it."""

from __future__ import annotations

import time
from threading import Lock

from sparkext.plans.output_size import ARRAY_BYTES, Budget, BudgetLimits, OutputSizeController


class OperatorBudget:
    """What operator number `operator` may emit: asked for before each output, and told what came of it.

    Threads of a task may share it.
    """

    def __init__(self, controller: OutputSizeController, operator: int) -> None:
        """Stand for one operator of a controller."""
        self._controller = controller
        self._operator = operator
        self._turn = Lock()
        self.seconds = 0.0
        """Time that the operator has spent, over all threads."""

    @classmethod
    def aside(cls, row_bytes: float, rows: int) -> OperatorBudget:
        """Return a budget of so many rows for an operator beside the pipeline, of which no report tells."""
        limits = BudgetLimits(1, rows, ARRAY_BYTES, 1.0)
        return cls(OutputSizeController([row_bytes], limits, lambda: None, keep_decisions=0), 0)

    def next(self) -> Budget:
        """Return what the output about to be made may hold."""
        return self._controller.budget(self._operator)

    def most_bytes(self) -> int:
        """Return how many bytes may be copied to look at rows before any output is made."""
        return self._controller.most_bytes(self._operator)

    def usable_bytes(self) -> float:
        """Return how much more may be kept from one output to the next, infinite if that is not known."""
        return self._controller.usable_bytes()

    def observe(self, rows_in: int, rows_out: int, bytes_out: int | None = None) -> None:
        """Record what the operator made of its last budget (see `OutputSizeController.observe`)."""
        self._controller.observe(self._operator, rows_in, rows_out, bytes_out)

    def spent_since(self, started: float) -> None:
        """Count the time since `started`, a reading of `time.perf_counter`."""
        seconds = time.perf_counter() - started
        with self._turn:
            self.seconds += seconds
