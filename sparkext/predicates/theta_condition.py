"""The condition of a theta join at run time: a compiled test, and the columns that it reads."""

from __future__ import annotations

import base64
import json
import pickle
from collections.abc import Callable, Sequence
from functools import cached_property, partial, reduce
from typing import NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparkext.build_sides.index_store import BuildSide
from sparkext.expressions.expression_code import ColumnLocation, generate_expression_code
from sparkext.kernels.columns.buffers import Int64Array, UInt8Array, unpack_validity
from sparkext.kernels.columns.row_ids import RowIds, row_id_dtype
from sparkext.kernels.indexes.nested_loop import HIT, NestedLoop, PairError, PairTest, read_numbers
from sparkext.kernels.keys.normalised import cast_key
from sparkext.kernels.runtime.jit import AnyArray, freeze
from sparkext.plans.expressions.expression import ColumnPlace, Expression
from sparkext.plans.expressions.expression_range import Interval, may_fail
from sparkext.plans.expressions.key_types import KeyType, parse_key_type
from sparkext.plans.expressions.number_types import number_type
from sparkext.plans.pipeline.spec import PROBE, ColumnRef
from sparkext.plans.pipeline.theta import NamedColumn, PythonPredicate, Theta
from sparkext.predicates.python_predicate import bind_predicate, evaluate, functions_of_predicate, read_element
from sparkext.rows.row_set import RowSet
from sparkext.rows.types import arrow_key_type
from sparkext.storage.last_used import LruCache

_TEST_BYTES = 3 << 20
"""Memory of a compiled test (measured: 1.9 to 2.6 MB)."""
_TESTS_MAX_BYTES = 384 << 20
"""Limit of the memory of all compiled tests. Evicting a test returns only a tenth of its memory, as numba never frees
machine code. The number of compiled tests stays small because values are not compiled into a test: a process compiles
one test per formula of its programs."""


class ThetaCondition(Protocol):
    """A condition, bound to the build side of one join."""

    def loop(self, rows: RowSet) -> NestedLoop:
        """Return a loop over all pairs of these rows and the build rows."""
        ...

    def holds(self, pairs: RowSet, until_hit: Int64Array | None = None) -> npt.NDArray[np.bool_]:
        """Return bool[pairs.length]: which pairs fulfil the condition. The build side is already a source of `pairs`.

        `until_hit`: see `PairTest.each`.
        """
        ...


def bind_theta(theta: Theta, source: int, build: BuildSide) -> ThetaCondition:
    """Bind a condition to a build side, which has the index `source` among the sources of the pipeline."""
    if isinstance(theta, PythonPredicate):
        return _PythonCondition(theta, source, build)
    return CompiledCondition(theta, source, build)


