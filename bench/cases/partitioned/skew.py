"""The load balancer of partitioned joins, simulated with the nodes, rows and skews of the paper that introduced it.

Yasui, Tamura, Oguchi and Kitsuregawa ran two joins on 96 nodes, and gave one or two nodes more probe rows and more
matches. Here, rows are counted, the cost per row is measured with the code that runs in workers, and times are
calculated. The stages are pipelined, and a source waits for the slowest node: in an interval, all nodes process the
same share of their rows, which is the share that the most loaded node can process.
"""

from __future__ import annotations

import heapq
import math
import time
import timeit
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from bench.data.generated import in_files
from bench.harness import Bench, Case
from sparkext.plans.shuffle.balancer import Balancer, RowCounts, UnitCosts, skew
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.plans.shuffle.waves import PARTITION_SECONDS, plan_table
from sparkext.wording import format_table

if TYPE_CHECKING:
    from sparkext.reports.partition_loads import PartitionLoads

NOTES = """\
skew.simulated: a simulation of 96 nodes and two stages, with 3 M probe rows and 10,000 buckets per node. An interval is
the same share of the balanced run as the paper's 28 s. Unit costs are measured here, for rows of 32 bytes: to receive a
row is to decode its block and normalise its key, to compare a row is to look it up, and to produce a row is to put it
in the order of the partitions and encode it. The ratio is the elapsed time without the load balancer divided by the
time with it. The paper's ratio is shown next to it.
skew.waves: a simulation. The costs of buckets follow Zipf's law. The actual costs differ from the planned costs by
factors of a log-normal distribution. Planned: a free core takes the next partition of the plan, those with most work
first. Again: a free core takes buckets for half of its share of the remaining work, for at most the work of a
partition, and for at least a tenth of a second. A task costs 0.04 s in addition to its buckets. Seconds are medians of
eleven draws.
skew.pipelined: a run on four executors, all on this machine. Each of them routes rows and joins the rows of one
partition. They share the cores of this machine, so elapsed times are not shown, only the seconds that each partition
has worked. The ideal ratio is the time of the most loaded partition divided by the mean, if buckets are assigned by
hash alone. max / mean is the same ratio for the planned runs."""

_NODES = 96
_ROWS = 3_000_000
_BUCKETS_PER_NODE = 10_000
_INTERVAL = 28.0 / 160.0  # as a share of the balanced run
_ALPHA = 0.3

_EXECUTOR_MIB = 1536
_BUCKETS = 64
_KEYS = 200_000
_BUCKETS_OF_WAVES = 1024
_TASK_SECONDS = 0.04
_LEAST_TAKE = 0.1

_PARTITIONS = 4
_ROWS_STREAMED = {"skew1": 60, "skew2": 40, "skew3": 50}
_TIMES = 4  # how often the probe side is read, so that a run has several intervals


@dataclass(frozen=True)
class Skewed:
    """In the first stage, `nodes` have `probes` times the probe rows, each of which has `matches` times the matches."""

    nodes: int
    probes: int
    matches: int
    paper: float


SKEWS = {"skew1": Skewed(1, 2, 2, 1.45), "skew2": Skewed(1, 3, 3, 2.0), "skew3": Skewed(2, 2, 2, 1.42)}


def cases() -> list[Case]:
    """Return the cases: the paper's three skews, and the time that the load balancer needs to plan for many nodes."""
    return [
        Case("skew.simulated", "three skews of 96 nodes, with and without the balancer", _run, scaled=False),
        Case("skew.pipelined", "the skews of four executors, to which rows stream", _pipelined, scaled=False),
        Case(
            "skew.waves",
            "partitions planned before they run, and again while they do, if costs are wrong",
            _waves,
            scaled=False,
        ),
        Case("skew.planner", "plans for up to 1,000 nodes and 10,000 buckets", _planner, scaled=False),
    ]


def _run(bench: Bench) -> None:
    costs = unit_costs(bench.sized(1_000_000))
    print("  ".join(f"{name} {1e9 * seconds:.1f} ns" for name, seconds in vars(costs).items()))
    rows = []
    for name, skewed in SKEWS.items():
        before, after, trajectory = simulate(skewed, costs)
        ratio = before / after
        if ratio <= 1 or trajectory[-1] >= trajectory[0]:
            raise AssertionError(f"{name}: the balancer gained nothing")
        bench.record(part=name, ratio=ratio, paper=skewed.paper, skew=trajectory)
        skews = " ".join(f"{value:.2f}" for value in trajectory[:5])
        rows.append([name, f"{before:.2f}", f"{after:.2f}", f"{ratio:.2f}", f"{skewed.paper:.2f}", skews])
    print(format_table(["case", "without", "with", "ratio", "paper", "skew by interval"], rows))


