"""Every accumulator against plain Python: all value types, nulls, offsets, one group or many, merged states."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.groups.accumulators import FUNCTIONS, Accumulator, AccumulatorOverflowError, accumulator
from tests.kernels.groups.test_group_table import python_values
from tests.support.kernel_inputs import PAYLOADS, SAMPLES, KeySample, examples, seeded, with_nulls

Values = Sequence[Any]
State = tuple[Any, ...]
INTEGERS = ("int8", "int16", "int32", "int64")
FLOATS = ("float32", "float64")
DECIMALS = ("decimal(7,2)", "decimal(18,0)", "decimal(19,4)", "decimal(38,10)")
MIN, MAX = -(1 << 63), (1 << 63) - 1
SIZES = (0, 1, 2, 3, 4, 5, 63, 64, 65)
NULL_RATES = (0, 0.01, 0.1, 0.5, 1)


def present(values: Values) -> list[Any]:
    return [value for value in values if value is not None]


def wrapped(total: int) -> int:
    return (total - MIN) % (1 << 64) + MIN


def order(value: Any) -> Any:
    """Return the sort key of a value as in Spark: -0.0 equals 0.0, and NaN is the largest number."""
    if not isinstance(value, float):
        return value
    return (1, 0.0) if math.isnan(value) else (0, value)


def canonical(value: Any) -> Any:
    return ("NaN" if math.isnan(value) else (value, math.copysign(1, value))) if isinstance(value, float) else value


def integer_sum(values: Values) -> State:
    return (wrapped(sum(present(values))) if present(values) else None,)


def decimal_total(values: Values) -> int | None:
    """Return the sum in the order of the rows, or None once it overflows, after which Spark's sum remains null."""
    total = 0
    for value in present(values):
        total += value
        if abs(total) >= 10**38:
            return None
    return total


def bits(combine: Callable[[int, int], int]) -> Callable[[Values], State]:
    def run(values: Values) -> State:
        state: int | None = None
        for value in present(values):
            state = value if state is None else combine(state, value)
        return (state,)

    return run


# Function, names of value types, and the expected state for the values of a group in the order of their rows.
CASES: list[tuple[str, Sequence[str], Callable[[Values], State]]] = [
    ("count", tuple(SAMPLES), lambda values: (len(present(values)),)),
    ("sum", INTEGERS, integer_sum),
    ("sum", DECIMALS, lambda values: (decimal_total(values), not present(values))),
    ("avg", DECIMALS, lambda values: (decimal_total(values), len(present(values)))),
    ("min", tuple(SAMPLES), lambda values: (min(present(values), key=order, default=None),)),
    ("max", tuple(SAMPLES), lambda values: (max(present(values), key=order, default=None),)),
    ("first", tuple(SAMPLES), lambda values: (values[0] if values else None, bool(values))),
    ("last", tuple(SAMPLES), lambda values: (values[-1] if values else None, bool(values))),
    ("bit_and", INTEGERS, bits(lambda a, b: a & b)),
    ("bit_or", INTEGERS, bits(lambda a, b: a | b)),
    ("bit_xor", INTEGERS, bits(lambda a, b: a ^ b)),
]


class Groups:
    """The values of each group, in order of arrival."""

    def __init__(self) -> None:
        self.values: dict[int, list[Any]] = {}

    def add(self, numbers: Sequence[int] | None, values: Values) -> None:
        for number, value in zip(numbers if numbers is not None else [0] * len(values), values, strict=True):
            self.values.setdefault(number, []).append(value)

    def states(self, state: Callable[[Values], State], groups: int) -> list[tuple[Any, ...]]:
        return [tuple(map(canonical, state(self.values.get(group, [])))) for group in range(groups)]


def states(accumulator: Accumulator, start: int, stop: int) -> list[tuple[Any, ...]]:
    arrays = accumulator.states(start, stop)
    for array in arrays:
        array.validate(full=not pa.types.is_time(array.type))
        assert len(array) == stop - start
    return list(zip(*(map(canonical, python_values(array)) for array in arrays), strict=True))


