"""Fingerprints: names of what is cached, which two values share only if the same is made of them.

The fingerprint of a dataclass covers its class and all of its fields, and those of the dataclasses in them. A class
lists the fields that change neither rows nor their order in `NOT_IN_FINGERPRINT`, each with the reason. So a new field
is covered until somebody decides otherwise; `tests/build_sides/test_identities.py` changes each.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from sparkext._version import __version__
from sparkext.storage.container import FORMAT_VERSION


def fingerprint_of(value: Any, *more: Any) -> str:
    """Return a name, 32 hexadecimal digits, of a dataclass and of plain data that it was completed by.

    It changes with the package: no other version's is found.

    Raises
    ------
    TypeError
        A field has a type that no fingerprint covers: list it in `NOT_IN_FINGERPRINT`, or cover it here.
    """
    parts = [__version__, FORMAT_VERSION, _fields(value), _plain(more)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def covered_fields(value: Any) -> list[str]:
    """Return the names of those fields of a dataclass, or of its class, that its fingerprint covers."""
    excluded = getattr(value, "NOT_IN_FINGERPRINT", {})
    return [field.name for field in fields(value) if field.name not in excluded]


def _fields(value: Any) -> list[Any]:
    return [type(value).__qualname__, {name: _plain(getattr(value, name)) for name in covered_fields(value)}]


def _plain(value: Any) -> Any:
    """Return a value as JSON has it, so that others are spelled otherwise."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [*map(_plain, value)]
    if isinstance(value, Mapping):
        return ["mapping", [[_plain(key), _plain(item)] for key, item in value.items()]]
    if isinstance(value, range):
        return ["range", value.start, value.stop, value.step]
    if isinstance(value, Path):
        return ["path", str(value)]
    if isinstance(value, pa.Schema):
        return ["schema", base64.b64encode(value.serialize()).decode()]
    if isinstance(value, pa.DataType):
        return _plain(pa.schema([("", value)]))
    if callable(getattr(value, "digest", None)):  # which names what else it depends on
        return ["identity", value.digest()]
    if is_dataclass(value):
        return _fields(value)
    raise TypeError(f"no fingerprint covers {type(value).__qualname__}: {value!r}")
