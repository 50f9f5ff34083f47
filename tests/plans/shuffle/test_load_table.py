"""Intervals of a running stage, and every order in which its tasks may read the load table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.plans.shuffle.balancer import skew
from sparkext.plans.shuffle.load_table import (
    INTERVAL_SECONDS,
    BucketReport,
    Interval,
    LoadTable,
    distribute_loads,
    draw_interval,
    judged,
)
from sparkext.plans.shuffle.routing import Partitions, RoutingTable
from sparkext.shuffle import router as routers
from sparkext.shuffle.router import Router
from sparkext.shuffle.streamed import HOME, StreamedExchange

BUCKETS, PARTITIONS = 8, 2


def load_table(routed: Mapping[int, int], seconds: Mapping[int, float], interval: Interval | None = None) -> LoadTable:
    """Return a load table with these routed rows per bucket, and ten joined rows of each bucket of `seconds`."""
    return LoadTable(
        interval or Interval(), 1.0, BucketReport(dict(routed)), BucketReport(dict.fromkeys(seconds, 10), dict(seconds))
    )


def test_costs_are_rows_of_the_interval_by_what_one_takes() -> None:
    """A bucket that no partition has processed yet costs the average per row."""
    before = Interval(3, {}, {0: 100, 1: 50})
    found = load_table({0: 160, 1: 50, 2: 7}, {0: 1.0, 1: 3.0}, before).costs()
    assert found == pytest.approx({0: 6.0, 1: 0.0, 2: 7 * 0.2})


def test_a_loaded_partition_gives_buckets_away() -> None:
    """Only rows of the interval count, and bucket 0 had most of its rows before.

    Bucket 2 counts for its moved partition.
    """
    before = Interval(3, {2: (1,)}, {0: 1000})
    after = judged(
        load_table({0: 1010, 1: 40, 2: 20, 3: 40}, dict.fromkeys(range(4), 1.0), before), BUCKETS, PARTITIONS
    )
    assert after.number == 4 and after.routed == {0: 1010, 1: 40, 2: 20, 3: 40}
    assert after.judged == pytest.approx((1.0, 10.0))
    assert after.moved != before.moved
    first, second = partitions_of(after)
    assert second < first and skew([first, second]) < skew(after.judged), "less than the other, as it has had more"


def partitions_of(interval: Interval) -> list[float]:
    table = RoutingTable(BUCKETS, PARTITIONS, interval.moved)
    return [sum(buckets.values()) for buckets in distribute_loads(table, interval.costs)]


def test_a_bucket_that_many_rows_meet_is_hot_with_few_of_its_own() -> None:
    after = judged(load_table(dict.fromkeys(range(4), 10), {0: 9.0, 1: 1.0, 2: 1.0, 3: 1.0}), BUCKETS, PARTITIONS)
    assert len(after.moved[0]) == PARTITIONS and after.judged == pytest.approx((10.0, 2.0))


def test_even_partitions_stay() -> None:
    moved = {5: (0,)}
    after = judged(load_table({0: 10, 1: 11}, {0: 1.0, 1: 1.0}, Interval(7, moved)), BUCKETS, PARTITIONS)
    assert after.moved == moved and after.number == 8


def test_what_buckets_have_cost_before_counts_less_and_less() -> None:
    seconds = {0: 1.0, 1: 1.0}
    first = judged(load_table({0: 10, 1: 10}, seconds), BUCKETS, PARTITIONS)
    second = judged(load_table({0: 10, 1: 20}, seconds, first), BUCKETS, PARTITIONS)
    assert 0 < second.costs[0] < 1.0 < second.costs[1] < 2.0
    assert second.judged == pytest.approx((0.0, 1.0))


@pytest.mark.parametrize("times", [2, 3, 8])
def test_what_the_first_interval_cost_is_made_up_for(times: int) -> None:
    """One of four partitions has more rows by hash.

    In the end it has worked no longer than the others, and buckets stay.
    """
    buckets, partitions, intervals = 64, 4, 16
    rows = {bucket: 100 * (times if bucket % partitions == 0 else 1) for bucket in range(buckets)}
    interval, worked, tables = Interval(), [0.0] * partitions, []
    for number in range(1, intervals + 1):
        table = RoutingTable(buckets, partitions, interval.moved)
        for partition, load in enumerate(distribute_loads(table, rows)):
            worked[partition] += sum(load.values())
        routed = {bucket: number * count for bucket, count in rows.items()}
        interval = judged(load_table(routed, dict.fromkeys(rows, 1.0), interval), buckets, partitions)
        tables.append(interval.moved)
    mean = sum(worked) / partitions
    assert max(worked) < 1.05 * mean
    assert tables[-1] == tables[-2]


def test_when_an_interval_is_over() -> None:
    told = BucketReport({0: 5}, {0: 0.1})
    assert LoadTable(Interval(), INTERVAL_SECONDS, BucketReport(), told).is_over
    assert not LoadTable(Interval(), INTERVAL_SECONDS / 2, BucketReport(), told).is_over
    assert not LoadTable(Interval(), INTERVAL_SECONDS, told, BucketReport()).is_over
    assert judged(LoadTable(Interval(), 1.0, told), BUCKETS, PARTITIONS).moved == {}


counts = st.dictionaries(st.integers(0, BUCKETS - 1), st.integers(0, 1 << 40), max_size=4)
costs = st.dictionaries(st.integers(0, BUCKETS - 1), st.floats(0, 100), max_size=4)
told_by_tasks = st.builds(BucketReport, counts, costs)


@given(told_by_tasks, told_by_tasks)
def test_a_load_table_is_read_back(routes: BucketReport, partitions: BucketReport) -> None:
    now = LoadTable(Interval(), 0.25, routes, partitions)
    for interval in (judged(now, BUCKETS, PARTITIONS), draw_interval(now, BUCKETS, PARTITIONS)):
        told = {"routes": vars(routes), "partitions": vars(partitions)}
        text = json.dumps({"interval": json.loads(interval.to_json()), "seconds": 0.25, **told})
        assert LoadTable.from_json(text) == LoadTable(interval, 0.25, routes, partitions)
    nothing = '{"rows": {}, "seconds": {}}'
    assert LoadTable.from_json(
        f'{{"interval": null, "seconds": 0, "routes": {nothing}, "partitions": {nothing}}}'
    ) == LoadTable(Interval(), 0)


_TABLES: tuple[Mapping[int, Partitions], ...] = ({0: (1,), 1: (0,)}, {0: (0, 1)}, {}, {1: (1, 0), 0: (1,)})
"""Successive plans of the model's load balancer: buckets are moved, split, and moved back."""

