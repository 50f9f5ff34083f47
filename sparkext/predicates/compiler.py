"""Compiles a predicate with numba, using Python's arithmetic and passing captured values as arguments.

Two passes change the function in numba's intermediate representation before types are inferred:

    limit       the value of a free variable or global    ──▶  left.captured.free_limit     see `predicates.identity`
    a + b       an operator or function of numbers        ──▶  checked add(a, b)            see `python_numbers`
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numba
from numba.core import ir
from numba.core.compiler import CompilerBase, DefaultPassBuilder, Flags, compile_extra
from numba.core.compiler_machinery import FunctionPass, PassManager, register_pass
from numba.core.ir_utils import build_definitions, mk_unique_var
from numba.core.registry import cpu_target
from numba.core.untyped_passes import InlineClosureLikes, IRProcessing

from sparkext.kernels.values.python_numbers import CHECKED
from sparkext.predicates.identity import FREE, GLOBAL, captured_arguments

_OPTIONS = {"nogil": True, "error_model": "python", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}


def compile_function(function: FunctionType, with_arguments: bool) -> Callable[..., Any]:
    """Return a function that compiled code can call. It is compiled when the types of its rows are known.

    `with_arguments`: the last field of its first row is a named tuple of the `captured_arguments`, see `field_of`.
    """
    return numba.njit(**_OPTIONS, pipeline_class=WithArguments if with_arguments else WithConstants)(function)  # type: ignore[no-any-return]


def infer_return_type(function: FunctionType, with_arguments: bool, types: tuple[Any, ...]) -> Any:
    """Infer numba's result type for parameters of these types, without generating machine code.

    Raises `NumbaError`.
    """
    flags = Flags()
    cpu_target.options.parse_as_flags(flags, {"nopython": True, **_OPTIONS})
    cpu_target.typing_context.refresh()
    pipeline = _TypesWithArguments if with_arguments else _TypesWithConstants
    return compile_extra(
        cpu_target.typing_context, cpu_target.target_context, function, types, None, flags, {}, pipeline_class=pipeline
    )


def field_of(role: str, name: str) -> str:
    """Return the field name of a captured argument."""
    return f"{'free' if role == FREE else 'global'}_{name}"


@register_pass(mutates_CFG=False, analysis_only=False)
class _ArgumentPass(FunctionPass):  # type: ignore[misc]
    """Replaces captured variables by fields of the first row."""

    _name = "sparkext_captured_arguments"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        roles = {ir.FreeVar: FREE, ir.Global: GLOBAL}
        arguments = {(argument.role, argument.name) for argument in captured_arguments(state.func_id.func)}
        blocks = state.func_ir.blocks
        first = blocks[min(blocks)]
        row, captured = (ir.Var(first.scope, mk_unique_var(name), first.loc) for name in ("$row", "$captured"))
        for block in blocks.values():
            for statement in block.find_insts(ir.Assign):
                role = roles.get(type(statement.value))
                if role is not None and (role, statement.value.name) in arguments:
                    field = field_of(role, statement.value.name)
                    statement.value = ir.Expr.getattr(captured, field, statement.loc)
        first.body[:0] = [
            ir.Assign(ir.Arg(state.func_ir.arg_names[0], 0, first.loc), row, first.loc),
            ir.Assign(ir.Expr.getattr(row, state.args[0].fields[-1], first.loc), captured, first.loc),
        ]
        state.func_ir._definitions = build_definitions(blocks)
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _PythonNumbersPass(FunctionPass):  # type: ignore[misc]
    """Replaces operators and functions of numbers by calls of checked functions."""

    _name = "sparkext_python_numbers"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            body = []
            for statement in block.body:
                operation = _find_checked_operation(state.func_ir, statement)
                if operation is not None:
                    checked, operands = operation
                    function = ir.Var(block.scope, mk_unique_var("$checked"), statement.loc)
                    body.append(ir.Assign(ir.Global(checked.__name__, checked, statement.loc), function, statement.loc))
                    statement.value = ir.Expr.call(function, operands, (), statement.loc)
                body.append(statement)
            block.body = body
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)
        return True


def _find_checked_operation(code: Any, statement: Any) -> tuple[Callable[..., Any], list[Any]] | None:
    """Return the checked function that replaces a statement's operation, and its operands; None if there is none."""
    value: Any = statement.value if isinstance(statement, ir.Assign) else None
    op = getattr(value, "op", None)
    if op == "binop":
        original, operands = value.fn, [value.lhs, value.rhs]
    elif op == "inplace_binop":
        original, operands = value.immutable_fn, [value.lhs, value.rhs]
    elif op == "unary":
        original, operands = value.fn, [value.value]
    elif op == "call" and not value.kws and value.vararg is None:
        original, operands = called_function(code, value.func), list(value.args)
    else:
        return None
    try:
        checked = CHECKED.get(original)
    except TypeError:  # not hashable
        checked = None
    return None if checked is None else (checked, operands)


def called_function(code: Any, variable: Any) -> Any:
    """Return the function that a variable holds, if it is a global or free variable, or an attribute of one."""
    try:
        definition = code.get_definition(variable)
    except KeyError:
        return None
    if isinstance(definition, ir.Global | ir.FreeVar):
        return definition.value
    if getattr(definition, "op", None) == "getattr":
        return getattr(called_function(code, definition.value), definition.attr, None)
    return None


@register_pass(mutates_CFG=False, analysis_only=True)
class _TypesPass(FunctionPass):  # type: ignore[misc]
    """Ends a compilation once the type of the result is known."""

    _name = "sparkext_types"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        state.cr = state.return_type
        return False


def _create_pipeline_class(name: str, with_arguments: bool, types_only: bool) -> type:
    def define_pipelines(self: Any) -> list[PassManager]:
        build = DefaultPassBuilder
        passes = PassManager(name)
        parts = [build.define_untyped_pipeline(self.state), build.define_typed_pipeline(self.state)]
        if not types_only:
            parts.append(build.define_nopython_lowering_pipeline(self.state))
        for part in parts:
            passes.passes.extend(part.passes)
        passes.add_pass_after(_PythonNumbersPass, InlineClosureLikes)
        if with_arguments:
            passes.add_pass_after(_ArgumentPass, IRProcessing)
        if types_only:
            passes.add_pass(_TypesPass, "types")
        passes.finalize()
        return [passes]

    return type(name, (CompilerBase,), {"define_pipelines": define_pipelines})


WithArguments = _create_pipeline_class("sparkext_with_arguments", with_arguments=True, types_only=False)
WithConstants = _create_pipeline_class("sparkext_with_constants", with_arguments=False, types_only=False)
_TypesWithArguments = _create_pipeline_class("sparkext_types_with_arguments", with_arguments=True, types_only=True)
_TypesWithConstants = _create_pipeline_class("sparkext_types_with_constants", with_arguments=False, types_only=True)
