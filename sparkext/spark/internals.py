"""Access to internal functions of PySpark."""

from __future__ import annotations

import importlib
from typing import Any


def pickle_value(value: object) -> bytes:
    """Pickle a value with cloudpickle. It includes the code of functions that cannot be imported.

    Unpickling requires PySpark.
    """
    from pyspark import cloudpickle

    return bytes(cloudpickle.dumps(value))


def import_from_either(module: str, before_4: str, name: str) -> Any:
    """Return `name` of `module`, or of the module `before_4`, which defines it before Spark 4."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return getattr(importlib.import_module(before_4), name)
