"""`configure` fails if Spark is running without the extension, and if it has run without it before."""

from __future__ import annotations

from pyspark.sql import SparkSession

import sparkext
from sparkext.errors import EnvironmentProblemError, ExtensionMissingError
from tests.extension.conftest import SETTINGS
from tests.support.sessions import start_session


def refusal() -> str:
    try:
        sparkext.configure(SparkSession.Builder())
    except EnvironmentProblemError as error:
        return str(error)
    raise AssertionError("configure went on")


def main() -> None:
    spark = start_session("local[1]", SETTINGS)
    assert "Spark is running already, without the extension" in refusal()
    try:
        sparkext.declined(spark.range(3))
    except ExtensionMissingError as error:
        assert "has not loaded the extension" in str(error)
    else:
        raise AssertionError("declined went on")
    assert spark.range(3).count() == 3
    spark.stop()
    # The JVM still runs. Spark would silently ignore an extension that is not on its class path.
    assert "without the extension" in refusal()
    print("all is well")


if __name__ == "__main__":
    main()
