"""Partitioned joins: no node holds all rows of either side.

    left  ──mapInArrow──▶ blocks ─┐
                                  ├─▶ shuffled by partition ──mapInArrow──▶ rows joined, partition by partition
    right ──mapInArrow──▶ blocks ─┘

The key of a row determines its bucket, and the bucket determines its partition, a partition of Spark's shuffle. Rows
are sent in blocks, which hold all columns. Each partition is joined on its own, by a task that indexes the build rows
of the partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkext.joins.join_condition import NamedPair
from sparkext.joins.lineage import Lineage
from sparkext.joins.table_join import TableJoin
from sparkext.partitioned.send_task import PartitionTask
from sparkext.plans.shuffle.routing import RoutingTable
from sparkext.rows.types import arrow_key_type
from sparkext.shuffle.blocks import DDL, FRAMES
from sparkext.shuffle.partitioning import Partitioning, choose_bucket_count
from sparkext.shuffle.received_partition import PartitionSchemas
from sparkext.spark.arrow import arrow_schema
from sparkext.spark.frames import map_in_arrow, pick
from sparkext.spark.partition_keys import find_partition_keys
from sparkext.spark.session_settings import count_tasks_per_executor, encrypts_files, limits_batches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_KEEPS_PROBE = ("left", "full", "anti")


def find_obstacles(session: SparkSession, pairs: Sequence[NamedPair]) -> list[str]:
    """Return the reasons why a join on these equalities cannot be partitioned."""
    problems: list[str] = []
    if not pairs:
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
    return problems


def join_by_partition(join: TableJoin) -> DataFrame:
    """Return the rows of a join whose sides are sent to partitions.

    There are as many partitions as Spark's own joins would have.
    """
    resolved, settings, session = join.resolved(), join.settings, join.session
    spec = resolved.spec
    probe, build = join.left, pick(join.build.frame(), resolved.published)
    partitions = int(session.conf.get("spark.sql.shuffle.partitions") or "1")
    keys = find_partition_keys(partitions)
    table = RoutingTable(choose_bucket_count(partitions), partitions)
    key_types = tuple(arrow_key_type(key_type) for key_type in resolved.key_types)
    null_safe = tuple(key.null_safe for key in spec.keys)
    schemas = PartitionSchemas(arrow_schema(probe.schema), {0: arrow_schema(build.schema)}, spec.preserves_build)

    def blocks(frame: DataFrame, columns: tuple[int, ...], keeps_unmatchable: bool, is_build: bool) -> DataFrame:
        schema = schemas.builds[0] if is_build else schemas.probe
        partitioning = Partitioning(columns, key_types, null_safe, table, keeps_unmatchable, settings.debug_hash_mask)
        sharing = count_tasks_per_executor(session)
        task = PartitionTask(partitioning, keys, is_build, schema, settings=settings, tasks_sharing=sharing)
        return map_in_arrow(frame, task, DDL)

    sides = blocks(probe, tuple(key.probe.column for key in spec.keys), spec.how in _KEEPS_PROBE, False).unionAll(
        blocks(build, tuple(key.build for key in spec.keys), spec.preserves_build, True)
    )
    received = sides.repartition(partitions, FRAMES.names[0])
    return Lineage.starting_at(probe).by_partition(received, schemas).then(resolved, None, settings)
