"""What the copy engine moves for a load or a store of a tile: boxes of a view of the tensor.

The engine moves boxes of at most five dimensions, point by point along each. A tile that lies along
one dimension in rows (n1 * 64 + n2) becomes a box of a view in which that dimension is two. Leading
dimensions of which a tile has one point are folded into the next one, so that most boxes are
matrices. What lies outside the tensor is read as 0 and not written; a dimension with guards is
therefore never folded.
"""

from __future__ import annotations

import math
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
from gpu.plan import ITEM_BYTES, AxisPlan, Load, Store, Tensor


@dataclass(frozen=True)
class Box:
    """A box of `tensor` seen in shape `view`: sides, first coordinates, axis along each side.

    `axes` has an axis for each of the last two dimensions; dimensions before them have side 1.
    """

    tensor: str
    type: str
    view: tuple[int, ...]
    block: tuple[int, ...]
    at: tuple[Affine, ...]
    axes: tuple[str, str]

    @property
    def matrix(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.block[-2], self.block[-1]

    @property
    def bytes(self) -> int:
        """Size in shared memory."""
        return math.prod(self.block) * ITEM_BYTES[self.type]

    @property
    def swizzle(self) -> int:
        """Bytes of the pattern by which rows are spread over banks.

        The widest that a row fills; Gluon's NVMMASharedLayout.get_default_for takes the same one.
        """
        return swizzle(self.block, self.type)


def swizzle(block: tuple[int, ...], type_: str) -> int:
    """The swizzle, in bytes, of a block with rows along its last dimension.

    >>> swizzle((128, 64), "bf16"), swizzle((64, 32), "bf16"), swizzle((4, 64), "bf16")
    (128, 64, 0)
    """
    row = block[-1] * ITEM_BYTES[type_]
    if len(block) < 2 or math.prod(block[:-1]) < 8:
        return 0
    return next((width for width in (128, 64, 32) if row % width == 0), 0)


def box_of(
    tensors: Mapping[str, Tensor],
    axes: Mapping[str, AxisPlan],
    access: Load | Store,
    lanes: Mapping[str, int],
) -> Box | None:
    """The box that an access moves, None where the copy engine cannot.

    lanes: points that each axis has in the tile that is moved (a warp group's share of it).
    """
    tile = access.out if isinstance(access, Load) else access.arg
    tensor = tensors[access.tensor]
    if tensor.type not in ITEM_BYTES or len(tile.axes) != 2:
        return None
    if isinstance(access, Load) and access.guards and access.fill != 0.0:
        return None
    met = set()
    sides: list[Side] = []
    for form, size in zip(access.index, tensor.shape, strict=True):
        within = {g for g in access.guards if g in (form, size - 1 - form)}
        met |= within
        made = sides_of(form, size, axes, lanes, bool(within))
        if made is None:
            return None
        sides += made
    if met != set(access.guards):
        return None
    return _box(tensor, folded(sides), tile.axes, lanes)


def _box(
    tensor: Tensor, sides: list[Side], tile: tuple[str, ...], lanes: Mapping[str, int]
) -> Box | None:
    axes = tuple(side.axis for side in sides[-2:])
    if (
        sorted(axes) != sorted(tile)
        or any(side.axis for side in sides[:-2])
        or len(sides) > MOST_SIDES
    ):
        return None
    block = tuple(lanes[side.axis] if side.axis else 1 for side in sides)
    item = ITEM_BYTES[tensor.type]
    whole = sides[-1].size * item % LEAST_ROW_BYTES == 0
    if not whole or block[-1] * item < LEAST_ROW_BYTES or max(block) > LONGEST_SIDE:
        return None
    view = tuple(side.size for side in sides)
    at = tuple(side.form for side in sides)
    return Box(tensor.name, tensor.type, view, block, at, (axes[0], axes[1]))
