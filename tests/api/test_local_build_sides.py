"""pandas and pyarrow build sides have the rows and types that `createDataFrame` gives them, without using Spark."""

from __future__ import annotations

import datetime
import decimal
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import pipelined_join
from sparkext.errors import InvalidJoinError
from tests.api.spark_checks import (
    EXTENSION,
    KINDS,
    assert_pipelined,
    assert_same_rows,
    crossings_of,
    jobs_run_by,
    spark_join,
)
from tests.support.frames import frame
from tests.support.sessions import configured

KEYS = [1, 2, 3]


@pytest.fixture(autouse=True, scope="module")
def by_arrow(spark: SparkSession) -> Iterator[None]:
    """Since Spark 4.2, `createDataFrame` uses Arrow by default. Without Arrow, it infers other types."""
    with configured(spark, {"spark.sql.execution.arrow.pyspark.enabled": "true"}):
        yield


def probe_of(spark: SparkSession) -> DataFrame:
    """Keys 1, 2, 2 and 9: two rows with the same match, one with another, and one without."""
    return frame(spark, k=[1, 2, 2, 9], v=["a", "b", "c", "d"])


def assert_like_created(
    spark: SparkSession, other: Any, on: Any = "k", how: str = "left", created: Any = None
) -> Counter[str]:
    """Compare a join with `other` and Spark's join with `createDataFrame` of `created`, or of `other`."""
    left = probe_of(spark)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # createDataFrame must not fall back to its conversion without Arrow
        build = spark.createDataFrame(other if created is None else created)
    actual = left.transform(pipelined_join(other, on, how))
    assert_pipelined(actual, joins=1, crossings=crossings_of(how))
    return assert_same_rows(spark_join(left, build, on, how), actual)


def side(array: Any) -> pa.Table:
    """Keys 1, 2, 3 and a payload of three values."""
    return pa.table({"k": KEYS, "p": array})


# Arrow tables.

