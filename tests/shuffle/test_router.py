"""The router sends each bucket to the partition that the load table (`LoadTable`) of a run assigns."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparkext.plans.shuffle.load_table import INTERVAL_SECONDS, BucketReport, Interval, LoadTable
from sparkext.shuffle.router import Router
from sparkext.shuffle.streamed import HOME, StreamedExchange

STREAMED = StreamedExchange(4, 2, "run")


@dataclass
class Files:
    """The load table that a task reads, and the intervals that it proposes."""

    shown: LoadTable | None = None
    proposed: list[Interval] = field(default_factory=list)
    report: BucketReport | None = None

    def load_table(self) -> LoadTable | None:
        return self.shown

    def propose(self, interval: Interval) -> None:
        self.proposed.append(interval)

    def write_report(self, report: BucketReport) -> None:
        self.report = report


def router(files: Files, way: str = "planned", task: int = 0) -> Router:
    return Router(STREAMED, files, way, task)  # type: ignore[arg-type]


def test_buckets_are_at_home_without_a_load_table() -> None:
    files = Files()
    routed = router(files)
    routed.look()
    assert [routed.partition(bucket) for bucket in range(4)] == [0, 1, 0, 1] and not files.proposed


def test_the_newest_table_counts_and_shares_are_taken_in_turn() -> None:
    files = Files(LoadTable(Interval(3, {0: (1,), 1: (0, 1)}), 0.0))
    first, second = router(files, task=0), router(files, task=1)
    found = []
    for _ in range(2):
        first.look()
        second.look()
        found.append([first.partition(0), first.partition(1), second.partition(1)])
    assert found == [[1, 1, 0], [1, 0, 1]] and not files.proposed
    files.shown = LoadTable(Interval(4, {}), 0.0)
    first.look()
    assert [first.partition(0), first.partition(1)] == [0, 1]


def test_an_interval_that_is_over_is_judged() -> None:
    told = BucketReport({0: 30, 1: 1, 2: 30}, {0: 3.0, 1: 0.1, 2: 3.0})
    files = Files(LoadTable(Interval(2), INTERVAL_SECONDS, told, told))
    routed = router(files)
    routed.look()
    [proposed] = files.proposed
    assert proposed.number == 3 and proposed.moved and proposed.routed == told.rows
    assert routed.partition(0) == 0, "before others know of it, the old table counts"
    router(Files(files.shown), "hash").look()
    assert len(files.proposed) == 1


def test_what_was_routed_is_told() -> None:
    files = Files()
    routed = router(files)
    routed.report_rows([0, 3], [5, 2])
    routed.report_rows([3], [4])
    assert files.report == BucketReport({0: 5, 3: 6})


def test_any_table_that_is_drawn() -> None:
    files = Files(LoadTable(Interval(2), 0.0))
    routed = router(files, "random")
    seen = set()
    for _ in range(60):
        routed.look()
        seen.add(tuple(routed.partition(bucket) for bucket in range(4)))
    assert len(seen) > 8 and len(files.proposed) == 60


def test_build_rows_of_a_bucket_are_of_its_home_or_its_own() -> None:
    assert [STREAMED.group(bucket, 1) for bucket in range(4)] == [0, HOME, 2, HOME]
    assert {STREAMED.group(HOME, partition) for partition in range(2)} == {HOME}
