"""The configuration registry: valid and invalid texts of every key, and messages."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkext.config import (
    BOOLEAN,
    REGISTRY,
    ConfigKey,
    Settings,
    find_configuration_problems,
    parse_bytes,
    read_settings,
    render_bytes,
    render_markdown_table,
)
from sparkext.errors import ConfigError

MODE = "spark.sparkext.mode"
BUILD = "spark.sparkext.buildSide.maxBytes"
MAX_ROWS = "spark.sparkext.morsel.maxRows"
MIN_ROWS = "spark.sparkext.morsel.minRows"
FRACTION = "spark.sparkext.memory.fraction"
ALGORITHM = "spark.sparkext.algorithm"
DECISIONS = "spark.sparkext.report.decisions"
HASH_MASK = "spark.sparkext.debug.hashMask"


def settings(conf: dict[str, str] | None = None, overrides: dict[str, object] | None = None) -> Settings:
    """Return settings from the strings of Spark's configuration and the options of a call."""
    return read_settings(lambda name: (conf or {}).get(name), overrides or {})


def test_defaults() -> None:
    assert settings() == Settings(
        mode="auto",
        explain_fallback=False,
        python="",
        build_side_max_bytes=4 * 1024**3,
        partitioned="auto",
        partitioned_stages="waves",
        streams_unit_max_bytes=4 * 1024**3,
        cql_max_instants=100_000,
        scan_fused=True,
        index_cache_max_bytes=16 * 1024**3,
        morsel_max_rows=131_072,
        morsel_max_bytes=64 * 1024**2,
        morsel_min_rows=1_024,
        memory_fraction=0.5,
        memory_max_bytes=0,
        algorithm="auto",
        report_decisions=256,
        progress=True,
        debug_sessions=False,
        debug_force=False,
        debug_join_order="measured",
        debug_groups="auto",
        debug_partitions="planned",
        debug_hash_mask=0xFFFF_FFFF_FFFF_FFFF,
    )


def test_registry_and_settings_agree() -> None:
    assert [key.attribute for key in REGISTRY] == [field.name for field in dataclasses.fields(Settings)]
    assert len({key.name for key in REGISTRY}) == len(REGISTRY)


@pytest.mark.parametrize("key", REGISTRY, ids=lambda key: key.attribute)
def test_a_default_is_accepted_and_survives_being_rendered(key: ConfigKey[object]) -> None:
    assert key.read(key.type.render(key.default)) == key.default
    assert key.name.startswith("spark.sparkext.")


@pytest.mark.parametrize(
    ("name", "raw", "attribute", "expected"),
    [
        (BUILD, "1", "build_side_max_bytes", 1),
        (BUILD, "512m", "build_side_max_bytes", 512 * 1024**2),
        (BUILD, " 4G ", "build_side_max_bytes", 4 * 1024**3),
        (BUILD, "10kb", "build_side_max_bytes", 10 * 1024),
        (BUILD, "7b", "build_side_max_bytes", 7),
        (BUILD, "2TB", "build_side_max_bytes", 2 * 1024**4),
        (MAX_ROWS, "200000", "morsel_max_rows", 200_000),
        (MIN_ROWS, "131072", "morsel_min_rows", 131_072),
        (FRACTION, "1", "memory_fraction", 1.0),
        (FRACTION, "1e-3", "memory_fraction", 0.001),
        (ALGORITHM, "hash", "algorithm", "hash"),
        (ALGORITHM, "sort_merge", "algorithm", "sort_merge"),
        (ALGORITHM, "SORT_Merge", "algorithm", "sort_merge"),
        (MODE, "OFF", "mode", "off"),
        (MODE, " Hint ", "mode", "hint"),
        (DECISIONS, "0", "report_decisions", 0),
        (HASH_MASK, "0x0", "debug_hash_mask", 0),
        (HASH_MASK, "0xFF", "debug_hash_mask", 255),
        (HASH_MASK, "18446744073709551615", "debug_hash_mask", 2**64 - 1),
    ],
)
def test_configured_strings(name: str, raw: str, attribute: str, expected: object) -> None:
    assert getattr(settings({name: raw}), attribute) == expected


