"""Draws a graph of queries as Mermaid text: streams, and queries in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sparkext.streaming.cql.language.graph import Graph
from sparkext.streaming.cql.language.queries import spell_delay

_STYLES = """\
    classDef stream stroke:#2f80d0
    classDef cycle stroke:#c8640c"""


@dataclass(frozen=True)
class Drawing:
    """A drawing as Mermaid text. JupyterLab 4.1 and later shows it as a picture."""

    mermaid: str

    def save(self, path: str | Path) -> None:
        """Write the text to a file."""
        Path(path).write_text(self.mermaid, encoding="utf-8")

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/vnd.mermaid": self.mermaid, "text/plain": self.mermaid}


def draw_graph(graph: Graph) -> Drawing:
    """Draw streams (blue), queries with their positions, cycles (orange), and delays (dashed, with their length)."""
    ids = {name: f"n{number}" for number, name in enumerate([*graph.streams, *graph.order])}
    on_cycles = {name for part in graph.components for name in part}
    lines = ["flowchart TB"]
    for name, node in ids.items():
        number = f"{graph.order.index(name) + 1}. " if name in graph.queries else ""
        style = ":::stream" if name in graph.streams else ":::cycle" if name in on_cycles else ""
        label = f"{number}{name}<br>{_describe_node(graph, name)}".replace('"', "#quot;")
        lines.append(f'    {node}["{label}"]{style}')
    for name in graph.order:
        for read in graph.queries[name].reads():
            delay = graph.queries[read].delay if read in graph.queries else None
            arrow = "-->" if delay is None else f'-. "{spell_delay(delay)}" .->'
            lines.append(f"    {ids[read]} {arrow} {ids[name]}")
    return Drawing("\n".join([*lines, _STYLES]) + "\n")


def _describe_node(graph: Graph, name: str) -> str:
    if name in graph.streams:
        return "stream"
    query = graph.queries[name]
    label = "relation" if query.operator is None else query.operator.upper()
    return label + ("" if graph.is_monotone(name) else ", not monotone")
