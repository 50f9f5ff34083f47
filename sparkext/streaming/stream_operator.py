"""The parts of a description that joins of streams and ordered streams have in common."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass

from sparkext.config import Settings
from sparkext.engine.worker_task import MemoryShare
from sparkext.reports.stream_batches import build_metrics_name


def identify_operator(kind: str, made_by: str, name: str | None) -> tuple[str, bool, str, str]:
    """Return the first fields of a `StreamOperator`. By default, operators with equal fingerprints have equal names."""
    default = f"{kind}-{hashlib.sha256(made_by.encode()).hexdigest()[:16]}"
    return name or default, name is not None, made_by, uuid.uuid4().hex


@dataclass(frozen=True)
class StreamOperator:
    """An operator with a state.

    - `name`: the name of its state; `is_named`: whether the user has chosen it.
    - `made_by`: a text that describes the operator. `token`: distinguishes it from other operators with
      the same description.
    - `partitions`: the number of tasks of each type per batch.
    """

    name: str
    is_named: bool
    made_by: str
    token: str
    partitions: int
    settings: Settings
    tasks_sharing: int | None

    @property
    def metrics(self) -> str:
        """The name of its observed metrics. Spark rejects duplicates; `StreamState.claim` gives a clearer error."""
        return build_metrics_name(self.name, self.is_named, self.token)

    @property
    def share(self) -> MemoryShare:
        """The memory share of its tasks."""
        return MemoryShare(self.settings, self.tasks_sharing)
