"""Argument checks that all transforms run before they resolve columns."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from sparkext.config import Settings, read_settings
from sparkext.errors import ConfigError, InvalidCallError, InvalidJoinError
from sparkext.spark.arrow import find_non_arrow_columns

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
_FRAMES = ("DataFrame", "Table")
"""Type names of a left side that a caller passed as an argument by mistake."""


def check_signature(
    usage: str, error: type[InvalidCallError] = InvalidJoinError
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Decorate a public function: a call that does not fit its signature raises `error`, which shows `usage`."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as problem:
                raise error([f"{function.__name__}: {problem}. Call it as {usage}"]) from None
            return function(*args, **kwargs)

        return checked

    return decorate


def check_no_left_side(function: str, argument: str, value: Any, usage: str) -> None:
    """Raise if `value` is a table, which the caller took for the left side: `transform` passes the left side itself."""
    if type(value).__name__ in _FRAMES:
        raise InvalidJoinError(
            [
                f"{function}: {argument} is a {type(value).__name__}. The left side is not an argument: call it as"
                f" {usage}"
            ]
        )


def read_or_default(options: Mapping[str, str], overrides: dict[str, object]) -> tuple[Settings, ConfigError | None]:
    """Return the settings and None; for an invalid override, the session's settings and the error, not raised yet."""
    try:
        return read_settings(options.get, overrides), None
    except ConfigError as error:
        return read_settings(options.get, {}), error


def check_arrow_types(schema: StructType, side: str, problems: list[str]) -> None:
    """Add to `problems` the columns of a schema whose types have no Arrow equivalent."""
    for name, data_type in find_non_arrow_columns(schema):
        problems.append(
            f"{side} column {name!r} of type {data_type} cannot be passed between Spark and Python as Arrow:"
            " drop or cast it, or use Spark's own join"
        )


def refuse(problems: list[str], misconfigured: ConfigError | None = None) -> None:
    """Raise all problems of a call as one `InvalidJoinError`. Without problems, raise `misconfigured`, if given."""
    if problems:
        raise InvalidJoinError([*(str(misconfigured).splitlines() if misconfigured else ()), *problems])
    if misconfigured is not None:
        raise misconfigured
