"""Where the fast engine looks at its state: a reference unit, and the levels of its nest.

The unit that fires most often is the reference, the first declared in a tie. At a level its
state is looked at whenever the loops inside have turned, as long as what all units fire between
two looks outweighs the look itself.
"""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np

from dataflow.program import Program
from dataflow.sim import fast_kernel as kernel
from dataflow.sim import fast_skip as skip

WIDEST = 1 << 12
"""Most turns of a loop that no level lies within: a longer one has levels of its own."""
WITHIN = 1 << 10
"""Turns of a longer loop from one such level to the next."""
FEWEST_MARKS = 4
"""Marks of a level: two that the same lies between, one before and one after."""
FEWEST_FIRINGS = 512
"""Firings of all units between two marks of a level that outweigh a look."""
WORTH_KNOWING = 1 << 17
"""Firings of all units between two marks of a level that outweigh remembering the state."""
FEWEST_KNOWN = 3
"""States of a step, and one more, below which none is worth remembering."""
KNOWN_WORDS = 1 << 26
"""Words (of 8 bytes, touched only where used) for all states remembered as steps known."""


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
        inside = _filled({1, *itertools.accumulate(trips, operator.mul)})
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
        work = stride * sum(firings) // max(firings)
        most = min(skip.MOST_KNOWN, max(firings) // stride) if work >= WORTH_KNOWING else 0
        layout.set(level, {skip.STRIDE_FIRINGS: stride, skip.KNOWN_MOST: most})
        for ring, size in (
            (skip.HISTORY, skip.MARKS),
            (skip.KNOWN_MARKS, skip.MOST_KNOWN),
            (skip.KNOWN_FOLLOWED, skip.MOST_KNOWN),
        ):
            layout.reserve(level + ring, size)
    layout.set(
        0,
        {
            kernel.LEVELS: first,
            kernel.LEVELS_END: first + len(rows) * skip.LEVEL_FIELDS,
            kernel.REFERENCE: reference if strides else 0,
            kernel.MARK: strides[-1] if strides else kernel.NEVER,
        },
    )


def _filled(strides: set[int]) -> set[int]:
    """Strides with others between those that lie further than WIDEST apart."""
    found = set(strides)
    for inner, outer in itertools.pairwise(sorted(strides)):
        while outer > inner * WIDEST:
            inner *= WITHIN
            found.add(inner)
    return found


def states_kept(s: np.ndarray) -> np.ndarray:
    """Return room for the states that a run keeps, and note in its array `s` where each lies.

    One a level to compare with, those that levels of much work remember, and one to work in.
    """
    s[kernel.SIZE] = s.size
    if not s[kernel.REFERENCE]:
        return np.empty(0, np.int64)
    levels = range(int(s[kernel.LEVELS]), int(s[kernel.LEVELS_END]), skip.LEVEL_FIELDS)
    knowing = [level for level in levels if s[level + skip.KNOWN_MOST]]
    room, count = KNOWN_WORDS // s.size, len(levels)
    for level in knowing:
        known = min(room if level == knowing[-1] else room // 2, int(s[level + skip.KNOWN_MOST]))
        known = known if known >= FEWEST_KNOWN else 0
        s[level + skip.KNOWN_MOST] = known
        s[level + skip.KNOWN_FIRST] = count
        count, room = count + known, room - known
    return np.empty((count + 1) * s.size, np.int64)
