"""The cases of `limits`: each returns a summary, and fails if an answer is not exact."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.engines.spark_session import assert_pipelined
from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.index_store import BuildSide, index_in_memory
from sparkext.config import read_settings
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.pipeline import Resources
from sparkext.engine.scanned_files import ScannedFiles
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.engine.sources.scanned_splits import ScannedSplits
from sparkext.memory.probes import process_probe
from sparkext.parquet.scan import ParquetScan
from sparkext.plans.pipeline.scan import DataFile, ScanColumn, ScanSpec, Split
from sparkext.plans.pipeline.spec import PROBE, ColumnRef, JoinSpec, KeyPair, PipelineSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = read_settings(lambda key: None, {})
RESOURCES = Resources(process_probe().headroom)
MANY = 46_400
"""Rows of one key on either side: slightly more than 2^31 pairs."""
FILES = 33
FILE_ROWS = 1 << 26
ROWS = FILES * FILE_ROWS
SEVENS = FILES * ((FILE_ROWS - 8) // 1000 + 1)
"""Number of rows whose number within their file ends in 007."""
GIB = 1 << 30
TEXT_ROWS = 2_100
TEXT_BYTES = 1 << 20


def pairs(folder: Path) -> str:
    """Join `MANY` rows of one key with `MANY` rows of the same key."""
    keys = pa.array(np.zeros(MANY, dtype=np.int64))
    spec = PipelineSpec(1, (equal("int64"),), (), 0)
    pipeline = create_pipeline(spec, [indexed(spec, [keys])], pa.schema([]), SETTINGS, RESOURCES)
    rows = sum(
        batch.num_rows
        for batch in pipeline.run(RowBatches([pa.record_batch([keys], ["k"])], spec, SETTINGS.morsel_max_rows))
    )
    expect(MANY * MANY, rows, pipeline.metrics.operators[0]["rows_out"], pipeline.metrics.operators[1]["rows_out"])
    return f"{rows:,} rows"


def rows(folder: Path) -> str:
    """Join rows of Parquet files, whose column compresses to almost nothing, with one key."""
    splits = [whole(path) for path in row_files(folder)]
    spec = PipelineSpec(1, (equal("int8", "semi"),), (ColumnRef(PROBE, 0),), 0)
    builds = [indexed(spec, [pa.array([1], pa.int8())])]
    schema = pa.schema([("k", pa.int8())])
    pipeline = create_pipeline(spec, builds, schema, SETTINGS, RESOURCES)
    found = sum(batch.num_rows for batch in pipeline.run(ScannedSplits(scan_of(schema), splits, spec, builds)))
    expect(SEVENS, found)
    assert pipeline.metrics.scan is not None
    expect(ROWS, pipeline.metrics.rows_in, pipeline.metrics.scan.rows, pipeline.metrics.operators[0]["rows_in"])
    return f"{ROWS:,} rows in, {found:,} out"


def build_text(folder: Path) -> str:
    """Index the texts of a file by a number, and by the texts, and gather the first and last of them."""
    path = text_file(folder, "build.parquet", compression="lz4")
    schema = pa.schema([("k", pa.int64()), ("t", pa.string())])
    probe = pa.record_batch([pa.array([TEXT_ROWS - 1, 5, 0, -3])], ["k"])
    for key, kind, looked_up in ((0, "int64", probe), (1, "string", by_text(probe))):
        spec = PipelineSpec(
            1,
            (JoinSpec("left", (KeyPair(ColumnRef(PROBE, 0), key, kind, False),), "auto", "j"),),
            (ColumnRef(1, 0), ColumnRef(1, 1)),
            0,
        )
        source = ScannedFiles(scan_of(schema), (whole(path),), 1 << 40, 2)
        side = source.open(derive_index_recipe(spec, 0, (1 << 64) - 1))
        pipeline = create_pipeline(spec, [side], schema, SETTINGS, RESOURCES)
        source = RowBatches([looked_up], spec, SETTINGS.morsel_max_rows)
        got = [row for batch in pipeline.run(source) for row in batch.to_pylist()]
        expect([TEXT_ROWS - 1, 5, 0, None], [row["k"] for row in got])
        expect([text(TEXT_ROWS - 1), text(5), text(0), None], [row["t"] for row in got])
    every = pa.record_batch([pa.array(np.arange(TEXT_ROWS))], ["k"])
    spec = PipelineSpec(1, (equal("int64"),), (ColumnRef(1, 0), ColumnRef(1, 1)), 0)
    source = ScannedFiles(scan_of(schema), (whole(path),), 1 << 40, 2)
    side = source.open(derive_index_recipe(spec, 0, (1 << 64) - 1))
    sizes = []
    for limit in (64 << 20, 1 << 30):
        settings = replace(SETTINGS, morsel_max_bytes=limit)
        pipeline = create_pipeline(spec, [side], schema, settings, RESOURCES)
        total, largest = gathered(pipeline.run(RowBatches([every], spec, settings.morsel_max_rows)))
        expect(TEXT_ROWS * TEXT_BYTES, total)
        expect(True, largest <= limit)
        sizes.append(largest)
    return f"{TEXT_ROWS * TEXT_BYTES / GIB:.1f} GiB of text, emitted in batches of at most {sizes} bytes"


def probe_text(folder: Path) -> str:
    """Read row groups with more text than an Arrow array can hold, also if their first rows are null."""
    schema = pa.schema([("k", pa.int64()), ("t", pa.string())])
    spec = PipelineSpec(2, (equal("int64"),), (ColumnRef(PROBE, 0), ColumnRef(PROBE, 1)), 0)
    builds = [indexed(spec, [pa.array(np.arange(TEXT_ROWS))])]
    told = []
    files = {
        "plain": text_file(folder, "plain.parquet", compression="lz4", use_dictionary=False),
        "dictionary": text_file(folder, "dictionary.parquet", 1, compression="lz4"),
        "late": late_text_file(folder),
    }
    for name, path in files.items():
        pipeline = create_pipeline(spec, builds, schema, SETTINGS, RESOURCES)
        total, largest = gathered(pipeline.run(ScannedSplits(scan_of(schema), [whole(path)], spec, builds)))
        expect(TEXT_ROWS * TEXT_BYTES, total)
        told.append(f"{name}: batches of at most {largest:,} bytes")
    return "; ".join(told)


def spark_pairs(folder: Path) -> str:
    """Count the pairs of one key in Spark, with the extension."""
    with session(folder, True) as spark:
        probe, build = pair_sides(spark)
        out = probe.join(build.hint("pipelined_join"), probe.k == build.dk)
        assert_pipelined(out)
        expect(MANY * MANY, out.count())
    return f"{MANY * MANY:,} rows"


def transform_pairs(folder: Path) -> str:
    """Count the pairs of one key with a transform, without the extension."""
    from sparkext import pipelined_join

    with session(folder, False) as spark:
        probe, build = pair_sides(spark)
        out = probe.transform(pipelined_join(build, on=[("k", "dk")]))
        plan = str(out._jdf.queryExecution().executedPlan())  # type: ignore[operator]
        expect(True, "MapInArrow" in plan or plan)
        expect(MANY * MANY, out.count())
    return f"{MANY * MANY:,} rows"


def pair_sides(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    """Return rows whose key is always zero, by a formula: Spark would remove a constant key from the join."""
    key = "id DIV 1000000"
    return spark.range(0, MANY, 1, 1).selectExpr(f"{key} AS k"), spark.range(MANY).selectExpr(f"{key} AS dk")


def spark_rows(folder: Path) -> str:
    """Count the rows of the files that have a match, in one Spark task, with the extension and by Spark's own plan."""
    row_files(folder)
    with session(folder, True) as spark:
        spark.conf.set("spark.sql.files.maxPartitionBytes", "1g")
        spark.conf.set("spark.sql.files.openCostInBytes", "0")
        spark.conf.set("spark.sql.files.minPartitionNum", "1")
        probe = spark.read.parquet(str(folder / "*.parquet"))
        expect(1, probe.rdd.getNumPartitions())
        wanted = spark.range(1, 2).selectExpr("CAST(id AS TINYINT) AS dk")
        for mode in ("hint", "off"):
            spark.conf.set("spark.sparkext.mode", mode)
            out = probe.join(wanted.hint("pipelined_join"), probe.k == wanted.dk, "leftsemi")
            if mode == "hint":
                assert_pipelined(out)
            expect(SEVENS, out.count())
    return f"{ROWS:,} rows in, {SEVENS:,} out, as by Spark's own plan"


