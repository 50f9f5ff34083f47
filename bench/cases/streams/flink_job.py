"""Joins points with intervals in Apache Flink, as streams, by buckets. Runs in the environment of module `flink`.

Arguments: a folder with the CSV files of both sides, and the number of cores. Prints the seconds, and the count and
sums of all pairs, as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from pyflink.table import EnvironmentSettings, TableEnvironment

WIDTH = 5
SOURCE = "CREATE TABLE {name} ({columns}) WITH ('connector'='filesystem', 'path'='{path}', 'format'='csv')"
JOIN = f"""
SELECT COUNT(*), SUM(id), SUM(rid)
FROM (SELECT id, x, x / {WIDTH} AS bucket FROM points) p
JOIN (
    SELECT rid, low, high, low / {WIDTH} AS of_bucket FROM intervals
    UNION ALL
    SELECT rid, low, high, (high - 1) / {WIDTH} FROM intervals WHERE (high - 1) / {WIDTH} <> low / {WIDTH}
) i
ON p.bucket = i.of_bucket AND p.x >= i.low AND p.x < i.high
"""


def main(folder: str, cores: str) -> None:
    """Run the query over all files."""
    tables = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    settings = {
        "parallelism.default": cores,
        "table.exec.mini-batch.enabled": "true",  # the aggregate emits one update per batch, not per pair
        "table.exec.mini-batch.allow-latency": "1 s",
        "table.exec.mini-batch.size": "100000",
        "table.exec.state.ttl": "0 ms",
    }
    for key, value in settings.items():
        tables.get_config().set(key, value)
    columns = {"points": "id BIGINT, x BIGINT", "intervals": "rid BIGINT, low BIGINT, high BIGINT"}
    for side, (name, declared) in enumerate(columns.items()):
        tables.execute_sql(SOURCE.format(name=name, columns=declared, path=f"file://{folder}/{side}"))
    started = time.perf_counter()
    answer = [0, 0, 0]
    with tables.execute_sql(JOIN).collect() as rows:
        for row in rows:
            answer = [int(value) for value in row]
    print(json.dumps({"seconds": time.perf_counter() - started, "answer": answer}))


if __name__ == "__main__":
    main(*sys.argv[1:])