@pytest.mark.parametrize(
    ("name", "raw", "attribute", "expected"),
    [
        (BUILD, 1 << 30, "build_side_max_bytes", 1 << 30),
        (BUILD, "1g", "build_side_max_bytes", 1 << 30),
        (MAX_ROWS, 5_000, "morsel_max_rows", 5_000),
        (FRACTION, 1, "memory_fraction", 1.0),
        (FRACTION, 0.25, "memory_fraction", 0.25),
        (ALGORITHM, "hash", "algorithm", "hash"),
        (HASH_MASK, 2**64 - 1, "debug_hash_mask", 2**64 - 1),
    ],
)
def test_overrides_take_python_values(name: str, raw: object, attribute: str, expected: object) -> None:
    assert getattr(settings({}, {name: raw}), attribute) == expected


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        (BUILD, "0", "a byte size of at least 1, such as 512m or 4g"),
        (BUILD, "-1g", "a byte size"),
        (BUILD, "1.5g", "a byte size"),
        (BUILD, "4 gigs", "a byte size"),
        (BUILD, "", "a byte size"),
        (MAX_ROWS, "0", "an integer of at least 1"),
        (MAX_ROWS, "1e5", "an integer of at least 1"),
        (MAX_ROWS, "lots", "an integer of at least 1"),
        (MAX_ROWS, 3.0, "an integer of at least 1"),
        (MAX_ROWS, True, "an integer of at least 1"),
        (MAX_ROWS, None, "an integer of at least 1"),
        (MIN_ROWS, "0", "an integer of at least 1"),
        (MIN_ROWS, "-5", "an integer of at least 1"),
        (FRACTION, "0", "a number above 0 and at most 1"),
        (FRACTION, "1.01", "a number above 0 and at most 1"),
        (FRACTION, "nan", "a number above 0 and at most 1"),
        (FRACTION, "50%", "a number above 0 and at most 1"),
        (ALGORITHM, "nested", "one of auto, hash, sort_merge"),
        (DECISIONS, "-1", "an integer of at least 0"),
        (HASH_MASK, "ff", "0xffffffffffffffff"),
        (HASH_MASK, "0x10000000000000000", "0xffffffffffffffff"),
        (HASH_MASK, "-1", "0xffffffffffffffff"),
    ],
)
def test_a_bad_value_names_key_value_and_expectation(name: str, raw: object, expected: str) -> None:
    with pytest.raises(ConfigError) as error:
        settings({}, {name: raw})
    assert str(error.value).startswith(f"{name}: got {raw!r}, expected ")
    assert expected in str(error.value)


UNREADABLE = {
    MODE: ("of", "one of auto, hint, off", "off"),
    FRACTION: ("2", "a number above 0 and at most 1", "0.5"),
    BUILD: ("lots", "a byte size of at least 1, such as 512m or 4g", "4g"),
    HASH_MASK: ("ff", "an integer from 0 to 0xffffffffffffffff, decimal or hexadecimal", "0xffffffffffffffff"),
    DECISIONS: ("", "an integer of at least 0", "256"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_an_unreadable_configured_text_is_replaced(name: str) -> None:
    """It is replaced by the default; a mode by `off`."""
    text, expected, used = UNREADABLE[name]
    key = next(key for key in REGISTRY if key.name == name)
    assert settings({name: text}) == dataclasses.replace(settings(), **{key.attribute: key.read(used)})
    assert find_configuration_problems({name: text}) == [f"{name}: got {text!r}, expected {expected}; {used} is used"]


@pytest.mark.parametrize("key", REGISTRY, ids=lambda key: key.attribute)
def test_no_configured_text_is_an_error(key: ConfigKey[object]) -> None:
    for text in ("", "?", "-1", "1e999", "nan", "\0", "1" * 5000):
        value, problem = key.read_configured(text)
        assert (value == key.replacement) or problem is None
        settings({key.name: text})


def test_all_problems_of_a_configuration() -> None:
    given = {name: text for name, (text, _, _) in UNREADABLE.items()}
    found = find_configuration_problems({"spark.sparkext.mod": "off", MAX_ROWS: "10", MIN_ROWS: "20", **given})
    assert found[0] == "spark.sparkext.mod: unknown key, did you mean spark.sparkext.mode?"
    assert found[-1] == f"{MIN_ROWS}: got 20, expected at most {MAX_ROWS}, which is 10; 10 is used"
    assert {problem.partition(":")[0] for problem in found[1:-1]} == set(given)
    assert find_configuration_problems({MAX_ROWS: "10", MODE: "HINT", BUILD: " 4G "}) == []


def test_an_override_beats_the_configuration() -> None:
    chosen = settings({MAX_ROWS: "4096", FRACTION: "0.25"}, {MAX_ROWS: 8192})
    assert (chosen.morsel_max_rows, chosen.memory_fraction) == (8192, 0.25)


def test_an_override_replaces_a_bad_configured_value() -> None:
    assert settings({MAX_ROWS: "lots"}, {MAX_ROWS: 2048}).morsel_max_rows == 2048


@pytest.mark.parametrize(
    ("conf", "overrides", "expected"),
    [
        ({MAX_ROWS: "1"}, {}, (1, 1)),
        ({}, {MAX_ROWS: 1}, (1, 1)),
        ({MAX_ROWS: "1023"}, {}, (1023, 1023)),
        ({MAX_ROWS: "1024"}, {}, (1024, 1024)),
        ({MAX_ROWS: "1025"}, {}, (1024, 1025)),
        ({MAX_ROWS: "10", MIN_ROWS: "10"}, {}, (10, 10)),
        ({MAX_ROWS: "10"}, {MIN_ROWS: 1}, (1, 10)),
        ({MIN_ROWS: "11", MAX_ROWS: "10"}, {}, (10, 10)),
        ({MIN_ROWS: "11"}, {MAX_ROWS: 10}, (10, 10)),
        ({MIN_ROWS: "few", MAX_ROWS: "10"}, {}, (10, 10)),
    ],
)
def test_row_bounds(conf: dict[str, str], overrides: dict[str, object], expected: tuple[int, int]) -> None:
    chosen = settings(conf, overrides)
    assert (chosen.morsel_min_rows, chosen.morsel_max_rows) == expected


def test_a_lower_bound_must_not_exceed_the_upper() -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{MIN_ROWS}: got 11, expected at most {MAX_ROWS}, which is 10")):
        settings({MAX_ROWS: "10"}, {MIN_ROWS: "11"})


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("spark.sparkext.morsel.maxrows", MAX_ROWS),
        ("spark.sparkext.morsel.minRow", MIN_ROWS),
        ("spark.sparkext.buildside.maxByte", BUILD),
        ("memory.fraction", FRACTION),
        ("debug_hash_mask", HASH_MASK),
    ],
)
def test_an_unknown_override_suggests_the_nearest_key(name: str, suggestion: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"{name}: unknown key, did you mean {suggestion}?")):
        settings({}, {name: "1"})


