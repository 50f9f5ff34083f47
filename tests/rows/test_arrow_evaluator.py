"""What Arrow makes of conditions, against the oracle."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from sparkext.kernels.gather import Column
from sparkext.plans import expression
from sparkext.plans.evaluators import ARROW
from sparkext.plans.expression import COMPARISONS, ORDERINGS, STRING_TESTS, Expression, among, condition
from sparkext.plans.key_types import parse_key_type
from sparkext.rows.arrow_evaluator import holds
from sparkext.rows.row_set import RowSet
from tests.kernels.support import SAMPLES, examples
from tests.oracle.expressions import evaluate, texts_of

KINDS = [name for name in SAMPLES if not name.startswith(("float", "large", "binary"))]
ROWS = 12


@st.composite
def values(draw: st.DrawFn, kind: str, depth: int = 0) -> Expression:
    """A column, a literal, or a condition where a boolean is asked for."""
    key_type = parse_key_type(kind)
    if kind == "bool" and depth > 0:
        return draw(conditions(depth - 1))
    if draw(st.booleans()):
        return expression.literal(draw(st.sampled_from(texts_of(kind))), key_type)
    return expression.column(0, KINDS.index(kind) + draw(st.sampled_from([0, len(KINDS)])), key_type)


@st.composite
def conditions(draw: st.DrawFn, depth: int) -> Expression:
    kind = draw(st.sampled_from(KINDS))
    op = draw(st.sampled_from([op for op in ARROW.operators if op != "literal" and (depth or op not in ("and", "or"))]))
    if op == "column":
        return draw(values("bool"))
    if op in COMPARISONS:
        kind = kind if kind != "bool" or op not in ORDERINGS else "int8"
        return condition(op, draw(values(kind, depth)), draw(values(kind, depth)))
    if op in STRING_TESTS:
        pattern = draw(st.sampled_from(["", "%", "a", "a%", "%a%b", "ä", "\0"]))
        return condition(op, draw(values("string")), expression.literal(pattern, parse_key_type("string")))
    if op == "in":
        return among(draw(values(kind, depth)), draw(st.lists(st.sampled_from(texts_of(kind)), min_size=1, max_size=4)))
    if op == "is_null":
        column = draw(values(kind, depth))
        # A column whose type has no name here can be tested as well.
        bare = column.op == "column" and draw(st.booleans())
        return condition(op, expression.column(0, column.column, None) if bare else column)
    below = [draw(conditions(depth - 1)) if depth else draw(values("bool")) for _ in range(draw(st.integers(1, 3)))]
    return condition(op, *(below[:1] if op == "not" else below))


@given(tested=conditions(3), seed=st.integers(0, 1 << 32))
@examples(400)
def test_any_condition(tested: Expression, seed: int) -> None:
    assert ARROW.uncovered(tested) is None
    generator = random.Random(seed)
    columns, told = [], []
    for number, kind in enumerate([*KINDS, *KINDS]):
        sample = SAMPLES[kind]
        picks = [generator.randrange(len(sample.raw)) for _ in range(ROWS)]
        valid = [number >= len(KINDS) or generator.random() < 0.7 for _ in range(ROWS)]
        columns.append(Column.of(sample.array(picks, valid, before=1)))
        told.append(sample.keys(picks, valid))
    rows = [{(0, number): column[row] for number, column in enumerate(told)} for row in range(ROWS)]
    got = holds(tested, RowSet.of_morsel(columns, ROWS)).tolist()
    assert got == [evaluate(tested, row) is True for row in rows]
