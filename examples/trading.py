"""Orders that reduce the cash for the next order: `python examples/trading.py`, a minute.

Offers arrive in batches. A loop through a table reads the cash once per batch, and spends it several times. Continuous
queries, which read each other in a cycle, update the cash after each order.

    pip install ".[spark]"
"""

from __future__ import annotations

import random
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from sparkext.streams import cql

CASH = 2_000_000.0
START = datetime(2026, 1, 1)

folder = Path(tempfile.mkdtemp(prefix="sparkext-trading-"))
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    # Funds and holdings arrive only once. With the policy "min", their streams would hold the watermark back for ever.
    .config("spark.sql.streaming.multipleWatermarkPolicy", "max")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")

draw = random.Random(1)
stocks = [f"stock {number}" for number in range(30)]
OFFERS, FUNDS, HOLDINGS = (
    "id string, price double, ts timestamp",
    "val double, ts timestamp",
    "id string, num int, ts timestamp",
)


def offers(batch: int) -> list[tuple[str, float, datetime]]:
    """Return offers within ten seconds, many of them with equal times."""
    return [
        (draw.choice(stocks), float(draw.randint(300, 600)), START + timedelta(seconds=10 * batch + draw.randint(1, 9)))
        for _ in range(100)
    ]


def stream(name: str, schema: str) -> DataFrame:
    """Return a stream of files, one per batch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))


for batch in range(3):
    spark.createDataFrame(offers(batch), OFFERS).coalesce(1).write.mode("append").parquet(str(folder / "offers"))
spark.createDataFrame([(CASH, START)], FUNDS).coalesce(1).write.parquet(str(folder / "funds"))
spark.createDataFrame([(name, 0, START) for name in stocks], HOLDINGS).coalesce(1).write.parquet(
    str(folder / "holdings")
)

# A loop through a table: the remaining cash is known only as of the previous batch.
spent = 0.0
held: set[str] = set()


def buy(batch: DataFrame, number: int) -> None:
    """Buy each stock that is cheap enough once, if the cash of the previous batch suffices."""
    global spent
    left = CASH - spent
    orders = batch.where(f"price < 500 AND price * 1000 < {left}").dropDuplicates(["id"]).collect()
    new = [order for order in orders if order.id not in held]
    held.update(order.id for order in new)
    spent += sum(order.price * 1000 for order in new)


loop = stream("offers", OFFERS).writeStream.option("checkpointLocation", str(folder / "loop"))
loop.foreachBatch(buy).trigger(availableNow=True).start().awaitTermination()
print(f"a loop through a table has spent {spent:,.0f} of {CASH:,.0f}")

trading = cql("""
    REGISTER STREAM market (id string, price double);
    REGISTER STREAM initial_resource (val double);
    REGISTER STREAM stock_events (id string, num int);
    REGISTER QUERY resource_stream ISTREAM(
        SELECT * FROM initial_resource [Now] UNION ALL
        SELECT resource.val - buy_event.price * buy_event.num AS val FROM resource, buy_event [Now])<Now>;
    REGISTER QUERY resource SELECT * FROM resource_stream [Rows 1];
    REGISTER QUERY stock_stream ISTREAM(
        SELECT * FROM stock_events [Now] UNION ALL
        SELECT stock.id, stock.num + buy_event.num AS num FROM stock, buy_event [Now]
        WHERE stock.id = buy_event.id)<Now>;
    REGISTER QUERY stock SELECT * FROM stock_stream [Partition By id Rows 1];
    REGISTER QUERY buy_event ISTREAM(
        SELECT market.id, 1000 AS num, market.price FROM market [Now], stock, resource
        WHERE stock.id = market.id AND stock.num = 0 AND market.price < 500 AND resource.val > market.price * 1000);
""")
print(trading.describe())
orders = trading.output(
    "buy_event",
    market=stream("offers", OFFERS),
    initial_resource=stream("funds", FUNDS),
    stock_events=stream("holdings", HOLDINGS),
    time="ts",
    watermark="1 second",
    serial=True,
)
query = orders.writeStream.option("checkpointLocation", str(folder / "queries")).format("memory").queryName("orders")
query.trigger(availableNow=True).start().awaitTermination()
total = spark.sql("SELECT count(*) AS orders, sum(price * num) AS spent FROM orders").first()
assert total is not None
print(f"continuous queries have spent {total.spent:,.0f} of {CASH:,.0f}, with {total.orders} orders")
spark.stop()
