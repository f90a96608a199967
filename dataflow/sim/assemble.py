"""Tiles are put together by position: a tile is believed to cover what its reader expects of it.

A reader never sees where a tile came from. It takes the array as if it covered the coordinates
of the port's box; an array of another shape is cut or padded with NaN. So a wrong order, slot or
box gives wrong values, not only a wrong time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.sim.arithmetic import HELD

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Part:
    """An array that is taken to cover `coords`, one ascending array a dimension."""

    array: Array
    coords: tuple[np.ndarray, ...]


def fitted(array: Array, coords: tuple[np.ndarray, ...]) -> Part:
    """Return `array` cut or padded with NaN to the shape of `coords`."""
    shape = tuple([len(along) for along in coords])
    if array.shape == shape:
        return Part(array, coords)
    result = np.full(shape, np.nan, dtype=HELD)
    if array.ndim == len(shape):
        common = tuple(slice(min(a, b)) for a, b in zip(array.shape, shape, strict=True))
        result[common] = array[common]
    return Part(result, coords)


def same(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether two coordinate arrays are equal."""
    return left is right or (len(left) == len(right) and bool((left == right).all()))


def picked(parts: Sequence[Part], coords: Sequence[np.ndarray]) -> Array:
    """Return the values at `coords` (one array a dimension) out of `parts`; NaN where none has it.

    >>> part = Part(np.arange(3.0), (np.array([4, 5, 6]),))
    >>> picked([part], (np.array([5, 6, 7]),))
    array([ 5.,  6., nan])
    """
    if len(parts) == 1:
        part = parts[0]
        if all(map(same, part.coords, coords)):
            return part.array
        places = [_places(has, want) for has, want in zip(part.coords, coords, strict=True)]
        if all(found.all() for _, found in places):
            return part.array[np.ix_(*[at for at, _ in places])]
    result = np.full([len(along) for along in coords], np.nan, dtype=HELD)
    for part in parts:
        places = [_places(has, want) for has, want in zip(part.coords, coords, strict=True)]
        to = np.ix_(*[np.flatnonzero(found) for _, found in places])
        result[to] = part.array[np.ix_(*[at[found] for at, found in places])]
    return result


def _places(has: np.ndarray, want: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each coordinate of `want` stands in `has`, and whether it is there."""
    if not len(has):
        return np.zeros(len(want), dtype=np.int64), np.zeros(len(want), dtype=bool)
    at = np.minimum(np.searchsorted(has, want), len(has) - 1)
    return at, has[at] == want


def turned(part: Part, axes: Sequence[str], target: Sequence[str]) -> Part:
    """Return `part` over `axes` with its dimensions in target's order.

    Of an axis that `target` lacks, the last point is taken (it holds a single one).
    """
    if tuple(axes) == tuple(target):
        return part
    array, coords, names = part.array, list(part.coords), list(axes)
    for axis in axes:
        if axis not in target:
            at = names.index(axis)
            names.pop(at)
            coords.pop(at)
            array = array[(slice(None),) * at + (-1,)]
    order = [names.index(axis) for axis in target]
    return Part(array.transpose(order), tuple(coords[at] for at in order))


def joined(parts: Sequence[Part]) -> Part:
    """Return all `parts` as one, over the union of their coordinates in each dimension."""
    if len(parts) == 1:
        return parts[0]
    coords = tuple(
        np.unique(np.concatenate(along)) for along in zip(*(p.coords for p in parts), strict=True)
    )
    return Part(picked(parts, coords), coords)
