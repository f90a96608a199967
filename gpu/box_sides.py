"""A dimension of a tensor as the copy engine sees it: one side of a box for each axis along it.

The engine moves boxes of at most five dimensions, point by point along each. A tile that lies along
one dimension in rows (n1 * 64 + n2) becomes a box of a view in which that dimension is two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dataflow.index import Affine
from gpu.plan import AxisPlan

LONGEST_SIDE = 256
"""Points of a box along a dimension, at most: CUDA programming guide, tensor maps."""
MOST_SIDES = 5
"""Dimensions of a box: the same guide."""
LEAST_ROW_BYTES = 16
"""Rows of a box and strides of a tensor are whole multiples of 16 bytes: the same guide."""


@dataclass(frozen=True)
class Side:
    """One dimension of the view: coordinate, extent, the lane axis along it."""

    form: Affine
    size: int
    axis: str
    guarded: bool


def sides_of(
    form: Affine,
    size: int,
    axes: Mapping[str, AxisPlan],
    lanes: Mapping[str, int],
    guarded: bool,
) -> list[Side] | None:
    """One dimension as one for each lane axis along it, outermost first."""
    inside = [axis for axis in form.symbols() if lanes[axis] > 1]
    inside.sort(key=form.coefficient, reverse=True)
    made: list[Side] = []
    for axis in inside[1:]:
        stride = form.coefficient(inside[inside.index(axis) - 1])
        if stride <= 0 or size % stride:
            return None
        outer = Affine(tuple((a, c // stride) for a, c in form.terms if c % stride == 0))
        inner = Affine(tuple((a, c) for a, c in form.terms if c % stride), form.constant % stride)
        outer = outer + form.constant // stride
        reach = inner.constant + sum(c * (axes[a].reach - 1) for a, c in inner.terms)
        if reach >= stride or any(c < 0 for _, c in inner.terms):
            return None
        made.append(Side(outer, size // stride, inside[inside.index(axis) - 1], guarded))
        form, size, guarded = inner, stride, False
    last = inside[-1] if inside else ""
    if last and form.coefficient(last) != 1:
        return None
    if any(side.form.coefficient(side.axis) != 1 for side in made):
        return None
    return [*made, Side(form, size, last, guarded)]


def folded(sides: Sequence[Side]) -> list[Side]:
    """Dimensions without lanes folded into the next, as far as no guard needs them apart."""
    made: list[Side] = []
    for side in sides:
        before = made[-1] if made else None
        free = before is not None and not before.axis and not before.guarded and not side.guarded
        if before is not None and free and before.size * side.size < 2**31:
            form = before.form * side.size + side.form
            made[-1] = Side(form, before.size * side.size, side.axis, False)
        else:
            made.append(side)
    return made
