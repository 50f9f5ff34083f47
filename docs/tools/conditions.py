"""The pages of errors and of reasons, from the registry of conditions (`sparkext/error_conditions.json`)."""

from __future__ import annotations

import json
from typing import Any

from sparkext import errors
from sparkext.spark.jar import CONDITIONS
from sparkext.wording import format_markdown_table

REGISTRY: dict[str, Any] = json.loads(CONDITIONS.read_text(encoding="utf-8"))


def errors_page() -> str:
    """Return the conditions of Python's errors as Markdown, under the names of their classes."""
    classes = {
        error.getCondition().removeprefix("SPARKEXT."): error
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.SparkExtError)
    }
    return "\n\n".join(
        f"### {classes[name].__name__}\n\n`SPARKEXT.{name}`: {' '.join(str(classes[name].__doc__).split())}\n\n{remedy}"
        for name, remedy in REGISTRY["errors"].items()
    )


def reasons_page() -> str:
    """Return the reasons as Markdown, one table for each place that shows them."""
    header = ("name", "reason", "meaning and remedy")
    sections = []
    for group in REGISTRY["reasons"]:
        rows = [(f"`{name}`", f"`{texts['message']}`", texts["remedy"]) for name, texts in group["reasons"].items()]
        sections.append(f"## {group['title']}\n\n{group['about']}\n\n{format_markdown_table(header, rows)}")
    return "\n\n".join(sections)
