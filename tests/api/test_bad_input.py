"""Bad input: one clear error when the transform is called, with all problems, and without a Spark job."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import SparkExtError, pipelined_join
from sparkext.engine.join_pipeline import EmittedBatches
from sparkext.engine.pipeline_plan import PipelinePlan
from sparkext.engine.pipeline_task import PipelineTask
from sparkext.engine.task_sources import ProbeBatches
from sparkext.errors import BuildSideTooLargeError, ConfigError, EnvironmentProblemError, InvalidJoinError
from sparkext.joins.lineage import find_lineage
from sparkext.spark.arrow import arrow_schema
from sparkext.spark.frames import map_in_arrow
from sparkext.spark.session_settings import read_configured_options
from tests.api.spark_checks import assert_pipelined, jobs_run_by, rows_of
from tests.support.frames import frame, table
from tests.support.sessions import configured


@pytest.fixture(scope="module")
def left(spark: SparkSession) -> DataFrame:
    return frame(spark, k=[1, 2, None], s=["a", "b", "c"], v=[1.5, 2.5, 3.5])


@pytest.fixture(scope="module")
def right(spark: SparkSession) -> DataFrame:
    return frame(spark, k=[1, 2, 3], t=["a", "b", "c"], w=[True, False, None])


@pytest.fixture(scope="module")
def apart(right: DataFrame) -> DataFrame:
    """A right side that shares no column name with the left one."""
    return right.withColumnRenamed("k", "q")


def refusal(
    left: Any,
    other: Any,
    on: Any = None,
    how: Any = "inner",
    *,
    error: type[SparkExtError] = InvalidJoinError,
    **options: Any,
) -> str:
    """Call the transform, assert that it raises `error` without running a job, and return the message."""
    caught: list[BaseException] = []

    def call() -> None:
        with pytest.raises(SparkExtError) as info:
            pipelined_join(other, on, how, **options)(left)
        caught.append(info.value)

    spark = SparkSession.getActiveSession()
    assert spark is not None
    assert jobs_run_by(spark, call) == 0
    (raised,) = caught
    assert type(raised) is error, repr(raised)
    if isinstance(raised, InvalidJoinError):
        assert all(problem in str(raised) for problem in raised.problems)
    return str(raised)


def problems(left: DataFrame, other: Any, on: Any = None, how: Any = "inner", **options: Any) -> tuple[str, ...]:
    """Return the problems of a call as a tuple."""
    refusal(left, other, on, how, **options)
    with pytest.raises(InvalidJoinError) as info:
        pipelined_join(other, on, how, **options)(left)
    return info.value.problems


def the_problem(left: DataFrame, other: Any, on: Any = None, how: Any = "inner", **options: Any) -> str:
    """Return the only problem of a call."""
    found = problems(left, other, on, how, **options)
    assert len(found) == 1, found
    return found[0]


# Columns.


def test_unknown_left_column(left: DataFrame, right: DataFrame) -> None:
    text = the_problem(left, right, [("key", "k")])
    assert "left column 'key' does not exist" in text
    assert "Available: k, s, v" in text


def test_unknown_right_column(left: DataFrame, right: DataFrame) -> None:
    text = the_problem(left, right, [("s", "nowhere")])
    assert "right column 'nowhere' does not exist" in text
    assert "Available: k, t, w" in text


def test_unknown_using_column(left: DataFrame, right: DataFrame) -> None:
    """The column is missing on both sides, or on one."""
    both = problems(left, right, "id")
    assert [text.split(" column")[0] for text in both] == ["left", "right"]
    assert "right column 's' does not exist" in the_problem(left, right, "s")
    assert "left column 't' does not exist" in the_problem(left, right, ["k", "t"])


def test_a_suggestion_ends_its_sentence(left: DataFrame, right: DataFrame) -> None:
    text = the_problem(left.withColumnRenamed("v", "amount"), right, [("amuont", "k")])
    assert "did you mean 'amount'? Available: k, s, amount" in text
    assert re.search(r"does not exist[.;:?]? ", the_problem(left, right, [("zzz", "k")])).group() != "does not exist "  # type: ignore[union-attr]


def test_unknown_column_of_an_empty_schema(spark: SparkSession, left: DataFrame, right: DataFrame) -> None:
    assert "Available: none" in the_problem(left.select(), right, [("k", "k")])
    assert "Available: none" in the_problem(left, right.select(), [("k", "k")])


def test_names_are_not_expressions(left: DataFrame, right: DataFrame) -> None:
    for name in ("left.k", "`k`", "k + 1", " k", "*", ""):
        assert f"left column {name!r} does not exist" in the_problem(left, right, [(name, "k")])


def test_names_under_case_sensitivity(spark: SparkSession, left: DataFrame, right: DataFrame) -> None:
    with configured(spark, {"spark.sql.caseSensitive": "true"}):
        found = problems(left, right, "K")
        assert len(found) == 2
        assert all("'K' does not exist" in text and "Available: k" in text for text in found)


def test_ambiguous_column(left: DataFrame, right: DataFrame) -> None:
    doubled = left.select("k", F.col("s").alias("k"), "v")
    text = the_problem(doubled, right, [("k", "k")])
    assert "left column 'k' is ambiguous" in text
    assert "'k', 'k'" in text
    assert "Rename or drop" in text
    text = the_problem(left, right.select("t", "w", F.lit(1).alias("T")), [("s", "t")])
    assert "right column 't' is ambiguous: 't', 'T' all match" in text
    assert "ambiguous" in the_problem(left, table(k=[1]).append_column("k", pa.array([2])), "k")


def test_ambiguous_after_a_pipeline(left: DataFrame, right: DataFrame) -> None:
    """A fused join resolves its columns against all joins before it."""
    chain = left.transform(pipelined_join(right, "k"))
    assert_pipelined(chain, joins=1)
    text = the_problem(chain, right.withColumnRenamed("k", "k2").drop("t", "w"), [("nope", "k2")])
    assert "Available: k, s, v, t, w" in text


def test_duplicate_output_names(left: DataFrame, right: DataFrame) -> None:
    text = the_problem(left, right, [("k", "k")])
    assert "more than one column named 'k'" in text
    assert "rename or drop" in text
    assert "on='key'" in text
    text = the_problem(left, right.withColumnRenamed("t", "S").withColumn("v", F.lit(1)), "k")
    assert "'S', 'v'" in text


def test_duplicate_output_names_of_one_side_alone(left: DataFrame, right: DataFrame) -> None:
    assert "'v'" in the_problem(left.select("k", "v", "v"), right, "k", "semi")
    assert "'w'" in the_problem(left, right.select("k", "w", "w"), "k")
    doubled = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["k", "w", "w"])
    assert "'w'" in the_problem(left, doubled, "k")


def test_duplicates_that_do_not_come_out_are_no_problem(left: DataFrame, right: DataFrame) -> None:
    out = left.transform(pipelined_join(right.select("k", "w", "w"), "k", "semi"))
    assert_pipelined(out, joins=1)
    assert rows_of(out).total() == 2


# Types.

INCOMPATIBLE = [
    ("'1'", "1", "string", "int"),
    ("cast(1 as bigint)", "'1'", "bigint", "string"),
    ("1", "cast(1 as float)", "int", "float"),
    ("true", "1", "boolean", "int"),
    ("cast(1 as decimal(10,2))", "1D", "decimal(10,2)", "double"),
    ("cast(1 as decimal(38,0))", "cast(1 as decimal(38,10))", "decimal(38,0)", "decimal(38,10)"),
    ("current_date()", "current_timestamp()", "date", "timestamp"),
    ("current_timestamp()", "localtimestamp()", "timestamp", "timestamp_ntz"),
    ("current_date()", "'2024-01-01'", "date", "string"),
    ("'a'", "cast('a' as binary)", "string", "binary"),
]


@pytest.mark.parametrize(("one", "other", "left_type", "right_type"), INCOMPATIBLE)
def test_incompatible_key_types(spark: SparkSession, one: str, other: str, left_type: str, right_type: str) -> None:
    a, b = spark.range(1).selectExpr(f"{one} as a"), spark.range(1).selectExpr(f"{other} as b")
    text = the_problem(a, b, [("a", "b")])
    assert f"left column 'a' ({left_type})" in text
    assert f"right column 'b' ({right_type})" in text
    assert "cast" in text


UNSUPPORTED_KEYS = {
    "array": "array(1)",
    "map": "map(1, 2)",
    "struct": "struct(1 as x)",
    "variant": "parse_json('1')",
    "void": "null",
    "string collate UTF8_LCASE": "'a' collate UTF8_LCASE",
}


@pytest.mark.parametrize("name", UNSUPPORTED_KEYS)
def test_unsupported_key_types(spark: SparkSession, name: str) -> None:
    """The problem of each side is reported."""
    side = spark.range(1).selectExpr(f"{UNSUPPORTED_KEYS[name]} as k")
    found = problems(side, side, "k")
    assert len(found) == 2
    for text, word in zip(found, ("left", "right"), strict=True):
        assert text.startswith(f"{word} column 'k' of type {name}")
        assert "expected integers" in text
        assert "Spark's own join" in text


def test_char_keys(spark: SparkSession) -> None:
    """Spark compares CHAR columns after padding, and not by their bytes."""
    spark.sql("create table chars (c char(5), v varchar(5)) using parquet")
    try:
        chars = spark.table("chars")
        plain = spark.createDataFrame(pa.table({"p": ["a"]}))
        assert "cannot be a join key" in the_problem(chars.select("c"), plain, [("c", "p")])
        assert_pipelined(chars.select("v").transform(pipelined_join(plain, [("v", "p")])), joins=1)
    finally:
        spark.sql("drop table chars")


NOT_ARROW = {"interval": "make_interval(1, 2)", "interval year to month": "interval '1-2' year to month"}


@pytest.mark.parametrize("name", NOT_ARROW)
def test_payload_that_does_not_travel(spark: SparkSession, left: DataFrame, right: DataFrame, name: str) -> None:
    odd = F.expr(NOT_ARROW[name])
    text = the_problem(left.withColumn("odd", odd), right, "k")
    assert f"left column 'odd' of type {name}" in text
    assert "drop or cast it" in text
    text = the_problem(left, right.withColumn("odd", odd), "k")
    assert f"right column 'odd' of type {name}" in text
    nested = the_problem(left, right.withColumn("odd", F.array(odd)), "k")
    assert "right column 'odd'" in nested
    both = problems(left.withColumn("odd", odd).withColumn("odd2", odd), right.withColumn("odd3", odd), "k")
    assert [re.findall("'(odd.?)'", text) for text in both] == [["odd"], ["odd2"], ["odd3"]]
    # A semi join needs no payload of the right side.
    out = left.transform(pipelined_join(right.withColumn("odd", odd), "k", "semi"))
    assert_pipelined(out, joins=1)
    assert rows_of(out).total() == 2


UNSUPPORTED_LOCAL: dict[str, Callable[[], Any]] = {
    "pyarrow uint64": lambda: pa.table({"k": [1], "odd": pa.array([1], pa.uint64())}),
    "pyarrow time32": lambda: pa.table({"k": [1], "odd": pa.array([1], pa.time32("s"))}),
    "pyarrow half float": lambda: pa.table({"k": [1], "odd": pa.array([1.0], pa.float32()).cast(pa.float16())}),
    "pyarrow decimal256": lambda: pa.table({"k": [1], "odd": pa.array([1], pa.decimal256(50, 0))}),
    "pyarrow month interval": lambda: pa.table({"k": [1], "odd": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}),
    "pandas mixed objects": lambda: pd.DataFrame({"k": [1, 2], "odd": [1, "x"]}),
    "pandas complex": lambda: pd.DataFrame({"k": [1], "odd": [1j]}),
}


@pytest.mark.parametrize("name", UNSUPPORTED_LOCAL)
def test_local_data_of_unsupported_types(left: DataFrame, name: str) -> None:
    """The message names the column, and a remedy."""
    text = the_problem(left, UNSUPPORTED_LOCAL[name](), "k")
    assert "other cannot be converted" in text
    assert "odd" in text


def test_pandas_with_repeated_names(left: DataFrame) -> None:
    doubled = pd.DataFrame([[1, 2, 3]], columns=["k", "w", "w"])
    assert "w" in the_problem(left, doubled, "k")


# on, how, other.


@pytest.mark.parametrize("empty", [[], ()], ids=str)
@pytest.mark.parametrize("how", ["inner", "full", "cross"])
def test_empty_on(left: DataFrame, apart: DataFrame, empty: Any, how: str) -> None:
    text = the_problem(left, apart, empty, how)
    assert "on is empty" in text
    assert "how='cross'" in text


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_missing_on(left: DataFrame, apart: DataFrame, how: str) -> None:
    text = the_problem(left, apart, None, how)
    assert "on is missing" in text
    assert "how='cross'" in text


def test_columns_in_on(left: DataFrame, apart: DataFrame) -> None:
    """Columns of the left DataFrame, of another one, and of none; alone and in lists."""
    elsewhere = apart.withColumnRenamed("q", "elsewhere")
    for on in (
        left["k"] == apart["q"],
        left["k"] == elsewhere["elsewhere"],
        F.col("k"),
        [F.col("k")],
        ["k", F.col("s")],
        [left["k"] == apart["q"], left["s"] == apart["t"]],
    ):
        found = problems(left, apart, on)
        assert any("name the columns, as in" in text and "Column<" in text for text in found), found
        assert any("on=[('left_name', 'right_name')]" in text for text in found)


def test_a_column_in_a_pair(left: DataFrame, apart: DataFrame) -> None:
    for on in ([("k", apart["q"])], [(left["k"], apart["q"])], [(left["k"], "<=>", apart["q"])]):
        text = the_problem(left, apart, on)
        assert "Column<" in text
        assert "names" in text


@pytest.mark.parametrize(
    "on",
    [
        5,
        {"k"},
        {"k": "k"},
        b"k",
        [1],
        [None],
        [["k", "k"]],
        [("k",)],
        [("k", "k", "k")],
        [("k", "~", "k")],
        [("k", "<=>", "k", "k")],
        [()],
        iter(["k"]),
    ],
    ids=lambda on: type(on).__name__ if hasattr(on, "__next__") else str(on),
)
def test_on_of_a_wrong_form(left: DataFrame, apart: DataFrame, on: Any) -> None:
    text = the_problem(left, apart, on)
    assert text.startswith("on holds ")
    assert "expected a column name, a list of names, or a list of (left, right)" in text


def test_every_wrong_item_of_on_is_told(left: DataFrame, apart: DataFrame) -> None:
    found = problems(left, apart, [("k", "~", "k"), ("s", "t"), 7, "k"])
    assert len(found) == 3
    assert all("on holds" in text for text in found)
    assert "'~'" in found[0] and "7" in found[1] and "'k'" in found[2]


@pytest.mark.parametrize("on", [[], None, 5, [("k", "~", "k")], [7]], ids=str)
def test_a_wrong_on_causes_no_second_problem(left: DataFrame, right: DataFrame, on: Any) -> None:
    """Both sides have a `k`.

    Without a valid `on` it is unknown whether these collide, so no second problem is reported.
    """
    text = the_problem(left, right, on)
    assert text.startswith("on ")


@pytest.mark.parametrize("how", ["sideways", "", "lef", "inner join", "asof", None, 3, ["inner"], b"inner"], ids=str)
def test_wrong_how(left: DataFrame, right: DataFrame, how: Any) -> None:
    text = the_problem(left, right, "k", how)
    assert f"how={how!r} is not a join type" in text
    for name in ("inner", "cross", "leftouter", "fullouter", "leftsemi", "leftanti"):
        assert name in text


@pytest.mark.parametrize(
    "other",
    [None, [1, 2], {"k": [1]}, "table_name", 5, pd.Series([1]), pa.array([1])],
    ids=lambda other: type(other).__name__,  # the same ids in every process
)
def test_wrong_other(left: DataFrame, other: Any) -> None:
    text = the_problem(left, other, "k")
    assert f"other is a {type(other).__module__}.{type(other).__name__}" in text
    assert "expected a Spark DataFrame, a pandas DataFrame or a pyarrow Table" in text


def test_a_grouped_frame_and_a_record_batch_are_no_build_side(left: DataFrame, right: DataFrame) -> None:
    assert "GroupedData" in the_problem(left, right.groupBy("k"), "k")
    assert "RecordBatch" in the_problem(left, pa.record_batch({"k": [1]}), "k")


@pytest.mark.parametrize(
    "frame", [pd.DataFrame({"k": [1]}), pa.table({"k": [1]}), None, "df"], ids=lambda f: str(type(f))
)
def test_the_left_side_is_no_spark_dataframe(right: DataFrame, frame: Any) -> None:
    text = refusal(frame, right, "k")
    assert "the left side must be a Spark DataFrame" in text
    assert type(frame).__name__ in text


# Streams.


def test_streaming_left(spark: SparkSession, right: DataFrame) -> None:
    stream = spark.readStream.format("rate").load().withColumnRenamed("value", "k")
    for kind in ("right", "full"):
        assert f"the left side is a stream: a {kind} join could emit the unmatched rows of other" in the_problem(
            stream, right, "k", kind
        )


def test_streaming_other(spark: SparkSession, left: DataFrame) -> None:
    stream = spark.readStream.format("rate").load().withColumnRenamed("value", "k")
    text = the_problem(left, stream, "k")
    assert "other is a streaming DataFrame" in text
    assert "stream_join" in text


def test_both_sides_streaming(spark: SparkSession) -> None:
    stream = spark.readStream.format("rate").load()
    found = problems(stream, stream.withColumnRenamed("timestamp", "t"), "value")
    assert len(found) == 1 and "other is a streaming" in found[0]


# Several problems at once.


def test_four_problems_of_one_call(spark: SparkSession, left: DataFrame, right: DataFrame) -> None:
    on = [("nope", "k"), ("s", "missing"), ("s", "k")]
    found = problems(left, right, on, "sideways")
    assert len(found) == 4
    for text, part in zip(found, ("how='sideways'", "'nope'", "'missing'", "no common type"), strict=True):
        assert part in text
    message = refusal(left, right, on, "sideways")
    assert message.startswith("4 problems with this join:\n  1. how='sideways'")
    lists = InvalidJoinError(["this", "that"])
    assert str(pickle.loads(pickle.dumps(lists))) == str(lists)  # as when it is sent from another process
    assert re.findall(r"^  (\d)\. ", message, re.MULTILINE) == ["1", "2", "3", "4"]


def test_types_and_streams_and_names_at_once(spark: SparkSession, right: DataFrame) -> None:
    stream = spark.readStream.format("rate").load().selectExpr("value as k", "make_interval(1) as odd")
    other = right.withColumn("odd", F.expr("make_interval(2)"))
    found = problems(stream, other, [("k", "t"), ("x", "y")], "full")
    wanted = ["is a stream: a full join", "left column 'odd'", "right column 'odd'", "'x'", "'y'", "no common type"]
    assert [part for part in wanted if not any(part in text for text in found)] == []
    assert len(found) == len(wanted)


def test_a_wrong_other_hides_no_problem_of_the_left_side(
    spark: SparkSession, left: DataFrame, right: DataFrame
) -> None:
    stream = spark.readStream.format("rate").load()
    for other in (stream, None, pa.table({"u": pa.array([1], pa.uint64())})):
        found = problems(left, other, [("nope", "value")], "sideways")
        assert any("'nope'" in text for text in found), found
        assert len(found) >= 3


def test_duplicate_names_beside_another_problem(left: DataFrame, right: DataFrame) -> None:
    """The names of the result depend only on `on`, so that a wrong type does not hide duplicate names."""
    found = problems(left.withColumn("w", F.lit(1)), right, [("s", "k")])
    assert any("no common type" in text for text in found)
    assert any("more than one column named" in text for text in found), found


def test_a_wrong_option_beside_a_wrong_join(left: DataFrame, right: DataFrame) -> None:
    with pytest.raises(SparkExtError) as info:
        pipelined_join(right, [("nope", "k")], "sideways", algorithm="quick")(left)
    for part in ("sideways", "nope", "quick"):
        assert part in str(info.value)


# Options and configuration.

WRONG_OPTIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"algorithm": "quick"}, "spark.sparkext.algorithm: got 'quick'", "auto, hash, sort_merge"),
    ({"algorithm": 3}, "spark.sparkext.algorithm: got 3", "auto, hash, sort_merge"),
    ({"max_build_bytes": 0}, "spark.sparkext.buildSide.maxBytes: got 0", "such as 512m or 4g"),
    ({"max_build_bytes": -1}, "spark.sparkext.buildSide.maxBytes: got -1", "a byte size"),
    ({"max_build_bytes": "1.5g"}, "got '1.5g'", "a byte size"),
    ({"max_build_bytes": "lots"}, "got 'lots'", "a byte size"),
    ({"max_build_bytes": True}, "got True", "a byte size"),
]


@pytest.mark.parametrize(("options", "came", "expected"), WRONG_OPTIONS, ids=str)
def test_wrong_options(left: DataFrame, right: DataFrame, options: dict[str, Any], came: str, expected: str) -> None:
    text = refusal(left, right, "k", error=ConfigError, **options)
    assert came in text
    assert expected in text


@pytest.mark.parametrize("value", ["yes", "no", "", 0, 1, "always"], ids=repr)
def test_wrong_partitioned(left: DataFrame, right: DataFrame, value: Any) -> None:
    found = problems(left, right, "nope", partitioned=value)
    assert f"partitioned={value!r}: expected True or False" in found and len(found) == 3


def test_two_wrong_options(left: DataFrame, right: DataFrame) -> None:
    text = refusal(left, right, "k", error=ConfigError, algorithm="quick", max_build_bytes="lots")
    assert "'quick'" in text and "'lots'" in text


def test_options_that_do_not_exist(right: DataFrame) -> None:
    with pytest.raises(InvalidJoinError, match="unexpected keyword argument 'algoritm'"):
        pipelined_join(right, "k", algoritm="hash")  # type: ignore[call-overload]


WRONG_SETTINGS = {
    "spark.sparkext.morsel.maxRows": "many",
    "spark.sparkext.morsel.minRows": "-5",
    "spark.sparkext.memory.fraction": "nan",
    "spark.sparkext.algorithm": "nested",
    "spark.sparkext.buildSide.maxBytes": "4x",
    "spark.sparkext.report.decisions": "-1",
    "spark.sparkext.debug.hashMask": "0x1ffffffffffffffff",
}


def test_wrong_settings_fail_no_join(
    spark: SparkSession, left: DataFrame, right: DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    """Each wrong value is logged once with its replacement, and so is an unknown key."""
    values = {**WRONG_SETTINGS, "spark.sparkext.morsel.maxRow": "10"}
    expected = rows_of(left.transform(pipelined_join(right, "k")))
    with configured(spark, values):
        for _ in range(2):
            out = left.transform(pipelined_join(right, "k"))
            assert_pipelined(out, joins=1)
            assert rows_of(out) == expected
    told = [record.getMessage() for record in caplog.records if record.name == "sparkext"]
    assert told[0] == "spark.sparkext.morsel.maxRow: unknown key, did you mean spark.sparkext.morsel.maxRows?"
    assert len(told) == len(values), told
    for key, value in WRONG_SETTINGS.items():
        assert sum(text.startswith(f"{key}: got {value!r}, expected ") for text in told) == 1


def test_the_settings_of_a_session_in_one_call(spark: SparkSession) -> None:
    """Values may contain any text."""
    values = {"spark.sparkext.one": "a -> b,\n'c'", "spark.sparkext.other": ""}
    before = read_configured_options(spark)
    with configured(spark, {**values, "spark.other": "not ours"}):
        assert read_configured_options(spark) == {**before, **values}


def test_an_option_wins_over_a_wrong_setting(spark: SparkSession, left: DataFrame, right: DataFrame) -> None:
    with configured(spark, {"spark.sparkext.algorithm": "nested"}):
        out = left.transform(pipelined_join(right, "k", algorithm="hash"))
    assert_pipelined(out, joins=1)


# Build sides that do not fit.


def large(spark: SparkSession, kind: str) -> Any:
    columns = {"k": list(range(1000)), "w": ["x" * 20] * 1000}
    if kind == "pandas":
        return pd.DataFrame(columns)
    return pa.table(columns) if kind == "pyarrow" else spark.createDataFrame(pa.table(columns))


@pytest.mark.parametrize("how", ["inner", "right"])
@pytest.mark.parametrize("kind", ["spark", "pandas", "pyarrow"])
def test_build_side_too_large(spark: SparkSession, left: DataFrame, kind: str, how: str) -> None:
    with pytest.raises(BuildSideTooLargeError) as info:
        left.transform(pipelined_join(large(spark, kind), "k", how, max_build_bytes=1000, partitioned=False))
    text = str(info.value)
    rows, size, limit = re.search(r"first ([\d,]+) rows take ([\d,]+) bytes, the limit is ([\d,]+)", text).groups()  # type: ignore[union-attr]
    assert limit == "1,000"
    assert 0 < int(rows.replace(",", "")) <= 1000
    assert int(size.replace(",", "")) > 1000
    for option in (
        "fewer columns",
        "filter it",
        "join the other way round",
        "spark.sparkext.buildSide.maxBytes",
        "max_build_bytes=",
        "partitioned=True",
        "Spark's own join",
    ):
        assert option in text


def test_the_limit_as_a_setting_and_as_an_option(spark: SparkSession, left: DataFrame) -> None:
    other = large(spark, "spark")
    with configured(spark, {"spark.sparkext.buildSide.maxBytes": "1k"}):
        with pytest.raises(BuildSideTooLargeError, match="the limit is 1,024"):
            left.transform(pipelined_join(other, "k", partitioned=False))
        out = left.transform(pipelined_join(other, "k", max_build_bytes="1m"))
    assert_pipelined(out, joins=1)
    assert rows_of(out).total() == 2


def test_the_limit_counts_only_what_is_published(spark: SparkSession, left: DataFrame) -> None:
    """A semi join publishes only the key: 8,000 bytes; the payload would add at least 20,000."""
    for kind in ("spark", "pyarrow"):
        with pytest.raises(BuildSideTooLargeError):
            left.transform(pipelined_join(large(spark, kind), "k", max_build_bytes=12_000, partitioned=False))
        out = left.transform(pipelined_join(large(spark, kind), "k", "semi", max_build_bytes=12_000))
        assert rows_of(out).total() == 2


def test_a_build_side_at_its_limit(left: DataFrame) -> None:
    other = pa.table({"k": pa.array(range(100), pa.int64())})
    assert other.nbytes == 800
    assert_pipelined(left.transform(pipelined_join(other, "k", max_build_bytes=800)), joins=1)
    with pytest.raises(BuildSideTooLargeError, match="800 bytes, the limit is 799"):
        left.transform(pipelined_join(other, "k", max_build_bytes=799, partitioned=False))


# Errors in tasks.


def test_an_error_of_the_build_side_keeps_its_text(left: DataFrame, right: DataFrame) -> None:
    """The error is raised while the optimizer evaluates local rows, before the first batch is sent."""
    failing = right.withColumn("w", F.expr("if(t = 'b', cast(raise_error('no such luck') as boolean), w)"))
    with pytest.raises(Exception, match="no such luck"):
        left.transform(pipelined_join(failing, "k"))


def test_an_error_of_a_build_side_that_already_sent_rows_keeps_its_text(spark: SparkSession, left: DataFrame) -> None:
    failing = spark.range(0, 100_000, 1, 4).selectExpr("if(id = 99999, raise_error('no such luck'), id) as k")
    with pytest.raises(Exception, match="no such luck"):
        left.transform(pipelined_join(failing, "k"))


def test_an_error_of_the_probe_side_keeps_its_text(spark: SparkSession, right: DataFrame) -> None:
    failing = spark.range(0, 1000, 1, 2).selectExpr("if(id = 999, raise_error('no such luck'), id) as k")
    out = failing.transform(pipelined_join(right, "k"))
    assert_pipelined(out, joins=1)
    with pytest.raises(Exception, match="no such luck"):
        out.collect()


@pytest.fixture
def task(left: DataFrame, right: DataFrame) -> Iterator[tuple[DataFrame, PipelineTask]]:
    """Yield a pipeline's input and its task."""
    out = left.transform(pipelined_join(right, "k"))
    lineage = find_lineage(out)
    assert lineage is not None and lineage.reporter is not None
    settings = pytest.importorskip("sparkext.config").read_settings(lambda key: None, {})
    plan = PipelinePlan(lineage.spec, lineage.sources, arrow_schema(out.schema))
    yield (
        left,
        PipelineTask(ProbeBatches(), plan, EmittedBatches(), lineage.reporter, settings=settings, tasks_sharing=2),
    )