@pytest.mark.parametrize(
    ("function", "name", "state"), [(function, name, state) for function, names, state in CASES for name in names]
)
def test_against_python(function: str, name: str, state: Callable[[Values], State]) -> None:
    sample = SAMPLES[name]

    @examples(40)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        tested, groups = accumulator(function, sample.type), Groups()
        alone = data.draw(st.booleans())
        count = 0
        for _ in range(data.draw(st.integers(0, 3))):
            array, values = draw_values(data, sample)
            count = 1 if alone else data.draw(st.integers(max(count, 1), count + 5))
            numbers = data.draw(st.lists(st.integers(0, count - 1), min_size=len(values), max_size=len(values)))
            tested.add(None if alone else np.array(numbers, np.int32), count, array, len(values))
            groups.add(None if alone else numbers, values)
        stop = count + 2  # including groups without rows
        assert states(tested, 0, stop) == groups.states(state, stop)
        assert states(tested, 1, stop) == groups.states(state, stop)[1:]

    run()


@pytest.mark.parametrize("function", ["min", "max"])
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("alone", [False, True])
def test_an_extreme_is_the_first_of_equal_zeros(function: str, name: str, alone: bool) -> None:
    far = {"min": 1.0, "max": -1.0}[function]
    for first, second in ((0.0, -0.0), (-0.0, 0.0)):
        for morsels in ([[first, second]], [[far, None, first], [second, far]], [[first], [None], [second]]):
            tested = accumulator(function, SAMPLES[name].type)
            for values in morsels:
                numbers = None if alone else np.zeros(len(values), np.int32)
                tested.add(numbers, 1, pa.array(values, SAMPLES[name].type), len(values))
            assert states(tested, 0, 1) == [(canonical(first),)]


def draw_values(data: st.DataObject, sample: KeySample) -> tuple[pa.Array, list[Any]]:
    picks = data.draw(st.lists(st.integers(0, len(sample.raw) - 1), max_size=30))
    valid = [True] * len(picks)
    if data.draw(st.booleans()):
        valid = data.draw(st.lists(st.booleans(), min_size=len(picks), max_size=len(picks)))
    return sample.array(picks, valid, before=data.draw(st.sampled_from((0, 5)))), sample.keys(picks, valid)


@pytest.mark.parametrize("rate", NULL_RATES)
@pytest.mark.parametrize("name", [*INTEGERS, *FLOATS])
@pytest.mark.parametrize("alone", [False, True])
def test_sums_and_averages_as_doubles(name: str, rate: float, alone: bool) -> None:
    """Sums are compared with exact sums; doubles represent sums of small integers exactly."""
    random = seeded(len(name))
    average, total = accumulator("avg", SAMPLES[name].type), accumulator("sum", SAMPLES[name].type)
    groups = Groups()
    for size in SIZES:
        values = [random.randrange(-100, 100) for _ in range(size)]
        valid = [random.random() >= rate for _ in range(size)]
        numbers = None if alone else np.array([random.randrange(7) for _ in range(size)], np.int32)
        array = with_nulls(pa.array(values, SAMPLES[name].type), valid)
        average.add(numbers, 7, array)
        total.add(numbers, 7, array)
        groups.add(None if numbers is None else numbers.tolist(), array.to_pylist())

    def expected(values: Values) -> State:
        return (float(sum(present(values))) + 0.0, len(present(values)))

    assert states(average, 0, 8) == groups.states(expected, 8)
    sums = [(state[0] if state[1] else None,) for state in map(expected, (groups.values.get(g, []) for g in range(8)))]
    assert [values for (values,) in zip(*(a.to_pylist() for a in total.states(0, 8)), strict=True)] == [
        s for (s,) in sums
    ]


@pytest.mark.filterwarnings("ignore:invalid value encountered")  # without the JIT
def test_sums_of_doubles_carry_infinities_and_nan() -> None:
    tested = accumulator("sum", pa.float64())
    values = [math.inf, -math.inf, math.inf, math.nan, 1.0, None]
    tested.add(np.array([0, 0, 1, 2, 2, 3], np.int32), 4, pa.array(values))
    assert states(tested, 0, 4) == [("NaN",), ((math.inf, 1.0),), ("NaN",), (None,)]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(
    ("values", "overflows"),
    [
        ([MAX, 1], True),
        ([MIN, -1], True),
        ([MAX, 1, -5], True),  # in range again, too late
        ([MAX, None, 0, MIN, 1], False),
        ([MAX, -1, 1], False),
        ([MIN], False),
        ([], False),
    ],
)
def test_checked_sums(values: Values, overflows: bool, alone: bool) -> None:
    for cut in (1, len(values) + 1):
        checked, wrapping = (accumulator("sum", pa.int64(), checked=flag) for flag in (True, False))
        array = pa.array(values, pa.int64())

        def feed(tested: Accumulator, array: pa.Array = array, cut: int = cut) -> None:
            for start in range(0, len(array), cut):
                part = array.slice(start, cut)
                tested.add(None if alone else np.zeros(len(part), np.int32), 1, part)

        feed(wrapping)
        assert states(wrapping, 0, 1) == [integer_sum(values)]
        if overflows:
            with pytest.raises(AccumulatorOverflowError, match="int64"):
                feed(checked)
        else:
            feed(checked)
            assert states(checked, 0, 1) == [integer_sum(values)]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("name", DECIMALS)
