"""The costs of buckets, and their measurement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.plans.shuffle.bucket_costs import BY_UNIT_COSTS, BucketCounts, CostScale, MeasuredWork
from tests.support.kernel_inputs import examples

counts = st.builds(BucketCounts, *[st.one_of(st.integers(0, 100), st.integers(0, 10**9))] * 6)
seconds = st.one_of(st.just(0.0), st.floats(1e-6, 1e3))


def ran(works: list[tuple[float, float]], scale: CostScale) -> list[MeasuredWork]:
    return [MeasuredWork(received, met, scale.received * received + scale.met * met) for received, met in works]


@pytest.mark.parametrize("scale", [CostScale(1, 1), CostScale(2, 0.5), CostScale(0.7, 40), CostScale(12, 12)])
def test_two_mixtures_tell_what_each_takes(scale: CostScale) -> None:
    found = CostScale.measured(ran([(1.0, 0.1), (0.2, 2.0), (0.5, 0.5)], scale))
    assert found.received == pytest.approx(scale.received, rel=0.2)
    assert found.met == pytest.approx(scale.met, rel=0.2)


@pytest.mark.parametrize("work", [(0.01, 1.0), (1.0, 1.0), (1.0, 0.01)])
def test_one_mixture_is_planned_as_it_ran(work: tuple[float, float]) -> None:
    """Work that takes thirty times as long is planned correctly, and not attributed to received rows alone."""
    partitions = ran([work] * 3, CostScale(30, 30))
    found = CostScale.measured(partitions)
    planned = found.received * work[0] + found.met * work[1]
    assert planned == pytest.approx(partitions[0].took, rel=0.1)
    assert found.met > 0.95 * found.received


def test_noise_of_equal_partitions_is_not_that_of_received_rows() -> None:
    """Partitions have nearly the same mixture, pairs cost three hundred times as much, and times vary by 30 %."""
    works = [(0.009, 0.0085), (0.0087, 0.0086)]
    for noise in ((1.0, 1.0), (0.7, 1.3), (1.3, 0.7)):
        partitions = [
            MeasuredWork(received, met, factor * (received + 300 * met))
            for (received, met), factor in zip(works, noise, strict=True)
        ]
        found = CostScale.measured(partitions)
        assert found.received < 0.1 * 300, (noise, found)
        assert found.met == pytest.approx(300, rel=0.35), (noise, found)


@pytest.mark.parametrize(
    "partitions",
    [[], [MeasuredWork(0.01, 0.01, 0.09)], [MeasuredWork(0.0, 0.0, 7.0)]],
    ids=["none", "as good as nothing", "without work"],
)
def test_what_says_nothing(partitions: list[MeasuredWork]) -> None:
    assert CostScale.measured(partitions) == BY_UNIT_COSTS


@given(st.lists(st.builds(MeasuredWork, seconds, seconds, seconds), max_size=20))
@examples(300)
def test_no_scale_is_out_of_the_world(partitions: list[MeasuredWork]) -> None:
    found = CostScale.measured(partitions)
    assert 0.05 <= found.received < float("inf") and 0.05 <= found.met < float("inf")


@given(counts, st.integers(1, 100))
@examples(200)
def test_partitions_that_share_a_bucket(bucket: BucketCounts, partitions: int) -> None:
    """Each of its probe rows is received by one partition, and all of its build rows by each."""
    assert BY_UNIT_COSTS.load(bucket) == pytest.approx(bucket.received + bucket.met)
    alone = bucket.received - bucket.probe_received
    assert bucket.estimate_receive_seconds(partitions) * partitions == pytest.approx(
        bucket.probe_received + partitions * alone, abs=1e-9
    )