DATES = [datetime.date(1969, 12, 31), None, datetime.date(2024, 2, 29)]
DECIMALS = [decimal.Decimal("-1.50"), None, decimal.Decimal("99999999.99")]
MICROS = [-1, None, 1_719_835_200_123_456]
NANOS = [-1, None, 1_719_835_200_123_456_789]
STRUCTS = [{"a": 1, "b": ["x", None]}, None, {"a": None, "b": []}]
ARROW: dict[str, pa.Array] = {
    "bool": pa.array([True, None, False]),
    "int8": pa.array([-128, None, 127], pa.int8()),
    "int16": pa.array([-1, None, 1], pa.int16()),
    "int32": pa.array([-1, None, 1], pa.int32()),
    "int64": pa.array([-(1 << 63), None, (1 << 63) - 1]),
    "float32": pa.array([float("nan"), None, -0.0], pa.float32()),
    "float64": pa.array([float("nan"), None, float("-inf")]),
    "string": pa.array(["", None, "größer"]),
    "large_string": pa.array(["", None, "größer"], pa.large_string()),
    "binary": pa.array([b"", None, b"\x00\xff"]),
    "large_binary": pa.array([b"", None, b"\x00\xff"], pa.large_binary()),
    "fixed_size_binary": pa.array([b"ab", None, b"\x00\xff"], pa.binary(2)),
    "date32": pa.array(DATES),
    "timestamp[s]": pa.array([-1, None, 1_719_835_200], pa.timestamp("s")),
    "timestamp[ms]": pa.array([-1, None, 1_719_835_200_123], pa.timestamp("ms")),
    "timestamp[us]": pa.array(MICROS, pa.timestamp("us")),
    "timestamp[ns]": pa.array(NANOS, pa.timestamp("ns")),
    "timestamp[us, UTC]": pa.array(MICROS, pa.timestamp("us", "UTC")),
    "timestamp[ns, Asia/Kolkata]": pa.array(NANOS, pa.timestamp("ns", "Asia/Kolkata")),
    "time64[us]": pa.array([0, None, 86_399_999_999], pa.time64("us")),
    "duration[us]": pa.array(MICROS, pa.duration("us")),
    "duration[s]": pa.array([-1, None, 90_061], pa.duration("s")),
    "decimal128": pa.array(DECIMALS, pa.decimal128(10, 2)),
    "decimal128(38, 0)": pa.array([decimal.Decimal(10**38 - 1), None, decimal.Decimal(-1)], pa.decimal128(38, 0)),
    "decimal256(20, 2)": pa.array(DECIMALS, pa.decimal256(20, 2)),
    "null": pa.nulls(3),
    "list": pa.array([[1, None], None, []]),
    "large_list": pa.array([["x", None], None, []], pa.large_list(pa.string())),
    "fixed_size_list": pa.array([[1, 2], None, [None, 3]], pa.list_(pa.int32(), 2)),
    "list<timestamp[us]>": pa.array([[0, None], None, [-1]], pa.list_(pa.timestamp("us"))),
    "struct": pa.array(STRUCTS),
    "struct<timestamp[ns]>": pa.array([{"t": 1_001}, None, {"t": None}], pa.struct([("t", pa.timestamp("ns"))])),
    "list<struct>": pa.array([[{"a": 1}, None], None, [{"a": None}]]),
    "map": pa.array([[("x", 1), ("y", None)], None, []], pa.map_(pa.string(), pa.int64())),
    "dictionary": pa.array(["x", None, "x"]).dictionary_encode(),
    "dictionary of int64": pa.array([7, None, 7]).dictionary_encode(),
    "dictionary of large_string": pa.array(["x", None, "y"], pa.large_string()).dictionary_encode(),
    "dictionary with a null among its values": pa.DictionaryArray.from_arrays([0, 1, None], pa.array(["x", None])),
    "list<dictionary>": pa.array([["x", None], None, ["y"]], pa.list_(pa.dictionary(pa.int32(), pa.string()))),
}


def assert_payloads(spark: SparkSession, tables: dict[str, Any], together: Any) -> None:
    """Test all payloads in one table; if that fails, each separately, to name those that fail."""
    try:
        assert assert_like_created(spark, together).total() == 4
        return
    except Exception as error:
        failures = {"together": error}
    for name, each in tables.items():
        try:
            assert_like_created(spark, each)
        except Exception as error:
            failures[name] = error
    pytest.fail("\n".join(f"{name}: {type(error).__name__}: {str(error)[:600]}" for name, error in failures.items()))


