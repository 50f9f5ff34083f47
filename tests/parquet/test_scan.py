"""The scan without Spark emits the rows that pyarrow reads, for any file layout."""

from __future__ import annotations

import datetime as dt
import decimal
import os
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.index_store import index_in_memory
from sparkext.config import read_settings
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.pipeline import Resources
from sparkext.engine.sources.scanned_splits import ScannedSplits
from sparkext.errors import FileReadError, SchemaMismatchError
from sparkext.kernels.columns import gather
from sparkext.kernels.keys.hashing import FULL_MASK
from sparkext.parquet import decoded_sizes, decoding
from sparkext.parquet import scan as parquet_scan
from sparkext.parquet.file_stores import LocalFiles
from sparkext.parquet.opened_file import OpenedFile
from sparkext.parquet.scan import ParquetScan
from sparkext.parquet.statistics import ProbeBounds
from sparkext.plans.expressions.expression import Expression, column, condition, literal
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.scan import ScanColumn, ScanSpec, Split
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.rows import contiguous

WHOLE = 1 << 62
UTC = pa.timestamp("us", tz="UTC")


def scan_of(
    columns: Sequence[tuple[str, pa.DataType]],
    filter_: Expression | None = None,
    outputs: int | None = None,
    max_rows: int = 1000,
    bounds: Sequence[ProbeBounds] = (),
    partitions: dict[str, int] | None = None,
    case_sensitive: bool = False,
) -> ParquetScan:
    spec = ScanSpec(
        tuple(ScanColumn(name, (partitions or {}).get(name)) for name, _ in columns),
        len(columns) if outputs is None else outputs,
        filter_,
        case_sensitive,
    )
    return ParquetScan(
        spec, pa.schema([pa.field(f"c{n}", kind) for n, (_, kind) in enumerate(columns)]), max_rows, bounds
    )


def whole(path: Path, *values: str | None) -> Split:
    return Split(str(path), 0, WHOLE, values)


