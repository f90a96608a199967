"""Which coordinates a tile covers at a point of its unit's nest, and where they lie off-chip."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dataflow.program import Access, AxisWalk, Box, Tensor

_CACHED_POINTS = 4096
_CACHED_ARRAYS = 65536

Coordinates = Mapping[str, np.ndarray]
"""For each axis, the coordinates covered, ascending."""


class Walker:
    """Coordinates of axes at points; equal ones are mostly the same (read-only) array."""

    def __init__(self) -> None:
        self._walks: dict[int, tuple[AxisWalk, tuple[int, ...], dict]] = {}
        self._arrays: dict[bytes, np.ndarray] = {}

    def axis(self, walk: AxisWalk, counters: Sequence[int]) -> np.ndarray:
        """Return the coordinates of one axis, ascending, where the loops stand at `counters`."""
        known = self._walks.get(id(walk))
        if known is None:
            loops = [p.loop for d in walk.digits for p in d.pieces if p.loop is not None]
            known = self._walks[id(walk)] = (walk, tuple(dict.fromkeys(loops)), {})
        _, loops, points = known
        key = tuple([counters[loop] for loop in loops])
        found = points.get(key)
        if found is None:
            if len(points) >= _CACHED_POINTS:
                points.clear()
            found = points[key] = self._shared(coordinates(walk, counters))
        return found

    def box(self, box: Box, counters: Sequence[int]) -> dict[str, np.ndarray]:
        """Return the coordinates of every axis of `box`."""
        return {walk.axis: self.axis(walk, counters) for walk in box}

    def _shared(self, array: np.ndarray) -> np.ndarray:
        if len(self._arrays) >= _CACHED_ARRAYS:
            self._arrays.clear()
        array.setflags(write=False)
        return self._arrays.setdefault(array.tobytes(), array)


def coordinates(walk: AxisWalk, counters: Sequence[int]) -> np.ndarray:
    """Return the coordinates that `walk` covers where its loops stand at `counters`, ascending.

    An index past its piece, its digit or its axis drops out.
    """
    total = np.zeros(1, dtype=np.int64)
    for digit in walk.digits:
        index = np.zeros(1, dtype=np.int64)
        for piece in digit.pieces:
            if piece.loop is None:
                steps = np.arange(piece.copy, piece.count, piece.copies)
            else:
                steps = np.array([counters[piece.loop] * piece.copies + piece.copy])
                steps = steps[steps < piece.count]
            index = np.add.outer(index, piece.step * steps).ravel()
        total = np.add.outer(total, digit.stride * index[index < digit.extent]).ravel()
    return np.sort(total[total < walk.extent])


def elements(
    access: Access, tensor: Tensor, coords: Coordinates, order: Sequence[str]
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the row-major offsets of a tile's elements in `tensor`, and which lie inside it.

    Both have one dimension for each axis of `order`; the second is None where all lie inside.
    """
    coefficients = dict.fromkeys(order, 0)
    constant, stride = 0, 1
    outside = []
    for form, extent in zip(reversed(access.index), reversed(tensor.shape), strict=True):
        low = high = form.constant
        for axis, factor in form.terms:
            coefficients[axis] += stride * factor
            ends = [factor * int(c) for c in coords[axis][[0, -1]]] if len(coords[axis]) else [0]
            low, high = low + min(ends), high + max(ends)
        if low < 0 or high >= extent:
            outside.append((form, extent))
        constant += stride * form.constant
        stride *= extent
    shape = tuple(len(coords[axis]) for axis in order)
    offsets = np.full(shape, constant, dtype=np.int64)
    for place, axis in enumerate(order):
        offsets += _along(coefficients[axis] * coords[axis], place, len(order))
    if not outside:
        return offsets, None
    inside = np.ones(shape, dtype=bool)
    placed = {axis: _along(coords[axis], place, len(order)) for place, axis in enumerate(order)}
    for form, extent in outside:
        at = np.asarray(form.evaluate(placed))
        inside &= (at >= 0) & (at < extent)
    return offsets, inside


def _along(values: np.ndarray, place: int, rank: int) -> np.ndarray:
    """`values` along dimension `place` of `rank`, to be broadcast over the others."""
    return values.reshape((1,) * place + (-1,) + (1,) * (rank - place - 1))
