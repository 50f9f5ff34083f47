"""The state of an engine as bytes: an engine resumes from it; other bytes are refused, and no pickle is executed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkext.errors import StateError
from sparkext.streaming.cql.code.engine import Engine
from sparkext.streaming.cql.code.module_text import generate_module
from sparkext.streaming.cql.code.stored_state import read_state, write_state
from tests.streaming.cql.graphs import graph

ARENA, TEXTS = np.array([3, 7, -1], np.int64), pa.array(["", "ä", None, "x"], pa.large_string())
STORED = write_state(ARENA, TEXTS)


class Planted:
    """Creates a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.folder),)


def test_a_state_is_read_back() -> None:
    arena, texts = read_state(STORED)
    assert arena.tolist() == ARENA.tolist() and texts.equals(TEXTS)


def written(schema: pa.Schema, *columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.record_batch([*columns], schema=schema))
    return bytes(sink.getvalue())


@pytest.mark.parametrize(
    ("stored", "problem"),
    [
        (b"", "cannot be read"),
        (b"\x80\x04N.", "cannot be read"),
        (STORED[:-100], "cannot be read"),
        (written(pa.schema([("arena", pa.int64())]), pa.array([1])), "its columns are not the expected columns"),
        (write_state(np.array([4, 1], np.int64), TEXTS), "its first word is not its number of words"),
        (write_state(np.array([], np.int64), TEXTS), "its first word is not its number of words"),
        (STORED.replace(b'"format": 1', b'"format": 2'), "its header .* is not the expected header"),
    ],
)
def test_another_content_is_refused(stored: bytes, problem: str) -> None:
    with pytest.raises(StateError, match=problem):
        read_state(stored)


def test_a_pickle_is_not_executed(tmp_path: Path) -> None:
    queries = graph("REGISTER STREAM s (k int); REGISTER QUERY q ISTREAM(SELECT k FROM s [Now])")
    planted = pickle.dumps(Planted(tmp_path / "executed"))
    with pytest.raises(StateError, match="the state of continuous queries cannot be read"):
        Engine(queries, generate_module(queries, ["q"]), words=1 << 12, limit=1, state=planted)
    assert not (tmp_path / "executed").exists()
    pickle.loads(planted)
    assert (tmp_path / "executed").exists(), "it would have run"