class CompiledCondition:
    """A condition compiled from an expression.

    Null masks are passed along with the values of all probe columns, and of the build columns that contain nulls.
    """

    def __init__(self, expression: Expression, source: int, build: BuildSide) -> None:
        self._expression, self._source = expression, source
        columns = dict.fromkeys(node.place for node in expression.columns())
        self._probe = [column for column in columns if column[0] != source]
        self._build = [column for column in columns if column[0] == source]
        self._all_build_rows = RowSet.of_morsel(build.columns, build.rows)
        self._nullable = [self._column(number).null_count > 0 for _, number, _ in self._build]
        self._rows = build.rows
        self._locations = {
            **_assign_locations(self._probe, [True] * len(self._probe), is_probe=True),
            **_assign_locations(self._build, self._nullable, is_probe=False),
        }
        kinds: list[str | None] = []
        for _, _, key in self._probe:
            kinds += [number_type(key), None]
        code = generate_expression_code(expression, self._locations, kinds)
        self._test = _get_test(code.text, code.functions).bound(code.constants, self._fail)

    def loop(self, rows: RowSet) -> NestedLoop:
        """Return a loop over all pairs of these rows and the build rows."""
        probe = self._gather(rows, self._probe, [True] * len(self._probe))
        return NestedLoop(self._test, probe, self._build_arrays, rows.length, self._rows)

    def may_fail(self, rows: RowSet) -> bool:
        """Whether the minimum and maximum values of the columns permit that the condition fails on a pair of rows."""
        probe = {column: _measure_extent(_gather_values(rows, column)) for column in self._probe}
        return may_fail(self._expression, {**probe, **self._build_extents})

    @cached_property
    def _build_extents(self) -> dict[ColumnPlace, Interval]:
        return {column: _measure_extent(_convert_values(self._column(column[1]), column[2])) for column in self._build}

    def _fail(self, probe: Sequence[np.generic], build: Sequence[np.generic]) -> NoReturn:
        """Raise an error with the non-null values by source and column. The extension derives Spark's error from it."""
        values = {}
        for (source, column, _), location in self._locations.items():
            side = probe if location.is_probe else build
            if location.mask is None or side[location.mask]:
                number = side[location.values]
                word = number.view(f"i{number.itemsize}") if number.dtype.kind == "f" else number
                values[f"{source}.{column}"] = int(word)
        raise PairError(f"{self._source} fails on {json.dumps(values)}")

    def _column(self, number: int) -> pa.Array:
        return self._all_build_rows.gather(ColumnRef(PROBE, number))

    @cached_property
    def _build_arrays(self) -> tuple[AnyArray, ...]:
        """The arrays of all build rows, which only a loop over all pairs needs."""
        return _list_arrays(
            [_convert_values(self._column(number), key) for _, number, key in self._build], self._nullable, self._rows
        )

    def holds(self, pairs: RowSet, until_hit: Int64Array | None = None) -> npt.NDArray[np.bool_]:
        """Return bool[pairs.length]: which pairs fulfil the condition. `until_hit`: see `PairTest.each`."""
        probe = self._gather(pairs, self._probe, [True] * len(self._probe))
        build = self._gather(pairs, self._build, self._nullable)
        hits: npt.NDArray[np.bool_] = self._test.each(probe, build, pairs.length, until_hit) & HIT != 0
        return hits

    def _gather(self, rows: RowSet, columns: Sequence[ColumnPlace], nullable: Sequence[bool]) -> tuple[AnyArray, ...]:
        return _list_arrays([_gather_values(rows, column) for column in columns], nullable, rows.length)


class _PythonCondition:
    """A predicate in Python. Rows with a null in any of its columns match nothing."""

    def __init__(self, predicate: PythonPredicate, source: int, build: BuildSide) -> None:
        self._predicate, self._source = predicate, source
        columns = [
            _convert_values(build.columns[c.column].take(None, missing=False), parse_key_type(c.key))
            for c in predicate.build
        ]
        self._build_rows, self._build_arrays = _drop_nulls(columns, build.rows)
        self._rows = build.rows
        function = pickle.loads(base64.b64decode(predicate.pickled))
        self._left, self._right = map(record_fields, (predicate.left, predicate.right))
        bound = bind_predicate(function, self._left, self._right)
        functions = partial(functions_of_predicate, bound, self._left, self._right, predicate.exchanged)
        test = _get_test(f"{bound.fingerprint} {predicate.exchanged}", functions)
        self._function = function
        self._test = test.bound(bound.constants, self._evaluate)

    def _evaluate(self, probe: Sequence[np.generic], build: Sequence[np.generic]) -> bool:
        """Evaluate the predicate in Python, for a pair on which the compiled code fails."""
        left, right = (build, probe) if self._predicate.exchanged else (probe, build)
        try:
            return evaluate(self._function, self._left, self._right, [left, right])
        except Exception as error:
            name = getattr(self._function, "__name__", "")
            rows = f"left ({_format_row(self._left, left)}), right ({_format_row(self._right, right)})"
            description = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise PairError(f"{self._source}: predicate {name} raises {description} for {rows}") from error

    def loop(self, rows: RowSet) -> NestedLoop:
        columns = [
            _convert_values(rows.gather(ColumnRef(c.source, c.column)), parse_key_type(c.key))
            for c in self._predicate.probe
        ]
        probe_rows, probe = _drop_nulls(columns, rows.length)
        return NestedLoop(self._test, probe, self._build_arrays, rows.length, self._rows, probe_rows, self._build_rows)

    def holds(self, pairs: RowSet, until_hit: Int64Array | None = None) -> npt.NDArray[np.bool_]:
        raise NotImplementedError("a join by a predicate in Python has no keys")


