"""Steps that a run has taken before, taken again without working them out, compiled.

A step leads from one mark of a level to the next. Where the run stands at a mark as it stood at an
earlier one, the next mark will find it as the one after that did, moved on by as much as lies
between the two earlier times: this needs no period, as an outer loop whose turns come in a few
kinds has none. A level remembers the states at its last marks, `s` of then as `x`, and of two that
follow each other the second as `y`.

Two states are compared as in `fast_same.py`, but that loops outside the one that the step turns may
stand anywhere, as long as they choose the same ports and channels and the tiles lie as they did.
"""

from __future__ import annotations

from dataflow.sim.fast_jump import copy_rings, jump
from dataflow.sim.fast_kernel import (
    BUDGET,
    CHANNEL_FIELDS,
    CHANNELS_AT,
    CHANNELS_END,
    DEPTH,
    EVERY_PORTS,
    FIRED,
    FREE,
    IS_QUEUE,
    LACKS,
    LEFT,
    LEVELS,
    LEVELS_END,
    LOOPS,
    MARK,
    OTHER_PORTS,
    OUTER,
    READ,
    REFERENCE,
    ROOM,
    SKIPPED,
    TOTAL,
    UNIT_FIELDS,
    UNITS,
    UNITS_END,
    WRAP,
    WRITTEN,
    jit,
)
from dataflow.sim.fast_same import (
    lowest,
    same_channel,
    same_roles,
    same_selects,
    same_worklist,
)
from dataflow.sim.fast_same_memory import (
    lowest_issue,
    same_counts,
    same_flight,
    same_memory,
    same_tiles,
)
from dataflow.sim.fast_same_tiles import distance_bytes, fits
from dataflow.sim.fast_tiles import (
    CHANNELS,
    COLLECTED,
    GENERATOR_FIELDS,
    GENERATORS,
    GENERATORS_END,
    INTERLEAVE,
    ISSUED,
    LAST_BACK,
    NEXT_ISSUE,
    POINT,
    POINTS,
    SERVED,
)
from dataflow.sim.fast_tiles import LOOPS as GENERATOR_LOOPS


@jit
def leads(s, x, y):
    """Whether the run goes on from `s` as it did from `x` to `y`."""
    cycles = s[s[REFERENCE] + FREE] - x[s[REFERENCE] + FREE]
    if cycles < 1 or not same_worklist(s, x):
        return False
    for u in range(s[UNITS], s[UNITS_END], UNIT_FIELDS):
        if not unit_leads(s, x, y, u, cycles):
            return False
    low = lowest_issue(s, x, lowest(s, x))
    for c in range(s[CHANNELS_AT], s[CHANNELS_END], CHANNEL_FIELDS):
        if not s[c + IS_QUEUE] and not channel_leads(s, x, y, c, cycles, low):
            return False
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        if not generator_leads(s, x, y, g, cycles, low):
            return False
    return s[GENERATORS] == s[GENERATORS_END] or same_memory(s, x, cycles, low)


@jit
def outermost_moved(s, x, loops, count):
    """The outermost of `count` loops whose counter has moved; -1 where none has."""
    for loop in range(count):
        if s[loops + 2 * loop + 1] != x[loops + 2 * loop + 1]:
            return loop
    return -1


