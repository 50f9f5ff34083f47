"""The command line: `python -m sparkext demo`, `doctor`, `jar`, `warm-up`, `options` and `version`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from sparkext.errors import SparkExtError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command in `argv`. Return the exit status.

    It is 0, 1 for a failed check or wrong rows, 2 for an error of this package, or 130 if the user interrupts the
    command.
    """
    arguments = _build_parser().parse_args(argv)
    try:
        if arguments.command == "demo":
            from sparkext.cli import demo

            return demo.run_demo(arguments.sf, arguments.data, arguments.cores, arguments.runs)
        if arguments.command == "doctor":
            from sparkext.cli import doctor

            return doctor.run(arguments.only)
        if arguments.command == "jar":
            from sparkext.spark import jar

            print(jar.build_jar(jar.installed_pyspark()) if arguments.build else jar.locate_jar())
            return 0
        if arguments.command == "warm-up":
            from sparkext.worker.warm_up import warm_up

            print("compiling kernels, or loading them from numba's cache: up to 15 s", file=sys.stderr)
            warm_up()
            return 0
        if arguments.command == "options":
            from sparkext.config import render_markdown_table

            print(render_markdown_table())
            return 0
        from sparkext._version import __version__

        print(f"sparkext {__version__}")
        return 0
    except SparkExtError as error:
        print(f"sparkext: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nsparkext: interrupted", file=sys.stderr)
        return 130


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="sparkext", description="Pipelined joins for Spark.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="{demo,doctor,jar,warm-up,options,version}")

    demo = commands.add_parser(
        "demo", help="join TPC-H tables with sparkext and with Spark, verify that the results agree, and time both"
    )
    demo.add_argument("--sf", type=_parse_scale_factor, default=1.0, help="TPC-H scale factor (default: 1)")
    demo.add_argument(
        "--data",
        type=Path,
        default=Path(".data") / "tpch",
        help="folder that holds one sub-folder of tables per scale factor (default: %(default)s)",
    )
    demo.add_argument("--cores", type=_parse_count, help="cores that Spark may use (default: all)")
    demo.add_argument("--runs", type=_parse_count, default=3, help="timed runs of each plan (default: 3)")

    doctor = commands.add_parser(
        "doctor", help="check the requirements of sparkext, and print the remedy of each problem"
    )
    doctor.add_argument(
        "--only",
        type=_parse_local_checks,
        default=(),
        metavar="CHECK,...",
        help="run only these of the checks that need no session: python, java, pyspark, …",
    )

    jar = commands.add_parser("jar", help="print the path of the session extension's jar for the installed PySpark")
    jar.add_argument(
        "--build", action="store_true", help="build the jar first if it is missing or older than its sources"
    )

    commands.add_parser(
        "warm-up", help="compile the most common kernels into numba's cache, for example in a container image"
    )
    commands.add_parser("options", help="print the configuration keys as a Markdown table")
    commands.add_parser("version", help="print the version of sparkext")
    return parser


def _parse_scale_factor(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text}: expected a scale factor above 0, such as 0.01, 1 or 10")
    return value


def _parse_count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text}: expected a whole number of at least 1")
    return value


def _parse_local_checks(text: str) -> list[str]:
    from sparkext.cli.doctor import LOCAL_CHECKS

    names = text.split(",")
    unknown = [name for name in names if name not in LOCAL_CHECKS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; available: {', '.join(LOCAL_CHECKS)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