_LOOKS = 2


@dataclass
class Files:
    """The load table that a task reads: always the newest version, with its interval at an end."""

    interval: Interval = field(default_factory=Interval)
    proposed: Interval | None = None

    def load_table(self) -> LoadTable:
        return LoadTable(self.interval, INTERVAL_SECONDS, BucketReport(), BucketReport({0: 1}, {0: 1.0}))

    def propose(self, interval: Interval) -> None:
        self.proposed = interval


@dataclass
class Model:
    """Two tasks that route rows, two partitions, the load table between them, and the rows in transit."""

    routers: list[Router]
    files: list[Files]
    left: list[list[int]]
    looks: list[int]
    interval: Interval = field(default_factory=Interval)
    ways: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    known: list[set[int]] = field(default_factory=lambda: [set(), set()])
    joined: list[tuple[int, int]] = field(default_factory=list)

    @property
    def key(self) -> object:
        """A text that identifies the state."""
        tables = [(router._table.version, router._turn % 2) for router in self.routers]
        proposals = [None if files.proposed is None else files.proposed.number for files in self.files]
        return repr(
            (tables, proposals, self.left, self.looks, self.interval.number, self.ways, self.known, sorted(self.joined))
        )

    def steps(self) -> Iterator[Model]:
        """Yield every possible next state."""
        for task in (0, 1):
            if self.looks[task]:
                after = deepcopy(self)
                after.looks[task] -= 1
                after.files[task].interval = self.interval
                after.routers[task].look()
                yield after
            if self.left[task]:
                after = deepcopy(self)
                bucket = after.left[task].pop()
                partition = after.routers[task].partition(bucket)
                after.ways.setdefault((task, partition), []).append((task * 10 + len(after.left[task]), bucket))
                yield after
            if self.files[task].proposed is not None:
                after = deepcopy(self)
                proposed, after.files[task].proposed = after.files[task].proposed, None
                assert proposed is not None
                if proposed.number == after.interval.number + 1:
                    after.interval = proposed
                yield after
        for way, coming in self.ways.items():
            if coming:
                after = deepcopy(self)
                row, bucket = after.ways[way].pop(0)
                after.arrive(way[1], row, bucket)
                yield after

    def arrive(self, partition: int, row: int, bucket: int) -> None:
        """Join a row like a partition does: a moved bucket's build rows are fetched with its first probe rows."""
        group = STREAMED.group(bucket, partition)
        if group != HOME:
            self.known[partition].add(group)
        at_home = bucket % STREAMED.partitions == partition
        assert at_home or bucket in self.known[partition]
        self.joined.append((row, bucket))


STREAMED = StreamedExchange(2, 2, "model")


def test_every_order_of_routing_proposing_and_joining(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is joined once for any versions of the tables of its task; versions follow each other without gaps."""

    def planned(now: LoadTable, buckets: int, partitions: int) -> Interval:
        number = now.interval.number
        return Interval(number + 1, _TABLES[number % len(_TABLES)])

    monkeypatch.setitem(routers._JUDGES, "planned", planned)
    files = [Files(), Files()]
    begun = Model(
        [Router(STREAMED, seen, "planned", task) for task, seen in enumerate(files)],  # type: ignore[arg-type]
        files,
        [[0, 1], [0]],
        [_LOOKS, _LOOKS],
    )
    wanted = [(0, 0), (1, 1), (10, 0)]
    waiting, seen, ended, moved = [begun], {begun.key}, 0, 0
    while waiting:
        state = waiting.pop()
        after = list(state.steps())
        if not state.left[0] and not state.left[1] and not any(state.ways.values()):
            assert sorted(state.joined) == wanted
            ended += 1
            moved += bool(state.known[0] or state.known[1])
        else:
            assert after, "it would hang"
        assert state.interval.moved == (
            {} if not state.interval.number else _TABLES[(state.interval.number - 1) % len(_TABLES)]
        )
        for one in after:
            if one.key not in seen:
                seen.add(one.key)
                waiting.append(one)
    assert ended > 100 and moved > 100
