"""Spark sessions in processes of their own, so that each runs every query equally often and warms up alone."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.engines.views import named_in
from bench.harness import step

_ROOT = Path(__file__).parents[2]


class QueryFailedError(Exception):
    """A session could not run a query."""


@dataclass(frozen=True)
class Session:
    """Settings of a session; `extended`: with this package's extension."""

    settings: Mapping[str, str]
    extended: bool = False


class QueryProcess:
    """The running process of a session, which reads Parquet files of its own by table name."""

    def __init__(self, name: str, tables: Mapping[str, Path], process: subprocess.Popen[str], log: Path) -> None:
        self.name, self._tables, self._process, self._log = name, tables, process, log

    def send(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request and return the answer.

        Raises
        ------
        QueryFailedError
            The query failed, or the process ended.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise QueryFailedError(f"the session of {self.name} ended; see {self._log}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise QueryFailedError(f"{self.name}: {answer['error']}")
        return answer

    def run(self, text: str, conf: Mapping[str, str] | None = None, cold: bool = False) -> dict[str, Any]:
        """Run a query over its tables as they are now; with `cold`, as if all files had changed.

        Return the answer of `bench.engines.query_server`. Errors as in `send`.
        """
        tables = {name: str(path) for name, path in named_in(text, self._tables).items()}
        return self.send({"sql": text, "conf": dict(conf or {}), "tables": tables, "cold": cold})


@contextmanager
def query_process(name: str, session: Session, tables: Mapping[str, Path], log: Path) -> Iterator[QueryProcess]:
    """Start Spark in another process, and end it at the end of the block. stderr is written to `log`."""
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.engines.query_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=_ROOT,
        )
    try:
        started = QueryProcess(name, tables, process, log)
        with step(f"starting Spark: {name}"):
            started.send({"settings": dict(session.settings), "extended": session.extended})
        yield started
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(60)