def test_a_task_whose_output_has_another_type(task: tuple[DataFrame, PipelineTask]) -> None:
    """The task's output differs from the declared schema: the error names the column and both types."""
    left, works = task
    types = "k bigint, s string, v double, t string, w boolean"
    assert map_in_arrow(left, works, left.sparkSession.range(0).selectExpr().schema.fromDDL(types)).count()
    fields = [pa.field("t", pa.int32()) if field.name == "t" else field for field in works.plan.output_schema]
    broken = replace(works, plan=replace(works.plan, output_schema=pa.schema(fields)))
    declared = left.schema.fromDDL(types.replace("t string", "t int"))
    out = map_in_arrow(left, broken, declared)
    assert_pipelined(out)
    with pytest.raises(PythonException) as info:
        out.collect()
    text = str(info.value)
    assert "SchemaMismatchError" in text
    assert "output column 't' is declared as int32, the pipeline produced string" in text


def test_a_task_whose_input_has_another_width(task: tuple[DataFrame, PipelineTask]) -> None:
    left, works = task
    out = map_in_arrow(left.drop("v"), works, left.schema.fromDDL("k bigint"))
    with pytest.raises(PythonException) as info:
        out.collect()
    assert "SchemaMismatchError" in str(info.value)
    assert "the probe side has 2 columns, but the pipeline was planned for 3" in str(info.value)


