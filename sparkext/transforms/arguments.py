"""What all transforms check of a call before they look at its columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from sparkext.config import Settings, read_settings
from sparkext.errors import ConfigError, InvalidJoinError
from sparkext.spark.arrow import not_arrow

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def read_or_default(
    get: Callable[[str], str | None], overrides: dict[str, object]
) -> tuple[Settings, ConfigError | None]:
    """Read the settings, or the defaults and the error, so that the other problems of the call are still found."""
    try:
        return read_settings(get, overrides), None
    except ConfigError as error:
        return read_settings(lambda key: None, {}), error


def check_travel(schema: StructType, side: str, problems: list[str]) -> None:
    """Add to `problems` what of a schema has no Arrow form."""
    for name, data_type in not_arrow(schema):
        problems.append(
            f"{side} column {name!r} of type {data_type} cannot be passed between Spark and Python as Arrow:"
            " drop or cast it, or use Spark's own join"
        )


def refuse(problems: list[str], misconfigured: ConfigError | None) -> None:
    """Raise what is wrong with a call, all of it together, if anything is."""
    if problems:
        raise InvalidJoinError([*(str(misconfigured).splitlines() if misconfigured else ()), *problems])
    if misconfigured is not None:
        raise misconfigured
