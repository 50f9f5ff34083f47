"""The loads of partitions, in waves and in streamed exchanges."""

from __future__ import annotations

import json

from sparkext.reports import partition_chart as partition_chart
from sparkext.reports.partition_loads import PartitionLoads


def streamed(judged: list[list[float]], moved: dict[str, list[int]], worked: list[float]) -> PartitionLoads:
    interval = {"number": len(judged), "moved": moved} if judged else None
    return PartitionLoads.of(json.dumps({"streamed": {"interval": interval, "judged": judged, "worked": worked}}), [])


def test_intervals_of_partitions_that_rows_stream_to() -> None:
    loads = streamed([[3.0, 1.0], [2.0, 2.0], [1.0, 1.5]], {"3": [1], "8": [0, 1]}, [6.0, 4.5])
    assert loads.by_hash == (3.0, 1.0) and loads.planned == (1.0, 1.5) and loads.took == (6.0, 4.5)
    assert (loads.moved, loads.split, loads.skews) == (1, 1, (1.0, 0.0, 0.4))
    assert str(loads) == (
        "2 partitions in 3 intervals, 1 bucket moved, 1 bucket split:"
        " skew 1.00 in the first, 0.40 in the last, 0.29 overall"
    )
    drawn = partition_chart.draw_partition_loads(loads)
    assert drawn.count("<svg") == 2 and "first interval" in drawn and "Skew of the partitions in each interval" in drawn


def test_a_run_of_less_than_an_interval() -> None:
    loads = streamed([], {}, [1.0, 3.0])
    assert loads.by_hash == loads.planned == loads.took == (1.0, 3.0) and loads.skews == (1.0,)
    assert partition_chart.draw_partition_loads(loads).count("<svg") == 1


def test_partitions_in_waves() -> None:
    told = {"before": [3.0, 1.0], "after": [2.0, 2.0], "moved": 1, "split": 0}
    loads = PartitionLoads.of(json.dumps(told), [])
    assert (
        str(loads)
        == "2 partitions, 1 bucket moved, 0 buckets split: skew 1.00 by hash, 0.00 as planned, 0.00 as executed"
    )
    drawn = partition_chart.draw_partition_loads(loads)
    assert drawn.count("<svg") == 1 and "by hash" in drawn
