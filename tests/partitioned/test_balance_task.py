"""The plan of a join's partitions that a worker makes, from the counts that the JVM has added up."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkext.config import read_settings
from sparkext.kernels.shuffle.join_size import WIDTH
from sparkext.partitioned.balance_task import BalanceTask

BUCKETS = 8


def told(rows: list[int], key: int = 0) -> dict[str, Any]:
    """Return a side with one key per bucket, so that one counter of the sketch has all of its rows."""
    sketch = np.zeros(BUCKETS * WIDTH, np.int64)
    sketch[key::WIDTH] = rows
    numbers = {"rows": np.array(rows), "bytes": np.array(rows) * 10, "sizes": np.array(rows) * 40, "sketch": sketch}
    told = {name: values.astype("<i8").tobytes().hex() for name, values in numbers.items()}
    return {**told, "maps": 2, "paired": True}


def nothing() -> dict[str, Any]:
    """Return a side that no task has sent."""
    return {
        "rows": "",
        "bytes": np.zeros(BUCKETS, "<i8").tobytes().hex(),
        "sizes": "",
        "sketch": "",
        "maps": 2,
        "paired": True,
    }


def planned(**order: Any) -> dict[str, Any]:
    defaults = {
        "settings": {},
        "ran": [],
        "most_shares": 4,
        "most_build_shares": None,
        "cores": 2,
        "needs_probe": True,
        "needs_build": True,
    }
    order = {**defaults, **order}
    task = BalanceTask(order, settings=read_settings(order["settings"].get, {}), tasks_sharing=1)
    [answer] = task([pa.record_batch([pa.array([""])], names=["c0"])])
    return dict(json.loads(answer.column(0)[0].as_py()))


def buckets_in(plan: dict[str, Any]) -> list[int]:
    return sorted({share["bucket"] for partition in plan["partitions"] for share in partition})


def test_every_bucket_has_a_partition() -> None:
    """Including buckets without rows of one side: a map task that runs again can send other rows."""
    plan = planned(probe=told([5, 0, 5, 5, 0, 0, 0, 1]), builds=[told([1, 1, 0, 1, 0, 0, 0, 1])])
    assert buckets_in(plan) == list(range(BUCKETS)) and len(plan["partitions"]) == 1 and plan["moved"] == 0


def test_pairs_tell_a_hot_bucket() -> None:
    """The bucket has as many rows as the others: only the sketches show that its key is the same on both sides."""
    probe, build = told([100_000] * BUCKETS), told([10_000] * BUCKETS, key=1)
    cold = planned(probe=probe, builds=[build])
    sketch = np.frombuffer(bytes.fromhex(build["sketch"]), "<i8").copy()
    sketch[3 * WIDTH : 4 * WIDTH] = [10_000] + [0] * (WIDTH - 1)
    hot = planned(probe=probe, builds=[{**build, "sketch": sketch.tobytes().hex()}])
    assert cold["moved"] == cold["split"] == 0 and hot["split"] == 1
    assert (
        len([partition for partition in hot["partitions"] if any(share["bucket"] == 3 for share in partition)]) == 4
    ), "as many as maps"
    assert max(hot["after"]) < max(hot["before"])


def hot_side() -> dict[str, Any]:
    return told([10_000] * 3 + [300_000] + [10_000] * 4)


def test_pairs_of_which_only_the_first_is_met() -> None:
    """As in a semi join: a probe row is paired once, however many build rows have its key."""
    probe, build = told([100_000] * BUCKETS), hot_side()
    all_met, first_met = (planned(probe=probe, builds=[{**build, "paired": paired}]) for paired in (True, False))
    assert all_met["split"] == 1 and first_met["split"] == 0
    assert sum(first_met["after"]) < sum(all_met["after"]) / 10


def test_what_pairs_took_before() -> None:
    """Partitions took ten times as long as planned, and the whole difference is due to pairs."""
    sides = {"probe": told([100_000] * BUCKETS), "builds": [hot_side()]}
    first = planned(**sides)
    ran = [[received, met, received + 10 * met] for received, met in first["work"]]
    again = planned(**sides, ran=ran)
    assert sum(again["after"]) == pytest.approx(sum(took for _, _, took in ran), rel=0.05)
    assert [*map(sum, zip(*again["work"], strict=True))][1] == pytest.approx(sum(met for _, met, _ in ran))


@pytest.mark.parametrize("needs_build", [True, False])
def test_a_side_that_nobody_has_sent(needs_build: bool) -> None:
    plan = planned(probe=told([5] * BUCKETS), builds=[nothing()], needs_build=needs_build)
    assert buckets_in(plan) == list(range(BUCKETS)) and len(plan["partitions"]) == 1
    empty = planned(probe=nothing(), builds=[nothing()], needs_probe=False, needs_build=False, most_shares=0)
    assert buckets_in(empty) == list(range(BUCKETS)) and len(empty["partitions"]) == 1


def test_several_build_sides() -> None:
    plan = planned(probe=told([5] * BUCKETS), builds=[told([1] + [0] * 7), told([0, 1] + [0] * 6)])
    assert buckets_in(plan) == list(range(BUCKETS)) and len(plan["partitions"]) == 1


def test_a_side_without_buckets_is_cut_into_a_matrix() -> None:
    everything = told([4_000_000] + [0] * (BUCKETS - 1))
    plan = planned(probe=everything, builds=[everything], most_build_shares=4, cores=4)
    units = [(share["number"], share["build"]) for partition in plan["partitions"] for share in partition]
    assert len(units) == len(set(units)) > 1 and {
        share["bucket"] for partition in plan["partitions"] for share in partition
    } == {0}
