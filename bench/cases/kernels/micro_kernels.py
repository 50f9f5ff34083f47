"""Micro-benchmarks of single kernels on one morsel, run by pyperf.

`python bench/cases/kernels/micro_kernels.py -o FILE` runs them.

pyperf runs this file in several processes, calibrates the number of calls per value, and warms up. The results of
probing and gathering are checked before they are timed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyperf

from sparkext.kernels.columns.gather import Column
from sparkext.kernels.indexes.dense_index import build_dense_index, key_range
from sparkext.kernels.indexes.hash_index import build_hash_index
from sparkext.kernels.indexes.matches import START, probe
from sparkext.kernels.indexes.ordered_index import build_ordered_index
from sparkext.kernels.indexes.protocols import JoinIndex
from sparkext.kernels.keys.normalised import NormalisedKeys, normalise_keys

MORSEL = 131_072
BUILD = 100_000
FAN_OUT = 8


def main() -> None:
    """Run every kernel with pyperf."""
    runner = pyperf.Runner()
    for name, make in kernels().items():
        runner.bench_time_func(name, _timed(make))


def _timed(make: Callable[[], Callable[[], object]]) -> Callable[[int], float]:
    """Return a function that creates the input at its first call, as each pyperf process runs only one kernel."""
    prepared: list[Callable[[], object]] = []

    def seconds(loops: int) -> float:
        if not prepared:
            prepared.append(make())
            prepared[0]()  # compiles
        run = prepared[0]
        started = pyperf.perf_counter()
        for _ in range(loops):
            run()
        return float(pyperf.perf_counter() - started)

    return seconds


def kernels() -> dict[str, Callable[[], Callable[[], object]]]:
    """Return the kernels by name: each creates its input, checks its answer, and returns the function to time."""
    return {
        "encode int64 keys": lambda: _encoding(_numbers(MORSEL)),
        "encode text keys": lambda: _encoding(_text(_numbers(MORSEL))),
        "build hash": lambda: _building(build_hash_index),
        "build dense": lambda: _building(_dense),
        "build ordered": lambda: _building(build_ordered_index),
        "probe hash": lambda: _probing(build_hash_index, 1),
        "probe dense": lambda: _probing(_dense, 1),
        "probe ordered": lambda: _probing(build_ordered_index, 1),
        f"probe hash, {FAN_OUT} matches": lambda: _probing(build_hash_index, FAN_OUT),
        "gather int64": lambda: _gathering(_numbers(BUILD)),
        "gather text": lambda: _gathering(_text(_numbers(BUILD))),
    }


def _numbers(rows: int) -> pa.Array:
    return pa.array(np.random.default_rng(rows).permutation(rows))


def _text(numbers: pa.Array) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width=12, padding="0")


def _encoding(keys: pa.Array) -> Callable[[], object]:
    return lambda: normalise_keys([keys], [False])


def _dense(keys: NormalisedKeys) -> JoinIndex:
    bounds = key_range(keys)
    assert bounds is not None
    return build_dense_index(keys, bounds[0], bounds[1])


def _building(build: Callable[[NormalisedKeys], JoinIndex]) -> Callable[[], object]:
    keys = normalise_keys([_numbers(BUILD)], [False])
    return lambda: build(keys)


def _probing(build: Callable[[NormalisedKeys], JoinIndex], matches_each: int) -> Callable[[], object]:
    build_keys = np.random.default_rng(1).permutation(np.arange(BUILD) // matches_each)
    probe_keys = np.random.default_rng(2).integers(0, BUILD // matches_each, MORSEL // matches_each)
    index = build(normalise_keys([pa.array(build_keys)], [False]))
    morsel = normalise_keys([pa.array(probe_keys)], [False])

    def run() -> object:
        matches = index.lookup(morsel)
        pairs, _ = probe(matches, "inner", START, MORSEL, matches.output_rows("inner"))
        return pairs

    pairs = run()
    found = probe_keys if pairs.probe_rows is None else probe_keys[pairs.probe_rows]  # type: ignore[attr-defined]
    assert found.size == probe_keys.size * matches_each
    assert np.array_equal(found, build_keys[pairs.build_rows])  # type: ignore[attr-defined]
    return run


def _gathering(values: pa.Array) -> Callable[[], object]:
    rows = np.random.default_rng(3).integers(0, len(values), MORSEL).astype(np.int32)
    column = Column.of(values)
    assert column.take(rows, missing=False).equals(values.take(pa.array(rows)))
    return lambda: column.take(rows, missing=False)


if __name__ == "__main__":
    main()