def test_an_unknown_override_that_resembles_nothing_lists_all_keys() -> None:
    with pytest.raises(ConfigError) as error:
        settings({}, {"qqq": "1"})
    assert all(key.name in str(error.value) for key in REGISTRY)


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(ConfigError) as error:
        settings({}, {FRACTION: "7", MAX_ROWS: "lots", "spark.sparkext.algoritm": "hash"})
    lines = str(error.value).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["spark.sparkext.algoritm", MAX_ROWS, FRACTION]


@pytest.mark.parametrize(("raw", "expected"), [("true", True), ("False", False), ("TRUE", True)])
def test_booleans(raw: str, expected: bool) -> None:
    assert BOOLEAN.parse(raw) is expected
    assert BOOLEAN.render(expected) == raw.lower()


@pytest.mark.parametrize("raw", ["1", "yes", ""])
def test_not_booleans(raw: str) -> None:
    with pytest.raises(ValueError, match="not a boolean"):
        BOOLEAN.parse(raw)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0"), (1, "1"), (1023, "1023"), (1024, "1k"), (1536, "1536"), (3 << 30, "3g")]
)
def test_rendered_byte_sizes(size: int, text: str) -> None:
    assert render_bytes(size) == text


@given(st.one_of(st.integers(0, 1 << 62), st.builds(lambda n, s: n << s, st.integers(0, 99), st.integers(0, 60))))
def test_rendered_byte_sizes_read_back(size: int) -> None:
    assert parse_bytes(render_bytes(size)) == size


def test_markdown_table_has_a_row_per_key_for_users() -> None:
    header, rule, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in render_markdown_table().splitlines()
    ]
    assert header == ["key", "type", "unit", "default", "meaning"]
    assert set(rule) == {"---"}
    assert [row[0] for row in rows] == [f"`{key.name}`" for key in REGISTRY if not key.is_internal]
    assert {len(row) for row in rows} == {5}
    assert {row[0]: row[3] for row in rows}["`spark.sparkext.buildSide.maxBytes`"] == "`4g`"
    assert [key.name for key in REGISTRY if key.is_internal] == [key.name for key in REGISTRY if ".debug." in key.name]
    assert REGISTRY[-1].is_internal and REGISTRY[-1].type.render(REGISTRY[-1].default) == "0xffffffffffffffff"