def read(scan: ParquetScan, splits: Sequence[Split]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    names = scan.schema.names
    for rows in scan.row_sets(splits):
        assert rows.length > 0
        arrays = [rows.gather(ColumnRef(PROBE, number)) for number in range(len(names))]
        assert [array.type for array in arrays] == scan.schema.types
        found += pa.table(arrays, names=names).to_pylist()
    return found


def compared(op: str, number: int, text: str, kind: str = "int64") -> Expression:
    key_type = parse_key_type(kind)
    return condition(op, column(0, number, key_type), literal(text, key_type))


def less(number: int, value: int) -> Expression:
    return compared("<", number, str(value))


TABLE = pa.table(
    {
        "k": pa.array([None if n % 7 == 3 else n * 5 % 401 for n in range(1000)], pa.int64()),
        "s": pa.array([None if n % 11 == 5 else f"wort{n % 37}" for n in range(1000)]),
        "d": pa.array([decimal.Decimal(n - 500).scaleb(-2) for n in range(1000)], pa.decimal128(12, 2)),
        "t": pa.array([dt.datetime(2020, 1, 1) + dt.timedelta(hours=n) for n in range(1000)], pa.timestamp("us")),
        "b": pa.array([n % 3 == 0 for n in range(1000)]),
        "f": pa.array(np.linspace(-1, 1, 1000)),
    }
)
COLUMNS = [(name, TABLE.schema.field(name).type) for name in TABLE.column_names]
EXPECTED = TABLE.rename_columns([f"c{n}" for n in range(TABLE.num_columns)]).to_pylist()


def write_duckdb(path: Path) -> None:
    connection = duckdb.connect()
    connection.register("given", TABLE)
    connection.execute(f"copy given to '{path}' (format parquet, row_group_size 122880)")


WRITERS: dict[str, Any] = {
    "plain": lambda path: pq.write_table(TABLE, path, use_dictionary=False, compression="none"),
    "dictionary": lambda path: pq.write_table(TABLE, path, row_group_size=300),
    "one row a group": lambda path: pq.write_table(TABLE, path, row_group_size=1),
    "gzip, pages of version 2": lambda path: pq.write_table(TABLE, path, compression="gzip", data_page_version="2.0"),
    "zstd, no statistics": lambda path: pq.write_table(TABLE, path, compression="zstd", write_statistics=False),
    "small pages": lambda path: pq.write_table(TABLE, path, data_page_size=64, write_page_index=True),
    "delta encodings": lambda path: pq.write_table(
        TABLE,
        path,
        use_dictionary=False,
        column_encoding={"k": "DELTA_BINARY_PACKED", "s": "DELTA_BYTE_ARRAY", "f": "BYTE_STREAM_SPLIT"},
    ),
    "decimals as integers": lambda path: pq.write_table(TABLE, path, store_decimal_as_integer=True),
    "no arrow schema": lambda path: pq.write_table(TABLE, path, store_schema=False),
    "dictionary types": lambda path: pq.write_table(TABLE.set_column(1, "s", TABLE["s"].dictionary_encode()), path),
    "large strings": lambda path: pq.write_table(TABLE.set_column(1, "s", TABLE["s"].cast(pa.large_string())), path),
    "string views": lambda path: pq.write_table(TABLE.set_column(1, "s", TABLE["s"].cast(pa.string_view())), path),
    "duckdb": write_duckdb,
    "polars": lambda path: pl.from_arrow(TABLE).write_parquet(path, row_group_size=170),
}


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("max_rows", [1, 128, 100_000])
def test_every_layout_gives_the_same_rows(tmp_path: Path, writer: str, max_rows: int) -> None:
    path = tmp_path / "f.parquet"
    WRITERS[writer](path)
    scan = scan_of(COLUMNS, max_rows=max_rows)
    assert read(scan, [whole(path)]) == EXPECTED
    assert scan.metrics.rows == 1000
    assert scan.metrics.row_groups == pq.ParquetFile(path).num_row_groups
    assert scan.metrics.bytes > 0


@pytest.mark.parametrize("writer", WRITERS)
def test_row_groups_too_large_to_hold_stream(tmp_path: Path, writer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "f.parquet"
    WRITERS[writer](path)
    monkeypatch.setattr(decoded_sizes, "MAX_GROUP_ROWS", 0)
    # The last column is requested twice and one is missing; a stream returns columns in the order of the file.
    columns = [COLUMNS[5], ("missing", pa.string()), *COLUMNS[:5], COLUMNS[5]]
    scan = scan_of(columns, max_rows=64)
    names = ["f", None, "k", "s", "d", "t", "b", "f"]
    expected = [
        {f"c{n}": None if name is None else row[name] for n, name in enumerate(names)} for row in TABLE.to_pylist()
    ]
    assert read(scan, [whole(path)]) == expected


def test_splits_part_a_file_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(TABLE, path, row_group_size=50)
    size = path.stat().st_size
    for pieces in (1, 2, 3, 7, size):
        edges = [size * piece // pieces for piece in range(pieces + 1)]
        if pieces == size:
            edges = [*edges[:: max(1, size // 200)], size]
        splits = [Split(str(path), a, b - a, ()) for a, b in pairwise(edges)]
        assert read(scan_of(COLUMNS), splits) == EXPECTED


def test_columns_are_matched_by_name(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    nested = pa.array([{"k": 9, "x": [1]}] * 2)
    pq.write_table(pa.table({"n": nested, "a.b": [1, 2], "K": [3, 4], "l": [[1], []]}), path)
    columns = [("k", pa.int64()), ("a.b", pa.int64()), ("missing", pa.date32())]
    assert read(scan_of(columns), [whole(path)]) == [{"c0": 3, "c1": 1, "c2": None}, {"c0": 4, "c1": 2, "c2": None}]
    exact = scan_of(columns, case_sensitive=True)
    assert [row["c0"] for row in read(exact, [whole(path)])] == [None, None]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.string(), "ä", "ä"),
        (pa.int8(), "-7", -7),
        (pa.date32(), "18262", dt.date(2020, 1, 1)),
        (UTC, "1000000", dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.timezone.utc)),
        (pa.timestamp("us"), "-1", dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
        (pa.decimal128(5, 2), "1.50", decimal.Decimal("1.50")),
        (pa.bool_(), "true", True),
        (pa.string(), None, None),
    ],
)
def test_partition_values_stand_in_every_row(tmp_path: Path, kind: pa.DataType, text: str | None, value: Any) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"k": [1, 2, 3]}), path)
    scan = scan_of([("k", pa.int64()), ("p", kind)], partitions={"p": 0})
    assert read(scan, [whole(path, text)]) == [{"c0": n, "c1": value} for n in (1, 2, 3)]


@pytest.mark.parametrize("unit", ["ms", "us"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_timestamps_of_every_unit_and_zone(tmp_path: Path, unit: str, zone: str | None) -> None:
    path = tmp_path / "f.parquet"
    instants = [0, -1, 86_400_000, None, 253_402_300_799_000]
    stored = pa.array(instants, pa.int64()).cast(pa.timestamp("ms")).cast(pa.timestamp(unit))
    pq.write_table(pa.table({"t": stored if zone is None else stored.cast(pa.timestamp(unit, zone))}), path)
    target = pa.timestamp("us") if zone is None else UTC
    (rows,) = scan_of([("t", target)]).row_sets([whole(path)])
    array = rows.gather(ColumnRef(PROBE, 0))
    assert array.type == target
    assert array.cast(pa.int64()).to_pylist() == [None if n is None else n * 1000 for n in instants]


def test_int96_reaches_beyond_what_nanoseconds_do(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    instants = pa.array([-62_135_596_800_000_000, 0, 253_402_300_799_999_999, None], pa.int64())
    pq.write_table(pa.table({"t": instants.cast(pa.timestamp("us"))}), path, use_deprecated_int96_timestamps=True)
    (rows,) = scan_of([("t", UTC)]).row_sets([whole(path)])
    assert rows.gather(ColumnRef(PROBE, 0)).cast(pa.int64()).equals(instants)


def test_a_filter_reads_no_other_column_where_nothing_is_left(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    # Statistics do not exclude any row group: each spans all keys, and all are even.
    keys = pa.array([2 * n for n in range(1000)])
    pq.write_table(pa.table({"k": keys, "s": ["x" * 100] * 1000}), path, row_group_size=100, compression="none")
    scan = scan_of([("s", pa.string()), ("k", pa.int64())], compared("=", 1, "501"), outputs=1)
    assert read(scan, [whole(path)]) == []
    chunk = pq.ParquetFile(path).metadata.row_group(5).column(0)
    assert (scan.metrics.row_groups, scan.metrics.row_groups_pruned) == (1, 9)
    assert scan.metrics.bytes == chunk.total_compressed_size


def test_keys_of_a_join_rule_out_row_groups(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"k": list(range(1000))}), path, row_group_size=100)
    for keys, groups in (((250, 349), 2), ((1000, 2000), 0), (None, 0), ((-5, 5000), 10)):
        scan = scan_of([("k", pa.int64())], bounds=[ProbeBounds(0, keys)])
        read(scan, [whole(path)])
        assert scan.metrics.row_groups == groups
        assert scan.metrics.row_groups + scan.metrics.row_groups_pruned == 10


@pytest.mark.parametrize("kind", ["int32", "date", "timestamp", "decimal(12,2)", "string"])
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_statistics_never_rule_out_a_row_that_passes(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    values = data.draw(st.lists(st.one_of(st.none(), st.integers(-4, 4)), min_size=1, max_size=12))
    bound = data.draw(st.integers(-5, 5))
    op = data.draw(st.sampled_from(["=", "<", "<=", ">", ">="]))
    arrow, text = {
        "int32": (pa.array(values, pa.int32()), str(bound)),
        "date": (pa.array(values, pa.int32()).cast(pa.date32()), str(bound)),
        "timestamp": (pa.array(values, pa.int64()).cast(UTC), str(bound)),
        "decimal(12,2)": (
            pa.array([None if n is None else decimal.Decimal(n).scaleb(-2) for n in values], pa.decimal128(12, 2)),
            str(decimal.Decimal(bound).scaleb(-2)),
        ),
        "string": (pa.array([None if n is None else chr(ord("k") + n) * 2 for n in values]), chr(ord("k") + bound) * 2),
    }[kind]
    path = tmp_path_factory.mktemp("pruned") / "f.parquet"
    pq.write_table(pa.table({"c": arrow}), path, row_group_size=2, store_decimal_as_integer=bound % 2 == 0)
    got = read(scan_of([("c", arrow.type)], compared(op, 0, text, kind)), [whole(path)])
    compare = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}[op]
    numbers = pa.array(values, pa.int64())
    assert [row["c0"] for row in got] == arrow.filter(compare(numbers, bound)).to_pylist()


def test_a_build_side_is_read_by_several_threads_in_order(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.parquet" for name in "ab"]
    for path in paths:
        pq.write_table(TABLE, path, row_group_size=30)
    seen: list[tuple[int, int]] = []
    scan = scan_of([*COLUMNS[:2], ("d", COLUMNS[2][1])], less(0, 200), outputs=2, max_rows=30)
    table = scan.table([whole(path) for path in paths], 4, lambda rows, size: seen.append((rows, size)))
    kept = [{"c0": row["k"], "c1": row["s"]} for row in TABLE.to_pylist() if row["k"] is not None and row["k"] < 200]
    assert table.to_pylist() == kept * 2
    assert [rows for rows, _ in seen] == sorted(rows for rows, _ in seen)
    assert seen[-1][0] == len(kept) * 2


def test_a_build_side_without_files_has_its_columns() -> None:
    table = scan_of(COLUMNS[:2]).table([], 2, lambda rows, size: None)
    assert table.num_rows == 0
    assert table.schema.types == [kind for _, kind in COLUMNS[:2]]


def test_a_check_that_fails_stops_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(TABLE, path, row_group_size=10)

    def refuse(rows: int, size: int) -> None:
        raise ValueError(f"{rows} rows are too many")

    scan = scan_of(COLUMNS, max_rows=10)
    with pytest.raises(ValueError, match="too many"):
        scan.table([whole(path)], 2, refuse)


@pytest.mark.parametrize(
    ("values", "declared"),
    [
        (pa.array(["not a number"]), pa.int64()),
        (pa.array(["12"]), pa.int64()),
        (pa.array([12]), pa.string()),
        (pa.array([12], pa.int32()), pa.date32()),
        (pa.array([1]), pa.bool_()),
        (pa.array([1]), pa.int32()),
        (pa.array([1.0]), pa.int64()),
        (pa.array([decimal.Decimal("1.0")]), pa.decimal128(12, 2)),
        (pa.array([b"x"]), pa.string()),
    ],
    ids=str,
)
def test_a_file_replaced_by_one_of_other_types_is_an_error(
    tmp_path: Path, values: pa.Array, declared: pa.DataType
) -> None:
    """Even if Arrow could convert its values to the declared type."""
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"k": values}), path)
    planned = re.escape(f"but the query was planned for {declared}")
    with pytest.raises(SchemaMismatchError, match=rf"f\.parquet contains .* {planned}"):
        read(scan_of([("k", declared)]), [whole(path)])


def test_rows_are_counted_as_what_they_decode_to(tmp_path: Path) -> None:
    """A dictionary of eight long strings represents many rows: row sets stay within the bytes of a morsel."""
    rows = 80_000
    path = tmp_path / "f.parquet"
    texts = pa.DictionaryArray.from_arrays(np.arange(rows, dtype=np.int32) % 8, [str(n) * 4096 for n in range(8)])
    table = pa.table({"k": np.arange(rows), "s": texts.cast(pa.string())})
    pq.write_table(table, path)
    assert path.stat().st_size < 1 << 20 and table.nbytes > 300 << 20
    for columns in ([("s", pa.string())], [("k", pa.int64()), ("s", pa.string())]):
        scan = scan_of(columns, max_rows=131_072)
        sizes, found = [], 0
        for part in scan.row_sets([whole(path)]):
            sizes.append(part.gather(ColumnRef(PROBE, len(columns) - 1)).nbytes)
            found += part.length
        assert found == rows and max(sizes) <= 65 << 20 and len(sizes) < 10


def test_long_texts_of_dictionaries_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sampled first rows are short, and the file declares a dictionary."""
    monkeypatch.setattr(decoded_sizes, "MAX_GROUP_ROWS", 0)
    indices = np.where(np.arange(40_000) < 2000, 0, 1).astype(np.int32)
    texts = pa.DictionaryArray.from_arrays(indices, ["a", "b" * 10_000])
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"k": np.arange(indices.size), "s": texts}), path)
    scan = scan_of([("k", pa.int64()), ("s", pa.string())], max_rows=131_072)
    sizes, keys = [], []
    for part in scan.row_sets([whole(path)]):
        sizes.append(part.gather(ColumnRef(PROBE, 1)).nbytes)
        keys.append(part.gather(ColumnRef(PROBE, 0)).to_numpy())
    assert np.array_equal(np.concatenate(keys), np.arange(indices.size))
    assert sum(sizes) > 380_000_000 and max(sizes) <= 65 << 20 and len(sizes) < 12


@pytest.mark.parametrize(
    "encoded",
    [{}, {"use_dictionary": False}, {"use_dictionary": False, "column_encoding": {"s": "DELTA_BYTE_ARRAY"}}],
    ids=["dictionary", "plain", "prefixes"],
)
def test_row_groups_are_read_together_by_what_they_decode_to(tmp_path: Path, encoded: dict[str, Any]) -> None:
    path = tmp_path / "f.parquet"
    table = pa.table({"s": [str(n // 2000) * 20_000 for n in range(4000)]})
    pq.write_table(table, path, row_group_size=200, **encoded)
    scan = scan_of([("s", pa.string())], max_rows=131_072)
    sizes = [part.gather(ColumnRef(PROBE, 0)).nbytes for part in scan.row_sets([whole(path)])]
    assert max(sizes) <= 65 << 20
    assert sum(sizes) >= 4000 * 20_000


@pytest.mark.parametrize("kind", ["dictionary", "declared dictionary", "large", "views"])
def test_more_text_than_one_array_holds_is_copied_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Even if the sampled first rows do not resemble the others."""
    for module in (contiguous, gather, decoding):
        monkeypatch.setattr(module, "MAX_VAR_BYTES", 1 << 20)
    for module in (decoding, parquet_scan):
        monkeypatch.setattr(module, "MAX_MORSEL_BYTES", 1 << 19)
    indices = np.where(np.arange(2000) < 1500, 0, np.arange(2000) % 2 + 1).astype(np.int32)
    texts = pa.DictionaryArray.from_arrays(indices, ["a", "b" * 10_000, "c" * 10_000])
    if kind != "declared dictionary":
        texts = texts.cast(pa.string()).cast(
            {"large": pa.large_string(), "views": pa.string_view()}.get(kind, pa.string())
        )
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"k": np.arange(indices.size), "s": texts}), path)
    expected = [{"c0": n, "c1": "abc"[code] * (10_000 if code else 1)} for n, code in enumerate(indices)]
    columns = [("k", pa.int64()), ("s", pa.string())]
    for filter_ in (None, compared("starts_with", 1, "b", "string")):
        wanted = [row for row in expected if filter_ is None or row["c1"][0] == "b"]
        scan = scan_of(columns, filter_, max_rows=131_072)
        assert max(part.length for part in scan.row_sets([whole(path)])) > 100 or filter_
        table = scan.table([whole(path)], 1, lambda *_: None)
        assert table.to_pylist() == wanted
        assert max(chunk.nbytes for chunk in table["c1"].chunks) <= 1 << 19
        for keys in ([], ["a", "b" * 10_000]):
            join = JoinSpec("semi", (KeyPair(ColumnRef(PROBE, 1), 0, "string", False),), "auto", "j")
            spec = PipelineSpec(2, (join,) * bool(keys), (ColumnRef(PROBE, 0), ColumnRef(PROBE, 1)), 0)
            builds = [index_in_memory(2, [pa.array(keys)], derive_index_recipe(spec, 0, FULL_MASK)) for _ in spec.joins]
            limits = read_settings({"spark.sparkext.morsel.maxBytes": "512k"}.get, {})
            pipeline = create_pipeline(spec, builds, scan.schema, limits, Resources(lambda: None))
            batches = list(pipeline.run(ScannedSplits(scan, [whole(path)], spec, builds)))
            assert pa.Table.from_batches(batches).to_pylist() == [
                row for row in wanted if not keys or row["c1"] in keys
            ]
            assert max(batch.column(1).nbytes for batch in batches) <= 1 << 19


