"""Features that only Delta Lake or only Iceberg has: workers read them like Spark, or decline with a reason."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from tests.lakes.formats import Lake
from tests.lakes.lake_checks import assert_fused, assert_read_by_spark, create, facts, joined
from tests.support.planned_joins import scans_of

pytestmark = pytest.mark.reduced("values", reason="a table takes seconds to write in either format")


@pytest.fixture
def delta(lake: Lake) -> Lake:
    """Return the format if it is Delta, else skip."""
    if lake.name != "delta":
        pytest.skip("of Delta")
    return lake


@pytest.fixture
def iceberg(lake: Lake) -> Lake:
    """Return the format if it is Iceberg, else skip."""
    if lake.name != "iceberg":
        pytest.skip("of Iceberg")
    return lake


def some(spark: SparkSession) -> DataFrame:
    return facts(spark).select("id", "k", "s", "f8")


def test_delta_columns_by_id(delta: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(delta, spark, some(spark), delta_columnMapping_mode="id")
    read = partial(spark.table, table)
    assert_fused(spark, dims, read)
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN s TO t")
    spark.sql(f"ALTER TABLE {table} ADD COLUMN s string")
    spark.sql(f"INSERT INTO {table} VALUES (1000, 7, 'old', 0.5D, 'new')")
    spark.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
    assert_fused(spark, dims, lambda: read().where("t > 'a' OR s = 'new'"), "deleted rows")


def test_delta_types_that_are_widened(delta: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(delta, spark, some(spark), delta_enableTypeWidening="true")
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN k TYPE bigint")
    assert_read_by_spark(spark, dims, lambda: spark.table(table), "column k is of type int")
    assert_fused(spark, dims, lambda: spark.table(table).selectExpr("id AS k", "s"))


def test_delta_change_data(delta: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(delta, spark, some(spark), delta_enableChangeDataFeed="true")
    spark.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
    assert_read_by_spark(spark, dims, lambda: spark.sql(f"SELECT * FROM table_changes('{table}', 1)"), "")


def test_delta_a_deletion_vector_that_is_damaged(delta: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(delta, spark, some(spark), files=1)
    spark.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
    folder = delta.data_files(spark, table)[0].parent
    (vector,) = folder.glob("deletion_vector_*.bin")
    vector.write_bytes(vector.read_bytes()[:-9] + b"\xff" * 9)
    vector.with_name(f".{vector.name}.crc").unlink(missing_ok=True)
    df = joined(dims, lambda: spark.table(table))
    assert "deleted rows cannot be read" in scans_of(df)[0][2]
    with pytest.raises(Py4JJavaError, match=r"DELTA_DELETION_VECTOR_CHECKSUM_MISMATCH"):  # Delta's own error
        df.collect()


def test_delta_clones_and_files_elsewhere(delta: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(delta, spark, some(spark))
    spark.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
    spark.sql(f"CREATE TABLE {table}_clone SHALLOW CLONE {table}")
    spark.sql(f"DELETE FROM {table}_clone WHERE id % 10 = 4")
    assert_fused(spark, dims, lambda: spark.table(f"{table}_clone"), "60 deleted rows")


@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_iceberg_position_deletes(iceberg: Lake, spark: SparkSession, dims: DataFrame, granularity: str) -> None:
    properties = {"format-version": "2", "write_delete_granularity": granularity}
    table = create(iceberg, spark, some(spark), files=3, **properties)
    spark.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
    spark.sql(f"DELETE FROM {table} WHERE id % 10 = 4")
    assert_fused(spark, dims, lambda: spark.table(table), "60 deleted rows")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version'='3')")
    spark.sql(f"DELETE FROM {table} WHERE id % 10 = 5")
    assert_fused(spark, dims, lambda: spark.table(table), "90 deleted rows")


def test_iceberg_partitions_that_change(iceberg: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(iceberg, spark, facts(spark, rows=60).select("id", "k", "s", "day"), partitioned="k", files=1)
    for change in ("REPLACE PARTITION FIELD k WITH bucket(4, id)", "ADD PARTITION FIELD months(day)"):
        spark.sql(f"ALTER TABLE {table} {change}")
        spark.sql(f"INSERT INTO {table} SELECT id + 100, k, s, day FROM {table} WHERE id < 20")
        spark.sql(f"DELETE FROM {table} WHERE id % 10 = 3")
        assert_fused(spark, dims, lambda: spark.table(table))
        assert_fused(spark, dims, lambda: spark.table(table).where("k = 7"))


def test_iceberg_types_that_are_widened(iceberg: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(iceberg, spark, some(spark))
    spark.sql(f"ALTER TABLE {table} ALTER COLUMN k TYPE bigint")
    assert_read_by_spark(spark, dims, lambda: spark.table(table), "column k is of type int")


def test_iceberg_files_without_ids(iceberg: Lake, spark: SparkSession, dims: DataFrame, tmp_path: Path) -> None:
    some(spark).write.parquet(str(tmp_path / "plain"))
    table = create(iceberg, spark, some(spark).limit(0))
    name = table.removeprefix("ice.")
    spark.sql(f"CALL ice.system.add_files('{name}', 'parquet.`{tmp_path / 'plain'}`')")
    assert_read_by_spark(spark, dims, lambda: spark.table(table), "has no field ids")


def test_iceberg_other_formats_of_files(iceberg: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(iceberg, spark, some(spark), write_format_default="orc")
    assert_read_by_spark(spark, dims, lambda: spark.table(table), "ORC files of Iceberg")


def test_iceberg_deletions_by_equality(iceberg: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(iceberg, spark, some(spark), **{"format-version": "2"})
    delete_by_equality(spark, table, "k", [3, 5])
    assert_read_by_spark(spark, dims, lambda: spark.table(table), "deletions by equality")
    assert spark.table(table).where("k IN (3, 5)").count() == 0
    spark.sql(iceberg.compaction(table))
    assert_fused(spark, dims, lambda: spark.table(table))


def delete_by_equality(spark: SparkSession, name: str, column: str, values: list[int]) -> None:
    """Delete rows with equality deletes, as Flink does. Spark itself does not write such files."""
    jvm: Any = spark._jvm
    api = jvm.org.apache.iceberg
    table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
    field = table.schema().findField(column)
    schema = table.schema().select([column])
    ids = spark.sparkContext._gateway.new_array(jvm.int, 1)
    ids[0] = field.fieldId()
    builder = jvm.java.lang.Class.forName("org.apache.iceberg.data.GenericFileWriterFactory$Builder", True, loader(jvm))
    maker = (
        builder.getConstructors()[0]
        if builder.getConstructors()[0].getParameterCount()
        else builder.getConstructors()[1]
    )
    given = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 1)
    given[0] = table
    made = maker.newInstance(given).deleteFileFormat(api.FileFormat.PARQUET).equalityFieldIds(ids)
    factory = made.equalityDeleteRowSchema(schema).build()
    files = api.io.OutputFileFactory.builderFor(table, 1, 1).build()
    writer = factory.newEqualityDeleteWriter(files.newOutputFile(), table.spec(), None)
    for value in values:
        record = api.data.GenericRecord.create(schema)
        record.setField(column, value)
        writer.write(record)
    writer.close()
    table.newRowDelta().addDeletes(writer.toDeleteFile()).commit()


def loader(jvm: Any) -> Any:
    """Return the class loader that finds the classes of packages."""
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()


def test_iceberg_columns_with_defaults(iceberg: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(iceberg, spark, some(spark))
    jvm: Any = spark._jvm
    loaded = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)
    types = jvm.org.apache.iceberg.types.Types
    default = jvm.org.apache.iceberg.expressions.Literal.of("given")
    loaded.updateSchema().addColumn("later", types.StringType.get(), "a column", default).commit()
    spark.sql(f"REFRESH TABLE {table}")
    assert_read_by_spark(spark, dims, lambda: spark.table(table), "has a default value")
    assert_fused(spark, dims, lambda: spark.table(table).select("id", "k"))


def test_iceberg_branches(iceberg: Lake, spark: SparkSession, dims: DataFrame) -> None:
    table = create(iceberg, spark, some(spark))
    spark.sql(f"ALTER TABLE {table} CREATE BRANCH audit")
    spark.sql(f"DELETE FROM {table}.branch_audit WHERE id % 10 = 3")
    assert_fused(spark, dims, lambda: spark.sql(f"SELECT * FROM {table} VERSION AS OF 'audit'"), "30 deleted rows")
    assert_fused(spark, dims, lambda: spark.table(table))
