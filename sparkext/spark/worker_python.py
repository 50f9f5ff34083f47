"""The Python that runs this package's functions, such as pipelines, in Spark's workers.

PySpark runs every function in the Python that PYSPARK_PYTHON named when Spark started, otherwise in the `python3` on
PATH. For a program in an environment that is not activated (`/path/to/venv/bin/python job.py`), both are the wrong
Python.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakKeyDictionary

from sparkext.errors import EnvironmentProblemError
from sparkext.spark.jvm import access_class
from sparkext.spark.session_settings import is_connect, is_local_master

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_SESSION_KEY = "spark.sql.execution.pyspark.python"
"""If it is set, Spark runs all functions of a session in this Python, even if a function names another Python."""

_checked_pythons: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""Applications (through Connect: sessions), each with the Pythons in which workers can run this package's functions."""


def run_in_workers(frame: DataFrame, task: Callable[..., Any], schema: StructType | str) -> DataFrame:
    """Run `task` over the batches of `frame`, whose column names must be distinct and need no quoting.

    Raises
    ------
    EnvironmentProblemError
        The Python of the workers lacks a package, has another version than this Python, or does not start.
    """
    session = frame.sparkSession
    _check_workers(session)
    if is_connect(session) or find_worker_python(session) == _choose_default_python(session):
        return frame.mapInArrow(task, schema)
    from pyspark.sql import DataFrame
    from pyspark.util import PythonEvalType

    function = _wrap_function(session, task, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*(frame[name] for name in frame.columns))._jc
    jvm_frame = cast(Any, frame)._jdf
    is_before_4 = session.version.startswith("3.")
    mapped = jvm_frame.mapInArrow(column.expr(), False) if is_before_4 else jvm_frame.mapInArrow(column, False, None)
    return DataFrame(mapped, session)


def find_worker_python(session: SparkSession) -> str:
    """Return the Python that runs this package's functions in a classic session."""
    settings = session.sparkContext.getConf()
    named = (
        session.conf.get(_SESSION_KEY, None),
        settings.get("spark.sparkext.python", None),
        settings.get("spark.pyspark.python", None),
    )
    default = _choose_default_python(session)
    # PySpark uses `python3` if PYSPARK_PYTHON is unset. Then the driver's own Python is preferred.
    driver_python = sys.executable if default == "python3" and is_local_master(session) else ""
    return next((name.strip() for name in named if name and name.strip()), driver_python or default)


def is_this_python(executable: str) -> bool:
    """Return whether `executable` is the Python of this process, on this machine."""
    path = shutil.which(executable)
    # Compare folders, not files: the executables of all virtual environments of a Python are links to the same file.
    return path is not None and Path(path).absolute().parent == Path(sys.executable).parent


def query_workers(session: SparkSession, question: Callable[[int], str], tasks: int = 1) -> list[str]:
    """Run a function in this package's Python workers, which may lack all packages, and return its results.

    The function has to be a nested function, which is pickled by value, with its imports inside.
    """
    from pyspark.sql import functions as F
    from pyspark.util import PythonEvalType

    function: Callable[[str], Column]
    if is_connect(session):
        function = F.udf(question, "string", useArrow=False)
    else:
        function = _wrap_function(session, question, "string", PythonEvalType.SQL_BATCHED_UDF)
    return [row[0] for row in session.range(0, tasks, 1, tasks).select(function("id")).collect()]


def explain_worker_failure(error: Exception) -> str:
    """Return the line of Spark's error that states why workers cannot run a function."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if re.search("PYTHON_VERSION_MISMATCH|Cannot run program|Error:", line)]
    return next(iter(causes or lines), type(error).__name__)


def _choose_default_python(session: SparkSession) -> str:
    return str(cast(Any, session.sparkContext).pythonExec)


def _check_workers(session: SparkSession) -> None:
    """Check in a worker, once for each Python, that it can run this package's functions.

    No check is needed if workers run the Python of this process, on this machine.
    """
    connect = is_connect(session)
    python = "" if connect else find_worker_python(session)
    pythons = _checked_pythons.setdefault(session if connect else session.sparkContext, set())
    if python in pythons:
        return
    if connect or not is_local_master(session) or not is_this_python(python):
        _query_packages(session)
    pythons.add(python)


def _query_packages(session: SparkSession) -> None:
    def lacks(_: int) -> str:
        import json
        import sys
        from importlib.util import find_spec

        packages = ("sparkext", "numba", "numpy", "pandas", "pyarrow")
        return json.dumps([sys.executable, [name for name in packages if find_spec(name) is None]])

    try:
        [answer] = query_workers(session, lacks)
    except Exception as error:
        raise EnvironmentProblemError(
            f"the Python workers of this session cannot run functions of Python {sys.version_info[0]}."
            f"{sys.version_info[1]}: {explain_worker_failure(error)}. {_render_advice(session)}"
        ) from error
    executable, missing = json.loads(answer)
    if missing:
        raise EnvironmentProblemError(
            f"the Python workers of this session run {executable}, which has no {', '.join(missing)}."
            f" {_render_advice(session)}"
        )


def _render_advice(session: SparkSession) -> str:
    python = f"a Python {sys.version_info[0]}.{sys.version_info[1]} that has sparkext"
    if is_connect(session):
        return f"Start the Connect server with PYSPARK_PYTHON set to {python}"
    if session.conf.get(_SESSION_KEY, None):
        return f"Unset {_SESSION_KEY}, or set it to {python}"
    return f"Set spark.sparkext.python or PYSPARK_PYTHON to {python} before Spark starts"


def _wrap_function(session: SparkSession, function: Callable[..., Any], returned: StructType | str, kind: int) -> Any:
    """Return PySpark's function of Columns that runs in the Python of `find_worker_python`."""
    from pyspark.sql.udf import UserDefinedFunction

    wrapped: Any = UserDefinedFunction(function, returned, evalType=kind)
    jvm = session.sparkContext._jvm
    udf = _list_fields(wrapped._judf)
    command = _list_fields(udf[1])
    command[3] = find_worker_python(session)
    udf[1] = access_class(jvm, "org.apache.spark.api.python.SimplePythonFunction")(*command)
    user_defined = access_class(jvm, "org.apache.spark.sql.execution.python.UserDefinedPythonFunction")
    wrapped._judf_placeholder = user_defined(*udf)
    return wrapped


def _list_fields(case_class: Any) -> list[Any]:
    return [case_class.productElement(number) for number in range(case_class.productArity())]
