"""Fingerprints: names of cached values; two values have the same name only if equal results are derived from them.

The fingerprint of a dataclass covers its class and all of its fields, and the fields of nested dataclasses. A class
lists the fields that change neither rows nor their order in `NOT_IN_FINGERPRINT`, each with the reason. A new field is
thus covered by default; `tests/build_sides/test_identities.py` tests this by changing each field.
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
    """Return a fingerprint, 32 hexadecimal digits, of a dataclass and of additional plain data.

    It depends on the package version and on `FORMAT_VERSION`.

    Raises
    ------
    TypeError
        A field has a type that no fingerprint covers: list it in `NOT_IN_FINGERPRINT`, or cover it here.
    """
    parts = [__version__, FORMAT_VERSION, _describe_fields(value), _encode_plain(more)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def list_covered_fields(value: Any) -> list[str]:
    """Return the names of the fields of a dataclass, or of its class, that its fingerprint covers."""
    excluded = getattr(value, "NOT_IN_FINGERPRINT", {})
    return [field.name for field in fields(value) if field.name not in excluded]


def _describe_fields(value: Any) -> list[Any]:
    return [
        type(value).__qualname__,
        {name: _encode_plain(getattr(value, name)) for name in list_covered_fields(value)},
    ]


def _encode_plain(value: Any) -> Any:
    """Return an unambiguous representation of a value in JSON."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (tuple, list)):
        return [*map(_encode_plain, value)]
    if isinstance(value, Mapping):
        return ["mapping", [[_encode_plain(key), _encode_plain(item)] for key, item in value.items()]]
    if isinstance(value, range):
        return ["range", value.start, value.stop, value.step]
    if isinstance(value, Path):
        return ["path", str(value)]
    if isinstance(value, pa.Schema):
        return ["schema", base64.b64encode(value.serialize()).decode()]
    if isinstance(value, pa.DataType):
        return _encode_plain(pa.schema([("", value)]))
    if callable(getattr(value, "digest", None)):  # the digest covers its other dependencies
        return ["identity", value.digest()]
    if is_dataclass(value):
        return _describe_fields(value)
    raise TypeError(f"no fingerprint covers {type(value).__qualname__}: {value!r}")
