"""Runs a graph of queries over rows in the order of time, and keeps their state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from sparkext.kernels.arena.queues import drain
from sparkext.kernels.arena.room import ArenaFullError
from sparkext.kernels.columns.buffers import Int64Array
from sparkext.kernels.groups.text_dictionary import TextDictionary
from sparkext.rows.types import arrow_key_type
from sparkext.streaming.cql.code.expressions import encode_constant
from sparkext.streaming.cql.code.layout import GIVEN, NOW, ROW, STEPS, TIME
from sparkext.streaming.cql.code.loops import DONE, MORE, create_positions
from sparkext.streaming.cql.code.module_text import GeneratedModule
from sparkext.streaming.cql.code.modules import load_module
from sparkext.streaming.cql.code.stored_state import read_state, write_state
from sparkext.streaming.cql.code.words import decode_column, encode_column, pack_null_bits
from sparkext.streaming.cql.language.graph import Graph

FOR_EVER = (1 << 63) - 2
"""The last possible timestamp, in µs."""

ROWS_IN_TURN = 100
"""Input rows that a section processes before the next section runs. Speed is about equal from 10 to 1000, and lower
outside of this range."""

_LEAST_WORDS = 1 << 12


class StepsExceededError(ArithmeticError):
    """A timestamp has more instants than the limit."""

    def __init__(self, time: int, limit: int) -> None:
        self.time, self.limit = time, limit
        super().__init__(f"{limit} instants of one timestamp")


class StateFullError(MemoryError):
    """The state exceeds its capacity."""

    def __init__(self, words: int) -> None:
        self.bytes = 8 * words
        super().__init__(f"{8 * words} bytes are not enough")


@dataclass(frozen=True)
class InputRows:
    """Input rows in the order of time: timestamps in µs, the index of each row's stream, and each stream's columns.

    The columns in `rows[stream]` have one value for each row of all streams; values in rows of other streams are
    ignored. Streams may therefore share arrays of the same type.
    """

    times: Int64Array
    streams: np.ndarray
    rows: Mapping[str, Sequence[pa.Array]]


@dataclass(frozen=True)
class OutputRows:
    """Rows of one output: timestamps in µs, and columns in the types of the query."""

    query: str
    times: Int64Array
    columns: list[pa.Array]


class Engine:
    """Runs the `code` of a graph. `words`: capacity of the state, in words of 8 bytes.

    `limit`: maximum number of instants at one timestamp without a new row. `batch`: number of rows that a section
    processes before the next section runs. `state`: a result of the method `state`.
    """

    def __init__(
        self,
        graph: Graph,
        code: GeneratedModule,
        *,
        words: int,
        limit: int,
        batch: int = ROWS_IN_TURN,
        state: bytes | None = None,
    ) -> None:
        self._graph, self._code, self._limit, self._batch = graph, code, limit, batch
        self._module = load_module(code.text)
        self._texts = TextDictionary()
        if state is None:
            self._arena = np.empty(max(words, _LEAST_WORDS + len(code.headers)), dtype=np.int64)
            self._arena[: len(code.headers)] = code.headers
            self._module.begin(self._arena)
            self._texts.codes(pa.array([""]))
        else:
            stored, texts = read_state(state)
            self._arena = np.empty(max(words, _LEAST_WORDS + stored.size), dtype=np.int64)
            self._arena[: stored.size] = stored
            self._texts.codes(texts)
        self._initial_instants = self._instants
        self._constants = tuple(encode_constant(constant, self._encode_text) for constant in code.constants)

    def _encode_text(self, text: str) -> int:
        return int(self._texts.codes(pa.array([text]))[0])

    @property
    def _instants(self) -> list[int]:
        """The current instants of all sections, as words of the arena."""
        return [int(word) for position in self._code.instants for word in self._arena[position : position + STEPS]]

    @property
    def has_run(self) -> bool:
        """Whether an instant has been processed since the engine was created."""
        return self._instants != self._initial_instants

    def state(self) -> bytes:
        """Return the state, from which another engine of the same graph can continue."""
        return write_state(self._arena[: self._arena[0]], self._texts.span(0, self._texts.count, pa.large_string()))

    def run(self, input_rows: InputRows, until: int) -> Iterator[OutputRows]:
        """Yield the rows emitted up to a timestamp, in the order of time for each output.

        Raises
        ------
        StepsExceededError
            A cycle with a delay of ε does not terminate.
        StateFullError
            The state needs more words.
        """
        x, n = [], []
        shared: dict[int, Int64Array] = {}
        for name in self._code.places:
            columns = input_rows.rows[name]
            for column, registered in zip(columns, self._graph.streams[name].columns, strict=True):
                if id(column) not in shared:
                    shared[id(column)] = encode_column(column, registered.type, self._texts)
                x.append(shared[id(column)])
            n.append(pack_null_bits([*columns], input_rows.times.size))
        starts, data = self._texts.spans
        arguments = (
            self._arena,
            self._constants,
            starts,
            data,
            tuple(x),
            tuple(n),
            input_rows.times,
            input_rows.streams,
        )
        at = create_positions(len(self._code.instants))
        section = MORE
        while section == MORE:
            try:
                with np.errstate(all="ignore"):  # needed without the JIT
                    section = self._module.run(*arguments, at, until, self._batch, self._limit)
            except ArenaFullError:
                raise StateFullError(self._arena.size) from None
            for query, queue in self._code.outputs.items():
                yield from self._drain_queue(query, queue)
            self._arena[GIVEN] = 0
        if section != DONE:
            raise StepsExceededError(int(self._arena[self._code.instants[section] + NOW]), self._limit)

    def _drain_queue(self, query: str, queue: int) -> Iterator[OutputRows]:
        rows = int(self._arena[queue + 2])
        if not rows:
            return
        columns = self._graph.queries[query].columns
        words = ROW + 1 + len(columns)
        out = np.empty((words - 1, rows), dtype=np.int64)
        drain(self._arena, queue, words, out)
        nulls = out[ROW - 1]
        arrays = [
            decode_column(out[ROW + k], (nulls >> k) & 1 != 0, column, arrow_key_type(column.type), self._texts)
            for k, column in enumerate(columns)
        ]
        yield OutputRows(query, out[TIME - 1], arrays)