@pytest.mark.parametrize("timestamps", ["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
def test_every_arrow_type_as_payload(spark: SparkSession, timestamps: str) -> None:
    """The session's time zone is New York."""
    columns = {f"p{number}": array for number, array in enumerate(ARROW.values())}
    with configured(spark, {"spark.sql.timestampType": timestamps}):
        together = pa.table({"k": KEYS, **columns})
        assert_payloads(spark, {name: side(array) for name, array in ARROW.items()}, together)


@pytest.mark.parametrize(
    "given, meant",
    [
        (pa.array(["a", None, "b" * 40], pa.string_view()), pa.array(["a", None, "b" * 40])),
        (pa.array([b"a", None, b"\x00" * 40], pa.binary_view()), pa.array([b"a", None, b"\x00" * 40])),
        (pa.array(DATES, pa.date64()), pa.array(DATES)),
    ],
    ids=lambda array: str(array.type).replace("\n", ""),
)
def test_types_taken_beyond_those_of_createdataframe(spark: SparkSession, given: pa.Array, meant: pa.Array) -> None:
    with pytest.raises(Exception, match=r"(?i)unsupported|conversion"):
        spark.createDataFrame(side(given))
    assert_like_created(spark, side(given), created=side(meant))


def test_an_encoded_timestamp_means_what_it_encodes(spark: SparkSession) -> None:
    """createDataFrame converts dictionaries of timestamps to the session's time zone only next to other timestamps."""
    given, meant = pa.array(MICROS, pa.timestamp("us")).dictionary_encode(), pa.array(MICROS, pa.timestamp("us"))
    for setting in ("TIMESTAMP_LTZ", "TIMESTAMP_NTZ"):
        with configured(spark, {"spark.sql.timestampType": setting}):
            assert_like_created(spark, side(given), created=side(meant))


REFUSED: dict[str, pa.Array] = {
    "uint8": pa.array([1, 2, 3], pa.uint8()),
    "uint64": pa.array([1, 2, (1 << 64) - 1], pa.uint64()),
    "float16": pa.array(np.array([1, 2, 3], np.float16)),
    "time32": pa.array([1, 2, 3], pa.time32("s")),
    "month_day_nano_interval": pa.array([(1, 2, 3)] * 3, pa.month_day_nano_interval()),
    "list_view": pa.array([[1], None, []], pa.list_view(pa.int64())),
    "list<uint32>": pa.array([[1], None, []], pa.list_(pa.uint32())),
    "struct<time32>": pa.array([{"a": 1}] * 3, pa.struct([("a", pa.time32("ms"))])),
    "struct with a name twice": pa.StructArray.from_arrays([pa.array(KEYS), pa.array(KEYS)], ["a", "a"]),
    "dictionary of uint16": pa.array([1, 2, 3], pa.uint16()).dictionary_encode(),
    "decimal256(60, 2)": pa.array([None] * 3, pa.decimal256(60, 2)),
    "decimal128(5, -2)": pa.array([None] * 3, pa.decimal128(5, -2)),
    "dictionary of string_view": pa.array(["a", None, "b"], pa.string_view()).dictionary_encode(),
    "run_end_encoded": pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array([1, 2])),
    "sparse_union": pa.UnionArray.from_sparse(pa.array([0, 0, 0], pa.int8()), [pa.array(KEYS)]),
    "a time that summer time skips": pa.array([datetime.datetime(2024, 3, 10, 2, 30)] * 3, pa.timestamp("us")),
    "a time that summer time repeats": pa.array([datetime.datetime(2024, 11, 3, 1, 30)] * 3, pa.timestamp("us")),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_createdataframe_refuses_is_declined(spark: SparkSession, name: str) -> None:
    with pytest.raises(Exception) as refused:
        spark.createDataFrame(side(REFUSED[name]))
    assert not isinstance(refused.value, InvalidJoinError)
    with pytest.raises(InvalidJoinError, match=r"(?s)other|right column"):
        probe_of(spark).transform(pipelined_join(side(REFUSED[name]), "k"))


@pytest.mark.parametrize("kind", [*KINDS, "cross"])
def test_all_kinds_of_join(spark: SparkSession, kind: str) -> None:
    table = pa.table({"k": [2, None, 2, 7], "w": ["x", "y", None, "z"]})
    if kind == "cross":
        renamed = table.rename_columns(["l", "w"])
        assert assert_like_created(spark, renamed, None, "cross").total() == 16
        assert assert_like_created(spark, renamed.to_pandas(), None, "cross").total() == 16
        return
    assert_like_created(spark, table, "k", kind)
    renamed = table.rename_columns(["k2", "w"])
    for pair in [("k", "k2"), ("k", "<=>", "k2")]:
        assert_like_created(spark, renamed, [pair], kind)
    pandas = pd.DataFrame({"k": pd.array([2, None, 2, 7], "Int64"), "w": ["x", "y", None, "z"]}, index=list("dcba"))
    assert_like_created(spark, pandas, "k", kind)


@pytest.mark.parametrize("kind", ["inner", "left", "right", "full", "anti"])
def test_empty_tables(spark: SparkSession, kind: str) -> None:
    table = pa.table({"k": pa.array([], pa.int64()), "w": pa.array([], pa.string())})
    no_chunks = pa.table([pa.chunked_array([], field.type) for field in table.schema], schema=table.schema)
    assert no_chunks.column(0).num_chunks == 0
    for each in (table, no_chunks):
        assert_like_created(spark, each, "k", kind)
    # createDataFrame cannot infer the types of an empty pandas DataFrame; its dtypes determine them here.
    pandas = pd.DataFrame({"k": pd.array([], "Int64"), "w": pd.array([], "string")})
    assert_like_created(spark, pandas, "k", kind, created=table)


def test_an_empty_table_of_every_type(spark: SparkSession) -> None:
    # Spark itself rejects an empty relation with a TIME column.
    typed = [array for array in ARROW.values() if not pa.types.is_null(array.type) and not pa.types.is_time(array.type)]
    columns = {f"p{number}": array.slice(0, 0) for number, array in enumerate(typed)}
    assert assert_like_created(spark, pa.table({"k": pa.array([], pa.int64()), **columns})).total() == 4


def decoded(arrow_type: pa.DataType) -> pa.DataType:
    return arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type


@pytest.mark.parametrize("name", ["string", "list", "struct", "dictionary", "timestamp[ns]", "map", "decimal128"])
def test_chunked_and_sliced_tables(spark: SparkSession, name: str) -> None:
    table = side(ARROW[name])
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(0, 0), table.slice(1, 2)])
    if name == "dictionary":
        other = side(pa.array(["new", "x", None]).dictionary_encode())
        chunked = pa.concat_tables([chunked, other])
    assert chunked.column(1).num_chunks > 1
    # createDataFrame loses rows after an empty chunk of a dictionary column, so the oracle gets plain, whole columns.
    plain = pa.table([pa.array(column.to_pylist(), decoded(column.type)) for column in chunked.columns], ["k", "p"])
    assert assert_like_created(spark, chunked, created=plain).total() == 4 + 3 * (name == "dictionary")
    assert_like_created(spark, chunked.slice(1), created=plain.slice(1))
    assert_like_created(spark, table.slice(1, 1), how="full")


