"""The event-time columns of a join of two streams.

After a join, the mark of a column with a watermark would promise that no emitted row is late. But a row may match other
rows long after its event time. So a join removes the marks, and marks only a column for which the promise holds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sparkext.joins.columns import OutputField, check_names
from sparkext.joins.resolved_join import ResolvedJoin
from sparkext.plans.shuffle.fragments import LEFT
from sparkext.streaming.frames import name_column
from sparkext.streaming.join.description_of import require_event_time
from sparkext.streaming.state.stream_state import StoredSide
from sparkext.streaming.watermarks import MARK, is_marked

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def resolve_event_times(
    left: DataFrame, right: DataFrame, consumer: str, problems: list[str]
) -> tuple[int, int] | None:
    """Return the event-time columns of both sides, None if `problems` got longer.

    `consumer` names the argument or operator that requires them, for the message.
    """
    sides = ((left, "left"), (right, "right"))
    times = [_resolve_event_time(frame, side, consumer, problems) for frame, side in sides]
    if times[0] is None or times[1] is None:
        return None
    kinds = [frame.schema.fields[time].dataType for frame, time in ((left, times[0]), (right, times[1]))]
    if kinds[0] != kinds[1]:
        problems.append(
            f"the column with the watermark is a {kinds[0].simpleString()} on the left side and a"
            f" {kinds[1].simpleString()} on the right side, and {consumer} compares the two columns: cast one of them"
        )
        return None
    return times[0], times[1]


def _resolve_event_time(frame: DataFrame, side: str, consumer: str, problems: list[str]) -> int | None:
    """Return the position of the only column of a side with a watermark, or None after adding to `problems`."""
    marked = [number for number, field in enumerate(frame.schema.fields) if is_marked(field)]
    if len(marked) == 1:
        return marked[0]
    count = "no such column" if not marked else f"{len(marked)} such columns"
    problems.append(
        f"{consumer} requires one column with a watermark on the {side} side, which has {count}: see"
        " DataFrame.withWatermark"
    )
    return None


def remove_watermarks(resolved: ResolvedJoin, but: int | None = None) -> ResolvedJoin:
    """Return the join without watermarks on the columns of its result, except on the column at position `but`."""
    outputs = [out if number == but else _remove_watermark(out) for number, out in enumerate(resolved.outputs)]
    return replace(resolved, outputs=tuple(outputs))


def _remove_watermark(output: OutputField) -> OutputField:
    from pyspark.sql.types import StructField

    field = output.field
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != MARK}
    return replace(output, field=StructField(field.name, field.dataType, field.nullable, metadata))


@dataclass(frozen=True)
class TimeColumn:
    """The later event time of the two rows of a pair. The row with that time was not late, so the pair is not late.

    `left` and `right` are positions in the result. If the join emits left rows without a match, their time is the
    expiry of the row, `lasts` µs after its event time. `delay` is the delay of the watermark in ms.
    """

    name: str
    left: int
    right: int
    lasts: int | None
    delay: int

    def column(self) -> Column:
        """Return the column."""
        from pyspark.sql import functions as F

        left, right = (F.col(name_column(number)) for number in (self.left, self.right))
        time = F.greatest(left, right) if self.left != self.right else left
        if self.lasts is not None:
            expiry = left + F.expr(f"make_dt_interval(0, 0, 0, {self.lasts / 1e6:.6f}bd)")
            time = F.when(right.isNull(), expiry).otherwise(time)
        return time.alias(self.name, metadata={MARK: self.delay})


def resolve_time_column(
    name: str, resolved: ResolvedJoin, sides: tuple[StoredSide, StoredSide], case_sensitive: bool, problems: list[str]
) -> TimeColumn | None:
    """Return the event-time column of a join's result, None if `problems` got longer."""
    from pyspark.sql.types import StructField

    outputs, before = resolved.outputs, len(problems)
    positions = {(output.ref.source, output.ref.column): number for number, output in enumerate(outputs)}
    left, right = (positions.get((side, require_event_time(stored))) for side, stored in enumerate(sides))
    assert left is not None, "all columns of the left side are in the result"
    lasts = sides[LEFT].retained if resolved.spec.how == "left" else None
    check_names(
        [*outputs, replace(outputs[left], field=StructField(name, outputs[left].field.dataType))],
        case_sensitive,
        problems,
    )
    if right is None and lasts is not None:
        problems.append(
            f"event_time={name!r}: the result has only one column for the two columns with a watermark, so it does not"
            " show whether a row has a match: write on=[(left, right), …] to keep both columns"
        )
    if len(problems) > before:
        return None
    time_columns = (left, left if right is None else right)
    return TimeColumn(
        name, *time_columns, lasts, max(outputs[number].field.metadata.get(MARK, 0) for number in time_columns)
    )