def simulate(skewed: Skewed, costs: UnitCosts) -> tuple[float, float, list[float]]:
    """Return elapsed seconds without and with the load balancer, and the skew of the first stage in each interval."""
    buckets = _NODES * _BUCKETS_PER_NODE
    table = RoutingTable(buckets, _NODES)
    per_bucket = _ROWS // _BUCKETS_PER_NODE
    cold_load = RowCounts(per_bucket, per_bucket, per_bucket).load(costs)
    probes = per_bucket * skewed.probes
    hot_load = RowCounts(probes, probes * skewed.matches, probes * skewed.matches).load(costs)
    load_of = {bucket: hot_load for partition in range(skewed.nodes) for bucket in table.buckets_of(partition)}
    # The output of the first stage is spread over all nodes by another key.
    second = (buckets * per_bucket + len(load_of) * (probes * skewed.matches - per_bucket)) / _NODES
    behind = RowCounts(int(second), int(second), int(second)).load(costs)

    def loads(now: RoutingTable) -> list[float]:
        found = [cold_load * _BUCKETS_PER_NODE] * _NODES
        for bucket in {*load_of, *now.moved}:
            load, partitions = load_of.get(bucket, cold_load), now.partitions_of(bucket)
            found[now.home(bucket)] -= cold_load
            for partition in partitions:
                found[partition] += load / len(partitions)
        return found

    def buckets_in(now: RoutingTable, partition: int) -> Mapping[int, float]:
        return {
            bucket: load_of.get(bucket, cold_load) / len(now.partitions_of(bucket))
            for bucket in now.buckets_of(partition)
        }

    alone = max(loads(table)) + behind
    balanced = sum(loads(table)) / _NODES + behind
    done = elapsed = 0.0
    trajectory = []
    balancer = Balancer(_ALPHA)
    while done < 1:
        now = loads(table)
        trajectory.append(skew(now))
        whole = max(now) + behind
        share = min(1 - done, _INTERVAL * balanced / whole)
        done += share
        elapsed += share * whole
        table = balancer.plan(table, now, partial(buckets_in, table))
    return alone, elapsed, trajectory


def _pipelined(bench: Bench) -> None:
    from pyspark.sql import Observation, functions

    import sparkext
    from bench.engines.spark_session import spark_session

    settings = {
        "spark.master": f"local-cluster[{_PARTITIONS},2,{_EXECUTOR_MIB}]",
        "spark.executor.memory": f"{_EXECUTOR_MIB}m",
        "spark.sparkext.mode": "hint",
        "spark.sparkext.partitioned.stages": "pipelined",
        "spark.sparkext.debug.sessions": "true",
    }
    query = "SELECT /*+ PIPELINED_JOIN(b, 'partitioned=always') */ v, w FROM a JOIN b ON a.k = b.k"
    rows = []
    with spark_session(bench.threads, sparkext.configure, **settings) as spark, TemporaryDirectory() as folder:
        for name, skewed in SKEWS.items():
            sides = _sides(skewed, bench.sized(_KEYS), _ROWS_STREAMED[name], Path(folder) / name)
            _repeat(sides["a"])
            for side, path in sides.items():
                spark.read.parquet(str(path)).createOrReplaceTempView(side)

            def ran(way: str) -> tuple[object, PartitionLoads]:
                spark.conf.set("spark.sparkext.debug.partitions", way)
                joined = spark.sql(query)
                sums = Observation()
                summed = [functions.count("*"), functions.sum("v"), functions.sum("w")]
                seen = joined.observe(sums, *(one.alias(str(place)) for place, one in enumerate(summed)))
                seen.write.format("noop").mode("overwrite").save()
                partitions = sparkext.report(joined).partitions
                if partitions is None or len(partitions.took) != _PARTITIONS or not partitions.skews:
                    raise AssertionError(f"{_PARTITIONS} partitions were to be streamed to, not {partitions}")
                return sums.get, partitions

            ran("hash")
            found: dict[str, list[PartitionLoads]] = {"hash": [], "planned": []}
            answers = set()
            for _ in range(bench.runs):
                for way, loads in found.items():
                    answer, partitions = ran(way)
                    answers.add(str(answer))
                    loads.append(partitions)
            if len(answers) != 1:
                raise AssertionError(f"{name}: different sums, {answers}")
            most = {way: median(max(each.took) for each in loads) for way, loads in found.items()}
            mean = median(sum(each.took) / _PARTITIONS for each in found["hash"])
            trajectory = [round(value, 2) for value in found["planned"][-1].skews]
            ratio, ideal = most["hash"] / most["planned"], most["hash"] / mean
            even = median(max(each.took) * _PARTITIONS / sum(each.took) for each in found["planned"])
            took = {way: [each.took for each in loads] for way, loads in found.items()}
            bench.record(part=name, worked=most, ratio=ratio, ideal=ideal, even=even, skew=trajectory, took=took)
            shown = " ".join(f"{value:.2f}" for value in trajectory[:8])
            told = (most["hash"], most["planned"], ratio, ideal, even)
            rows.append([name, *(f"{value:.2f}" for value in told), shown])
    print(format_table(["case", "s by hash", "s planned", "ratio", "ideal", "max / mean", "skew by interval"], rows))