def test_declared_nullability_and_metadata(spark: SparkSession) -> None:
    schema = pa.schema(
        [
            pa.field("k", pa.int64(), nullable=False, metadata={"comment": "key"}),
            pa.field("l", pa.list_(pa.field("item", pa.int32(), nullable=False)), nullable=False),
            pa.field("s", pa.struct([pa.field("a", pa.int32(), nullable=False, metadata={"x": "y"})])),
        ],
        metadata={"of the": "schema"},
    )
    table = pa.table([[1, 2], [[1], []], [{"a": 1}, {"a": 2}]], schema=schema)
    for kind in KINDS:
        # toArrow fails for a null struct with NOT NULL fields.
        given = table if kind in ("inner", "semi", "anti") else table.drop(["s"])
        assert_like_created(spark, given, "k", kind)


KEY_COLUMNS: dict[str, tuple[pa.Array, pa.Array]] = {
    "dictionary": (pa.array(["a", "b", None]), pa.array(["b", None, "z"]).dictionary_encode()),
    "string_view": (pa.array(["a", "b", None]), pa.array(["b", None, "z"], pa.string_view())),
    "large_string": (pa.array(["a", "b", None]), pa.array(["b", None, "z"], pa.large_string())),
    "date64": (pa.array(DATES), pa.array(DATES[::-1], pa.date64())),
    "zoned timestamp": (pa.array(MICROS, pa.timestamp("us", "UTC")), pa.array(MICROS, pa.timestamp("us", "+09:00"))),
    "naive timestamp": (pa.array(MICROS, pa.timestamp("us")), pa.array(NANOS, pa.timestamp("ns"))),
    "decimals of two scales": (pa.array(DECIMALS, pa.decimal128(10, 2)), pa.array(DECIMALS, pa.decimal128(12, 4))),
    "int8 and int64": (pa.array([1, 2, None], pa.int8()), pa.array([2, None, 300])),
}


