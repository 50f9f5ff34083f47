"""Functions for `ordered(…, apply=…)`. Workers import them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

COUNT, CHAIN = "steps so far", "chain"
"""Columns that `Chained` appends."""
_PRIME = 1_000_003


def chained(count: int, chain: int, unique: int) -> tuple[int, int]:
    """Return the next count of rows, and the next value of a chain that depends on all rows and their order."""
    return count + 1, (chain * 31 + unique + 1) % _PRIME


@dataclass(frozen=True)
class Chained:
    """Emits some columns of rows, with the count of rows so far and the chain value.

    `form` is the form of the state: `dict`, `list`, `text` or `bytes`. With `none` there is no state, and each row
    begins a new chain. Every `every`-th row is emitted. The state ends after `ends_after` rows, or never if that is 0.
    """

    columns: tuple[str, ...]
    unique: str
    form: str = "dict"
    every: int = 1
    ends_after: int = 0

    def __call__(self, rows: pa.Table, state: Any = None) -> Any:
        """Process further rows, beginning with the given state."""
        count, chain = (0, 0) if self.form == "none" else self._read(state)
        made: list[tuple[int, int, int]] = []
        for number, unique in enumerate(rows[self.unique].to_pylist()):
            count, chain = chained(count, chain, unique)
            if count % self.every == 0:
                made.append((number, count, chain))
            if self.form == "none" or count == self.ends_after:
                count = chain = 0
        numbers, counts, chains = np.array(made, np.int64).reshape(-1, 3).T
        out = rows.select(self.columns).take(pa.array(numbers))
        out = out.append_column(COUNT, pa.array(counts)).append_column(CHAIN, pa.array(chains))
        return out if self.form == "none" else (out, self._written(count, chain) if count else None)

    def initial(self) -> Any:
        """Return the state of a new key."""
        return None if self.form == "none" else self._written(0, 0)

    def _written(self, count: int, chain: int) -> Any:
        if self.form == "dict":
            return {"count": count, "chain": chain}
        if self.form == "list":
            return [count, chain]
        spelled = json.dumps([count, chain])
        return spelled if self.form == "text" else spelled.encode()

    def _read(self, state: Any) -> tuple[int, int]:
        count, chain = (
            state.values() if isinstance(state, dict) else state if isinstance(state, list) else json.loads(state)
        )
        return count, chain
