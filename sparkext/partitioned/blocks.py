"""Partitioned joins: no node holds all rows of either side.

    left  ──mapInArrow──▶ blocks ─┐
                                  ├─▶ shuffled by partition ──mapInArrow──▶ rows joined, partition by partition
    right ──mapInArrow──▶ blocks ─┘

The key of a row determines its bucket, and the bucket determines its partition, a partition of Spark's shuffle. Rows
are sent in blocks, which hold all columns. Each partition is joined on its own, by a task that indexes the build rows
of the partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkext.config import Settings
from sparkext.joins.join_condition import JoinCondition
from sparkext.joins.resolved_join import ResolvedJoin
from sparkext.partitioned.send_task import PartitionTask
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.rows.types import arrow_key_type
from sparkext.shuffle.blocks import COLUMNS, DDL
from sparkext.shuffle.partitioning import Partitioning, choose_bucket_count
from sparkext.shuffle.received_partition import PartitionSchemas
from sparkext.spark.arrow import arrow_schema
from sparkext.spark.frames import map_in_arrow, pick
from sparkext.spark.partition_keys import find_partition_keys
from sparkext.spark.session_settings import count_tasks_per_executor, encrypts_files, limits_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEEPS_PROBE = ("left", "full", "anti")


def check_partitionable(session: SparkSession, condition: JoinCondition, problems: list[str]) -> None:
    """Add to `problems` why a join on this condition cannot be partitioned."""
    if not condition.pairs:
        problems.append("partitioned=True needs an equality of the two sides: name a column of each side in on")
    if not limits_batches(session):
        problems.append(
            f"partitioned=True needs Spark 4.1 or later, this is {session.version}: it sends 10,000 rows at a time to"
            " Python, whatever their size"
        )
    if encrypts_files(session):
        problems.append(
            "partitioned=True does not support spark.io.encryption.enabled: rows that do not fit in memory are written"
            " to unencrypted files"
        )


def is_partitionable(session: SparkSession, condition: JoinCondition) -> bool:
    """Return whether a join on this condition can be partitioned."""
    problems: list[str] = []
    check_partitionable(session, condition, problems)
    return not problems


def shuffle_by_partition(
    probe: DataFrame, build: DataFrame, resolved: ResolvedJoin, settings: Settings
) -> tuple[DataFrame, PartitionSchemas]:
    """Return the blocks of both sides, shuffled to the partitions of the join, and the schemas of their rows.

    There are as many partitions as Spark's own joins would have.
    """
    session = probe.sparkSession
    spec = resolved.spec
    build = pick(build, resolved.published)
    partitions = int(session.conf.get("spark.sql.shuffle.partitions") or "1")
    keys = find_partition_keys(partitions)
    table = RoutingTable(choose_bucket_count(partitions), partitions)
    key_types = tuple(arrow_key_type(key_type) for key_type in resolved.key_types)
    null_safe = tuple(key.null_safe for key in spec.keys)

    def blocks(frame: DataFrame, columns: tuple[int, ...], keeps_unmatchable: bool, is_build: bool) -> DataFrame:
        partitioning = Partitioning(columns, key_types, null_safe, table, keeps_unmatchable, settings.debug_hash_mask)
        sharing = count_tasks_per_executor(session)
        task = PartitionTask(partitioning, keys, is_build, settings=settings, tasks_sharing=sharing)
        return map_in_arrow(frame, task, DDL)

    sides = blocks(probe, tuple(key.probe.column for key in spec.keys), spec.how in _KEEPS_PROBE, False).unionAll(
        blocks(build, tuple(key.build for key in spec.keys), spec.preserves_build, True)
    )
    schemas = PartitionSchemas(arrow_schema(probe.schema), {0: arrow_schema(build.schema)}, spec.preserves_build)
    return sides.repartition(partitions, COLUMNS[0]), schemas