@pytest.mark.parametrize("name", KEY_COLUMNS)
def test_as_keys(spark: SparkSession, name: str) -> None:
    left, right = KEY_COLUMNS[name]
    plain = {pa.string_view(): pa.string(), pa.date64(): pa.date32()}.get(right.type, right.type)
    probe = spark.createDataFrame(pa.table({"k": left, "v": ["a", "b", "c"]}))
    build = spark.createDataFrame(pa.table({"k": right.cast(plain), "w": KEYS}))
    for kind in ("inner", "full"):
        actual = probe.transform(pipelined_join(pa.table({"k": right, "w": KEYS}), "k", kind))
        assert_pipelined(actual, joins=1, crossings=crossings_of(kind))
        rows = assert_same_rows(probe.join(build, "k", kind), actual)
        assert rows.total() >= (1 if kind == "inner" else 3)


def test_duplicate_and_foreign_names_are_reported(spark: SparkSession) -> None:
    twice = pa.table([pa.array(KEYS), pa.array(KEYS), pa.array(KEYS)], names=["k", "w", "w"])
    with pytest.raises(InvalidJoinError, match="'w'"):
        probe_of(spark).transform(pipelined_join(twice, "k"))
    with pytest.raises(InvalidJoinError, match="'nowhere'"):
        probe_of(spark).transform(pipelined_join(side(KEYS), "nowhere"))
    for foreign in ([1, 2], {"k": [1]}, np.zeros(3), side(KEYS).to_batches()[0], pd.Series(KEYS), None):
        with pytest.raises(InvalidJoinError, match=r"other is a .*pandas DataFrame or a pyarrow Table"):
            probe_of(spark).transform(pipelined_join(foreign, "k"))


@pytest.mark.skipif(EXTENSION, reason="with the extension no build side runs before the query")
def test_no_job_runs_for_a_local_build_side(spark: SparkSession) -> None:
    probe = probe_of(spark)
    for other in (side(KEYS), side(KEYS).to_pandas()):
        assert jobs_run_by(spark, lambda: probe.transform(pipelined_join(other, "k"))) == 0
    assert jobs_run_by(spark, lambda: probe.transform(pipelined_join(spark.createDataFrame(side(KEYS)), "k"))) == 1


def test_the_table_is_not_changed_and_may_change_afterwards(spark: SparkSession) -> None:
    pandas = pd.DataFrame({"k": [1, 2], "p": [1.5, 2.5]}, index=[5, 6])
    before = pandas.copy()
    out = probe_of(spark).transform(pipelined_join(pandas, "k"))
    pd.testing.assert_frame_equal(pandas, before)
    pandas.loc[:, "p"] = 0.0
    assert_pipelined(out, joins=1)
    assert sorted(row.p for row in out.collect()) == [1.5, 2.5, 2.5]


def test_in_a_chain_and_after_a_spark_build_side(spark: SparkSession) -> None:
    one, two = side(["x", None, "z"]), pd.DataFrame({"k": [2, 1], "q": pd.Categorical(["m", None])})
    three = frame(spark, k=[1, 2], r=[True, False])
    chain = probe_of(spark).transform(pipelined_join(one, "k")).transform(pipelined_join(three, "k", "left"))
    chain = chain.transform(pipelined_join(two, "k"))
    assert_pipelined(chain, joins=3)
    expected = probe_of(spark).join(spark.createDataFrame(one), "k").join(three, "k", "left")
    assert_same_rows(expected.join(spark.createDataFrame(two), "k"), chain)


# pandas.

