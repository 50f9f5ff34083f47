"""`ordered`: rows of one key in the order of time, without a sort of all, and without a partition for each key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkext.errors import InvalidOrderError
from sparkext.rows.types import spark_key_type
from sparkext.spark.frames import is_dataframe
from sparkext.spark.session_settings import is_case_sensitive, settings_of
from sparkext.state.user_states import FORMS, UnstorableStateError, encode_state
from sparkext.streams.arguments import check_name, ordering_session
from sparkext.streams.attributes import with_attributes
from sparkext.streams.ordered_frame import ordered_frame
from sparkext.streams.ordered_plan import Apply, Columns
from sparkext.streams.watermarks import is_marked
from sparkext.transforms.arguments import called_as, check_travel
from sparkext.transforms.columns import resolve_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType


@called_as('ordered(frame, time="time")', InvalidOrderError)
def ordered(
    frame: DataFrame,
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
    """Put the rows of each order key in the order of time, and process them in that order on the way.

        alerts = ordered(readings, time="ts", operator_key="sensor", order_key="device",
                         apply=detect, schema="device string, sensor string, ts timestamp, level double", state={})

    All rows of an order key come out in one partition, in the order of time: of a stream in every batch, and from one
    batch to the next, when the watermark has passed them. Only order keys that are too many rows for one task are
    processed in several, by operator key, and merged behind (P-SORT).

    Parameters
    ----------
    frame:
        A streaming DataFrame with a watermark on the column `time`, or one that is no stream.
    time:
        The column that tells when a row happened, a timestamp.
    order_key:
        The columns whose rows have to be in order, or an expression. Or a DataFrame that is no stream, which has the
        columns of `operator_key`, and others, which are the order key of each. By default all rows are in one order.
    operator_key:
        The columns whose rows `apply` has to have together. Needed with `apply`. Those of one order key are not those
        of another.
    apply:
        A function that takes rows of one operator key in the order of time, as an Arrow table, and returns an Arrow
        table. It is called again and again, with as many rows as there happen to be. What it returns has to be in the
        order of time, and may not happen before the first or after the last of the rows that it got.
    schema:
        That of what `apply` returns, which has the column `time`.
    state:
        The state of a new operator key. `apply` takes the state as its second argument, and returns a pair: rows, and
        the state to go on with. None: it takes and returns rows alone. A state is bytes, an Arrow table or record
        batch, or JSON: dict with keys of type str, list, str, int, float, bool and None.
    pickle_state:
        Whether states are pickled, and may be anything that can be. Whoever can write to the checkpoint can then run
        code in the workers.
    ties:
        A column that orders rows of one time. By default what they hold does.
    split:
        Whether rows of one order key may be processed in several tasks.
    late:
        The name of a column for rows that come late for the watermark: they come out in it, as a struct, all other
        columns null. By default they are dropped, and counted.
    name:
        That of the state in the checkpoint. Operators of one query that are alike need a name each.

    Raises
    ------
    InvalidOrderError
        Lists every problem of the call.
    """
    problems: list[str] = []
    session = ordering_session(frame, problems)
    check_name(name, problems)
    if session is None or problems:
        raise InvalidOrderError(problems)
    settings = settings_of(session)
    check_travel(frame.schema, "the", problems)
    asked = _Asked(frame, time, order_key, operator_key, ties, is_case_sensitive(session))
    columns = asked.columns(problems)
    function = _Function(apply, schema, state, pickle_state)
    operator = function.checked(frame, time, operator_key, asked.case_sensitive, problems)
    _check_options(late, split, problems)
    if problems:
        raise InvalidOrderError(problems)
    assert columns is not None, "or there is a problem"
    return ordered_frame(columns, operator, settings, split=split, late=late, name=name)


def _check_options(late: Any, split: Any, problems: list[str]) -> None:
    if late is not None and not isinstance(late, str):
        problems.append(f"late={late!r}: expected the name of a column")
    if not isinstance(split, bool):
        problems.append(f"split={split!r}: expected True or False")


@dataclass(frozen=True)
class _Asked:
    """The columns of a call, as users name them."""

    frame: DataFrame
    time: Any
    order_key: Any
    operator_key: Any
    ties: Any
    case_sensitive: bool

    def columns(self, problems: list[str]) -> Columns | None:
        """Return the columns by their places, None if `problems` got longer."""
        told, frame = len(problems), self.frame
        width = len(frame.columns)
        fields = frame.schema.fields
        time = self._place("time", self.time, fields, problems)
        if time is not None:
            self._check_time(fields[time], problems)
        operators = self._places("operator_key", self.operator_key, problems)
        orders = None
        if is_dataframe(self.order_key):
            frame = with_attributes(frame, self.order_key, operators, self.case_sensitive, problems)
            orders = tuple(range(width, len(frame.columns)))
        elif _is_column(self.order_key):
            frame = frame.select("*", self.order_key.alias("__order"))
            orders = (width,)
        else:
            orders = self._places("order_key", self.order_key, problems)
        ties = None if self.ties is None else self._place("ties", self.ties, fields, problems)
        fields = frame.schema.fields
        for place in (*orders, *operators, *(() if ties is None else (ties,))):
            if spark_key_type(fields[place]) is None:
                problems.append(
                    f"column {fields[place].name!r} of type {fields[place].dataType.simpleString()} cannot be a key"
                )
        if len(problems) > told:
            return None
        assert time is not None, "or there is a problem"
        return Columns(frame, width, time, orders, operators, ties)

    def _places(self, argument: str, named: Any, problems: list[str]) -> tuple[int, ...]:
        names = [] if named is None else [named] if isinstance(named, str) else named
        if not isinstance(names, Sequence) or not all(isinstance(one, str) for one in names):
            problems.append(f"{argument}={named!r}: expected the name of a column, or several")
            return ()
        found = (resolve_column(one, self.frame.schema.fields, "the", self.case_sensitive, problems) for one in names)
        return tuple(place for place in found if place is not None)

    def _place(self, argument: str, named: Any, fields: Sequence[StructField], problems: list[str]) -> int | None:
        if not isinstance(named, str):
            problems.append(f"{argument}={named!r}: expected the name of a column")
            return None
        return resolve_column(named, fields, "the", self.case_sensitive, problems)

    def _check_time(self, field: StructField, problems: list[str]) -> None:
        kind = field.dataType.simpleString()
        if kind not in ("timestamp", "timestamp_ntz"):
            problems.append(f"time is a {kind}: expected a timestamp")
        elif self.frame.isStreaming and not is_marked(field):
            problems.append(f"time has no watermark: see DataFrame.withWatermark({field.name!r}, …)")


@dataclass(frozen=True)
class _Function:
    """The function of a call, and what belongs to it, as users give it."""

    apply: Any
    schema: Any
    state: Any
    pickle_state: Any

    def checked(
        self, frame: DataFrame, time: Any, operator_key: Any, case_sensitive: bool, problems: list[str]
    ) -> Apply | None:
        """Return what is to be applied, None if there is nothing, or if `problems` got longer."""
        from pyspark.sql.types import StructType

        if not isinstance(self.pickle_state, bool):
            problems.append(f"pickle_state={self.pickle_state!r}: expected True or False")
        elif self.pickle_state and self.state is None:
            problems.append("pickle_state is given, but no state")
        if self.apply is None:
            for argument, value in (("schema", self.schema), ("state", self.state)):
                if value is not None:
                    problems.append(f"{argument} is given, but no apply")
            return None
        if not callable(self.apply):
            problems.append(f"apply={self.apply!r}: expected a function")
        if operator_key is None:
            problems.append("apply needs operator_key: whose rows it is to have together")
        initial = self._initial(problems)
        schema = self.schema
        if isinstance(schema, str):
            schema = frame.sparkSession.createDataFrame([], schema).schema
        if not isinstance(schema, StructType):
            problems.append(f"schema={schema!r}: apply needs the schema of what it returns, as DDL or StructType")
            return None
        check_travel(schema, "schema's", problems)
        found = (
            resolve_column(time, schema.fields, "schema's", case_sensitive, problems) if isinstance(time, str) else None
        )
        return None if found is None else Apply(self.apply, schema, found, initial, bool(self.pickle_state))

    def _initial(self, problems: list[str]) -> bytes | None:
        """Return the encoded state of a new key, None if there is none, or if `problems` got longer."""
        if self.state is None:
            return None
        try:
            return encode_state(self.state, bool(self.pickle_state))
        except UnstorableStateError as error:
            problems.append(f"state cannot be stored, {error}. It may be {FORMS}")
            return None


def _is_column(value: Any) -> bool:
    from pyspark.sql import Column

    return isinstance(value, Column)