def test_a_task_of_another_version(task: tuple[DataFrame, PipelineTask]) -> None:
    left, works = task
    types = "k bigint, s string, v double, t string, w boolean"
    out = map_in_arrow(left, replace(works, made_by="0.0.1"), left.schema.fromDDL(types))
    with pytest.raises(PythonException, match=r"EnvironmentProblemError: .* has sparkext 0\.0\.1, but this worker"):
        out.collect()


@pytest.mark.parametrize("damage", ["truncated", "overwritten", "empty"])
def test_a_damaged_build_file(left: DataFrame, right: DataFrame, damage: str) -> None:
    out = left.transform(pipelined_join(right, "k"))
    lineage = find_lineage(out)
    assert lineage is not None
    file = Path(lineage.sources[0].broadcast._path)  # type: ignore[attr-defined]
    content = file.read_bytes()
    file.write_bytes({"truncated": content[:-7], "overwritten": b"x" * len(content), "empty": b""}[damage])
    with pytest.raises(PythonException) as info:
        out.collect()
    assert "BuildFileError" in str(info.value)
    assert str(file) in str(info.value)


def test_what_spark_compresses_and_arrow_does_not_read(spark: SparkSession) -> None:
    """Columns that are all null, compressed with LZ4: in a build side, and in the input of a pipeline."""
    nulls = spark.range(3).selectExpr("id AS k", "CAST(NULL AS STRING) AS s", "CAST(NULL AS INT) AS i")
    numbers = spark.range(5).selectExpr("id AS k")
    advice = "lz4.* set spark.sql.execution.arrow.compression.codec to none or zstd"
    with configured(spark, {"spark.sql.execution.arrow.compression.codec": "lz4"}):
        with pytest.raises(EnvironmentProblemError, match=advice):
            numbers.transform(pipelined_join(nulls, on="k", how="full"))
        out = nulls.transform(pipelined_join(numbers, on="k", how="full"))
        with pytest.raises(PythonException, match=advice):
            out.collect()
    with configured(spark, {"spark.sql.execution.arrow.compression.codec": "zstd"}):
        assert nulls.transform(pipelined_join(numbers, on="k", how="full")).count() == 5
