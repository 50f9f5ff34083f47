"""Operations that numpy cannot express.

They are prefetch, unaligned eight-byte loads and stores, memcpy, the bits of a double, and whether a product overflows.
With the JIT switched off (`NUMBA_DISABLE_JIT=1`) plain Python replaces all of them, so that kernel tests can run with
coverage and line numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from sparkext.kernels.runtime.jit import JIT_ENABLED

if JIT_ENABLED:
    from llvmlite import ir
    from numba.core import cgutils, types
    from numba.extending import intrinsic as numba_intrinsic

    def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
        """Register a code generator. It is typed as any function, because callers do not pass `typingctx`."""
        return cast(Callable[..., Any], numba_intrinsic(function))

    def _element_pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        """Return the address of `array[index]`; `array` and `index` are the first two arguments."""
        array = context.make_array(signature.args[0])(context, builder, args[0])
        index = context.cast(builder, args[1], signature.args[1], types.intp)
        return builder.gep(array.data, [index])

    @intrinsic
    def prefetch(typingctx: Any, array: Any, index: Any) -> Any:
        """Prefetch the cache line of `array[index]` before it is read. Never faults; has no other effect."""
        signature = types.void(array, index)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _element_pointer(context, builder, signature, args)
            byte_pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
            int32 = ir.IntType(32)
            prefetch_type = ir.FunctionType(ir.VoidType(), [byte_pointer.type, int32, int32, int32])
            function = cgutils.get_or_insert_function(builder.module, prefetch_type, "llvm.prefetch.p0i8")
            read, keep_in_all_levels, data_cache = int32(0), int32(3), int32(1)
            builder.call(function, [byte_pointer, read, keep_in_all_levels, data_cache])
            return context.get_dummy_value()

        return signature, codegen

    @intrinsic
    def load_u64(typingctx: Any, data: Any, index: Any) -> Any:
        """Read the eight bytes `data[index:index + 8]` (uint8 array) as one little-endian uint64."""
        signature = types.uint64(data, index)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _element_pointer(context, builder, signature, args)
            word_pointer = builder.bitcast(pointer, ir.IntType(64).as_pointer())
            return builder.load(word_pointer, align=1, typ=ir.IntType(64))

        return signature, codegen

    @intrinsic
    def store_u64(typingctx: Any, data: Any, index: Any, word: Any) -> Any:
        """Write one little-endian uint64 to the eight bytes `data[index:index + 8]` (uint8 array)."""
        signature = types.void(data, index, types.uint64)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.bitcast(_element_pointer(context, builder, signature, args), ir.IntType(64).as_pointer())
            builder.store(args[2], pointer, align=1)
            return context.get_dummy_value()

        return signature, codegen

    @intrinsic
    def copy_bytes(typingctx: Any, target: Any, at: Any, source: Any, start: Any, length: Any) -> Any:
        """Copy `source[start:start + length]` to `target[at:at + length]` (uint8 arrays that do not overlap)."""
        signature = types.void(target, at, source, start, length)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            to = _element_pointer(context, builder, signature, args)
            array = context.make_array(signature.args[2])(context, builder, args[2])
            index = context.cast(builder, args[3], signature.args[3], types.intp)
            size = context.cast(builder, args[4], signature.args[4], types.intp)
            cgutils.raw_memcpy(builder, to, builder.gep(array.data, [index]), size, 1)
            return context.get_dummy_value()

        return signature, codegen

    @intrinsic
    def multiply_overflows(typingctx: Any, left: Any, right: Any) -> Any:
        """Return whether the product of two int64 does not fit int64."""
        signature = types.boolean(types.int64, types.int64)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.extract_value(builder.smul_with_overflow(*args), 1)

        return signature, codegen

    @intrinsic
    def word_of(typingctx: Any, value: Any) -> Any:
        """Return the bits of a double as an int64."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], ir.IntType(64))

        return types.int64(types.float64), codegen

    @intrinsic
    def double_of(typingctx: Any, word: Any) -> Any:
        """Return the double that has the bits of an int64."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], ir.DoubleType())

        return types.float64(types.int64), codegen

else:

    def prefetch(array: Any, index: Any) -> None:
        """Do nothing: prefetching is a hint."""

    def load_u64(data: Any, index: Any) -> Any:
        """Read the eight bytes `data[index:index + 8]` as one little-endian uint64."""
        return np.uint64(int.from_bytes(data[index : index + 8].tobytes(), "little"))

    def store_u64(data: Any, index: Any, word: Any) -> None:
        """Write one little-endian uint64 to the eight bytes `data[index:index + 8]`."""
        data[index : index + 8] = np.frombuffer(int(word).to_bytes(8, "little"), dtype=np.uint8)

    def copy_bytes(target: Any, at: Any, source: Any, start: Any, length: Any) -> None:
        """Copy `source[start:start + length]` to `target[at:at + length]`."""
        target[at : at + length] = source[start : start + length]

    def multiply_overflows(left: Any, right: Any) -> Any:
        """Return whether the product of two int64 does not fit int64."""
        return not -(2**63) <= int(left) * int(right) < 2**63

    def word_of(value: Any) -> Any:
        """Return the bits of a double as an int64."""
        return np.float64(value).view(np.int64)

    def double_of(word: Any) -> Any:
        """Return the double that has the bits of an int64."""
        return np.int64(word).view(np.float64)
