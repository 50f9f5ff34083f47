"""The pipeline: passes rows from a source through operators into a sink, and measures each of them.

    source ─▶ operator ─▶ operator ─▶ … ─▶ sink ─▶ record batches
                └── every arrow carries at most a budget of rows ──┘

The pipeline depends only on the protocols in `sparkext.engine.nodes`. Calls are depth first (`engine.delivery`): an
output that respects its operator's budget passes through all later operators before that operator resumes. At most one
output per operator and thread exists at any time (Kawashima & Tatebe, conclusion 3).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock

import pyarrow as pa

from sparkext.config import Settings
from sparkext.engine.delivery import Deliverer, Stage, deliver_all, with_threads
from sparkext.engine.nodes import Operator, Sink, Source
from sparkext.engine.operator_budget import OperatorBudget
from sparkext.engine.worker_task import count_owned_cores
from sparkext.errors import ConditionError, SchemaMismatchError
from sparkext.kernels.columns.gather import VarBytesOverflowError
from sparkext.kernels.indexes.nested_loop import PairError
from sparkext.kernels.runtime.threads import may_begin
from sparkext.memory import freed
from sparkext.memory.probes import Tasks, process_probe
from sparkext.plans.adaptive.output_size import BudgetLimits, OutputSizeController
from sparkext.reports.metrics import TaskMetrics


@dataclass(frozen=True)
class Resources:
    """The memory and cores that a task may use.

    `headroom` returns the free memory in bytes and the name of the binding limit, or None if unknown. `tasks` counts
    the tasks that share this limit. `reclaim` returns freed memory to the system (see `OutputSizeController`). `cores`
    is the number of cores that the task owns, and `delivery` begins the delivery that uses them.
    """

    headroom: Callable[[], tuple[int, str] | None]
    tasks: Callable[[str], int] = lambda limit: 1
    reclaim: Callable[[], bool] = lambda: False
    cores: int = 1
    delivery: Deliverer = with_threads

    @classmethod
    def of_this_task(cls, tasks: Tasks) -> Resources:
        """Return the resources of a Spark task; `tasks` counts the tasks that share its memory."""
        probe = process_probe()
        return cls(
            partial(probe.headroom, tasks),
            partial(probe.count_tasks, tasks),
            freed.reclaim,
            may_begin(count_owned_cores()),
        )


class Pipeline:
    """Operators and a sink for one task. Call `run` at most once; `metrics` is complete afterwards."""

    def __init__(
        self,
        operators: Sequence[Operator],
        sink: Sink,
        settings: Settings,
        resources: Resources,
        metrics: TaskMetrics,
        order: Sequence[int] = (),
    ) -> None:
        """Create a budget for each operator and for the sink. `order` is reported: see `TaskMetrics.order`."""
        nodes: list[Operator | Sink] = [*operators, sink]
        self._resources = resources
        limits = BudgetLimits(
            settings.morsel_min_rows,
            settings.morsel_max_rows,
            settings.morsel_max_bytes,
            settings.memory_fraction,
            resources.cores,
        )
        self._controller = OutputSizeController(
            [node.row_bytes for node in nodes],
            limits,
            resources.headroom,
            resources.tasks,
            resources.reclaim,
            time.monotonic,
            keep_decisions=settings.report_decisions,
            final_copies=sink.copies,
        )
        turn = Lock()
        self._stages = [
            Stage(node, OperatorBudget(self._controller, number, turn)) for number, node in enumerate(nodes)
        ]
        self.metrics = metrics
        self._order = order

    def run(self, source: Source) -> Iterator[pa.RecordBatch]:
        """Yield the record batches that the sink emits for the rows of a source.

        Raises
        ------
        ConditionError
            A condition fails on a pair of rows.
        SchemaMismatchError
            The input or the output does not have the planned schema.
        """
        started = time.perf_counter()
        try:
            with self._resources.delivery(self._resources.cores) as delivery:
                for batch in deliver_all(delivery, self._stages, source.row_sets(self.metrics)):
                    source.confirm()
                    self.metrics.batches_out += 1
                    yield batch
            source.confirm()
        except PairError as error:
            raise ConditionError(f"the condition of join {error}") from error
        except VarBytesOverflowError as error:
            raise SchemaMismatchError("a single string or binary value holds more than 2 GiB") from error
        finally:
            self._finish_metrics(started)

    def _finish_metrics(self, started: float) -> None:
        self.metrics.operators = self._controller.summaries()
        self.metrics.rows_in = self.metrics.operators[0]["rows_in"]
        self.metrics.seconds = [stage.budget.seconds for stage in self._stages]
        # Decisions have monotonic timestamps. One offset, read after all decisions, converts them to epoch time.
        epoch = time.time() - time.monotonic()
        self.metrics.decisions = [
            (epoch + decision.time, decision.operator, decision.headroom, decision.budget, decision.produced)
            for decision in self._controller.decisions
        ]
        if self._order:
            self.metrics.restore_query_order(self._order)
        self.metrics.elapsed_seconds = time.perf_counter() - started
        self.metrics.started = time.time() - self.metrics.elapsed_seconds
