"""`ordered`: rows of each key in the order of time, without a global sort, and without a partition per key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkext.errors import InvalidOrderError
from sparkext.joins.arguments import check_arrow_types, check_column_name, check_flag, resolve_named, resolve_ties
from sparkext.joins.calls import transform_function
from sparkext.joins.columns import resolve_column
from sparkext.rows.types import spark_key_type
from sparkext.spark.frames import is_column, is_dataframe
from sparkext.spark.session_settings import is_case_sensitive, settings_of
from sparkext.streaming.arguments import check_name, check_timestamp, resolve_order_session
from sparkext.streaming.ordered.attributes import append_attributes
from sparkext.streaming.ordered.description_of import AppliedOperator, OrderColumns
from sparkext.streaming.ordered.frame import create_order_frame
from sparkext.streaming.ordered.function_operator import FunctionOperator
from sparkext.streaming.state.user_states import FORMS, UnstorableStateError, encode_state
from sparkext.streaming.watermarks import is_marked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType


@transform_function('time="time"', InvalidOrderError)
def ordered(
    frame: DataFrame,
    /,
    *,
    time: str,
    order_key: str | Sequence[str] | Column | DataFrame | None = None,
    operator_key: str | Sequence[str] | None = None,
    apply: Callable[..., Any] | None = None,
    schema: str | StructType | None = None,
    state: Any = None,
    pickle_state: bool = False,
    ties: str | None = None,
    split: bool = True,
    late: str | None = None,
    name: str | None = None,
) -> DataFrame:
    """Put the rows of each order key in the order of time, and optionally process them in that order.

        alerts = ordered(readings, time="ts", operator_key="sensor", order_key="device",
                         apply=detect, schema="device string, sensor string, ts timestamp, level double", state={})

    Without `frame` as the first argument, the call returns a function for `DataFrame.transform`.

    All rows of an order key are emitted in one partition, in the order of time. A row of a stream is emitted after the
    watermark has passed it, so rows are in order within each batch and from batch to batch. An order key with too many
    rows for one task is processed by several tasks, by operator key, whose results are then merged (P-SORT).

    Parameters
    ----------
    frame:
        A streaming DataFrame with a watermark on the column `time`, or a DataFrame that is no stream.
    time:
        The event-time column, a timestamp.
    order_key:
        The columns of the order key, or an expression. Or a DataFrame that is no stream, which has the columns of
        `operator_key`, and other columns that are the order key of each operator key. By default all rows are in one
        order.
    operator_key:
        The columns of the key by which `apply` processes rows. Required with `apply`. Equal operator keys in different
        order keys are different keys.
    apply:
        A function that takes rows of one operator key in the order of time, as an Arrow table, and returns an Arrow
        table. It is called repeatedly, with an arbitrary number of rows. The returned rows must be in the order of
        time, with times between those of the first and of the last row of the call.
    schema:
        The schema of the table that `apply` returns. It must have the column `time`.
    state:
        The initial state of an operator key. `apply` takes the state as its second argument, and returns a pair of
        rows and new state. If None, `apply` takes and returns only rows. A state is bytes, an Arrow table or record
        batch, or JSON: dict with keys of type str, list, str, int, float, bool and None.
    pickle_state:
        Whether states are pickled, so that they may be any object that can be pickled. Everyone who can write to the
        checkpoint can then run code in the workers.
    ties:
        A column that orders rows of equal time. By default their content orders them.
    split:
        Whether rows of one order key may be processed by several tasks.
    late:
        The name of a column for rows that are late for the watermark: they are emitted in it as a struct, with all
        other columns null. By default late rows are dropped and counted.
    name:
        The name of the state in the checkpoint. Equal operators in one query need different names.

    Raises
    ------
    InvalidOrderError
        Lists every problem of the call.
    """
    problems: list[str] = []
    check_name(name, problems)
    check_flag("split", split, problems)
    if late is not None:
        check_column_name("late", late, problems)
    session = resolve_order_session(frame, problems)
    if session is None or problems:
        raise InvalidOrderError(problems)
    check_arrow_types(frame.schema, "the", problems)
    case_sensitive = is_case_sensitive(session)
    arguments = _ColumnArguments(time, order_key, operator_key, ties)
    columns = arguments.resolve(frame, case_sensitive, problems)
    function = _FunctionArguments(apply, schema, state, pickle_state)
    operator = function.resolve(frame, arguments, case_sensitive, problems)
    if problems:
        raise InvalidOrderError(problems)
    assert columns is not None, "or there is a problem"
    return create_order_frame(columns, operator, settings_of(session), split=split, late=late, name=name)


@dataclass(frozen=True)
class _ColumnArguments:
    """The column arguments of a call, unchecked."""

    time: Any
    order_key: Any
    operator_key: Any
    ties: Any

    def resolve(self, frame: DataFrame, case_sensitive: bool, problems: list[str]) -> OrderColumns | None:
        """Return the columns by their positions, None if `problems` got longer."""
        before, is_stream = len(problems), frame.isStreaming
        width = len(frame.columns)
        fields = frame.schema.fields
        time = resolve_named("time", self.time, fields, "the", case_sensitive, problems)
        is_timestamp = time is not None and check_timestamp("time", fields[time], problems)
        if time is not None and is_timestamp and is_stream and not is_marked(fields[time]):
            problems.append(f"time has no watermark: see DataFrame.withWatermark({fields[time].name!r}, …)")
        operators = _resolve_key("operator_key", self.operator_key, fields, case_sensitive, problems)
        if is_dataframe(self.order_key):
            frame = append_attributes(frame, self.order_key, operators, case_sensitive, problems)
            orders = tuple(range(width, len(frame.columns)))
        elif is_column(self.order_key):
            frame = frame.select("*", self.order_key.alias("__order"))
            orders = (width,)
        else:
            orders = _resolve_key("order_key", self.order_key, fields, case_sensitive, problems)
        ties = resolve_ties(self.ties, fields, "the", case_sensitive, problems)
        fields = frame.schema.fields
        for position in (*orders, *operators):
            if spark_key_type(fields[position]) is None:
                problems.append(
                    f"column {fields[position].name!r} of type {fields[position].dataType.simpleString()} cannot be a"
                    " key"
                )
        if len(problems) > before:
            return None
        assert time is not None, "or there is a problem"
        return OrderColumns(frame, width, time, orders, operators, ties)


def _resolve_key(
    argument: str, value: Any, fields: Sequence[StructField], case_sensitive: bool, problems: list[str]
) -> tuple[int, ...]:
    """Return the positions of the columns of a key that exist."""
    names = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        problems.append(f"{argument}={value!r}: expected the name of a column, or a list of names")
        return ()
    positions = (resolve_column(name, fields, "the", case_sensitive, problems) for name in names)
    return tuple(position for position in positions if position is not None)


@dataclass(frozen=True)
class _FunctionArguments:
    """The function of a call, its schema and its state, unchecked."""

    apply: Any
    schema: Any
    state: Any
    pickle_state: Any

    def resolve(
        self, frame: DataFrame, columns: _ColumnArguments, case_sensitive: bool, problems: list[str]
    ) -> AppliedOperator | None:
        """Return the function to apply, None if there is none, or if `problems` got longer."""
        from pyspark.sql.types import StructType

        check_flag("pickle_state", self.pickle_state, problems)
        if self.pickle_state and self.state is None:
            problems.append("pickle_state is given, but no state")
        if self.apply is None:
            for argument, value in (("schema", self.schema), ("state", self.state)):
                if value is not None:
                    problems.append(f"{argument} is given, but no apply")
            return None
        if not callable(self.apply):
            problems.append(f"apply={self.apply!r}: expected a function")
        if columns.operator_key is None:
            problems.append("apply requires operator_key, the key whose rows it processes together")
        initial = self._encode_initial_state(problems)
        schema = self.schema
        if isinstance(schema, str):
            schema = frame.sparkSession.createDataFrame([], schema).schema
        if not isinstance(schema, StructType):
            problems.append(
                f"schema={schema!r}: expected the schema of the rows that apply returns, as DDL or StructType"
            )
            return None
        check_arrow_types(schema, "schema's", problems)
        if not isinstance(columns.time, str):  # a problem of the columns
            return None
        time = resolve_column(columns.time, schema.fields, "schema's", case_sensitive, problems)
        if time is None:
            return None
        operator = FunctionOperator(self.apply, initial, bool(self.pickle_state))
        return AppliedOperator(operator, schema, time, schema.simpleString())

    def _encode_initial_state(self, problems: list[str]) -> bytes | None:
        """Return the encoded initial state, None if there is none, or if `problems` got longer."""
        if self.state is None:
            return None
        try:
            return encode_state(self.state, bool(self.pickle_state))
        except UnstorableStateError as error:
            problems.append(f"state cannot be stored, {error}. Expected {FORMS}")
            return None