def _repeat(folder: Path) -> None:
    """Hard-link all files of a folder under other names, so that the folder has `_TIMES` times the rows."""
    for file in [*folder.iterdir()]:
        for turn in range(1, _TIMES):
            file.with_name(f"{turn}-{file.name}").hardlink_to(file)


def _sides(skewed: Skewed, keys: int, rows: int, folder: Path) -> Mapping[str, Path]:
    """Write rows of 32 bytes. Keys of the first `nodes` partitions have more probe rows, and more matches for each."""
    from sparkext.kernels.keys.hashing import FULL_MASK
    from sparkext.shuffle.partitioning import Partitioning

    every = np.arange(keys)
    routing = RoutingTable(_BUCKETS, _PARTITIONS)
    partitioning = Partitioning((0,), (pa.int64(),), (False,), routing, False, FULL_MASK)
    _, buckets = partitioning.buckets(pa.record_batch([pa.array(every)], names=["k"]))
    hot = np.isin(buckets, [bucket for partition in range(skewed.nodes) for bucket in routing.buckets_of(partition)])
    generator = np.random.default_rng(3)
    sides = {}
    for side, value, cold_rows, hot_rows in (
        ("a", "v", rows, rows * skewed.probes),
        ("b", "w", 1, skewed.matches),
    ):
        of_key = generator.permutation(np.repeat(every, np.where(hot, hot_rows, cold_rows)))
        columns = {"k": of_key, value: of_key % 1000, f"{value}2": of_key + 1, f"{value}3": of_key + 2}
        sides[side] = in_files(pa.table(columns), folder / side)
    return sides


def unit_costs(rows: int) -> UnitCosts:
    """Measure the cost of a row of 32 bytes in a worker, on one thread, in seconds: the least of six runs."""
    from sparkext.build_sides.index_recipe import IndexRecipe
    from sparkext.build_sides.index_store import index_in_memory
    from sparkext.kernels.keys.hashing import FULL_MASK
    from sparkext.kernels.keys.normalised import normalise_keys
    from sparkext.shuffle.outgoing_rows import create_outgoing_blocks
    from sparkext.shuffle.packed_rows import RowUnpacker
    from sparkext.shuffle.partitioning import Partitioning, choose_bucket_count

    rng = np.random.default_rng(1)
    columns = [rng.permutation(rows), *(rng.integers(0, 1 << 40, rows) for _ in range(3))]
    batch = pa.RecordBatch.from_arrays([pa.array(column) for column in columns], names=list("kabc"))
    one = (pa.int64(),)
    partitioning = Partitioning((0,), one, (False,), RoutingTable(choose_bucket_count(16), 16), False, FULL_MASK)
    build = index_in_memory(rows, batch.columns, IndexRecipe((0,), one, (False,), "hash", FULL_MASK))
    keys = normalise_keys([batch.column(0)], [False], build.info.key_ranges)
    blocks = [block for _, block in create_outgoing_blocks([batch], partitioning, 0, lambda: None)]
    unpacker = RowUnpacker(batch.schema)

    def receive() -> None:
        for block in blocks:
            normalise_keys([unpacker.unpack(block).column(0)], [False], build.info.key_ranges)

    def compare() -> None:
        build.lookup(keys)

    def produce() -> None:
        for _ in create_outgoing_blocks([batch], partitioning, 0, lambda: None):
            pass

    seconds = [min(timeit.repeat(step, number=1, repeat=6)) for step in (receive, compare, produce)]
    return UnitCosts(*(least / rows for least in seconds))


