"""Plans of TPC-DS queries, over tables with the sizes of scale factor 10 and without data.

Plans depend on the row counts in the footers of Parquet files, and on the lengths of the files. These files consist of
a hole and a footer that counts as many rows of nulls, so that they cannot be read.

As a script, it regenerates the golden plans: `python -m tests.extension.tpcds_plans`. Then review the difference.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import sparkext
from bench.cases.queries import tpcds
from tests.extension import tpch_plans
from tests.support.sessions import configured

GOLDEN = tpch_plans.GOLDEN / "tpcds"

SETTINGS = {
    "spark.sparkext.mode": "auto",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.maxMetadataStringLength": "10000",
    "spark.sql.debug.maxToStringFields": "100",
}
MOST_IN_GROUP = 1_000_000


class _Table(NamedTuple):
    """Approximate thousands of rows, bytes per row in a file, and the columns that queries use, by type."""

    thousands: int
    bytes_a_row: int
    columns: dict[str, str]


_PRICE = "decimal(7,2)"
_TABLES = {
    "call_center": _Table(1, 2000, {"int": "cc_call_center_sk", "string": "cc_county"}),
    "catalog_returns": _Table(1_440, 85, {"int": "cr_item_sk", "bigint": "cr_order_number"}),
    "catalog_sales": _Table(
        14_400,
        84,
        {
            "int": "cs_sold_date_sk cs_ship_date_sk cs_bill_customer_sk cs_bill_cdemo_sk cs_bill_hdemo_sk"
            " cs_ship_addr_sk cs_call_center_sk cs_warehouse_sk cs_item_sk cs_promo_sk cs_quantity",
            "bigint": "cs_order_number",
            _PRICE: "cs_sales_price cs_ext_ship_cost cs_net_profit",
        },
    ),
    "customer": _Table(
        500, 63, {"int": "c_customer_sk c_current_addr_sk", "string": "c_first_name c_last_name c_birth_country"}
    ),
    "customer_address": _Table(250, 25, {"int": "ca_address_sk", "string": "ca_state ca_zip ca_country"}),
    "customer_demographics": _Table(
        1_921, 5, {"int": "cd_demo_sk", "string": "cd_gender cd_marital_status cd_education_status"}
    ),
    "date_dim": _Table(
        73, 35, {"int": "d_date_sk d_week_seq d_year d_moy d_qoy", "date": "d_date", "string": "d_day_name"}
    ),
    "household_demographics": _Table(7, 6, {"int": "hd_demo_sk hd_dep_count", "string": "hd_buy_potential"}),
    "inventory": _Table(133_110, 3, {"int": "inv_date_sk inv_item_sk inv_warehouse_sk inv_quantity_on_hand"}),
    "item": _Table(
        102,
        100,
        {
            "int": "i_item_sk i_brand_id i_category_id i_manufact_id i_manager_id",
            "string": "i_item_id i_item_desc i_brand i_class i_category i_manufact i_size i_color i_units",
            _PRICE: "i_current_price",
        },
    ),
    "promotion": _Table(1, 60, {"int": "p_promo_sk", "string": "p_channel_email p_channel_event"}),
    "reason": _Table(1, 40, {"int": "r_reason_sk", "string": "r_reason_desc"}),
    "store": _Table(
        1,
        200,
        {
            "int": "s_store_sk s_market_id",
            "string": "s_store_id s_store_name s_state s_zip",
            "decimal(5,2)": "s_gmt_offset",
        },
    ),
    "store_returns": _Table(
        2_875,
        62,
        {
            "int": "sr_returned_date_sk sr_item_sk sr_customer_sk sr_reason_sk sr_return_quantity",
            "bigint": "sr_ticket_number",
            _PRICE: "sr_net_loss",
        },
    ),
    "store_sales": _Table(
        28_801,
        50,
        {
            "int": "ss_sold_date_sk ss_sold_time_sk ss_item_sk ss_customer_sk ss_cdemo_sk ss_hdemo_sk ss_store_sk"
            " ss_promo_sk ss_quantity",
            "bigint": "ss_ticket_number",
            _PRICE: "ss_list_price ss_sales_price ss_ext_sales_price ss_coupon_amt ss_net_paid ss_net_profit",
        },
    ),
    "time_dim": _Table(86, 18, {"int": "t_time_sk t_hour t_minute"}),
    "warehouse": _Table(1, 800, {"int": "w_warehouse_sk", "string": "w_warehouse_name"}),
    "web_returns": _Table(719, 85, {"bigint": "wr_order_number"}),
    "web_sales": _Table(
        7_198,
        79,
        {
            "int": "ws_ship_date_sk ws_ship_addr_sk ws_web_site_sk ws_warehouse_sk",
            "bigint": "ws_order_number",
            _PRICE: "ws_ext_ship_cost ws_net_profit",
        },
    ),
    "web_site": _Table(1, 400, {"int": "web_site_sk", "string": "web_company_name"}),
}


@contextmanager
def tables(spark: SparkSession) -> Iterator[None]:
    """Register the tables as views, with the settings of the golden plans."""
    with (
        tempfile.TemporaryDirectory() as folder,
        configured(spark, SETTINGS),
    ):
        for name, table in _TABLES.items():
            path = Path(folder, f"{name}.parquet")
            _write_hollow(path, table)
            columns = [f"{column} {kind}" for kind, names in table.columns.items() for column in names.split()]
            spark.read.schema(", ".join(columns)).parquet(str(path)).createOrReplaceTempView(name)
        try:
            yield
        finally:
            for name in _TABLES:
                spark.catalog.dropTempView(name)


def _write_hollow(path: Path, table: _Table) -> None:
    """Write a sparse file whose footer repeats one row group for the required number of rows, with an unused column."""
    rows = table.thousands * 1000
    in_group = min(rows, MOST_IN_GROUP)
    group = io.BytesIO()
    pq.write_table(pa.table({"nothing": pa.nulls(in_group)}), group, row_group_size=in_group)
    metadata, again = pq.read_metadata(group), pq.read_metadata(group)
    for _ in range(round(rows / in_group) - 1):
        metadata.append_row_groups(again)
    footer = io.BytesIO()
    metadata.write_metadata_file(footer)
    magic, rest = footer.getvalue()[:4], footer.getvalue()[4:]
    with path.open("wb") as file:
        file.write(magic)
        file.seek(max(0, rows * table.bytes_a_row - len(rest)), os.SEEK_CUR)
        file.write(rest)


def plan(spark: SparkSession, name: str) -> str:
    """Return the plan of a query before it runs, without ids and paths."""
    return tpch_plans.plan_of(spark, tpcds.query(name))


def golden_file(name: str) -> Path:
    """Return the path of a query's golden plan."""
    return GOLDEN / f"{name}.txt"


def main() -> None:
    """Write all golden plans."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = sparkext.configure(builder).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    GOLDEN.mkdir(parents=True, exist_ok=True)
    with tables(spark):
        for name in tpcds.QUERIES:
            golden_file(name).write_text(plan(spark, name))
    print(f"{len(tpcds.QUERIES)} plans in {GOLDEN}", file=sys.stderr)
    spark.stop()


if __name__ == "__main__":
    main()
