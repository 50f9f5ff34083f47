"""The package's error messages, extracted from its sources, by error class.

Messages are extracted from constructed errors (`SomeError(…)`) and from collected problems of a call
(`problems.append(…)`), including helpers and constants of the same module. A message that cannot be resolved raises an
error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from sparkext.streaming.cql.language.unsupported import MESSAGES as UNSUPPORTED_SQL

PACKAGE = Path(__file__).parents[2] / "sparkext"
OPEN = "…"

_COLLECTED_IN = {
    "scans/resolved_scan.py": "InvalidScanError",
    "scans/scan_filter.py": "InvalidScanError",
    "config.py": "ConfigError",
    "streaming/ordered/ordered.py": "InvalidOrderError",
    "streaming/ordered/attributes.py": "InvalidOrderError",
    "streaming/cql/continuous.py": "InvalidQueryError",
    "streaming/cql/frame.py": "InvalidQueryError",
}
# Expressions whose messages are extracted elsewhere.
_PASSED_ON = (
    "problems",
    "problems.problems",
    "error.text",
    "obstacles",
    "'\\n'.join(problems)",
    "str(error)",
    "misconfigured",
    "str(misconfigured).splitlines()",
)
# Variables that hold messages of another module.
_HELD = {"instead": UNSUPPORTED_SQL}
# Modules whose `problems` are not messages: arrow.py collects pairs of names and types for its caller.
_SILENT = ("arrow.py",)


def messages() -> dict[str, list[str]]:
    """Return the messages of every error class, in the order of modules and lines."""
    classes = _error_classes()
    found: dict[str, dict[str, None]] = {name: {} for name in classes}
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.name not in _SILENT:
            for error, message in _Module(path).messages(classes):
                found[error][message] = None
    return {error: list(texts) for error, texts in found.items()}


def page() -> str:
    """Return the messages as Markdown, under the name and the docstring of each class."""
    classes = _error_classes()
    sections = []
    for error, texts in messages().items():
        if texts:
            lines = [f"### {error}", "", classes[error], ""]
            sections.append("\n".join([*lines, *(f"- {_code(text)}" for text in texts)]))
    return "\n\n".join(sections)


def _code(text: str) -> str:
    spaced = " ".join(text.split())
    return f"`` {spaced} ``" if "`" in spaced else f"`{spaced}`"


def _error_classes() -> dict[str, str]:
    tree = ast.parse((PACKAGE / "errors.py").read_text(encoding="utf-8"))
    return {
        node.name: " ".join((ast.get_docstring(node) or "").split())
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


class _Module:
    def __init__(self, path: Path) -> None:
        self._name = path.name
        self._tree = ast.parse(path.read_text(encoding="utf-8"))
        self._functions = {node.name: node for node in ast.walk(self._tree) if isinstance(node, ast.FunctionDef)}
        self._constants = {
            node.targets[0].id: node.value
            for node in self._tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        self._is_cql = path.parent == PACKAGE / "streaming" / "cql" / "language"  # problems there have positions
        place = path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else path.name
        self._collected = _COLLECTED_IN.get(place, "InvalidJoinError")

    def messages(self, classes: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield error class and message of every message in the module."""
        for node in ast.walk(self._tree):
            for error, said in self._told(node, classes):
                for text in self._texts(said):
                    yield error, text

    def _told(self, node: ast.AST, classes: Mapping[str, str]) -> Iterator[tuple[str, ast.expr]]:
        """Yield error class and expression of the message, if this node constructs an error or collects problems."""
        match node:
            case ast.Call(func=ast.Name(id=name), args=[said, *_]) if name in classes:
                yield name, said
            case ast.Call(func=ast.Name(id="cls"), args=[said]) if self._name == "errors.py":
                yield "FileReadError", said
            case ast.Call(func=ast.Name(id="BindingError"), args=[_, said]):
                yield "InvalidQueryError", said
            case ast.Call(func=ast.Name(id="CqlProblems"), args=[ast.List(elts=[ast.Tuple(elts=[_, said])])]):
                yield "InvalidQueryError", said
            case ast.Call(func=ast.Attribute(value=ast.Name(id="problems")), args=[ast.Tuple(elts=[_, said])]):
                yield "InvalidQueryError", said
            case ast.Assign(targets=[ast.Name(id="problems")]) | ast.AnnAssign() if self._is_cql:
                pass
            case ast.Call(func=ast.Attribute(value=ast.Name(id="problems"), attr="append" | "extend"), args=[said]):
                yield self._collected, said
            case ast.Assign(targets=[ast.Name(id="problems")], value=said):
                yield self._collected, said
            case ast.AugAssign(target=ast.Name(id="problems"), value=said):
                yield self._collected, said

    def _texts(self, node: ast.expr) -> list[str]:
        """Return the possible texts of an expression. Raises `ValueError` if they cannot be determined."""
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=parts):
                text = "".join(self._part(part) for part in parts)
                return [text.replace(OPEN + OPEN, OPEN)]
            case ast.Name(id=name) if name in self._constants:
                return self._texts(self._constants[name])
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return [one + other for one in self._texts(left) for other in self._texts(right)]
            case ast.IfExp(body=body, orelse=otherwise):
                return self._texts(body) + self._texts(otherwise)
            case ast.List(elts=items) | ast.Tuple(elts=items):
                return [text for item in items for text in self._texts(item)]
            case ast.GeneratorExp(elt=item) | ast.ListComp(elt=item) | ast.Starred(value=item):
                return self._texts(item)
            case ast.Call(func=ast.Name(id=name)) if name in self._functions:
                returned = [part.value for part in ast.walk(self._functions[name]) if isinstance(part, ast.Return)]
                return [text for value in returned if value is not None for text in self._texts(value)]
            case ast.Name(id=name) if name in _HELD:
                return [*dict.fromkeys(_HELD[name])]
        if ast.unparse(node) in _PASSED_ON:
            return []
        raise ValueError(f"{self._name}, line {node.lineno}: cannot tell what is said by {ast.unparse(node)}")

    def _part(self, part: ast.expr) -> str:
        """Return the text of a part of a formatted string: constants of the module as text, other values as `OPEN`."""
        match part:
            case ast.Constant(value=value):
                return str(value)
            case ast.FormattedValue(value=ast.Name(id=name)) if name in self._constants:
                try:
                    return "".join(self._texts(self._constants[name]))
                except ValueError:  # not a text
                    return OPEN
        return OPEN