def test_decimals_around_64_and_128_bits(name: str, alone: bool) -> None:
    """Sums begin as 64-bit words, exceed them, and return; those of long decimals exceed 38 digits."""
    sample = SAMPLES[name]
    most = 10**sample.type.precision - 1
    edges = {0, 1, -1, most, -most, most - 1, 1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 63, 1 << 64, most // 2}
    raw = sorted(edge for edge in edges if abs(edge) <= most)

    @examples(60)
    @given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(raw)), max_size=12), max_size=5))
    def run(morsels: list[list[tuple[int, int]]]) -> None:
        tested, groups = accumulator("sum", sample.type), Groups()
        for morsel in morsels:
            numbers = [0 if alone else number for number, _ in morsel]
            values = [value for _, value in morsel]
            tested.add(None if alone else np.array(numbers, np.int32), 3, sample.make(values))
            groups.add(numbers, values)
        result = tested.states(0, 3)
        assert result[0].type == pa.decimal128(min(38, sample.type.precision + 10), sample.type.scale)
        assert states(tested, 0, 3) == groups.states(lambda v: (decimal_total(v), not v), 3)

    run()


def test_many_words_become_long_sums() -> None:
    """The estimated bound exceeds 64 bits long before a sum does, and is computed again."""
    tested = accumulator("sum", pa.decimal128(18, 2))
    value = 10**18 - 1
    for round_ in range(40):
        tested.add(np.array([0, 1, 1], np.int32), 2, SAMPLES["decimal(18,0)"].make([value, value, -value]))
        assert states(tested, 0, 2) == [(value * (round_ + 1), False), (0, False)]


@pytest.mark.parametrize("function", ["sum", "avg"])
@pytest.mark.parametrize("alone", [False, True])
def test_unscaled_integers_stand_for_decimals(function: str, alone: bool) -> None:
    values = [10**18 - 1, None, 5, -(10**18) + 1, 7] * 9 + [10**18 - 1] * 30
    numbers = None if alone else np.array([row % 3 for row in range(len(values))], np.int32)
    decimals = SAMPLES["decimal(18,0)"].make([value or 77 for value in values])
    valid = [value is not None for value in values]
    results = []
    for array in (with_nulls(decimals, valid), pa.array(values, pa.int64())):
        tested = accumulator(function, pa.decimal128(18, 0))
        tested.add(numbers, 3, array)
        tested.add(numbers, 3, array)
        results.append(tested.states(0, 3))
    assert results[0] == results[1]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("offset", [0, 1e9])
@pytest.mark.parametrize("function", ["stddev_samp", "stddev_pop", "var_samp", "var_pop"])
def test_moments(function: str, offset: float, alone: bool) -> None:
    random = seeded(3)
    tested, groups = accumulator(function, pa.float64()), Groups()
    for size in SIZES:
        values = [None if random.random() < 0.2 else offset + random.random() for _ in range(size)]
        numbers = None if alone else [random.randrange(3) for _ in range(size)]
        tested.add(None if numbers is None else np.array(numbers, np.int32), 3, pa.array(values, pa.float64()))
        groups.add(numbers, values)
    for group, (n, mean, m2) in enumerate(zip(*(array.to_pylist() for array in tested.states(0, 4)), strict=True)):
        exact = [Fraction(value) for value in present(groups.values.get(group, []))]
        assert n == len(exact)
        if exact:
            assert mean == pytest.approx(float(statistics.mean(exact)), rel=1e-12)
            assert m2 == pytest.approx(float(statistics.pvariance(exact) * len(exact)), rel=1e-6)
        else:
            assert (mean, m2) == (0.0, 0.0)


