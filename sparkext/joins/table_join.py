"""A join of a DataFrame with a build side: the checks that all transforms share, and the join without Catalyst."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sparkext.joins.arguments import check_arrow_types, check_dataframe, read_or_default, refuse
from sparkext.joins.build_side import DriverBuildSide, convert_build_side, publish
from sparkext.joins.columns import JoinInputs, resolve_column
from sparkext.joins.lineage import Lineage, lineage_of
from sparkext.joins.ownership import shuffle_with_build_rows
from sparkext.joins.resolved_join import ResolvedJoin
from sparkext.spark.session_settings import is_case_sensitive, read_session_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    Resolve = Callable[..., ResolvedJoin | None]


class TableJoin:
    """A call of a transform with its left side.

    `problems` are the problems of the call found so far. `resolve(inputs, problems=…)` returns the join, or None after
    adding to the problems that it is passed; it is called once for each pipeline that the join may extend.
    """

    def __init__(self, left: Any, other: Any, overrides: Mapping[str, object], problems: list[str]) -> None:
        """Read the settings and convert `other`. Raise if `left` is no Spark DataFrame."""
        if not check_dataframe("the left side", left, problems):
            refuse(problems[-1:])
        self.left: DataFrame = left
        self.session = left.sparkSession
        self.overrides = overrides
        self.settings, self._settings_error = read_or_default(read_session_options(self.session), overrides)
        self._case_sensitive = is_case_sensitive(self.session)
        self._problems = problems
        self._build = convert_build_side(self.session, other, problems)

    def refuse(self) -> None:
        """Raise all problems of the call."""
        refuse(self._problems, self._settings_error)

    @property
    def build(self) -> DriverBuildSide:
        """The build side, once there is no problem."""
        assert self._build is not None, "or there is a problem"
        return self._build

    def check(self, resolve: Resolve | None, names: Sequence[str] = (), *, sends_right: bool = True) -> None:
        """Check types and resolve columns, and raise all problems of the call.

        `resolve` is None if the condition of the join has problems. `names` are the left columns of the condition, to
        be checked if `other` has problems. `sends_right`: whether all right columns are sent to workers.
        """
        check_arrow_types(self.left.schema, "left", self._problems)
        if sends_right and self._build is not None:
            check_arrow_types(self._build.schema, "right", self._problems)
        lineage = lineage_of(self.left)
        resolved = None
        if self._build is None:
            fields = [output.field for output in lineage.outputs]
            for name in names:
                resolve_column(name, fields, "left", self._case_sensitive, self._problems)
        elif resolve is not None:
            resolved = resolve(self._inputs(lineage), problems=self._problems)
        self.refuse()
        assert resolve is not None and resolved is not None, "or there is a problem"
        self._resolve, self._lineage, self._resolved_join = resolve, lineage, resolved

    def resolved(self) -> ResolvedJoin:
        """Return the join as the first of a new pipeline, after `check`."""
        resolved = self._resolve(self._inputs(Lineage.starting_at(self.left)), problems=[])
        assert resolved is not None, "it has been checked"
        return resolved

    def replicate(self) -> DataFrame:
        """Join with the build side replicated on each node, after `check`.

        The join extends the pipeline that computes the left side, unless it emits unmatched build rows.
        """
        join = self._resolved_join
        if not join.spec.preserves_build:
            source = self.build.source(self.session, join.published, self.settings)
            return self._lineage.then(join, source, self.settings)
        join = self.resolved()
        table = self.build.table(self.session, join.published, self.settings)
        source = publish(self.session, table, self.settings)
        shuffled = shuffle_with_build_rows(self.left, join, source, table, self.settings)
        return Lineage.starting_at(self.left).reading(*shuffled).then(join, source, self.settings)

    def _inputs(self, lineage: Lineage) -> JoinInputs:
        source = len(lineage.spec.joins) + 1
        fields = self.build.schema.fields
        return JoinInputs(lineage.outputs, fields, source, self.settings.algorithm, self._case_sensitive)
