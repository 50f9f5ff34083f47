"""The tested table formats: their packages, their session settings, and their terms."""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlparse

from pyspark.sql import SparkSession

from sparkext.storage.publication import locked


@dataclass(frozen=True)
class Lake(ABC):
    """A table format on a version of Spark.

    `properties` let rows be deleted without rewriting files, `rewrites` rewrite the files, and `renames` allow columns
    to be renamed and dropped. `file_columns` are columns about files and rows, with the reason why workers do not read
    them. `transforms` are partition transforms of columns.
    """

    minor: str
    name: ClassVar[str]
    extension: ClassVar[str]
    catalog: ClassVar[str]
    properties: ClassVar[dict[str, str]]
    rewrites: ClassVar[dict[str, str]]
    renames: ClassVar[dict[str, str]] = {}
    file_columns: ClassVar[dict[str, str]]
    transforms: ClassVar[tuple[str, ...]] = ()

    @property
    @abstractmethod
    def package(self) -> str:
        """Return the Maven coordinates."""

    @abstractmethod
    def settings(self, warehouse: Path) -> dict[str, str]:
        """Return the session settings, without packages and extensions."""

    @abstractmethod
    def states(self, spark: SparkSession, table: str) -> list[int]:
        """Return the versions of a table in order, as `VERSION AS OF` accepts them."""

    @abstractmethod
    def history(self, spark: SparkSession, table: str) -> list[tuple[object, ...]]:
        """Return the operations on a table, with their row counts."""

    @abstractmethod
    def compaction(self, table: str) -> str:
        """Return the statement that compacts small files."""

    @abstractmethod
    def vacuum(self, spark: SparkSession, table: str) -> None:
        """Delete the files that only older versions of a table need."""

    def table(self, name: str) -> str:
        """Return the SQL name of a table."""
        return f"{self.catalog}.default.{name}"

    def state(self, spark: SparkSession, table: str) -> int:
        """Return the current version of a table."""
        return self.states(spark, table)[-1]

    @abstractmethod
    def data_files(self, spark: SparkSession, table: str) -> list[Path]:
        """Return the current files of a table."""


class Delta(Lake):
    """Delta Lake."""

    name = "delta"
    extension = "io.delta.sql.DeltaSparkSessionExtension"
    catalog = "spark_catalog"
    properties: ClassVar[dict[str, str]] = {"delta.enableDeletionVectors": "true"}
    rewrites: ClassVar[dict[str, str]] = {"delta.enableDeletionVectors": "false"}
    renames: ClassVar[dict[str, str]] = {"delta.columnMapping.mode": "name"}
    file_columns: ClassVar[dict[str, str]] = {
        "_metadata.file_path": "a column that Spark computes",
        "_metadata.row_index": "a column that Spark computes",
    }

    @property
    def package(self) -> str:
        """Return the Maven coordinates."""
        return f"io.delta:delta-spark_{self.minor}_2.13:4.4.0"

    def settings(self, warehouse: Path) -> dict[str, str]:
        """Return the settings of a session."""
        return {
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",  # tasks that list files for VACUUM
        }

    def states(self, spark: SparkSession, table: str) -> list[int]:
        """Return its versions."""
        return sorted(row.version for row in spark.sql(f"DESCRIBE HISTORY {table}").collect() if row.version > 0)

    def history(self, spark: SparkSession, table: str) -> list[tuple[object, ...]]:
        """Return the log."""
        rows = spark.sql(f"DESCRIBE HISTORY {table}").orderBy("version").collect()
        counted = ("numTargetRowsUpdated", "numTargetRowsDeleted", "numTargetRowsInserted", "numDeletedRows")
        return [
            (row.operation, *((row.operationMetrics or {}).get(name) for name in counted), row.version) for row in rows
        ]

    def data_files(self, spark: SparkSession, table: str) -> list[Path]:
        """Return the files in its log."""
        return [Path(unquote(urlparse(name).path)) for name in spark.table(table).inputFiles()]

    def compaction(self, table: str) -> str:
        """Return OPTIMIZE."""
        return f"OPTIMIZE {table}"

    def vacuum(self, spark: SparkSession, table: str) -> None:
        """Delete files without the usual retention of a week."""
        spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        spark.sql(f"VACUUM {table} RETAIN 0 HOURS")


