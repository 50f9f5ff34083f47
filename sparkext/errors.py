"""The errors that sparkext raises on purpose, under one base class.

`error_conditions.json` has the condition of each class with a remedy, and the reasons of the session extension.
"""

from __future__ import annotations

import re
from collections.abc import Sequence


class SparkExtError(Exception):
    """Base class of every error that sparkext raises on purpose."""

    @classmethod
    def getCondition(cls) -> str:
        """Return the name of the error condition, as Spark's exceptions do: `SPARKEXT.` and the name of the class."""
        words = re.findall("[A-Z][a-z]+", cls.__name__.removesuffix("Error"))
        return f"SPARKEXT.{'_'.join(words).upper()}"


class InvalidCallError(SparkExtError):
    """A call is invalid. Lists every problem of the call, not only the first."""

    asked_for = "call"

    def __init__(self, problems: Sequence[str]) -> None:
        self.problems = tuple(problems)
        if len(self.problems) == 1:
            super().__init__(self.problems[0])
        else:
            lines = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(self.problems, 1))
            super().__init__(f"{len(self.problems)} problems with this {self.asked_for}:\n{lines}")

    def __reduce__(self) -> tuple[type[InvalidCallError], tuple[tuple[str, ...]]]:
        """Pickle the problems. By default, unpickling would pass the message to the constructor instead."""
        return type(self), (self.problems,)


class InvalidJoinError(InvalidCallError):
    """A join cannot be built. Raised when the transform is applied, before any task runs."""

    asked_for = "join"


class InvalidScanError(InvalidCallError):
    """A scan cannot be built. Raised when `scan_parquet` is called, which only lists files and reads their schema."""

    asked_for = "scan"


class InvalidOrderError(InvalidCallError):
    """A call of `ordered` is invalid. Lists every problem of the call."""


class InvalidQueryError(InvalidCallError):
    """CQL is not well formed, not well defined, or cannot run on the given DataFrames."""

    asked_for = "CQL"


class QueryStateError(SparkExtError):
    """Continuous queries cannot go on: a cycle does not terminate, or their state does not fit in memory."""


class ConfigError(SparkExtError):
    """A `spark.sparkext.*` key or an option is unknown, or has a value that its type or range forbids."""


class BuildSideTooLargeError(SparkExtError):
    """The build side exceeds its byte limit or the available memory. Names its size, the limit and the remedies."""


class FileReadError(SparkExtError):
    """A data file cannot be read. The session extension parses the message, and raises Spark's own error instead."""

    @classmethod
    def of(cls, path: str, cause: Exception) -> FileReadError:
        """Return an error with the path, and either "no such file" or the cause."""
        problem = "no such file" if isinstance(cause, FileNotFoundError) else f"{type(cause).__name__}: {cause}"
        return cls(f"cannot read {path!r}: {problem}")


class ConditionError(SparkExtError):
    """The condition of a join failed on a pair of rows. The session extension raises Spark's own error instead."""


class BuildFileError(SparkExtError):
    """A published build side or an index file is truncated, damaged or of another version."""


class BlockError(SparkExtError):
    """Rows from another task are damaged or missing. The session extension reruns the task that sent them."""


class StateError(SparkExtError):
    """A stream's state in its checkpoint is lost, damaged, of another version or of another operator."""


class OperatorError(SparkExtError):
    """A function that processes rows in order (`ordered`, apply=…) has returned an invalid result."""


class SchemaMismatchError(SparkExtError):
    """A worker produced or received a batch whose Arrow types differ from the declared schema."""


class EnvironmentProblemError(SparkExtError):
    """Java, PySpark, a package or the file system does not meet the requirements. Names what to install or set."""


class ReportUnavailableError(SparkExtError):
    """The DataFrame or the query has no pipeline of this package, has not run yet, or ran with Spark's own joins."""


class ExtensionMissingError(SparkExtError):
    """A call requires the session extension, which the session has not loaded."""