def transform_text(folder: Path) -> str:
    """Use more than 2 GiB of text, in fewer rows than Spark's batches may have, as a transform's probe side."""
    from sparkext import pipelined_join

    with session(folder, False) as spark:
        out = made_text(spark, 1).transform(pipelined_join(spark.range(TEXT_ROWS), on=[("dk", "id")]))
        expect_texts(out)
    return f"{TEXT_ROWS * TEXT_BYTES / GIB:.1f} GiB of text in {TEXT_ROWS:,} rows of one task"


def spark_text(folder: Path) -> str:
    """Use more than 2 GiB of text, from the JVM and from files, as a build side and as the probe side of one task."""
    path = text_file(folder, "build.parquet", compression="lz4")
    with session(folder, True) as spark:
        files = spark.read.parquet(str(path)).withColumnRenamed("k", "dk")
        ids = spark.range(0, TEXT_ROWS, 1, 2)
        for side in (files, made_text(spark, 40)):
            out = ids.join(side.hint("pipelined_join"), ids.id == side.dk)
            assert_pipelined(out)
            expect_texts(out)
        for side in (files, made_text(spark, 1)):
            out = side.join(ids.hint("pipelined_join"), ids.id == side.dk)
            assert_pipelined(out)
            expect_texts(out)
    return f"{TEXT_ROWS * TEXT_BYTES / GIB:.1f} GiB of text from files and from the JVM, on either side"