class Iceberg(Lake):
    """Apache Iceberg."""

    name = "iceberg"
    extension = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    catalog = "ice"
    properties: ClassVar[dict[str, str]] = {
        "format-version": "3",
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
    }
    rewrites: ClassVar[dict[str, str]] = {
        "write.delete.mode": "copy-on-write",
        "write.update.mode": "copy-on-write",
        "write.merge.mode": "copy-on-write",
    }
    file_columns: ClassVar[dict[str, str]] = {
        "_file": "metadata column _file of Iceberg",
        "_pos": "metadata column _pos of Iceberg",
        "_spec_id": "metadata column _spec_id of Iceberg",
        "_row_id": "metadata column _row_id of Iceberg",
    }
    transforms = ("bucket(3, k)", "truncate(2, s)")

    @property
    def package(self) -> str:
        """Return the Maven coordinates."""
        return f"org.apache.iceberg:iceberg-spark-runtime-{self.minor}_2.13:1.12.0"

    def settings(self, warehouse: Path) -> dict[str, str]:
        """Return the settings of a session."""
        return {
            "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.ice.type": "hadoop",
            "spark.sql.catalog.ice.warehouse": str(warehouse / "iceberg"),
            "spark.sql.catalog.ice.cache-enabled": "false",
        }

    def states(self, spark: SparkSession, table: str) -> list[int]:
        """Return its snapshots."""
        rows = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at").collect()
        return [row.snapshot_id for row in rows]

    def history(self, spark: SparkSession, table: str) -> list[tuple[object, ...]]:
        """Return the operations of its snapshots, with their row counts."""
        rows = spark.sql(f"SELECT operation, summary FROM {table}.snapshots ORDER BY committed_at").collect()
        counted = ("added-records", "deleted-records", "added-position-deletes", "total-records")
        return [(row.operation, *(row.summary.get(name) for name in counted)) for row in rows]

    def data_files(self, spark: SparkSession, table: str) -> list[Path]:
        """Return the files in its manifests."""
        rows = spark.sql(f"SELECT file_path FROM {table}.data_files").collect()
        return [Path(urlparse(row.file_path).path) for row in rows]

    def compaction(self, table: str) -> str:
        """Return the procedure that rewrites data files."""
        name = table.removeprefix(f"{self.catalog}.")
        return (
            f"CALL {self.catalog}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
        )

    def vacuum(self, spark: SparkSession, table: str) -> None:
        """Expire all snapshots but the last."""
        name, now = table.removeprefix(f"{self.catalog}."), spark.sql("SELECT string(now())").first()
        assert now is not None
        spark.sql(f"CALL {self.catalog}.system.expire_snapshots(table => '{name}', older_than => TIMESTAMP '{now[0]}')")


_RELEASES: dict[str, tuple[type[Lake], ...]] = {"4.1": (Delta, Iceberg), "4.2": (Delta,)}


def session_settings(minor: str, warehouse: Path) -> dict[str, str]:
    """Return the settings of a session with all formats that have a release for this Spark, in addition to its own."""
    known = formats_of(minor).values()
    settings = {
        "spark.jars.packages": ",".join(lake.package for lake in known),
        "spark.sql.extensions": ",".join(lake.extension for lake in known),
    }
    for lake in known:
        settings |= lake.settings(warehouse)
    return settings


def packages_locked() -> AbstractContextManager[None]:
    """Let one process at a time resolve the packages: two that write the same Ivy cache can break each other."""
    return locked(Path(tempfile.gettempdir(), f"sparkext-tests-{os.getuid()}.packages"))


def formats_of(minor: str) -> dict[str, Lake]:
    """Return the formats that have a release for this Spark, by name."""
    return {kind.name: kind(minor) for kind in _RELEASES.get(minor, ())}
