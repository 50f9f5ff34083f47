"""The attribute table of P-SORT: a DataFrame with the order key of each operator key (`docs/papers.md` 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkext.api.join import pipelined_join
from sparkext.joins.columns import resolve_column
from sparkext.spark.frames import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def append_attributes(
    frame: DataFrame, attributes: DataFrame, operators: tuple[int, ...], case_sensitive: bool, problems: list[str]
) -> DataFrame:
    """Return the rows with the attributes of their operator keys appended, null for operator keys without attributes.

    `operators` are the positions of the operator key's columns, which the attribute table must have as well.
    """
    from pyspark.sql import functions as F

    keys = [frame.columns[position] for position in operators]
    if attributes.isStreaming:
        problems.append("order_key is a stream: expected a table with the order key of each operator key")
        return frame
    if not keys:
        problems.append("order_key is a table: expected operator_key, the columns that the table shares with frame")
        return frame
    positions = [resolve_column(key, attributes.schema.fields, "order_key's", case_sensitive, problems) for key in keys]
    order_columns = [name for position, name in enumerate(attributes.columns) if position not in positions]
    if None in positions:
        return frame
    if not order_columns:
        problems.append("order_key is a table: expected columns in addition to those of operator_key")
        return frame
    key_columns = [attributes.columns[position] for position in positions if position is not None]
    duplicates = attributes.groupBy(*map(quote_name, key_columns)).count().where("count > 1").limit(1).collect()
    if duplicates:
        problems.append(f"order_key has several rows for one operator key: {', '.join(map(repr, duplicates[0][:-1]))}")
        return frame
    columns = [F.col(quote_name(name)).alias(f"__key_{n}") for n, name in enumerate(key_columns)]
    columns += [F.col(quote_name(name)).alias(f"__order_{n}") for n, name in enumerate(order_columns)]
    on = [(key, f"__key_{n}") for n, key in enumerate(keys)]
    joined = frame.transform(pipelined_join(attributes.select(*columns), on=on, how="left"))
    return joined.select(
        *(quote_name(name) for name in frame.columns), *(f"__order_{number}" for number in range(len(order_columns)))
    )
