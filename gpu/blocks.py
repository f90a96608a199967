"""Parameters of a kernel's function, and the blocks that the copy engine moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dataflow.index import Affine
from gpu.box_sides import (
    LEAST_ROW_BYTES,
    LONGEST_SIDE,
    MOST_SIDES,
    Side,
    folded,
    sides_of,
)
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
    found: dict[str, dict[str, Argument]] = {name: {} for name in kernel.args}
    for statement in kernel.statements():
        if isinstance(statement, Load | Store):
            made = _argument(statement.tensor, block_of(plan.tensors, kernel, statement))
        elif isinstance(statement, Publish | Fetch | Barrier):
            made = _argument(statement.tensor, None)
        else:
            continue
        found[statement.tensor][made.name] = made
    return tuple(
        argument
        for by_name in found.values()
        for argument in sorted(by_name.values(), key=lambda argument: argument.block or ())
    )


def _argument(tensor: str, moved: Moved | None) -> Argument:
    if moved is None:
        return Argument(pointer(tensor), tensor)
    return Argument(moved.name, tensor, moved.block, moved.view)


@dataclass(frozen=True)
class Moved:
    """What the copy engine moves for an access: a block of `tensor` seen in the shape `view`.

    at: the coordinate of its first point along each dimension. axes: what its lanes are, in order.
    """

    tensor: str
    view: tuple[int, ...]
    block: tuple[int, ...]
    at: tuple[Affine, ...]
    axes: tuple[str, ...]
    split: bool

    @property
    def name(self) -> str:
        """The name of the parameter through which such blocks are moved."""
        plain = descriptor(self.tensor, self.block)
        return f"{plain}_of_{'x'.join(map(str, self.view))}" if self.split else plain


def block_of(tensors: Mapping[str, Tensor], kernel: Kernel, access: Load | Store) -> Moved | None:
    """The block that the copy engine moves for an access, None where it cannot or shall not.

    It moves boxes (`gpu.box_sides`). What lies outside the tensor it reads as 0 and does not write.
    Only loads inside loops, and stores: with a tile of 128 x 128 that was moved in before a loop
    over blocks of 128 x 128, code of Triton 3.6 gave wrong values on an H200, with a barrier before
    the loop too.
    """
    tile = access.out if isinstance(access, Load) else access.arg
    if not kernel.descriptors or not tile.axes or (isinstance(access, Load) and access.fill != 0.0):
        return None
    if isinstance(access, Store) and kernel.descriptors == "loads":
        return None
    if isinstance(access, Load) and access in kernel.body:
        return None
    tensor = tensors[access.tensor]
    lanes = {axis: plan.tile for axis, plan in kernel.axes.items()}
    sides: list[Side] = []
    met: set[Affine] = set()
    for form, size in zip(access.index, tensor.shape, strict=True):
        within = {guard for guard in access.guards if guard in (form, size - 1 - form)}
        found = sides_of(form, size, kernel.axes, lanes, bool(within))
        if found is None:
            return None
        met |= within
        sides += found
    sides = folded(sides) if len(sides) > MOST_SIDES else sides
    axes = tuple(side.axis for side in sides if side.axis)
    block = tuple(lanes[side.axis] if side.axis else 1 for side in sides)
    item = ITEM_BYTES[tensor.type]
    fits = sorted(axes) == sorted(tile.axes) and met == set(access.guards)
    rows = sides[-1].size * item % LEAST_ROW_BYTES == 0 and block[-1] * item >= LEAST_ROW_BYTES
    if not fits or not rows or max(block) > LONGEST_SIDE or len(block) > MOST_SIDES:
        return None
    view = tuple(side.size for side in sides)
    at = tuple(side.form for side in sides)
    return Moved(tensor.name, view, block, at, axes, view != tensor.shape)


def descriptor(tensor: str, block: tuple[int, ...]) -> str:
    """The name of the parameter through which blocks of a tensor are moved."""
    sides = "x".join(str(side) for side in block if side > 1)
    return f"{tensor.replace('.', '_')}_{sides}"


def pointer(tensor: str) -> str:
    """The name of a tensor's parameter."""
    return f"{tensor.replace('.', '_')}_ptr"