STAMPS = pd.to_datetime(["2024-07-01 12:00:00.123456", None, "1969-12-31 23:59:59.999999"])
NANOS_TEXT = ["2024-07-01 12:00:00.123456789", None, "1969-12-31 23:59:59.999999999"]
PANDAS: dict[str, Any] = {
    "int64": [1, -1, 0],
    "Int8": pd.array([1, None, -128], "Int8"),
    "Int64": pd.array([(1 << 53) + 1, None, -1], "Int64"),
    "int64 with nan": [1.0, float("nan"), 3.0],
    "Float64": pd.array([1.5, None, -0.0], "Float64"),
    "float32": np.array([1.5, np.nan, -np.inf], np.float32),
    "boolean": pd.array([True, None, False], "boolean"),
    "object strings": ["a", None, "ü"],
    "string": pd.array(["a", None, "ü"], "string"),
    "string[pyarrow]": pd.array(["a", None, "ü"], "string[pyarrow]"),
    "arrow string": pd.array(["a", None, "ü"], pd.ArrowDtype(pa.string())),
    "arrow large_string": pd.array(["a", None, "ü"], pd.ArrowDtype(pa.large_string())),
    "arrow decimal": pd.array(DECIMALS, pd.ArrowDtype(pa.decimal128(10, 2))),
    "category": pd.Categorical(["x", None, "x"]),
    "ordered category": pd.Categorical(["lo", "hi", None], ["lo", "hi", "never"], ordered=True),
    "category of int": pd.Categorical([7, 7, 3]),
    "category of timestamps": pd.Categorical(STAMPS[[0, 1, 0]]),
    "bytes": [b"a", None, b"\x00"],
    "dates": DATES,
    "decimals": DECIMALS,
    "datetime64[ns]": STAMPS,
    "datetime64[us]": STAMPS.astype("datetime64[us]"),
    "datetime64[s]": STAMPS.astype("datetime64[s]"),
    "datetime64[ns, UTC]": STAMPS.tz_localize("UTC"),
    "datetime64[ns, Asia/Kolkata]": STAMPS.tz_localize("Asia/Kolkata"),
    "timedelta64[ns]": pd.to_timedelta([1_000, None, -86_400_000_000_000]),
    "datetimes": pd.Series([datetime.datetime(2024, 7, 1, 12), None, datetime.datetime(1969, 1, 1)], dtype=object),
    "lists": [[1, None], None, []],
    "lists of strings": [["a"], None, ["b", None]],
    "arrays": [np.array([1, 2]), None, np.array([], int)],
    "lists of timestamps": [[datetime.datetime(2024, 7, 1, 12)], None, []],
    "dicts": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}],
    "all null": [None, None, None],
}


@pytest.mark.parametrize("timestamps", ["TIMESTAMP_LTZ", "TIMESTAMP_NTZ"])
def test_every_pandas_dtype_as_payload(spark: SparkSession, timestamps: str) -> None:
    tables = {name: pd.DataFrame({"k": KEYS, "p": values}, index=[7, 7, 8]) for name, values in PANDAS.items()}
    columns = {f"p{number}": each["p"].array for number, each in enumerate(tables.values())}
    with configured(spark, {"spark.sql.timestampType": timestamps}):
        assert_payloads(spark, tables, pd.DataFrame({"k": KEYS, **columns}, index=[7, 7, 8]))


# Values for which createDataFrame falls back from Arrow to inference from Python values. Types here are always those of
# the dtypes.
BEYOND_ARROW: dict[str, tuple[Any, pa.Array]] = {
    "category of int with a null": (pd.Categorical([7, None, 3]), pa.array([7, None, 3])),
    "arrow list with a null": (
        pd.array([[1, None], None, []], pd.ArrowDtype(pa.list_(pa.int64()))),
        pa.array([[1, None], None, []]),
    ),
    "nanoseconds": (pd.DatetimeIndex(NANOS_TEXT), pa.array(STAMPS)),
    "nanoseconds in a zone": (
        pd.DatetimeIndex(NANOS_TEXT).tz_localize("Asia/Kolkata"),
        pa.array(STAMPS.tz_localize("Asia/Kolkata")),
    ),
}


