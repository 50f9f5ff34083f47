"""An object store with the protocol of S3, in its own process, that delays every request, and counts requests.

    python -m bench.engines.slow_store FOLDER SECONDS

prints its port, and serves the files of a folder as the objects of any bucket until its stdin ends. It supports the
requests of readers: listing objects, metadata of an object, and ranges of it. Tests use moto instead, which reads the
whole object for every range. A GET of `/_asked` returns the requests and bytes since the last such GET.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from urllib.request import urlopen
from xml.sax.saxutils import escape

ASKED = "/_asked"


@dataclass(frozen=True)
class SlowStore:
    """A running store."""

    endpoint: str

    def asked(self) -> Counter[str]:
        """Return the requests since the last call, by method, and the bytes that were sent, as `bytes`."""
        with urlopen(self.endpoint + ASKED) as answer:
            return Counter(json.load(answer))


@contextmanager
def slow_store(folder: Path, seconds: float) -> Iterator[SlowStore]:
    """Start a store in another process, which ends with the block."""
    command = [sys.executable, "-m", "bench.engines.slow_store", str(folder), str(seconds)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdin is not None
        yield SlowStore(f"http://127.0.0.1:{int(process.stdout.readline())}")
        process.stdin.close()


class _Store:
    """The objects, and the counts of requests."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.folder, self.seconds = folder, seconds
        self._asked: Counter[str] = Counter()
        self._turn = Lock()

    def count(self, method: str, sent: int) -> None:
        with self._turn:
            self._asked.update({method: 1, "bytes": sent})

    def told(self) -> bytes:
        with self._turn:
            told, self._asked = json.dumps(self._asked).encode(), Counter()
        return told

    def listing(self, bucket: str, asked: dict[str, list[str]]) -> bytes:
        """List the objects with a prefix; names with the delimiter after the prefix are grouped to common prefixes."""
        prefix, delimiter = (asked.get(name, [""])[0] for name in ("prefix", "delimiter"))
        found, common = [], set()
        for path in sorted(path for path in self.folder.rglob("*") if path.is_file()):
            key = path.relative_to(self.folder).as_posix()
            if key.startswith(prefix):
                below, _, rest = key[len(prefix) :].partition(delimiter or "\0")
                if rest:
                    common.add(f"{prefix}{below}{delimiter}")
                else:
                    found.append((key, path.stat()))
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>{_moment(status.st_mtime)}</LastModified>"
            f"<ETag>{escape(_tag(status))}</ETag><Size>{status.st_size}</Size></Contents>"
            for key, status in found
        )
        prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(common))
        head = f"<Name>{escape(bucket)}</Name><Prefix>{escape(prefix)}</Prefix><IsTruncated>false</IsTruncated>"
        counted = f"<KeyCount>{len(found) + len(common)}</KeyCount>"
        return f"<?xml version='1.0'?><ListBucketResult>{head}{counted}{contents}{prefixes}</ListBucketResult>".encode()


class _Handler(BaseHTTPRequestHandler):
    store: _Store
    protocol_version = "HTTP/1.1"  # keeps connections open between requests

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        if self.path == ASKED:
            self._send(200, self.store.told())
        else:
            self._answer()

    def _answer(self) -> None:
        time.sleep(self.store.seconds)
        url = urlsplit(self.path)
        _, bucket, *key = unquote(url.path).split("/", 2)
        path = self.store.folder / (key[0] if key else "")
        if "list-type" in url.query:
            body, status, headers = self.store.listing(bucket, parse_qs(url.query)), 200, {}
        elif path.is_file():
            body, status, headers = self._object(path)
        else:
            body, status, headers = b"", 404, {}
        self.store.count(self.command, len(body))
        self._send(status, body, headers)

    def _object(self, path: Path) -> tuple[bytes, int, dict[str, str]]:
        status = path.stat()
        headers = {"ETag": _tag(status), "Last-Modified": formatdate(status.st_mtime, usegmt=True)}
        headers["Accept-Ranges"] = "bytes"
        if self.command == "HEAD":
            return b"", 200, {**headers, "Content-Length": str(status.st_size)}
        first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last or status.st_size), status.st_size - 1) + 1
        with path.open("rb") as stream:
            stream.seek(start)
            body = stream.read(stop - start)
        if "Range" not in self.headers:
            return body, 200, headers
        return body, 206, {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{status.st_size}"}

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def _tag(status: object) -> str:
    return f'"{status.st_mtime_ns:x}-{status.st_size:x}"'  # type: ignore[attr-defined]


def _moment(seconds: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{whole}.{int(seconds % 1 * 1000):03}Z"


def _serve(folder: Path, seconds: float) -> None:
    _Handler.store = _Store(folder, seconds)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()
    server.shutdown()


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), float(sys.argv[2]))