def _waves(bench: Bench) -> None:
    rows = []
    for cores, error in product((4, 16, 64), (0.0, 0.25, 0.5, 1.0)):
        for seconds in (2 * cores, 10 * cores):
            drawn = [_simulated_waves(cores, seconds, error, seed) for seed in range(11)]
            planned, again, ideal = (median(values) for values in zip(*drawn, strict=True))
            bench.record(part=f"{cores} cores, {seconds} s", error=error, planned=planned, again=again, ideal=ideal)
            told = [f"{planned:.2f}", f"{again:.2f}", f"{planned / again:.2f}", f"{ideal:.2f}"]
            rows.append([str(cores), str(seconds), f"{error:.2f}", *told])
            if planned < ideal or again < ideal:
                raise AssertionError(f"{rows[-1]}: no schedule is shorter than the work that there is")
    print(format_table(["cores", "work, s", "sigma", "planned, s", "again, s", "ratio", "ideal, s"], rows))


def _simulated_waves(cores: int, seconds: float, error: float, seed: int) -> tuple[float, float, float]:
    """Return seconds: of the planned partitions, of buckets assigned at run time, and of all work divided by cores."""
    generator = np.random.default_rng(seed)
    expected = generator.permutation(1 / np.arange(1, _BUCKETS_OF_WAVES + 1) ** 0.8)
    expected *= seconds / expected.sum()
    real = expected * np.exp(generator.normal(0, error, _BUCKETS_OF_WAVES))
    real *= seconds / real.sum()
    partitions = min(_BUCKETS_OF_WAVES, max(cores, math.ceil(seconds / PARTITION_SECONDS)))
    table = plan_table(dict(enumerate(expected.tolist())), _BUCKETS_OF_WAVES, partitions, lambda bucket: cores)
    pieces, by_partition = [], [[0.0, 0.0] for _ in range(partitions)]
    for bucket in range(_BUCKETS_OF_WAVES):
        homes = table.partitions_of(bucket)
        piece = (float(expected[bucket]) / len(homes), float(real[bucket]) / len(homes))
        for partition in homes:
            pieces.append(piece)
            by_partition[partition] = [told + one for told, one in zip(by_partition[partition], piece, strict=True)]
    planned = _elapsed([took for _, took in sorted(by_partition, reverse=True)], cores)
    pieces.sort()
    left, takes = float(expected.sum()), list[float]()
    while pieces:
        wanted, got, took = min(PARTITION_SECONDS, max(_LEAST_TAKE, left / (2 * cores))), 0.0, 0.0
        while pieces and got < wanted:
            got, took = got + pieces[-1][0], took + pieces[-1][1]
            pieces.pop()
        left -= got
        takes.append(took)
    return planned, _elapsed(takes, cores), float(real.sum()) / cores


def _elapsed(tasks: Sequence[float], cores: int) -> float:
    """Return the elapsed seconds of tasks, each of which runs on the next free core."""
    free = [0.0] * cores
    for seconds in tasks:
        heapq.heapreplace(free, free[0] + seconds + _TASK_SECONDS)
    return max(free)


def _planner(bench: Bench) -> None:
    rows = []
    for nodes in (125, 250, 500, 1000):
        buckets = 10_000
        weights = np.random.default_rng(nodes).permutation(1 / np.arange(1, buckets + 1)).tolist()
        table = RoutingTable(buckets, nodes)

        def loads(now: RoutingTable, weights: list[float] = weights) -> list[float]:
            found = [0.0] * now.partitions
            for bucket, weight in enumerate(weights):
                for partition in now.partitions_of(bucket):
                    found[partition] += weight / len(now.partitions_of(bucket))
            return found

        def of_partition(
            partition: int, table: RoutingTable = table, weights: list[float] = weights
        ) -> dict[int, float]:
            return {bucket: weights[bucket] for bucket in table.buckets_of(partition)}

        started = time.perf_counter()
        planned = Balancer(_ALPHA).plan(table, loads(table), of_partition)
        seconds = time.perf_counter() - started
        before, after = skew(loads(table)), skew(loads(planned))
        if after > _ALPHA:
            raise AssertionError(f"{nodes} nodes: the skew is still {after:.2f}")
        bench.record(part=f"{nodes} nodes", seconds=seconds, before=before, after=after)
        rows.append([str(nodes), f"{1000 * seconds:.0f}", f"{before:.1f}", f"{after:.2f}", str(len(planned.moved))])
    print(format_table(["nodes", "ms", "skew", "after", "buckets moved"], rows))