def record_fields(columns: Sequence[NamedColumn]) -> list[tuple[str, str]]:
    """Return the name and number type of each column of a record."""
    fields = []
    for column in columns:
        kind = number_type(parse_key_type(column.key))
        assert kind is not None, "columns without numbers are not in any record"
        fields.append((column.name, kind))
    return fields


def _format_row(fields: Sequence[tuple[str, str]], values: Sequence[np.generic]) -> str:
    """Return the fields of a row as text. A row without fields has one placeholder value, which is ignored."""
    return ", ".join(
        f"{name}={read_element(value, kind)!r}" for (name, kind), value in zip(fields, values, strict=False)
    )


_Values = tuple[AnyArray, UInt8Array | None]
Functions = tuple[Callable[..., object], Callable[..., object]]


def _convert_values(column: pa.Array, key: KeyType) -> _Values:
    array = cast_key(column, arrow_key_type(key))
    return read_numbers(array), unpack_validity(array)


def _gather_values(rows: RowSet, reference: ColumnPlace) -> _Values:
    source, column, key = reference
    return _convert_values(rows.gather(ColumnRef(source, column)), key)


def _measure_extent(values: _Values) -> Interval:
    """Return the minimum and maximum of the non-null values; (0, 0) without values, None if a float is NaN."""
    array, mask = values
    valid = array if mask is None else array[mask != 0]
    if not valid.size:
        return 0, 0
    low, high = valid.min().item(), valid.max().item()
    return None if low != low else (low, high)


def _list_arrays(values: Sequence[_Values], nullable: Sequence[bool], length: int) -> tuple[AnyArray, ...]:
    """Return the values, each followed by its null mask if `nullable`; one placeholder array if there are no values."""
    arrays: list[AnyArray] = []
    for (array, mask), has_mask in zip(values, nullable, strict=True):
        arrays.append(array)
        if has_mask:
            arrays.append(freeze(np.ones(length, dtype=np.uint8)) if mask is None else mask)
    return tuple(arrays) or (freeze(np.zeros(length, dtype=np.uint8)),)


def _assign_locations(
    columns: Sequence[ColumnPlace], nullable: Sequence[bool], is_probe: bool
) -> dict[ColumnPlace, ColumnLocation]:
    """Return the positions of each column in the result of `_list_arrays`."""
    locations, position = {}, 0
    for column, has_mask in zip(columns, nullable, strict=True):
        locations[column] = ColumnLocation(is_probe, position, position + 1 if has_mask else None)
        position += 1 + has_mask
    return locations


def _drop_nulls(values: Sequence[_Values], length: int) -> tuple[RowIds | None, tuple[AnyArray, ...]]:
    """Return the ids of rows without a null (None if there are no nulls), and their values."""
    masks = [mask for _, mask in values if mask is not None]
    arrays = _list_arrays(values, [False] * len(values), length)
    if not masks:
        return None, arrays
    rows = np.flatnonzero(reduce(np.bitwise_and, masks)).astype(row_id_dtype(length))
    return freeze(rows), tuple(freeze(array[rows]) for array in arrays)


tests: LruCache[str, PairTest] = LruCache(_TESTS_MAX_BYTES // _TEST_BYTES)
"""The compiled tests of this process. `made` counts compilations."""


def _get_test(key: str, functions: Callable[[], Functions]) -> PairTest:
    """Return the test for this key, compiled at most once per process unless it was evicted."""
    return tests.get_or_make(key, lambda: PairTest(*functions()))
