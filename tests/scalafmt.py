"""Formats the Scala sources: `python -m tests.scalafmt [--check]`.

scalafmt is fetched from Maven Central into `.data/scalafmt` once, 21 MB. `scalafmt.lock` has the digest and the path of
each jar, as in a Maven repository; options are in `.scalafmt.conf`.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sparkext.spark.java import require_java

ROOT = Path(__file__).parents[1]
JARS = ROOT / ".data" / "scalafmt"
MAVEN = "https://repo1.maven.org/maven2"


def fetch(line: str) -> Path:
    """Return a jar of the lock file, downloaded if it is not there, or if its content differs."""
    digest, path = line.split()
    jar = JARS / Path(path).name
    if not jar.exists() or hashlib.sha256(jar.read_bytes()).hexdigest() != digest:
        with urllib.request.urlopen(f"{MAVEN}/{path}", timeout=120) as response:
            content = response.read()
        if hashlib.sha256(content).hexdigest() != digest:
            raise SystemExit(f"{MAVEN}/{path} has another digest than in {Path(__file__).with_suffix('.lock')}")
        part = jar.with_suffix(".part")
        part.write_bytes(content)
        part.replace(jar)
    return jar


def main(arguments: list[str]) -> int:
    """Format the sources, or check them. Return the exit status of scalafmt."""
    JARS.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(8) as pool:
        jars = list(pool.map(fetch, Path(__file__).with_suffix(".lock").read_text(encoding="utf-8").splitlines()))
    java, _ = require_java()
    options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xss4m", "-cp", ":".join(map(str, jars))]
    command = ["org.scalafmt.cli.Cli", "--config", str(ROOT / ".scalafmt.conf"), "--non-interactive", "--quiet"]
    ran = subprocess.run([java, *options, *command, *arguments, str(ROOT / "sparkext" / "jvm")], check=False)
    if ran.returncode != 0 and "--check" in arguments:
        print("run `python -m tests.scalafmt`", file=sys.stderr)
    return ran.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
