"""Whether a run's state has come back to an earlier one: units and channels, compiled.

`s` is the array of a run, `x` a copy of it made when the reference unit had fired less often, and
the cycles between are those by which that unit's next firing lies later. Two states are the same
where the engine, going on from both, does the same things in the same order, all `cycles` later:

- what decides who goes on (worklist, lacks, fills, roles of ports, what is left of a turn) is
  equal;
- a time that may still be read lies `cycles` later, or decides nothing, as in both states it comes
  no later than `low`, before which nobody that moved has fired or asked since;
- each unit that fired stands at the same counters but for those of one loop, so that going on
  turns that loop in equal steps until it nears its end.

What did not move since `x` keeps its times, however far the others go. How often the same may
follow, each unit and generator says for itself.
"""

from __future__ import annotations

from dataflow.sim.fast_kernel import (
    ARRIVALS,
    CAPACITY,
    CHANNEL,
    CHANNEL_FIELDS,
    CHANNELS_AT,
    CHANNELS_END,
    CREDITS,
    DEPTH,
    EVERY_PORTS,
    FIRED,
    FREE,
    HEAD,
    IS_QUEUE,
    LACKS,
    LAST_ARRIVAL,
    LATENCY,
    LEFT,
    LOOPS,
    NEVER,
    OTHER_PORTS,
    OUTER,
    PEAK,
    PORT_FIELDS,
    PORTS,
    PORTS_END,
    READ,
    READ_AT,
    ROLE,
    SELECT_FIELDS,
    SELECTS,
    SELECTS_END,
    TAIL,
    UNIT_FIELDS,
    UNITS,
    UNITS_END,
    WORKLIST,
    WORKLIST_END,
    WRAP,
    WRITTEN,
    jit,
)


@jit
def same_worklist(s, x):
    """Whether the same members wait in the same order."""
    size = s[WORKLIST_END] - s[WORKLIST]
    at, before = s[HEAD], x[HEAD]
    if (s[TAIL] - at) % size != (x[TAIL] - before) % size:
        return False
    while at != s[TAIL]:
        if s[at] != x[before]:
            return False
        at = at + 1 if at + 1 < s[WORKLIST_END] else s[WORKLIST]
        before = before + 1 if before + 1 < s[WORKLIST_END] else s[WORKLIST]
    return True


@jit
def lowest(s, x):
    """The cycle before which no unit that moved since `x` has fired since."""
    low = NEVER
    for u in range(s[UNITS], s[UNITS_END], UNIT_FIELDS):
        if s[u + FIRED] > x[u + FIRED]:
            low = min(low, x[u + FREE])
    return low


@jit
def unit_periods(s, x, u, cycles):
    """How many times a unit could do again what it did since `x`; 0 where it stands elsewhere."""
    if s[u + LACKS] != x[u + LACKS]:
        return 0
    fired = s[u + FIRED] - x[u + FIRED]
    if fired == 0:
        return NEVER if s[u + FREE] == x[u + FREE] else 0
    if x[u + FIRED] == 0 or s[u + FREE] - x[u + FREE] != cycles:
        return 0
    if s[u + WRAP] != x[u + WRAP] or s[u + EVERY_PORTS] != x[u + EVERY_PORTS]:
        return 0
    if s[u + OTHER_PORTS] != x[u + OTHER_PORTS] or not same_roles(s, x, u):
        return 0
    loops, moved = s[u + LOOPS], moved_loop(s, x, s[u + LOOPS], s[u + OUTER])
    left = x[u + LEFT] - s[u + LEFT]
    if moved == -1 and s[u + OUTER] < s[u + DEPTH]:
        return s[u + LEFT] // left - 1 if left == fired else 0
    if moved < 0 or left != 0:
        return 0
    counter = loops + 2 * moved + 1
    step = s[counter] - x[counter]
    if step < 1 or not same_selects(s, u, loops + 2 * moved, step):
        return 0
    # at its last trip a loop ends, and ports may be used that were not
    return (s[counter - 1] - 2 - s[counter]) // step


@jit
def moved_loop(s, x, loops, count):
    """The one of `count` loops whose counter has moved; -1 where none has, -2 where several."""
    moved = -1
    for loop in range(count):
        if s[loops + 2 * loop + 1] != x[loops + 2 * loop + 1]:
            if moved >= 0:
                return -2
            moved = loop
    return moved


@jit
def same_roles(s, x, u):
    """Whether a unit's ports do the same in the turn in hand, on the same channels."""
    for p in range(s[u + PORTS], s[u + PORTS_END], PORT_FIELDS):
        if s[p + ROLE] != x[p + ROLE] or s[p + CHANNEL] != x[p + CHANNEL]:
            return False
    return True


@jit
def same_selects(s, u, loop, step):
    """Whether `step` turns of a loop bring every port back to the channel it uses."""
    for p in range(s[u + PORTS], s[u + PORTS_END], PORT_FIELDS):
        for place in range(s[p + SELECTS], s[p + SELECTS_END], SELECT_FIELDS):
            if s[place] == loop and step % (s[place + 1] * s[place + 2]) != 0:
                return False
    return True


@jit
def same_channels(s, x, cycles, low):
    """Whether all channels between units hold the same; queues to generators are theirs."""
    for c in range(s[CHANNELS_AT], s[CHANNELS_END], CHANNEL_FIELDS):
        if not s[c + IS_QUEUE] and not same_channel(s, x, c, cycles, low):
            return False
    return True


@jit
def same_channel(s, x, c, cycles, low):
    """Whether a channel's tokens and credits are the same, `cycles` later."""
    moved, fill = s[c + WRITTEN] - x[c + WRITTEN], s[c + WRITTEN] - s[c + READ]
    if s[c + READ] - x[c + READ] != moved or s[c + PEAK] != x[c + PEAK]:
        return False
    arrivals, credits, capacity = s[c + ARRIVALS], s[c + CREDITS], s[c + CAPACITY]
    at, before = s[c + READ_AT], x[c + READ_AT]
    if moved == 0:
        return fill == 0 or s[arrivals + at] <= low
    if s[c + LAST_ARRIVAL] - x[c + LAST_ARRIVAL] != cycles:
        return False
    # the peak compares credits with the pushes in the channel, which all come later than this
    early = low
    if fill:
        early = min(low, x[arrivals + before] - s[c + LATENCY])
    for i in range(capacity):
        if i < fill and s[arrivals + at] - x[arrivals + before] != cycles:
            return False
        if not later(s, x, credits + at, credits + before, cycles, early):
            return False
        at = at + 1 if at + 1 < capacity else 0
        before = before + 1 if before + 1 < capacity else 0
    return True


@jit
def later(s, x, at, before, cycles, low):
    """Whether a time lies `cycles` later, or decides nothing as both lie at or before `low`."""
    return s[at] - x[before] == cycles or (x[before] <= low and s[at] <= low + cycles)


@jit
def turn_ring(s, x, ring, size, first, end, turn, add):
    """Make of a ring's entries `first` to before `end` those `turn` later, and add to each.

    `x` gives room to do it.
    """
    at = first % size
    for _ in range(first, end):
        x[ring + at] = s[ring + at]
        at = at + 1 if at + 1 < size else 0
    at, to = first % size, (first + turn) % size
    for _ in range(first, end):
        s[ring + to] = x[ring + at] + add
        at = at + 1 if at + 1 < size else 0
        to = to + 1 if to + 1 < size else 0
