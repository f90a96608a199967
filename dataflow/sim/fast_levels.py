"""Where the fast engine looks for a period: a reference unit, and the levels of its nest.

The unit that fires most often is the reference, the first declared in a tie. At a level its
state is looked at whenever the loops inside have turned, as long as what all units fire between
two looks outweighs the look itself.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

from dataflow.program import Program
from dataflow.sim import fast_kernel as kernel
from dataflow.sim import fast_skip as skip

FEWEST_MARKS = 4
"""Marks of a level: two that the same lies between, one before and one after."""
FEWEST_FIRINGS = 512
"""Firings of all units between two marks of a level that outweigh a look."""


def add_levels(layout: Any, program: Program) -> None:
    """Add the levels, outermost first, and name the reference unit where there is any.

    `layout` is complete but for these.
    """
    firings = [unit.firings for unit in program.units]
    strides: list[int] = []
    reference = 0
    if firings and max(firings) > 0:
        place = firings.index(max(firings))
        trips = [loop.trips for loop in reversed(program.units[place].loops)]
        inside = {1, *itertools.accumulate(trips, operator.mul)}
        least = FEWEST_FIRINGS * firings[place] // sum(firings)
        strides = [
            stride
            for stride in sorted(inside, reverse=True)
            if least < stride <= firings[place] // FEWEST_MARKS
        ]
        reference = layout.units[place]
    rows = layout.rows(len(strides), skip.LEVEL_FIELDS)
    first = rows[0] if rows else 0
    for level, stride in zip(rows, strides, strict=True):
        layout.set(level, {skip.STRIDE_FIRINGS: stride})
        layout.reserve(level + skip.HISTORY, skip.MARKS)
    layout.set(
        0,
        {
            kernel.LEVELS: first,
            kernel.LEVELS_END: first + len(rows) * skip.LEVEL_FIELDS,
            kernel.REFERENCE: reference if strides else 0,
            kernel.MARK: strides[-1] if strides else kernel.NEVER,
        },
    )
