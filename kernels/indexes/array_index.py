"""Indexes whose state is their fields: these can be written to a file, and mapped from it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from sparkext.kernels.columns.buffers import VarBytes
from sparkext.kernels.indexes.protocols import freeze_all
from sparkext.kernels.runtime.jit import AnyArray


@dataclass(frozen=True)
class ArrayIndex:
    """A `StoredIndex` whose fields are arrays, byte strings or None, and integers."""

    @property
    def arrays(self) -> dict[str, AnyArray]:
        """The flat arrays of the index, by name; the names of byte strings are followed by `.offsets` and `.data`."""
        arrays_by_name: dict[str, AnyArray] = {}
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                arrays_by_name[name] = value
            elif isinstance(value, VarBytes):
                arrays_by_name |= {f"{name}.{part}": array for part, array in value._asdict().items()}
        return arrays_by_name

    @property
    def attributes(self) -> dict[str, int]:
        """The scalars of the index, by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, int)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, AnyArray], attributes: dict[str, int]) -> Any:
        """Rebuild the index around arrays that may be mapped read-only."""
        arrays = freeze_all(arrays)
        state: dict[str, Any] = {field.name: arrays.get(field.name) for field in fields(cls)} | attributes
        for name in state:
            if f"{name}.data" in arrays:
                state[name] = VarBytes(arrays[f"{name}.offsets"], arrays[f"{name}.data"])
        return cls(**state)