@pytest.mark.parametrize("name", BEYOND_ARROW)
def test_pandas_values_that_createdataframe_guesses_at(spark: SparkSession, name: str) -> None:
    values, meant = BEYOND_ARROW[name]
    pandas = pd.DataFrame({"k": KEYS, "p": values})
    with pytest.warns(UserWarning, match="Attempting non-optimization"), suppress(PySparkException):
        spark.createDataFrame(pandas)
    assert_like_created(spark, pandas, created=side(meant))


def test_dicts_as_maps(spark: SparkSession) -> None:
    with configured(spark, {"spark.sql.execution.pandas.inferPandasDictAsMap": "true"}):
        assert_like_created(spark, pd.DataFrame({"k": KEYS, "p": [{"a": 1, "b": 2}, None, {"a": 3, "b": None}]}))


def test_a_pandas_index_is_not_a_column(spark: SparkSession) -> None:
    pandas = pd.DataFrame({"k": KEYS, "p": list("xyz")})
    for index in (pd.Index(list("abc"), name="v"), pd.Index([3, 2, 1], name="k"), pd.date_range("2024", periods=3)):
        assert_like_created(spark, pandas.set_axis(index, axis=0))
    several = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)], names=["v", "n"])
    assert_like_created(spark, pandas.set_axis(several, axis=0))
    assert_like_created(spark, pandas[pandas["k"] > 1])


def test_pandas_column_labels_that_are_no_strings(spark: SparkSession) -> None:
    assert_like_created(spark, pd.DataFrame({"k": KEYS, 0: list("xyz"), 1.5: KEYS}))


@pytest.mark.skipif(pyspark.__version__ < "4.2", reason="createDataFrame has no rows for it, or fails")
def test_pandas_without_columns_has_rows_all_the_same(spark: SparkSession) -> None:
    """A cross join with three rows without columns."""
    assert assert_like_created(spark, pd.DataFrame(index=range(3)), None, "cross").total() == 12


@pytest.mark.parametrize(
    "values",
    [
        [1, "a", None],
        [object(), None, None],
        [1 + 2j, 0j, 1j],
        pd.period_range("2024", periods=3, freq="M"),
        pd.to_timedelta([1_001, None, -1]),
        pd.to_datetime(["2024-11-03 01:30"] * 3),
        pd.array([1, 2, 3], "UInt8"),
    ],
    ids=["mixed", "object", "complex", "period", "nanoseconds of a duration", "a time that repeats", "UInt8"],
)
def test_pandas_values_that_do_not_convert_exactly_are_declined(spark: SparkSession, values: Any) -> None:
    """createDataFrame rejects some of these values, and converts others to strings, doubles or ambiguous times."""
    with pytest.raises(InvalidJoinError, match=r"other cannot be converted|right column 'p'"):
        probe_of(spark).transform(pipelined_join(pd.DataFrame({"k": KEYS, "p": values}), "k"))


def test_many_rows(spark: SparkSession) -> None:
    """More rows than a batch and than a morsel have, with strings and nulls."""
    rows = 30_000
    pandas = pd.DataFrame(
        {
            "k": np.arange(rows) * 7,
            "text": [None if row % 11 == 0 else f"row {row}" for row in range(rows)],
            "kind": pd.Categorical.from_codes(np.arange(rows) % 4 - 1, ["a", "b", "c"]),
            "at": pd.date_range("2024-06-01", periods=rows, freq="min"),
        }
    )
    probe = spark.range(rows * 2).select((F.col("id") * 3).alias("k"), F.col("id").alias("v"))
    actual = probe.transform(pipelined_join(pandas, "k"))
    assert_pipelined(actual, joins=1)
    assert assert_same_rows(probe.join(spark.createDataFrame(pandas), "k"), actual).total() > 8_000
