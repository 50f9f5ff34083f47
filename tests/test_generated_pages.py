"""Generated parts of pages agree with the code: options, reasons of declines, error messages."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

import sparkext.errors
from docs.tools import declines, generate, python_errors, scala_texts
from sparkext.config import REGISTRY
from sparkext.errors import SparkExtError

DOCS = Path(__file__).parents[1] / "docs"


@pytest.mark.parametrize("page", generate.pages(), ids=lambda page: page.name)
def test_pages_are_up_to_date(page: Path) -> None:
    """For `declines`, `rendered` raises as well if a reason in the sources has no explanation."""
    assert page.read_text(encoding="utf-8") == generate.rendered(page), "run `python -m docs.tools.generate`"


def test_every_option_is_there() -> None:
    page = (DOCS / "options.md").read_text(encoding="utf-8")
    assert not [key.name for key in REGISTRY if (f"| `{key.name}` |" in page) == key.is_internal]


def test_a_reason_that_nobody_explains_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "New.scala").write_text('object New { def why(x: Int) = Left(s"a join of ${x + "{".length} moons") }')
    monkeypatch.setattr(declines, "SOURCES", tmp_path)
    expected = r"not explained \['a join of … moons'\], not in the sources \[.*'a streaming"
    with pytest.raises(ValueError, match=expected):
        declines.page()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('val a = "one two" // "three four"', ["one two"]),
        ('/* "x y" */ s"$a b ${c("d e")} f"', ["… b … f"]),
        ('"a " +\n  s"b $c" + d', ["a b …"]),
        ("""'"' + "it's \\"so\\"" + '\\''""", ['it\'s "so"']),
        ('f"took $seconds%.3f s"', ["took … s"]),
        ('"""raw \\ "quoted" text"""', ['raw \\ "quoted" text']),
    ],
)
def test_texts_of_scala(source: str, expected: list[str]) -> None:
    assert scala_texts.texts(source) == expected


def test_every_error_that_is_raised_is_on_the_page() -> None:
    classes = {
        name
        for name, value in vars(sparkext.errors).items()
        if isinstance(value, type) and issubclass(value, SparkExtError)
    }
    silent = {error for error, texts in python_errors.messages().items() if not texts}
    assert set(python_errors.messages()) == classes
    assert silent == {"SparkExtError", "InvalidCallError"}, "bases of others"


def test_a_message_that_cannot_be_told_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "new.py"
    path.write_text(
        dedent("""
        def check(problems, x):
            problems.append(f"x={x!r}: " + ("too large" if x else "missing"))
            raise ConfigError(_said(x))

        def _said(x):
            return made_elsewhere(x)
        """)
    )
    told = python_errors._Module(path).messages({"ConfigError": ""})
    assert [next(told), next(told)] == [("InvalidJoinError", "x=…: too large"), ("InvalidJoinError", "x=…: missing")]
    with pytest.raises(ValueError, match=r"new.py, line 7: cannot tell what is said by made_elsewhere\(x\)"):
        next(told)
