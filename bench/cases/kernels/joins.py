"""The join kernels alone: TPC-H keys, one core, indexes built and probed without a pipeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.data.workloads import BATCH_ROWS, load_table
from bench.harness import Bench, Case, Contestant, Timing, measure, record, step, verify
from sparkext.wording import format_table

if TYPE_CHECKING:
    from sparkext.kernels.indexes.protocols import JoinIndex
    from sparkext.kernels.keys.normalised import NormalisedKeys

NOTES = f"""\
Measured on one core: lookup and probe, from encoded int64 keys in morsels of {BATCH_ROWS:,} to pairs of row ids; and,
separately, the building of each index. Clustered: probe keys in the order of generation. Shuffled: probe keys in random
order.
Left out: encoding keys (int64 keys need none) and gathering payload.
The targets are for scale factor 3. They are also shown at other scale factors."""

PROBES = {"orders": "l_orderkey", "part": "l_partkey", "supplier": "l_suppkey"}
KEYS = {"orders": "o_orderkey", "part": "p_partkey", "supplier": "s_suppkey"}
TARGETS = {("orders", "hash", "clustered"): 60.0, ("orders", "hash", "shuffled"): 30.0}


def cases() -> list[Case]:
    """Return one case per build side."""
    return [Case(f"kernels.{build}", f"lineitem probes {build}", partial(_run, build), threads=1) for build in PROBES]


def _run(build: str, bench: Bench) -> None:
    from bench.engines.indexes import BUILDERS, encoded
    from sparkext.kernels.indexes.protocols import index_bytes

    build_keys, probes = _load(bench, build)
    rows = len(build_keys)
    keys = encoded(pa.array(build_keys))
    builders = {kind: partial(builder, keys) for kind, builder in BUILDERS.items()}
    building = [Contestant(kind, make, partial(_built, make)) for kind, make in builders.items()]
    verify(building)
    built = measure(bench, building)
    record(bench, built, rows, part="build")
    indexes = {kind: make() for kind, make in builders.items()}
    print(f"\nbuilding: {rows:,} rows\n\n{_build_table(built, indexes, rows)}")
    for kind, index in indexes.items():
        bench.record(part="size", contestant=kind, bytes=index_bytes(index), bytes_per_row=index_bytes(index) / rows)

    rates = {}
    for order, keys in probes.items():
        timings = _probe(bench, indexes, keys, build_keys)
        record(bench, timings, len(keys), part=f"probe, {order}")
        rates.update({(timing.contestant.name, order): _Rate.of(timing, len(keys)) for timing in timings})
    print(f"\nprobing: {len(probes['clustered']):,} rows\n\n{_probe_table(build, rates)}", flush=True)


def _load(bench: Bench, build: str) -> tuple[np.ndarray, Mapping[str, np.ndarray]]:
    from sparkext.cli.tpch import ensure_tables

    with step("loading"):
        folder = ensure_tables(bench.scale_factor, bench.data)
        build_keys = load_table(folder, build, (KEYS[build],)).column(0).to_numpy()
        clustered = load_table(folder, "lineitem", (PROBES[build],)).column(0).to_numpy()
        shuffled = np.random.default_rng(1).permutation(clustered)
    return build_keys, {"clustered": clustered, "shuffled": shuffled}


def _built(make: Callable[[], JoinIndex]) -> bool:
    """Build once, to warm up. The probes check that the index is correct."""
    return bool(make().arrays)


def _probe(
    bench: Bench, indexes: Mapping[str, JoinIndex], probe_keys: np.ndarray, build_keys: np.ndarray
) -> list[Timing]:
    from bench.engines.indexes import encoded

    starts = range(0, len(probe_keys), BATCH_ROWS)
    morsels = [encoded(pa.array(probe_keys[start : start + BATCH_ROWS])) for start in starts]
    contestants = [
        Contestant(
            kind,
            run=partial(_run_probes, index, morsels),
            answer=partial(_check_probes, index, morsels, build_keys),
        )
        for kind, index in indexes.items()
    ]
    assert verify(contestants) == len(probe_keys), "every line item has its order, part and supplier"
    return measure(bench, contestants)


def _run_probes(index: JoinIndex, morsels: list[NormalisedKeys]) -> None:
    from sparkext.kernels.indexes.matches import START, probe

    for morsel in morsels:
        matches = index.lookup(morsel)
        probe(matches, "inner", START, BATCH_ROWS, matches.output_rows("inner"))


def _check_probes(index: JoinIndex, morsels: list[NormalisedKeys], build_keys: np.ndarray) -> int:
    """Return the number of pairs, or -1 if a pair joins different keys."""
    from sparkext.kernels.indexes.matches import START, probe

    rows = 0
    for morsel in morsels:
        matches = index.lookup(morsel)
        pairs, _ = probe(matches, "inner", START, BATCH_ROWS, matches.output_rows("inner"))
        assert morsel.words is not None and pairs.build_rows is not None
        words = morsel.words if pairs.probe_rows is None else morsel.words[pairs.probe_rows]
        if not np.array_equal(words, build_keys[pairs.build_rows]):
            return -1
        rows += pairs.length
    return rows


@dataclass(frozen=True)
class _Rate:
    """Million rows per second: the median, and the range over all runs."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, timing: Timing, rows: int) -> _Rate:
        millions = rows / 1e6
        return cls(millions / timing.median, millions / max(timing.wall), millions / min(timing.wall))


def _build_table(timings: list[Timing], indexes: Mapping[str, JoinIndex], rows: int) -> str:
    from sparkext.kernels.indexes.protocols import index_bytes

    table = [
        [
            timing.contestant.name,
            f"{timing.median:.3f}",
            f"{min(timing.wall):.3f} - {max(timing.wall):.3f}",
            f"{rows / timing.median / 1e6:.1f}",
            f"{index_bytes(indexes[timing.contestant.name]) / rows:.1f}",
        ]
        for timing in timings
    ]
    return format_table(["index", "median s", "min - max s", "Mrow/s", "bytes a row"], table)


def _probe_table(build: str, rates: Mapping[tuple[str, str], _Rate]) -> str:
    header = ["index", "probe keys", "Mrow/s", "min - max", "target", ""]
    table = []
    for (kind, order), rate in rates.items():
        target = TARGETS.get((build, kind, order))
        over = rates["hash", order].median if kind == "dense" else target
        wanted = "" if over is None else f"> {over:.0f}{' (hash)' if kind == 'dense' else ''}"
        met = "" if over is None else "reached" if rate.median >= over else "MISSED"
        table.append([kind, order, f"{rate.median:.1f}", f"{rate.low:.1f} - {rate.high:.1f}", wanted, met])
    return format_table(header, table, left=range(2))
