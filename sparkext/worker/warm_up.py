"""Runs tiny pipelines, so that a process has loaded the most common kernels before its first real morsel.

Importing numba and the kernels takes half a second, and so does loading compiled kernels from numba's cache.
"""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

import sparkext.worker.work_order  # noqa: F401  imported by the first call of a work order
from sparkext.build_sides.file import write_build_file
from sparkext.build_sides.index_recipe import derive_index_recipe
from sparkext.build_sides.index_store import index_in_memory
from sparkext.config import Settings, read_settings
from sparkext.engine.join_pipeline import create_pipeline
from sparkext.engine.pipeline import Resources
from sparkext.engine.sources.row_batches import RowBatches
from sparkext.expressions import arrow_evaluator
from sparkext.kernels.columns.gather import Column
from sparkext.plans.expressions.expression import Expression, column
from sparkext.plans.expressions.key_types import parse_key_type
from sparkext.plans.pipeline.aggregates import AggregateCall, Aggregation
from sparkext.plans.pipeline.spec import ColumnRef, JoinSpec, KeyPair, PipelineSpec
from sparkext.rows.row_set import RowSet
from sparkext.storage.container import check_container

_KEYS = (
    (pa.array([1, 2, 3], pa.int64()), "int64"),  # dense
    (pa.array([1, 2**40, 2**60], pa.int64()), "int64"),  # hashed
    (pa.array([1, 1, 2**60], pa.int64()), "int64"),  # and repeated
    (pa.array(["a", "b", "c"]), "string"),
)
_PRICES = column(0, 0, parse_key_type("decimal(15,2)"))
_COMPUTED = (
    Expression("*", parse_key_type("decimal(31,4)"), (_PRICES, _PRICES)),
    Expression("year", parse_key_type("int32"), (column(0, 1, parse_key_type("date")),)),
)
_GROUPED = tuple(
    Aggregation(keys, (AggregateCall("count", None), AggregateCall("sum", _PRICES), AggregateCall("avg", _PRICES)))
    for text, number in [(column(0, 1, parse_key_type("string")), column(0, 2, parse_key_type("int64")))]
    for keys in ((), (number,), (text, number))
)
_STATES = [
    *(("n", pa.int64()), ("sum", pa.decimal128(25, 2)), ("empty", pa.bool_())),
    *(("total", pa.decimal128(25, 2)), ("counted", pa.int64())),
]
_OUTPUTS = tuple(ColumnRef(source, column) for source in (0, 1) for column in (0, 1))


def warm_up() -> None:
    """Join a few rows with themselves for each index type that `auto` chooses, with number and string payload.

    Also write and check a build file, compute expressions of prices and years, and group rows.
    """
    settings = read_settings(lambda key: None, {})
    for keys, key_type in _KEYS:
        for how in ("inner", "left"):
            key = KeyPair(ColumnRef(0, 0), 0, key_type, null_safe=False)
            spec = PipelineSpec(2, (JoinSpec(how, (key,), "auto", "warm-up"),), _OUTPUTS)
            columns = [keys, pa.array(["x", "y", "z"])]
            build = index_in_memory(len(keys), columns, derive_index_recipe(spec, 0, settings.debug_hash_mask))
            schema = pa.schema(list(zip("abcd", 2 * [column.type for column in columns], strict=True)))
            pipeline = create_pipeline(spec, [build], schema, settings, Resources(lambda: None))
            batch = pa.record_batch(columns, names=["key", "payload"])
            for _ in pipeline.run(RowBatches([batch], spec, batch.num_rows)):
                pass
    computed = pa.array([Decimal("1.00")], pa.decimal128(15, 2)), pa.array([1], pa.date32())
    arrow_evaluator.columns(_COMPUTED, RowSet.of_morsel([Column.of(array) for array in computed], 1))
    _group(settings)
    sink = pa.BufferOutputStream()
    write_build_file(pa.table({"key": pa.array([1], pa.int64())}), sink)
    check_container(sink.getvalue(), "warm-up")


def _group(settings: Settings) -> None:
    prices, texts = pa.array([Decimal("1.00")] * 2, pa.decimal128(15, 2)), pa.array(["x", "a longer text"])
    batch = pa.record_batch([prices, texts, pa.array([1, 2**40])], names=["price", "text", "number"])
    for aggregation in _GROUPED:
        spec = PipelineSpec(3, (), (), aggregations=(aggregation,))
        keys = [(f"key {key.column}", batch.schema.field(key.column).type) for key in aggregation.keys]
        pipeline = create_pipeline(spec, [], pa.schema([*keys, *_STATES]), settings, Resources(lambda: None))
        for _ in pipeline.run(RowBatches([batch], spec, batch.num_rows)):
            pass