def made_text(spark: SparkSession, tasks: int) -> DataFrame:
    """Return numbers and their texts, generated in the JVM."""
    texts = f"repeat(lpad(id, 8, '0'), {TEXT_BYTES // 8}) AS t"
    return spark.range(0, TEXT_ROWS, 1, tasks).selectExpr("id AS dk", texts)


def expect_texts(out: DataFrame) -> None:
    """Check the number of rows, the bytes of text, and the number of texts with the right beginning, in Spark."""
    (row,) = out.selectExpr("count(*)", "sum(octet_length(t))", "sum(int(left(t, 8) = lpad(dk, 8, '0')))").collect()
    expect((TEXT_ROWS, TEXT_ROWS * TEXT_BYTES, TEXT_ROWS), tuple(row))


def session(folder: Path, extension: bool) -> Any:
    """Return a session that runs one task at a time."""
    import sparkext
    from bench.engines.spark_session import spark_session

    settings = {"spark.sparkext.mode": "hint", "spark.local.dir": str(folder), "spark.driver.maxResultSize": "0"}
    settings |= {"spark.sparkext.buildSide.maxBytes": "8g", "spark.driver.memory": "2g"}
    return spark_session(1, sparkext.configure if extension else None, **settings)


def equal(kind: str, how: str = "inner") -> JoinSpec:
    """Return an equality join on the first columns of both sides."""
    return JoinSpec(how, (KeyPair(ColumnRef(PROBE, 0), 0, kind, False),), "auto", "j")


def indexed(spec: PipelineSpec, columns: list[pa.Array]) -> BuildSide:
    """Return the build side of the only join, indexed."""
    return index_in_memory(len(columns[0]), columns, derive_index_recipe(spec, 0, (1 << 64) - 1))


