"""A job of spark-submit: its JVM starts first, with the jar and another extension from the command line."""

from __future__ import annotations

from pyspark.sql import SparkSession

import sparkext

OTHER = "org.example.Missing"  # Spark logs a warning for it and continues


def main() -> None:
    builder = sparkext.configure(SparkSession.builder)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    assert spark.sparkContext.master == "local[2]"
    assert spark.conf.get("spark.sql.extensions") == f"{OTHER},io.sparkext.SparkExtensions"
    assert spark.conf.get("spark.python.daemon.module") == "sparkext.daemon"
    assert spark.conf.get("spark.jars").count(".jar") == 1
    df = spark.range(9).join(spark.range(4).hint("pipelined_join"), "id")
    assert df.count() == 4 and sparkext.declined(df) == []
    spark.stop()
    print("all is well")


if __name__ == "__main__":
    main()
