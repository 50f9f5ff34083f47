"""What PySpark has for its own use."""

from __future__ import annotations

import importlib
from typing import Any


def pickled(value: object) -> bytes:
    """Pickle what `pickle` reads where PySpark is installed, functions by their code."""
    from pyspark import cloudpickle

    return bytes(cloudpickle.dumps(value))


def of_either(module: str, before_4: str, name: str) -> Any:
    """Return what another module had before Spark 4."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return getattr(importlib.import_module(before_4), name)
