"""Encodes the states of users' functions as bytes, which segments of a checkpoint store.

    first byte    content of the remaining bytes
    b             bytes, unchanged
    j             JSON in UTF-8
    t, r          a table or a record batch, as an Arrow stream
    p             a pickle, written and read only on the user's request

A decoded state has equal values of equal types. NaN is decoded as NaN, which equals nothing. This is the only module
that unpickles the content of files (`tests/test_unpickling.py`).
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa

from sparkext.errors import StateError

FORMS = (
    "bytes, an Arrow table or record batch, or JSON: dict with keys of type str, list, str, int, float, bool and None"
)
"""The supported types of a state without pickles."""

MOST_LEVELS = 100
MOST_BITS = 14_000
"""Maximum size of an integer: Python refuses to read more than 4,300 digits."""

_BYTES, _JSON, _TABLE, _BATCH, _PICKLE = b"b", b"j", b"t", b"r", b"p"
_LEAVES = frozenset({str, float, bool, type(None)})


class UnstorableStateError(TypeError):
    """A state cannot be stored. The message names the path within the state and the type found there."""


def encode_state(state: Any, pickles: bool) -> bytes:
    """Return a state as bytes. `pickles`: whether it is pickled, whatever its type.

    Raises
    ------
    UnstorableStateError
        `decode_state` could not restore the state.
    """
    if pickles:
        return _PICKLE + _dump_pickle(state)
    kind = type(state)
    if kind is bytes:
        return _BYTES + bytes(state)
    if kind is pa.Table or kind is pa.RecordBatch:
        sink = pa.BufferOutputStream()
        sink.write(_TABLE if kind is pa.Table else _BATCH)
        with pa.ipc.new_stream(sink, state.schema) as writer:
            writer.write(state)
        return bytes(sink.getvalue())
    problem = _find_problem(state, 0)
    if problem is not None:
        raise UnstorableStateError(f"state{problem}")
    # With ASCII escapes, two surrogates would be decoded as one character.
    text = json.dumps(state, ensure_ascii=False, separators=(",", ":"))
    return _JSON + text.encode("utf-8", "surrogatepass")


def decode_state(stored: bytes, pickles: bool) -> Any:
    """Return the state encoded in `stored`. Without `pickles`, a pickle is rejected unread.

    Raises
    ------
    StateError
        The bytes are a pickle, or not an encoded state.
    """
    form, content = stored[:1], memoryview(stored)[1:]
    if form == _PICKLE and pickles:
        return pickle.loads(content)
    if form == _PICKLE:
        raise StateError(
            "the state of a key is a pickle, which may run any code: it was written with pickle_state=True. Pass"
            " pickle_state=True if you trust everyone who can write to the checkpoint, or start with a new checkpoint"
        )
    try:
        if form == _BYTES:
            return bytes(content)
        if form == _JSON:
            return json.loads(str(content, "utf-8", "surrogatepass"))
        if form in (_TABLE, _BATCH):
            return _read_arrow(content, form)
    except (pa.ArrowException, OSError, StopIteration, ValueError, RecursionError) as error:
        raise StateError(
            f"the state of a key is damaged: {error}. Restore the checkpoint, or start with a new checkpoint"
        ) from error
    raise StateError(
        f"the state of a key begins with {form!r}, which no version of this package writes. Restore the checkpoint, or"
        " start with a new checkpoint"
    )


def _read_arrow(content: memoryview, form: bytes) -> pa.Table | pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(content)) as reader:
        rows = reader.read_all() if form == _TABLE else reader.read_next_batch()
    rows.validate(full=True)
    return rows


def _dump_pickle(state: Any) -> bytes:
    from pyspark import cloudpickle

    try:
        return bytes(cloudpickle.dumps(state))
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise UnstorableStateError(f"state: {error}") from error


def _find_problem(value: Any, level: int) -> str | None:
    """Return the path and type of the first part of a value that JSON would not restore; None if there is none.

    Types are compared exactly: an instance of a subclass would be restored as its base class.
    """
    kind = type(value)
    if kind in _LEAVES:
        return None
    if kind is int:
        return None if value.bit_length() <= MOST_BITS else f": int of more than {MOST_BITS} bits"
    if kind is not dict and kind is not list:
        return f": {_qualify_name(kind)}"
    if level == MOST_LEVELS:
        return f": {kind.__name__} on level {level + 1}, expected at most {MOST_LEVELS} levels"
    for key, item in value.items() if kind is dict else enumerate(value):
        if kind is dict and type(key) is not str:
            return f": dict with the key {key!r} of type {_qualify_name(type(key))}"
        problem = _find_problem(item, level + 1)
        if problem is not None:
            return f"[{key!r}]{problem}"
    return None


def _qualify_name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
