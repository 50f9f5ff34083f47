"""An S3-compatible store in a process of its own that takes its time for every request, and counts them.

    python -m bench.slow_store SECONDS

prints its port, and serves until its input ends. A GET of `/_asked` returns the requests since the last one, by method.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any
from urllib.request import urlopen

ASKED = "/_asked"


@dataclass(frozen=True)
class SlowStore:
    """A store that runs."""

    endpoint: str

    def asked(self) -> Counter[str]:
        """Return the requests since this was called last, by method, and the bytes that were sent."""
        with urlopen(self.endpoint + ASKED) as answer:
            return Counter(json.load(answer))


@contextmanager
def slow_store(seconds: float) -> Iterator[SlowStore]:
    """Start a store in a process of its own; it ends with the block."""
    command = [sys.executable, "-m", "bench.slow_store", str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        yield SlowStore(f"http://127.0.0.1:{int(process.stdout.readline())}")
        process.stdin.close()


class _Application:
    """The store as an application of WSGI."""

    def __init__(self, seconds: float) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._seconds = seconds
        self._store = DomainDispatcherApplication(create_backend_app)
        self._asked: Counter[str] = Counter()
        self._turn = Lock()

    def __call__(self, environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environment["PATH_INFO"] == ASKED:
            with self._turn:
                told, self._asked = json.dumps(self._asked).encode(), Counter()
            start("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(told)))])
            return [told]
        time.sleep(self._seconds)
        answer: list[bytes] = list(self._store(environment, start))
        with self._turn:
            self._asked[environment["REQUEST_METHOD"]] += 1
            self._asked["bytes"] += sum(map(len, answer))
        return answer


def _serve(seconds: float) -> None:
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        protocol_version = "HTTP/1.1"  # or every request would open a connection

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, _Application(seconds), threaded=True, request_handler=Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    _serve(float(sys.argv[1]))
