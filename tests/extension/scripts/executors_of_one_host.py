"""Two executors on one host, with Spark's external shuffle service: each reads the map outputs of the other."""

from __future__ import annotations

import sys

import sparkext
from tests.extension.cluster_cases import SETTINGS
from tests.support.planned_joins import metrics_of, mode
from tests.support.rows import rows_of
from tests.support.sessions import start_session

QUERY = "SELECT /*+ PIPELINED_JOIN(b, 'partitioned=always') */ * FROM a {} JOIN b ON k = d"


def main(master: str, port: str) -> None:
    service = {"spark.shuffle.service.enabled": "true", "spark.shuffle.service.port": port}
    spark = start_session(
        master, {**SETTINGS, "spark.sparkext.debug.partitions": "random", **service}, sparkext.configure
    )
    spark.range(0, 9000, 1, 4).selectExpr("id % 700 AS k", "id AS v").createOrReplaceTempView("a")
    spark.range(0, 1400, 1, 3).selectExpr("id DIV 2 AS d", "id AS w").createOrReplaceTempView("b")
    for kind in ("INNER", "LEFT", "FULL"):
        query = QUERY.format(kind)
        with mode(spark, "off"):
            expected = rows_of(spark.sql(query))
        out = spark.sql(query)
        assert rows_of(out) == expected, kind
        assert metrics_of(out)["partitions"] > 1, kind
    spark.stop()
    print("all is well")


if __name__ == "__main__":
    main(*sys.argv[1:])
