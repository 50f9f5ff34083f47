"""Argument checks that several public functions share.

Checks add to `problems` instead of raising, so that an error lists all problems of a call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparkext.config import Settings, read_settings
from sparkext.errors import ConfigError, InvalidJoinError
from sparkext.joins.columns import resolve_column
from sparkext.plans.pipeline.join_names import join_names, parse_join_kind
from sparkext.rows.types import spark_key_type
from sparkext.spark.arrow import find_non_arrow_columns
from sparkext.spark.frames import is_dataframe

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType


def check_dataframe(argument: str, value: Any, problems: list[str]) -> bool:
    """Return whether `value` is a Spark DataFrame; otherwise add to `problems`."""
    is_frame = is_dataframe(value)
    if not is_frame:
        type_name = f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
        problems.append(f"{argument} must be a Spark DataFrame, got {type_name}")
    return is_frame


def check_flag(argument: str, value: Any, problems: list[str]) -> None:
    """Add a problem if `value` is no bool."""
    if not isinstance(value, bool):
        problems.append(f"{argument}={value!r}: expected True or False")


def read_kind(how: Any, kinds: Sequence[str], function: str, problems: list[str]) -> str | None:
    """Return the join kind of a name, or None after adding to `problems`, also if it is not among `kinds`."""
    kind = parse_join_kind(how) if isinstance(how, str) else None
    if kind in kinds:
        return kind
    problems.append(f"how={how!r} is not a join type of {function}; expected one of {join_names(kinds)}")
    return None


def check_column_name(argument: str, name: Any, problems: list[str]) -> bool:
    """Return whether `name` is a str; otherwise add to `problems`."""
    if not isinstance(name, str):
        problems.append(f"{argument}={name!r}: expected the name of a column")
        return False
    return True


def resolve_named(
    argument: str, name: Any, fields: Sequence[StructField], side: str, case_sensitive: bool, problems: list[str]
) -> int | None:
    """Return the position of the column that an argument names, or None after adding to `problems`."""
    if not check_column_name(argument, name, problems):
        return None
    return resolve_column(name, fields, side, case_sensitive, problems)


def resolve_ties(
    ties: Any, fields: Sequence[StructField], side: str, case_sensitive: bool, problems: list[str]
) -> int | None:
    """Return the position of the column that orders rows of equal time, None without `ties` or if it is invalid."""
    if ties is None:
        return None
    position = resolve_named("ties", ties, fields, side, case_sensitive, problems)
    if position is not None and spark_key_type(fields[position]) is None:
        problems.append(f"ties={ties!r}: rows cannot be ordered by a {fields[position].dataType.simpleString()}")
    return position


def read_or_default(options: Mapping[str, str], overrides: Mapping[str, object]) -> tuple[Settings, ConfigError | None]:
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


def refuse(problems: list[str], settings_error: ConfigError | None = None) -> None:
    """Raise all problems of a call as one `InvalidJoinError`. Without problems, raise `settings_error`, if given."""
    if problems:
        raise InvalidJoinError([*(str(settings_error).splitlines() if settings_error else ()), *problems])
    if settings_error is not None:
        raise settings_error