def test_a_replaced_file_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    for number in range(3):
        new = tmp_path / "new"
        pq.write_table(pa.table({"k": [number] * 5}), new)
        new.replace(path)
        assert read(scan_of([("k", pa.int64())]), [whole(path)]) == [{"c0": number}] * 5


def overwritten(path: Path, table: pa.Table, **options: Any) -> None:
    """Write another table of the same size over a file, keeping its inode and modification time, as `cp -p` does."""
    before = path.stat()
    new = path.with_suffix(".new")
    pq.write_table(table, new, **options)
    path.write_bytes(new.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)


def test_a_file_replaced_with_its_times_kept_is_read_anew(tmp_path: Path) -> None:
    """The footer is read again as well: the first file's footer would exclude all rows of the second file."""
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"k": [1] * 5}), path)
    columns = [("k", pa.int64())]
    assert read(scan_of(columns, less(0, 2)), [whole(path)]) == [{"c0": 1}] * 5
    assert read(scan_of(columns, bounds=[ProbeBounds(0, (7, 8))]), [whole(path)]) == []
    overwritten(path, pa.table({"k": [7] * 5}))
    assert read(scan_of(columns, less(0, 2)), [whole(path)]) == []
    assert read(scan_of(columns, bounds=[ProbeBounds(0, (7, 8))]), [whole(path)]) == [{"c0": 7}] * 5


