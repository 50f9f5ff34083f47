"""Right and full joins: each unmatched build row is emitted exactly once.

Every task of a pipeline has all build rows, but only its own probe rows. No task alone can determine that a build row
has no match anywhere. Therefore the probe rows are shuffled by key, together with one small row (row id, key) per build
row. All rows with one key are sent to one task, which then owns the build rows with this key, and receives all probe
rows that could match them. Spark may coalesce the shuffle's partitions. The row ids are taken from the published build
side, so the result is exact even if a second evaluation of the build side would return different rows.

Cost: one shuffle of the probe side, one of the build side's keys, and a byte per build row and task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkext.build_sides.sources import BuildSource
from sparkext.config import Settings
from sparkext.joins.build_rows_task import BuildRowsTask
from sparkext.joins.resolved_join import ResolvedJoin
from sparkext.plans.expressions.key_types import KeyType
from sparkext.spark.arrow import arrow_schema
from sparkext.spark.session_settings import count_tasks_per_executor
from sparkext.spark.worker_python import run_in_workers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

_OWNER = "__sparkext_build_row"
_KEY = "__sparkext_key_{}"
_ROWS_PER_PART = 1_000_000

_SQL_TYPES = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
}


def shuffle_with_build_rows(
    frame: DataFrame, resolved: ResolvedJoin, source: BuildSource, build: pa.Table, settings: Settings
) -> tuple[DataFrame, int]:
    """Return `frame` and the ids of build rows, shuffled together by key, and the number of columns added in front."""
    from pyspark.sql import functions as F

    # Columns are addressed by position: input columns may have any name, even the names used here.
    width = len(frame.schema.fields)
    columns = [f"c{number}" for number in range(width)]
    plain = frame.toDF(*columns)
    probe = plain.select(
        F.lit(None).cast("bigint").alias(_OWNER),
        *(
            _convert_shuffle_key(F.col(columns[key.probe.column]), key_type).alias(_KEY.format(number))
            for number, (key, key_type) in enumerate(zip(resolved.spec.keys, resolved.key_types, strict=True))
        ),
        *columns,
    )
    owners = _build_keys(frame, resolved, source, build, settings).select(
        _OWNER,
        *(
            _convert_shuffle_key(F.col(_KEY.format(number)), key_type).alias(_KEY.format(number))
            for number, key_type in enumerate(resolved.key_types)
        ),
        *(
            F.lit(None).cast(field.dataType).alias(column)
            for field, column in zip(frame.schema.fields, columns, strict=True)
        ),
    )
    names = [_KEY.format(number) for number in range(len(resolved.key_types))]
    return probe.unionAll(owners).repartition(*names), 1 + len(names)


def _build_keys(
    frame: DataFrame, resolved: ResolvedJoin, source: BuildSource, build: pa.Table, settings: Settings
) -> DataFrame:
    """Return rows (row id, keys) of the build side, which executors read from its published file."""
    from pyspark.sql.types import LongType, StructField, StructType

    parts = max(1, build.num_rows // _ROWS_PER_PART)
    fields = [StructField(_OWNER, LongType())]
    for number, column in enumerate(resolved.build_key_fields):
        fields.append(StructField(_KEY.format(number), column.dataType))
    schema = StructType(fields)
    session = frame.sparkSession
    keys = tuple(key.build for key in resolved.spec.keys)
    tasks_sharing = count_tasks_per_executor(session)
    task = BuildRowsTask(source, keys, parts, arrow_schema(schema), settings=settings, tasks_sharing=tasks_sharing)
    return run_in_workers(session.range(0, parts, 1, parts), task, schema)


def _convert_shuffle_key(column: Column, key_type: KeyType) -> Column:
    """Convert a key column so that Spark hashes two values alike if the join treats them as equal."""
    from pyspark.sql import functions as F

    if key_type.name == "decimal":
        return column.cast(f"decimal({key_type.precision},{key_type.scale})")
    if key_type.name in _SQL_TYPES:
        column = column.cast(_SQL_TYPES[key_type.name])
    if key_type.name in ("float32", "float64"):
        return F.when(column == 0.0, F.lit(0.0).cast(_SQL_TYPES[key_type.name])).otherwise(column)
    return column
