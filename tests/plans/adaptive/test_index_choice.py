"""The choice of a join's index, as a table of situations."""

from __future__ import annotations

import pytest

from sparkext.plans.adaptive.index_choice import (
    HASH_BUILD_BYTES_PER_ROW,
    BuildKeys,
    choose_index,
    estimate_build_bytes,
    fits,
    is_worth_clustering,
)

MILLION = 1_000_000
DENSE = BuildKeys(MILLION, MILLION, word=True, smallest=1, largest=8 * MILLION)
SPARSE = BuildKeys(MILLION, MILLION, word=True, smallest=1, largest=8 * MILLION + 1)
COMPACT = BuildKeys(MILLION, MILLION, word=True, smallest=1, largest=MILLION)
FEW = BuildKeys(1000, 1000, word=True, smallest=1, largest=1 << 40)
TEXT = BuildKeys(MILLION, MILLION, word=False, key_bytes=10 * MILLION)
NO_KEYS = BuildKeys(MILLION, 0, word=True)
AMPLE = HASH_BUILD_BYTES_PER_ROW * MILLION


@pytest.mark.parametrize(
    ("algorithm", "keys", "headroom", "kind", "why"),
    [
        ("auto", DENSE, None, "dense", "addressed directly"),
        ("hash", DENSE, None, "dense", "addressed directly"),
        ("sort_merge", DENSE, None, "ordered", "requested"),
        ("auto", SPARSE, None, "hash", "too sparse"),
        ("auto", SPARSE, AMPLE, "hash", "too sparse"),
        ("auto", SPARSE, AMPLE - 1, "ordered", "are free"),
        ("hash", SPARSE, AMPLE, "hash", "too sparse"),
        ("hash", SPARSE, AMPLE - 1, "ordered", "needs 96,000,000 bytes, 95,999,999 are free"),
        ("auto", DENSE, 68 * MILLION, "dense", "addressed directly"),
        ("auto", DENSE, 68 * MILLION - 1, "ordered", "building a dense index needs 68,000,000 bytes"),
        ("auto", COMPACT, 0, "dense", "addressed directly"),
        ("auto", TEXT, None, "hash", "byte strings"),
        ("auto", TEXT, 154 * MILLION, "hash", "byte strings"),
        ("auto", TEXT, 154 * MILLION - 1, "ordered", "needs 154,000,000 bytes"),
        ("auto", FEW, 0, "hash", "too sparse"),
        ("sort_merge", TEXT, None, "ordered", "requested"),
        ("auto", NO_KEYS, None, "hash", "no build row"),
        ("auto", BuildKeys(2, 2, word=True, smallest=0, largest=(1 << 16) - 1), None, "dense", "65,536 values"),
        ("auto", BuildKeys(2, 2, word=True, smallest=0, largest=1 << 16), None, "hash", "65,537 values"),
        ("auto", BuildKeys(2, 2, word=True, smallest=-(2**63), largest=2**63 - 1), None, "hash", "too sparse"),
    ],
)
def test_choice(algorithm: str, keys: BuildKeys, headroom: int | None, kind: str, why: str) -> None:
    choice = choose_index(algorithm, keys, headroom)
    assert choice.kind == kind
    assert why in choice.reason
    assert choice.bytes == estimate_build_bytes(kind, keys)


@pytest.mark.parametrize("keys", [DENSE, SPARSE, COMPACT, TEXT, FEW, NO_KEYS])
def test_nothing_needs_less_than_what_is_chosen_without_memory(keys: BuildKeys) -> None:
    least = choose_index("hash", keys, 0).bytes
    dense = [] if keys.span is None or not keys.word else [estimate_build_bytes("dense", keys)]
    assert fits(least, 0) or least == min(
        [estimate_build_bytes("hash", keys), estimate_build_bytes("ordered", keys), *dense]
    )


@pytest.mark.parametrize(
    ("rows", "distinct", "payload", "headroom", "expected"),
    [
        (400, 100, 1000, None, True),
        (399, 100, 1000, None, False),
        (400, 100, 1000, 4000, True),
        (400, 100, 1000, 3999, False),
        (400, 1, 0, 0, True),
        (0, 0, 0, None, False),
    ],
)
def test_clustering(rows: int, distinct: int, payload: int, headroom: int | None, expected: bool) -> None:
    assert is_worth_clustering(rows, distinct, payload, headroom) == expected


@pytest.mark.parametrize(
    ("algorithm", "keys", "kind"),
    [("auto", SPARSE, "ordered"), ("hash", SPARSE, "hash"), ("auto", DENSE, "dense"), ("auto", TEXT, "hash")],
)
def test_ordered_probe_rows_are_merged(algorithm: str, keys: BuildKeys, kind: str) -> None:
    choice = choose_index(algorithm, keys, 2 * AMPLE, probe_ordered=True)
    assert choice.kind == kind
    assert ("merged" in choice.reason) == (kind == "ordered")


def test_nothing_to_merge_with() -> None:
    assert choose_index("auto", NO_KEYS, AMPLE, probe_ordered=True).kind == "hash"
