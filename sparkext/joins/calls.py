"""Public functions of a DataFrame: `function(left, …)` and `left.transform(function(…))` are the same call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from sparkext.errors import InvalidCallError, InvalidJoinError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Transform = Callable[["DataFrame"], "DataFrame"]
_TABLES = ("DataFrame", "Table")
"""Type names of tables: of Spark, pandas and pyarrow."""


class TransformFunction(Protocol[Parameters]):
    """A function of a DataFrame. Without it, the function returns a function for `DataFrame.transform`."""

    __name__: str

    @overload
    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Transform: ...

    @overload
    def __call__(self, left: DataFrame, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> DataFrame: ...


def transform_function(
    arguments: str, error: type[InvalidCallError] = InvalidJoinError
) -> Callable[[Callable[Concatenate[DataFrame, Parameters], DataFrame]], TransformFunction[Parameters]]:
    """Decorate a function of a DataFrame, so that the call without it returns a function for `DataFrame.transform`.

    The positional-only parameters of the function are tables; the first is the DataFrame. A call that does not fit the
    signature raises `error`, which shows both ways to call the function with these `arguments`.
    """

    def decorate(function: Callable[Concatenate[DataFrame, Parameters], DataFrame]) -> TransformFunction[Parameters]:
        kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
        tables = kinds.count(inspect.Parameter.POSITIONAL_ONLY)
        has_positional = inspect.Parameter.POSITIONAL_OR_KEYWORD in kinds
        name, left = function.__name__, "left" if tables > 1 else "frame"
        usage = f"{name}({left}, {arguments}) or {left}.transform({name}({arguments}))"

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_complete = len(args) >= tables and (not has_positional or type(args[tables - 1]).__name__ in _TABLES)
            _check_call(function, args if is_complete else (None, *args), kwargs, usage, error)
            return function(*args, **kwargs) if is_complete else lambda frame: function(frame, *args, **kwargs)

        return call

    return decorate


def check_signature(
    usage: str, error: type[InvalidCallError]
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Decorate a public function: a call that does not fit its signature raises `error`, which shows `usage`."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            _check_call(function, args, kwargs, usage, error)
            return function(*args, **kwargs)

        return call

    return decorate


def _check_call(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    usage: str,
    error: type[InvalidCallError],
) -> None:
    try:
        inspect.signature(function).bind(*args, **kwargs)
    except TypeError as problem:
        raise error([f"{function.__name__}: {problem}. Call it as {usage}"]) from None
