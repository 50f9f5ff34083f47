"""Checks of the DataFrames, the time and the name of a stream operator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkext.config import Settings
from sparkext.joins.arguments import check_arrow_types, check_dataframe
from sparkext.joins.columns import JoinInputs
from sparkext.joins.lineage import Lineage
from sparkext.spark.session_settings import is_case_sensitive, is_connect, settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class JoinedStreams:
    """Two streams of one session, and the session's settings."""

    left: DataFrame
    right: DataFrame
    settings: Settings
    case_sensitive: bool

    def inputs(self) -> JoinInputs:
        """Return the columns of both sides."""
        outputs = Lineage.starting_at(self.left).outputs
        return JoinInputs(outputs, self.right.schema.fields, 1, self.settings.algorithm, self.case_sensitive)


def read_streams(left: Any, right: Any, transform: str, problems: list[str]) -> JoinedStreams | None:
    """Return both sides of a join, or None after adding to `problems`.

    `transform` is the name of the transform that joins a stream with a table, for the message.
    """
    before = len(problems)
    for side, frame in (("left", left), ("right", right)):
        if check_dataframe(f"the {side} side", frame, problems) and not frame.isStreaming:
            problems.append(
                f"the {side} side is not a stream: to join a stream with a table, use {transform} with the stream as"
                " the left side"
            )
    if len(problems) > before:
        return None
    session = left.sparkSession
    if session is not right.sparkSession:
        problems.append("the two sides belong to different sessions: create both in one session")
        return None
    if not _check_session(session, "joins of streams", problems):
        return None
    for side, frame in (("left", left), ("right", right)):
        check_arrow_types(frame.schema, side, problems)
    return JoinedStreams(left, right, settings_of(session), is_case_sensitive(session))


def _check_session(session: SparkSession, operators: str, problems: list[str]) -> bool:
    """Return whether a session supports `operators`; otherwise add to `problems`."""
    if session.version.startswith("3."):
        problems.append(f"{operators} require Spark 4.0 or later, got Spark {session.version}")
        return False
    if is_connect(session):
        problems.append(
            f"{operators} are not supported through Spark Connect, because tasks do not receive the location of the"
            " checkpoint: use a classic session"
        )
        return False
    return True


def check_name(name: Any, problems: list[str]) -> None:
    """Add a problem if the name is given, but cannot be the name of a folder."""
    if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
        problems.append(f"name={name!r}: expected at most 100 letters, digits, dots, dashes and underscores")


def resolve_order_session(frame: Any, problems: list[str]) -> SparkSession | None:
    """Return the session of a DataFrame, None for another object. Add a problem if the session cannot order rows."""
    if not check_dataframe("frame", frame, problems):
        return None
    session: SparkSession = frame.sparkSession
    _check_session(session, "operators that order rows", problems)
    return session


def check_timestamp(column: str, field: StructField, problems: list[str]) -> bool:
    """Return whether an event-time column is a timestamp; otherwise add to `problems`. `column` is for the message."""
    kind = field.dataType.simpleString()
    if kind not in ("timestamp", "timestamp_ntz"):
        problems.append(f"{column} is a {kind}: expected a timestamp")
        return False
    return True
