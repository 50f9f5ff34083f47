"""A tour with a join of two live streams: `python examples/streams.py`, half a minute.

Each order is joined with the quotes whose range contains its price, while new files of both streams arrive. The query
is stopped, more files arrive, and the query continues from its checkpoint. At the end every hit has been emitted once.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkext import pipelined_join
from sparkext.streams import stream_join

ORDERS = "order long, price double"
QUOTES = "quote long, low double, high double"
IN_RANGE = [("price", ">=", "low"), ("price", "<", "high")]
ROWS = 2_000

folder = Path(tempfile.mkdtemp(prefix="sparkext-streams-"))
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
draw = np.random.default_rng(1)


def deliver(side: str, number: int) -> None:
    """Add a file to a stream, by renaming it when it is complete."""
    ids, prices = np.arange(ROWS) + number * ROWS, draw.uniform(0, 1_000, ROWS)
    columns = (
        {"order": ids, "price": prices} if side == "orders" else {"quote": ids, "low": prices, "high": prices + 0.5}
    )
    path = folder / side / f"{number:03}.parquet"
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path.with_suffix(".part"))
    path.with_suffix(".part").rename(path)


def keep_delivering(first: int, last: int) -> None:
    """Deliver files for a while, quotes half as often as orders."""
    for number in range(first, last):
        deliver("orders", number)
        if number % 2 == 0:
            deliver("quotes", number)
        time.sleep(0.5)


def both_sides(read: object) -> tuple[DataFrame, DataFrame]:
    """Read both sides, as streams or as tables."""
    orders, quotes = (
        read.schema(schema).parquet(f"{folder}/{side}/*.parquet")  # type: ignore[attr-defined]
        for side, schema in (("orders", ORDERS), ("quotes", QUOTES))
    )
    return orders, quotes


found = [0, 0]


def add(batch: DataFrame, number: int) -> None:
    """Add the number of hits in a batch, and a checksum of the hits."""
    count, total = batch.agg(F.count("*"), F.coalesce(F.sum(F.expr("order * 31 + quote")), F.lit(0))).first()
    found[0] += count
    found[1] += total


def run_while(first: int, last: int) -> None:
    """Run the query until all files delivered meanwhile are joined, and print the figures of each batch."""
    joined = stream_join(*both_sides(spark.readStream.option("maxFilesPerTrigger", 3)), on=IN_RANGE, name="hits")
    deliveries = threading.Thread(target=keep_delivering, args=(first, last))
    deliveries.start()
    query = joined.writeStream.option("checkpointLocation", str(folder / "checkpoint")).foreachBatch(add).start()
    deliveries.join()
    query.processAllAvailable()
    for progress in query.recentProgress:
        told = progress.observedMetrics.get("sparkext.hits")
        if told is not None and progress.numInputRows:
            print(
                f"batch {progress.batchId}: {told.left_rows:,} orders, {told.right_rows:,} quotes,"
                f" {told.matches:,} hits; {told.state_rows:,} rows in {told.segments} files"
            )
    query.stop()


deliver("orders", 0)
deliver("quotes", 0)
run_while(1, 8)
print("stopped, and started again")
run_while(8, 12)

orders, quotes = both_sides(spark.read)
expected = orders.transform(pipelined_join(quotes, on=IN_RANGE)).agg(F.count("*"), F.sum(F.expr("order * 31 + quote")))
print(f"{found[0]:,} hits in all; a join of all rows gives the same: {tuple(found) == tuple(expected.first() or ())}")
spark.stop()