@pytest.mark.parametrize("streams", [False, True])
def test_nothing_of_a_replaced_file_is_given_out(
    tmp_path: Path, streams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if a LIMIT requires only the next rows: its columns have the offsets of the old file's columns."""
    path = tmp_path / "f.parquet"
    rows = 4000
    options = {"row_group_size": rows if streams else rows // 4, "use_dictionary": False, "compression": "none"}
    pq.write_table(pa.table({"v": np.full(rows, 1)}), path, **options)
    if streams:
        monkeypatch.setattr(decoded_sizes, "MAX_GROUP_ROWS", 0)
    spec, schema = PipelineSpec(1, (), (ColumnRef(PROBE, 0),)), pa.schema([("v", pa.int64())])
    pipeline = create_pipeline(spec, [], schema, read_settings(lambda key: None, {}), Resources(lambda: None))
    source = ScannedSplits(scan_of([("v", pa.int64())]), [whole(path)], spec, [])
    batches = pipeline.run(source)
    assert next(batches).column(0).unique().to_pylist() == [1]
    overwritten(path, pa.table({"v": np.full(rows, 2)}), **options)
    with pytest.raises(FileReadError, match=r"f\.parquet': it was replaced while it was read"):
        next(batches)


def test_a_file_that_is_gone_was_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"k": [1]}), path)
    scan = scan_of([("k", pa.int64())])
    assert [rows.length for rows in scan.row_sets([whole(path)])] == [1]
    assert scan.unchecked == {str(path)}
    path.unlink()
    scan.check_unchanged()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileReadError, match=r"cannot read '.*none': no such file"):
        read(scan_of([("k", pa.int64())]), [whole(tmp_path / "none")])


