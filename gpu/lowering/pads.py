"""What a tile holds on its padded lanes, so that a mask is put only where a reader would see it.

Along each padded axis a tile's padding is one number, or some finite number (FINITE), or anything
(ANY). A sum must find 0 there, a maximum -inf, a product 0 on one side and a finite number on the
other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dataflow.ops import row

FINITE = "finite"
ANY = "any"
Pad = float | str
Pads = Mapping[str, Pad]

_PROBES = (0.37, -1.9, 3.1)  # stand for a finite number that is not known


def map_pads(fn: str, args: Sequence[tuple[tuple[str, ...], Pads] | float]) -> dict[str, Pad]:
    """Return the padding of fn(args); each argument is a number or (axes, padding)."""
    axes = {axis for arg in args if isinstance(arg, tuple) for axis in arg[1]}
    return {axis: _padding(fn, args, axis) for axis in sorted(axes)}


def _padding(fn: str, args: Sequence[tuple[tuple[str, ...], Pads] | float], axis: str) -> Pad:
    results = []
    for probe in _PROBES:
        numbers = []
        for i, arg in enumerate(args):
            if not isinstance(arg, tuple):
                numbers.append(arg)
                continue
            pad = arg[1].get(axis, FINITE)
            if pad == ANY:
                return ANY
            numbers.append(pad if isinstance(pad, float) else probe + 0.1 * i)
        with np.errstate(all="ignore"):
            results.append(float(row(fn).numpy(*numbers)))
    if all(r == results[0] for r in results):
        return results[0]
    # a function of unknown finite numbers may still be a pole or overflow at one of them
    safe = fn in ("add", "sub", "mul", "max", "min", "neg", "abs", "tanh", "sigmoid", "relu")
    safe = safe or fn in ("identity", "cos", "sin", "erf", "square", "where")
    return FINITE if safe and all(math.isfinite(r) for r in results) else ANY


def product_pads(outer: Sequence[str], left: Pads, right: Pads) -> dict[str, Pad]:
    """Return the padding of a product along the axes that it keeps."""
    pads: dict[str, Pad] = {}
    for axis in outer:
        seen = [pads_[axis] for pads_ in (left, right) if axis in pads_]
        if not seen:
            continue
        if any(pad == 0.0 for pad in seen):
            pads[axis] = 0.0
        else:
            pads[axis] = ANY if any(not is_finite(pad) for pad in seen) else FINITE
    return pads


def is_finite(pad: Pad) -> bool:
    """Whether padding is surely a finite number."""
    return pad == FINITE or (isinstance(pad, float) and math.isfinite(pad))