@jit
def unit_leads(s, x, y, u, cycles):
    """Whether a unit goes on from `s` as from `x`."""
    if s[u + LACKS] != x[u + LACKS]:
        return False
    if s[u + FIRED] == x[u + FIRED]:
        return s[u + FREE] == x[u + FREE] and y[u + FIRED] == x[u + FIRED]
    if x[u + FIRED] == 0 or s[u + FREE] - x[u + FREE] != cycles:
        return False
    if s[u + WRAP] != x[u + WRAP] or s[u + EVERY_PORTS] != x[u + EVERY_PORTS]:
        return False
    if s[u + OTHER_PORTS] != x[u + OTHER_PORTS] or not same_roles(s, x, u):
        return False
    loops = s[u + LOOPS]
    turned = outermost_moved(y, x, loops, s[u + OUTER])
    for loop in range(s[u + OUTER]):
        row = loops + 2 * loop
        apart = s[row + 1] - x[row + 1]
        if apart != 0 and not loop_leads(s, x, y, u, row, loop - turned if turned >= 0 else -1):
            return False
    left, used = s[u + LEFT], x[u + LEFT] - y[u + LEFT]
    if left == x[u + LEFT]:
        return True
    # turns left of the innermost loop: it must not end
    return turned < 0 and s[u + OUTER] < s[u + DEPTH] and y[u + LEFT] > 0 and left - used > 0


@jit
def loop_leads(s, x, y, u, row, inside):
    """Whether a loop that stands elsewhere than in `x` lets the unit go on as from there.

    inside: how many places it lies inside of the loop that the step turns; less than 0: outside.
    """
    apart, last = s[row + 1] - x[row + 1], s[row] - 1
    if inside > 0 or not same_selects(s, u, row, apart):
        return False
    if inside == 0:  # at its last trip a loop ends, and ports may be used that were not
        return max(s[row + 1], x[row + 1]) + y[row + 1] - x[row + 1] < last
    return (s[row + 1] == last) == (x[row + 1] == last)


@jit
def channel_leads(s, x, y, c, cycles, low):
    """Whether a channel holds the same, and moves on only where it has moved."""
    if s[c + WRITTEN] == x[c + WRITTEN] and (
        y[c + WRITTEN] != x[c + WRITTEN] or y[c + READ] != x[c + READ]
    ):
        return False
    return same_channel(s, x, c, cycles, low)


@jit
def generator_leads(s, x, y, g, cycles, low):
    """Whether a generator asks from `s` as from `x`, at addresses as far apart as those."""
    if s[g + LACKS] != x[g + LACKS] or not same_counts(s, x, g):
        return False
    if s[g + POINT] == x[g + POINT]:
        rests = y[g + POINT] == x[g + POINT] and y[g + COLLECTED] == x[g + COLLECTED]
        return rests and y[g + ISSUED] == x[g + ISSUED] and s[g + SERVED] == s[g + ISSUED]
    if x[g + POINT] == 0 or s[g + LAST_BACK] - x[g + LAST_BACK] != cycles:
        return False
    if s[g + NEXT_ISSUE] - x[g + NEXT_ISSUE] != cycles:
        return False
    if not same_flight(s, x, g, cycles, low) or not same_tiles(s, x, g):
        return False
    if distance_bytes(s, x, g) % (s[INTERLEAVE] * s[CHANNELS]) != 0:
        return False
    loops = s[g + GENERATOR_LOOPS]
    turned = outermost_moved(y, x, loops, s[g + POINTS])
    if turned < 0:
        return True
    counter = loops + 2 * turned + 1
    step = y[counter] - x[counter]
    for loop in range(turned + 1, s[g + POINTS]):
        if s[loops + 2 * loop + 1] != x[loops + 2 * loop + 1]:
            return False
    if s[counter] + step >= s[counter - 1]:
        return False
    return fits(s, x, g, counter, s[counter], s[counter] + step) and fits(
        x, s, g, counter, x[counter], y[counter]
    )


@jit
def take_step(s, x, y, z):
    """Let the run stand where the step from `x` to `y` leads it; `z` gives room."""
    budget, mark, skipped = s[BUDGET], s[MARK], s[SKIPPED] + y[TOTAL] - x[TOTAL]
    for place in range(s[ROOM]):
        if place < s[LEVELS] or place >= s[LEVELS_END]:
            # from z to y it is as far as from x to s
            now = s[place]
            s[place], z[place] = y[place], y[place] - now + x[place]
    copy_rings(y, s)
    jump(s, z, 1)
    s[BUDGET], s[MARK], s[SKIPPED] = budget, mark, skipped
