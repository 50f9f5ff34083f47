"""Checks of the DataFrames and the name of a stream operator."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sparkext.spark.frames import is_dataframe
from sparkext.spark.session_settings import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def resolve_join_session(left: Any, right: Any, transform: str, problems: list[str]) -> SparkSession | None:
    """Return the session in which both sides can be joined, or None after adding to `problems`.

    `transform` is the name of the transform that joins a stream with a table, for the message.
    """
    for side, frame in (("left", left), ("right", right)):
        if not is_dataframe(frame):
            problems.append(f"the {side} side must be a Spark DataFrame, got {type(frame).__name__}")
        elif not frame.isStreaming:
            problems.append(
                f"the {side} side is not a stream: to join a stream with a table, use {transform} with the stream as"
                " the left side"
            )
    if problems:
        return None
    if left.sparkSession is not right.sparkSession:
        problems.append("the two sides belong to different sessions: create both in one session")
        return None
    session: SparkSession = left.sparkSession
    if session.version.startswith("3."):
        problems.append(f"joins of streams require Spark 4.0 or later, got Spark {session.version}")
        return None
    if is_connect(session):
        problems.append(
            "streams cannot be joined through Spark Connect, because tasks do not receive the location of the"
            " checkpoint: use a classic session"
        )
        return None
    return session


def check_name(name: Any, problems: list[str]) -> None:
    """Add a problem if the name is given, but cannot be the name of a folder."""
    if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
        problems.append(f"name={name!r}: expected at most 100 letters, digits, dots, dashes and underscores")


def resolve_order_session(frame: Any, problems: list[str]) -> SparkSession | None:
    """Return the session of a DataFrame, None for another object. Add a problem if the session cannot order rows."""
    if not is_dataframe(frame):
        problems.append(f"frame must be a Spark DataFrame, got {type(frame).__name__}")
        return None
    session: SparkSession = frame.sparkSession
    if session.version.startswith("3."):
        problems.append(f"processing rows in order requires Spark 4.0 or later, got Spark {session.version}")
    elif is_connect(session):
        problems.append(
            "rows cannot be processed in order through Spark Connect, because tasks do not receive the location of the"
            " checkpoint: use a classic session"
        )
    return session
