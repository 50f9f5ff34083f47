"""Tables of a Spark session as views, which are created again before each query, from the current files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bench.engines.spark_session import assert_pipelined, make_look_changed, with_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from typing_extensions import Self

T = TypeVar("T")


class Views:
    """Runs queries. `read` returns a table by name; `files` has the data files of each table."""

    def __init__(
        self, spark: SparkSession, read: Callable[[str], DataFrame], files: Mapping[str, Sequence[Path]]
    ) -> None:
        self.spark, self._read, self._files = spark, read, files

    @classmethod
    def of_files(cls, spark: SparkSession, paths: Mapping[str, Path]) -> Self:
        """Return views of Parquet files by table name."""
        files = {name: [path] for name, path in paths.items()}
        return cls(spark, lambda name: spark.read.parquet(str(paths[name])), files)

    def frame(self, text: str, cold: bool = False) -> DataFrame:
        """Return a query over its tables as they are now; with `cold`, as if all files had changed."""
        for name, files in named_in(text, self._files).items():
            for file in files if cold else ():
                make_look_changed(file)
            self._read(name).createOrReplaceTempView(name)
        return self.spark.sql(text)

    def row(self, text: str, cold: bool = False, **settings: str) -> tuple[Any, ...]:
        """Return the only row of a query with these `spark.sparkext` settings."""
        with with_settings(self.spark, {f"spark.sparkext.{name}": value for name, value in settings.items()}):
            [row] = self.frame(text, cold).collect()
        return tuple(row)

    def assert_pipelined(self, text: str, **settings: str) -> None:
        """Run a query, and raise `AssertionError` if its plan has no pipeline."""
        self.row(text, **settings)
        with with_settings(self.spark, {f"spark.sparkext.{name}": value for name, value in settings.items()}):
            assert_pipelined(self.spark.sql(text))


def named_in(text: str, tables: Mapping[str, T]) -> dict[str, T]:
    """Return the tables whose names occur in a query."""
    words = set(re.findall(r"\w+", text))
    return {name: path for name, path in tables.items() if name in words}
