"""Ordered multisets of values: zip trees (Tarjan, Levy and Timmel, 2021).

The root is a word; a node is [left, right, value, rank, count]. Ranks are hashes of values, so that the shape of a tree
depends only on the values in it.
"""

from __future__ import annotations

from sparkext.kernels.arena.room import allocate, release
from sparkext.kernels.arena.words import hashed, is_before
from sparkext.kernels.columns.buffers import Int64Array, UInt8Array
from sparkext.kernels.runtime.jit import inlined

_RIGHT, _VALUE, _RANK, _COUNT = 1, 2, 3, 4
_NODE_WORDS = 5


@inlined
def count_value(
    arena: Int64Array, root: int, value: int, weight: int, order: int, starts: Int64Array, data: UInt8Array
) -> int:
    """Add `weight` (maybe negative) to a value's count; return 1 if the value is new, -1 if it is removed, else 0."""
    rank = hashed(0, value)
    link = root
    while arena[link] != 0:
        node = arena[link]
        if arena[node + _VALUE] == value:
            arena[node + _COUNT] += weight
            if arena[node + _COUNT] != 0:
                return 0
            _zip(arena, link, node)
            return -1
        link = node if is_before(value, arena[node + _VALUE], order, starts, data) else node + _RIGHT
    node = allocate(arena, _NODE_WORDS)
    arena[node + _VALUE] = value
    arena[node + _RANK] = rank
    arena[node + _COUNT] = weight
    _unzip(arena, root, node, order, starts, data)
    return 1


@inlined
def _unzip(arena: Int64Array, root: int, node: int, order: int, starts: Int64Array, data: UInt8Array) -> None:
    """Insert a node above all nodes of lower rank on its search path."""
    value, rank = arena[node + _VALUE], arena[node + _RANK]
    link = root
    while arena[link] != 0 and arena[arena[link] + _RANK] >= rank:
        other = arena[link]
        link = other if is_before(value, arena[other + _VALUE], order, starts, data) else other + _RIGHT
    below = arena[link]
    arena[link] = node
    left, right = node, node + _RIGHT
    while below != 0:
        if is_before(arena[below + _VALUE], value, order, starts, data):
            arena[left] = below
            left = below + _RIGHT
            below = arena[left]
        else:
            arena[right] = below
            right = below
            below = arena[right]
    arena[left] = 0
    arena[right] = 0


@inlined
def _zip(arena: Int64Array, link: int, node: int) -> None:
    """Remove a node, and replace it by its merged subtrees."""
    left, right = arena[node], arena[node + _RIGHT]
    while left != 0 and right != 0:
        if arena[left + _RANK] >= arena[right + _RANK]:
            arena[link] = left
            link = left + _RIGHT
            left = arena[link]
        else:
            arena[link] = right
            link = right
            right = arena[link]
    arena[link] = left if left != 0 else right
    release(arena, node, _NODE_WORDS)


@inlined
def least(arena: Int64Array, root: int) -> int:
    """Return the first value. There has to be one."""
    node = arena[root]
    while arena[node] != 0:
        node = arena[node]
    return arena[node + _VALUE]


@inlined
def greatest(arena: Int64Array, root: int) -> int:
    """Return the last value. There has to be one."""
    node = arena[root]
    while arena[node + _RIGHT] != 0:
        node = arena[node + _RIGHT]
    return arena[node + _VALUE]