def scan_of(schema: pa.Schema) -> ParquetScan:
    """Return a scan of these columns."""
    return ParquetScan(ScanSpec(tuple(map(ScanColumn, schema.names)), len(schema), None, True), schema, 1 << 17)


def whole(path: Path) -> Split:
    """Return a file as one split."""
    return DataFile(str(path), path.stat().st_size).split(0, 1 << 62)


def row_files(folder: Path) -> list[Path]:
    """Write a file with 1 in rows whose number ends in 007, else 0, and hard-link it under all `FILES` names."""
    written = folder / "0.parquet"
    column = pa.array(np.arange(FILE_ROWS) % 1000 == 7).cast(pa.int8())
    pq.write_table(pa.table({"k": column}), written, row_group_size=FILE_ROWS)
    paths = [written, *(folder / f"{number}.parquet" for number in range(1, FILES))]
    for path in paths[1:]:
        path.hardlink_to(written)
    return paths


def text(number: int) -> str:
    """Return the text of a row: its number of eight digits, repeated to `TEXT_BYTES`."""
    return f"{number:08}" * (TEXT_BYTES // 8)


def by_text(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with the texts of these numbers."""
    return pa.record_batch([pa.array([text(number) for number in batch.column(0).to_pylist()])], ["t"])


def text_file(folder: Path, name: str, distinct: int = TEXT_ROWS, **options: Any) -> Path:
    """Write numbers and their texts as one row group, with a dictionary if `distinct` is less than the rows."""
    path = folder / name
    offsets = np.arange(distinct + 1) * TEXT_BYTES
    data = np.empty(offsets[-1], dtype=np.uint8)
    for number, start in enumerate(offsets[:-1]):
        data[start : start + TEXT_BYTES] = np.frombuffer(text(number).encode(), dtype=np.uint8)
    column = pa.Array.from_buffers(pa.large_string(), distinct, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    if distinct < TEXT_ROWS:
        column = pa.DictionaryArray.from_arrays(
            np.arange(TEXT_ROWS, dtype=np.int32) % distinct, column.cast(pa.string())
        )
    table = pa.table({"k": np.arange(TEXT_ROWS), "t": column})
    pq.write_table(table, path, row_group_size=TEXT_ROWS, store_schema=False, write_statistics=False, **options)
    pa.default_memory_pool().release_unused()
    return path


def late_text_file(folder: Path) -> Path:
    """Write the same number of bytes as shorter texts of a dictionary, after `TEXT_ROWS` nulls."""
    path = folder / "late.parquet"
    parts = 16
    longer = pa.array([text(0)[: TEXT_BYTES // parts]])
    indices = pa.array(
        np.zeros(TEXT_ROWS * (parts + 1), dtype=np.int32), mask=np.arange(TEXT_ROWS * (parts + 1)) < TEXT_ROWS
    )
    column = pa.DictionaryArray.from_arrays(indices, longer)
    table = pa.table({"k": np.arange(len(column)) % TEXT_ROWS, "t": column})
    pq.write_table(table, path, row_group_size=len(column), store_schema=False)
    return path


def gathered(batches: Iterator[pa.RecordBatch]) -> tuple[int, int]:
    """Return the bytes of all texts, and of the largest batch; check the beginnings of distinct texts."""
    total = largest = 0
    for batch in batches:
        texts = batch.column(1)
        total += pc.sum(pc.binary_length(texts)).as_py() or 0
        largest = max(largest, batch.nbytes)
        if pc.count_distinct(texts).as_py() == batch.num_rows:
            heads = pc.cast(pc.utf8_slice_codeunits(texts, 0, 8), pa.int64())
            expect(True, heads.equals(batch.column(0)))
    return total, largest


def expect(expected: object, *found: object) -> None:
    """Raise `AssertionError` unless every found value equals the expected value."""
    for each in found:
        if each != expected:
            raise AssertionError(f"expected {str(expected)[:200]}, found {str(each)[:200]}")
