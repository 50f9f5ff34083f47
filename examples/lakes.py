"""A tour with a Delta table and an Iceberg table: `python examples/lakes.py`, in Spark 4.1, half a minute.

Orders are joined with customers. Although a column is renamed and some orders are deleted, workers still read the
tables' files themselves. The session downloads both formats from Maven.

    pip install ".[spark]" "pyspark==4.1.*"
    python -m sparkext jar --build
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import sparkext

PACKAGES = "io.delta:delta-spark_4.1_2.13:4.4.0,org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0"
EXTENSIONS = "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"

folder = Path(tempfile.mkdtemp(prefix="sparkext-lakes-"))
builder = (
    SparkSession.builder.master("local[2]")
    .config("spark.jars.packages", PACKAGES)
    .config("spark.sql.extensions", EXTENSIONS)
    .config("spark.sql.warehouse.dir", str(folder / "delta"))
    .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    .config("spark.sql.catalog.ice", "org.apache.iceberg.spark.SparkCatalog")
    .config("spark.sql.catalog.ice.type", "hadoop")
    .config("spark.sql.catalog.ice.warehouse", str(folder / "iceberg"))
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
)
# The formats are configured first: `configure` appends its extension to theirs.
spark = sparkext.configure(builder).getOrCreate()

spark.range(1_000).selectExpr("id AS customer", "concat('c', id % 40) AS town").write.parquet(str(folder / "customers"))
spark.read.parquet(str(folder / "customers")).createOrReplaceTempView("customers")

TABLES = {
    "orders": "USING delta TBLPROPERTIES ('delta.enableDeletionVectors'='true', 'delta.columnMapping.mode'='name')",
    "ice.shop.orders": "USING iceberg TBLPROPERTIES ('format-version'='3', 'write.delete.mode'='merge-on-read')",
}


def show_join(table: str, source: str) -> None:
    """Join a table, and print the number of rows and who reads the table."""
    df = spark.sql(f"""
        SELECT /*+ PIPELINED_JOIN(c) */ town, price FROM {source} o JOIN customers c ON o.customer = c.customer
    """)
    rows = df.count()
    plan = str(df._jdf.queryExecution().executedPlan())
    said = next(line for line in plan.splitlines() if "PipelinedJoin [" in line)
    print(f"{table}: {rows:,} rows, scan={said.partition('scan=')[2]}")


for name, using in TABLES.items():
    spark.sql(f"CREATE TABLE {name} (id BIGINT, customer BIGINT, amount DOUBLE) {using}")
    spark.sql(f"INSERT INTO {name} SELECT id, id * 7 % 1000, id / 10D FROM range(100000)")
    spark.sql(f"ALTER TABLE {name} RENAME COLUMN amount TO price")
    show_join(name, name)

    # One row of ten is deleted, without rewriting any file of the table.
    spark.sql(f"DELETE FROM {name} WHERE id % 10 = 3")
    show_join(name, name)

# The previous version of the table still has the deleted rows.
show_join("orders, before", "(SELECT id, customer, price FROM orders VERSION AS OF 2)")

# Joins of MERGE are pipelines, too.
spark.sql("""
    MERGE INTO ice.shop.orders t USING (SELECT id + 50000 AS id, id AS customer, 1D AS price FROM range(100000)) s
    ON t.id = s.id WHEN MATCHED THEN UPDATE SET price = s.price WHEN NOT MATCHED THEN INSERT *
""")
show_join("ice.shop.orders, merged", "ice.shop.orders")
spark.stop()
