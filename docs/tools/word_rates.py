"""Rates of constructions that make sentences hard to read: `python -m docs.tools.word_rates`.

Reads comments, docstrings, messages and pages, and prints one line for each construction: its rate per 10,000 words,
the highest expected rate, and the files with most occurrences. The rates are a reminder; no test checks them.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PYTHON = ("sparkext", "kernels", "plans", "bench", "docs/tools", "tests", "examples")
PAGES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md")
REGISTRY = "sparkext/error_conditions.json"
GENERATED = ("docs/reference.md", "docs/papers.md")
_WORST = 3

_WORD = re.compile(r"[A-Za-z']+")
_QUESTION = re.compile(r"[^.?!:;]*\?")
_SCALA = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)* (?:[^"\\\n]|\\.)*"', re.DOTALL)
"""Comments, and strings of several words."""
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)

CONSTRUCTIONS = {
    "what": (re.compile(r"\bwhat\b", re.IGNORECASE), 15),
    "where": (re.compile(r"\b[Ww]here\b"), 15),
    "tell, tells, told": (re.compile(r"\b(tell|tells|told)\b", re.IGNORECASE), 2),
    "that of, those of": (re.compile(r"\b(that|those) of\b", re.IGNORECASE), 10),
    "behind, beside, lies": (re.compile(r"\b(behind|beside|lies)\b", re.IGNORECASE), 3),
    "that which, those which": (re.compile(r"\b(that|those) which\b", re.IGNORECASE), 1),
}
"""The expression of each construction, and its highest expected rate. WHERE in capitals is SQL."""


def rates(texts: Iterable[tuple[str, str]]) -> dict[str, tuple[float, list[tuple[str, int]]]]:
    """Return each construction's rate per 10,000 words and its most frequent files, from (file, text) pairs."""
    words = 0
    found: dict[str, Counter[str]] = {name: Counter() for name in CONSTRUCTIONS}
    for file, text in texts:
        prose = _CODE.sub(" ", text)
        words += len(_WORD.findall(prose))
        for name, (expression, _) in CONSTRUCTIONS.items():
            outside = _QUESTION.sub(" ", prose) if name == "what" else prose
            found[name][file] += len(expression.findall(outside))
    return {name: (1e4 * sum(by.values()) / max(words, 1), by.most_common(_WORST)) for name, by in found.items()}


def prose() -> Iterator[tuple[str, str]]:
    """Yield (file, text) of each source file and page."""
    for path in sorted(path for folder in PYTHON for path in (ROOT / folder).rglob("*.py")):
        yield _named(path), "\n\n".join(python_prose(path.read_text(encoding="utf-8")))
    for path in sorted((ROOT / "sparkext" / "jvm").rglob("*.scala")):
        yield _named(path), "\n\n".join(_SCALA.findall(path.read_text(encoding="utf-8")))
    yield REGISTRY, (ROOT / REGISTRY).read_text(encoding="utf-8")
    for path in sorted(path for page in PAGES for path in ROOT.glob(page)):
        if _named(path) not in GENERATED:
            yield _named(path), path.read_text(encoding="utf-8")


def python_prose(source: str) -> Iterator[str]:
    """Yield the comments of a source, its docstrings, and its strings of more than two words."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) > 2:
            yield node.value


def _named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def main() -> None:
    """Print the rates."""
    for name, (rate, worst) in rates(prose()).items():
        files = ", ".join(f"{file} {count}" for file, count in worst if count)
        print(f"{name:24} {rate:6.1f} per 10,000 words, expected {CONSTRUCTIONS[name][1]:2} at most: {files}")


if __name__ == "__main__":
    main()