@pytest.mark.parametrize("nulls", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.large_string()])
def test_texts_in_dictionaries_are_those_of_plain_files(tmp_path: Path, kind: pa.DataType, nulls: float) -> None:
    """Few distinct strings are read as dictionary indices, many as plain strings: the rows are equal."""
    rng = np.random.default_rng(7)
    few = pa.array(rng.choice(["MAIL", "SHIP", "", "é" * 9], 5000), pa.string(), mask=rng.random(5000) < nulls)
    table = pa.table({"few": few.cast(kind), "many": pa.array([f"text {row}" for row in range(5000)]).cast(kind)})
    found = []
    for name, use_dictionary in (("dictionaries", True), ("plain", False)):
        path = tmp_path / name
        pq.write_table(table, path, row_group_size=1200, use_dictionary=use_dictionary)
        opened = OpenedFile(str(path), (), LocalFiles(), ("few", "many"), case_sensitive=True)
        read = opened.reader().read_row_groups([0, 1], column_indices=[0, 1], use_threads=False)
        assert [pa.types.is_dictionary(column) for column in read.schema.types] == [use_dictionary, False]
        spec = ScanSpec((ScanColumn("few"), ScanColumn("many")), 2, None, case_sensitive=True)
        scan = ParquetScan(spec, pa.schema([("few", pa.string()), ("many", pa.string())]), 1 << 20)
        found.append(scan.table([Split(str(path), 0, 2**62, ())], 1, lambda rows, size: None).to_pydict())
    assert found[0] == found[1] == table.cast(pa.schema([("few", pa.string()), ("many", pa.string())])).to_pydict()
