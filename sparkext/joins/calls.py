"""Public functions of a DataFrame: `function(left, …)` and `left.transform(function(…))` are the same call."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from sparkext.errors import InvalidCallError, InvalidJoinError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Transform = Callable[["DataFrame"], "DataFrame"]
_TABLES = ("DataFrame", "Table")
"""Type names of tables: of Spark, pandas and pyarrow."""


class TransformFunction(Protocol[Parameters]):
    """A function of a DataFrame, which is its first argument; without it, the function returns a transform."""

    __name__: str

    @overload
    def __call__(self, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Transform: ...

    @overload
    def __call__(self, left: DataFrame, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> DataFrame: ...


def transform_function(
    arguments: str, error: type[InvalidCallError] = InvalidJoinError
) -> Callable[[Callable[Parameters, Transform]], TransformFunction[Parameters]]:
    """Decorate a function that returns a transform, so that the DataFrame to transform may be its first argument.

    Other tables are the positional-only parameters of the function. A call that does not fit the signature raises
    `error`, which shows both ways to call the function with these `arguments`.
    """

    def decorate(function: Callable[Parameters, Transform]) -> TransformFunction[Parameters]:
        signature = inspect.signature(function)
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        tables = kinds.count(inspect.Parameter.POSITIONAL_ONLY) + 1
        has_positional = inspect.Parameter.POSITIONAL_OR_KEYWORD in kinds
        name, left = function.__name__, "left" if tables > 1 else "frame"
        usage = f"{name}({left}, {arguments}) or {left}.transform({name}({arguments}))"

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            is_given = len(args) >= tables and (not has_positional or type(args[tables - 1]).__name__ in _TABLES)
            frames, others = (args[:1], args[1:]) if is_given else ((), args)
            _check_signature(signature, name, usage, error, others, kwargs)
            transform = function(*others, **kwargs)
            return transform(*frames) if frames else transform

        return call

    return decorate


def check_signature(
    usage: str, error: type[InvalidCallError] = InvalidJoinError
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Decorate a public function: a call that does not fit its signature raises `error`, which shows `usage`."""

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            _check_signature(signature, function.__name__, usage, error, args, kwargs)
            return function(*args, **kwargs)

        return call

    return decorate


def _check_signature(
    signature: inspect.Signature,
    name: str,
    usage: str,
    error: type[InvalidCallError],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    try:
        signature.bind(*args, **kwargs)
    except TypeError as problem:
        raise error([f"{name}: {problem}. Call it as {usage}"]) from None
