"""Parameters of a kernel's function, and the blocks that the copy engine moves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gpu.plan import ITEM_BYTES, Barrier, Fetch, Kernel, Load, Plan, Publish, Store, Tensor


@dataclass(frozen=True)
class Argument:
    """One parameter: the tensor, and the block of its descriptor (None: a plain pointer).

    view_shape: the shape in which a descriptor sees the tensor.
    """

    name: str
    tensor: str
    block: tuple[int, ...] | None = None
    view_shape: tuple[int, ...] = ()


def arguments(plan: Plan, kernel: Kernel) -> tuple[Argument, ...]:
    """Return what each parameter of the kernel's function is, in order.

    A tensor that the kernel reaches through the copy engine has a parameter for each block that is
    moved; one that some access reaches otherwise has a pointer.
    """
    found: dict[str, dict[tuple[int, ...] | None, None]] = {name: {} for name in kernel.args}
    for statement in kernel.statements():
        if isinstance(statement, Load | Store):
            found[statement.tensor][block_of(plan.tensors, kernel, statement)] = None
        elif isinstance(statement, Publish | Fetch | Barrier):
            found[statement.tensor][None] = None
    return tuple(
        Argument(pointer(name) if block is None else descriptor(name, block), name, block)
        for name, blocks in found.items()
        for block in sorted(blocks, key=lambda block: block or ())
    )


def block_of(
    tensors: Mapping[str, Tensor], kernel: Kernel, access: Load | Store
) -> tuple[int, ...] | None:
    """The block that the copy engine moves for an access, None where it cannot or shall not.

    It moves boxes: every lane axis lies along one dimension, point by point. What lies outside the
    tensor it reads as 0 and does not write. Rows are of 16 bytes at least, sides at most 256 (CUDA
    programming guide, tensor maps). Only loads inside loops, and stores: with a tile of 128 x 128
    that was moved in before a loop over blocks of 128 x 128, code of Triton 3.6 gave wrong values
    on an H200, with a barrier before the loop too.
    """
    tile = access.out if isinstance(access, Load) else access.arg
    if not kernel.descriptors or not tile.axes or (isinstance(access, Load) and access.fill != 0.0):
        return None
    if isinstance(access, Load) and access in kernel.body:
        return None
    shape = tensors[access.tensor].shape
    item = ITEM_BYTES[tensors[access.tensor].type]
    block: list[int] = []
    met: list[str] = []
    for form in access.index:
        lanes = [axis for axis in form.symbols() if kernel.axes[axis].tile > 1]
        if len(lanes) > 1 or any(form.coefficient(axis) != 1 for axis in lanes):
            return None
        met += lanes
        block.append(kernel.axes[lanes[0]].tile if lanes else 1)
    inside = {g for f, size in zip(access.index, shape, strict=True) for g in (f, size - 1 - f)}
    fits = sorted(met) == sorted(tile.axes) and set(access.guards) <= inside
    rows = math.prod(shape[-1:]) * item % 16 == 0 and block[-1] * item >= 16
    return tuple(block) if fits and rows and max(block) <= 256 and len(block) <= 5 else None


def descriptor(tensor: str, block: tuple[int, ...]) -> str:
    """The name of the parameter through which blocks of a tensor are moved."""
    sides = "x".join(str(side) for side in block if side > 1)
    return f"{tensor.replace('.', '_')}_{sides}"


def pointer(tensor: str) -> str:
    """The name of a tensor's parameter."""
    return f"{tensor.replace('.', '_')}_ptr"