@pytest.mark.parametrize("function", ["min", "max"])
def test_text_extremes_over_many_morsels(function: str) -> None:
    """Replaced minima and maxima are freed; values share prefixes."""
    random = seeded(5)
    tested, groups = accumulator(function, pa.string()), Groups()
    for morsel in range(30):
        texts: list[str | None] = []
        for row in range(400):
            number = morsel * 400 + row
            rank = 100_000 - number if function == "min" else number
            prefix = random.choice(["", "common prefix ", "common"])
            texts.append(None if number % 50 == 0 else f"{prefix}{rank:06d}" + "x" * random.randrange(40))
        numbers = [random.randrange(20) for _ in texts]
        tested.add(np.array(numbers, np.int32), 20, pa.array(texts))
        groups.add(numbers, texts)
    state = min if function == "min" else max
    assert states(tested, 0, 20) == groups.states(lambda values: (state(present(values)),), 20)
    assert tested.nbytes < 200_000


@pytest.mark.parametrize("ignore_nulls", [False, True])
@pytest.mark.parametrize("function", ["first", "last"])
@pytest.mark.parametrize("arrow_type", PAYLOADS, ids=str)
def test_first_and_last_of_any_type(function: str, ignore_nulls: bool, arrow_type: pa.DataType) -> None:
    random = seeded(9)
    tested, groups = accumulator(function, arrow_type, ignore_nulls=ignore_nulls), Groups()
    for morsel in range(150):
        values = [None if random.random() < 0.3 else random.choice(PAYLOADS[arrow_type]) for _ in range(5)]
        array = pa.array([None, *values], arrow_type).slice(1)
        numbers = [random.randrange(1 + morsel // 10) for _ in values]
        tested.add(np.array(numbers, np.int32), 1 + morsel // 10, array)
        groups.add(numbers, array.to_pylist())

    def state(values: Values) -> State:
        chosen = present(values) if ignore_nulls else values
        return (None, False) if not chosen else (chosen[0 if function == "first" else -1], True)

    result = tested.states(0, 20)
    assert result[0].type == arrow_type
    found = list(zip(*(array.to_pylist() for array in result), strict=True))
    assert str(found) == str([state(groups.values.get(group, [])) for group in range(20)])


def test_counting_rows() -> None:
    tested = accumulator("count")
    tested.add(np.array([0, 2, 2], np.int32), 3, None)
    assert states(tested, 0, 4) == [(1,), (0,), (2,), (0,)]
    tested = accumulator("count")
    tested.add(None, 1, None, rows=5)
    tested.add(None, 1, None, rows=2)
    assert states(tested, 0, 1) == [(7,)]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_of_type_null(function: str) -> None:
    """Arrays of type null, which Spark sends for a literal NULL; and the state before any row."""
    tested, untouched = accumulator(function, pa.int64()), accumulator(function, pa.int64())
    tested.add(None, 1, pa.nulls(3))
    if function not in ("first", "last"):
        assert tested.states(0, 1) == untouched.states(0, 1)


@pytest.mark.parametrize("name", ["int64", "decimal(38,10)", "string", "float64"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_states_share_no_memory(function: str, name: str) -> None:
    sample = SAMPLES[name]
    try:
        tested = accumulator(function, sample.type)
    except TypeError:
        return
    array = sample.array([2, 4], [True, True])
    tested.add(np.array([0, 1], np.int32), 2, array)
    before = tested.states(0, 2)
    copies = str([array.to_pylist() for array in before])  # as text, because NaN differs from itself
    empty = accumulator(function, sample.type).nbytes
    tested.add(np.array([1, 0], np.int32), 2, sample.array([3, 1], [True, True]))
    assert str([array.to_pylist() for array in before]) == copies
    assert tested.nbytes > empty


@pytest.mark.parametrize(
    ("function", "value_type"),
    [
        ("median", pa.int64()),
        ("sum", None),
        ("sum", pa.string()),
        ("avg", pa.bool_()),
        ("bit_and", pa.float64()),
        ("var_pop", pa.decimal128(9, 2)),
        ("min", pa.list_(pa.int64())),
    ],
)
def test_what_there_is_no_accumulator_for(function: str, value_type: pa.DataType | None) -> None:
    with pytest.raises(TypeError, match=f"no accumulator for {function}"):
        accumulator(function, value_type)
