"""How far ahead memory may decide, compiled: requests not known yet, and when they can come.

With every unit waiting, a unit fires no sooner than it is free, and no sooner than what it lacks
can reach it: a token that its writer has yet to push, room that its reader has yet to make. A
request comes no sooner than the firing that makes it, so that memory may decide all that is before
the first one that is not known. (What memory brings back is bounded by its latency alone.)
"""

from __future__ import annotations

from dataflow.sim import fast_tiles
from dataflow.sim.fast_kernel import (
    CREDIT,
    FIRED,
    FREE,
    IS_QUEUE,
    LACKS,
    LATENCY,
    LEFT,
    LEG,
    LOOPS,
    NEVER,
    OUTER,
    READER,
    WRITER,
    jit,
)
from dataflow.sim.fast_tiles import (
    ASKED,
    GENERATOR_FIELDS,
    GENERATOR_LATENCY,
    GENERATORS,
    GENERATORS_END,
    ISSUED,
    NEXT_ISSUE,
    POINT,
    POINTS,
    QUEUE,
    STORES,
    UNIT,
)

STEPS = 16
"""Units looked at, one waiting for the next, for a bound on the firing of the first."""


@jit
def fires_again(s, u):
    """Whether a unit has firings left."""
    loops = s[u + LOOPS]
    for loop in range(s[u + OUTER]):
        if s[loops + 2 * loop + 1] < s[loops + 2 * loop] - 1:
            return True
    return s[u + LEFT] > 0 or s[u + FIRED] == 0


@jit
def soonest_firing(s, u):
    """A cycle before which a unit does not fire; NEVER for one that has fired all it will.

    The chain of those that wait for each other ends at memory, at a shared network or after STEPS.
    """
    at, on_the_way = s[u + FREE], 0
    for _ in range(STEPS):
        c, is_token = s[u + LACKS] // 2, s[u + LACKS] % 2
        if c == 0:
            return at if fires_again(s, u) else NEVER
        if s[c + IS_QUEUE] or s[c + LEG]:
            break
        on_the_way += s[c + LATENCY] if is_token else s[c + CREDIT]
        u = s[c + WRITER] if is_token else s[c + READER]
        at = max(at, s[u + FREE] + on_the_way)
    return at


@jit
def has_tiles(s, g):
    """Whether a generator has points left."""
    loops = s[g + fast_tiles.LOOPS]
    for loop in range(s[g + POINTS]):
        if s[loops + 2 * loop + 1] < s[loops + 2 * loop] - 1:
            return True
    return s[g + POINT] == 0


@jit
def soonest_issue(s, g):
    """A cycle before which a generator sends no request that is not known."""
    if s[g + LACKS] == 0:  # on the worklist: it may know of more than it has asked for
        return s[g + NEXT_ISSUE]
    if s[g + STORES]:
        return max(s[g + NEXT_ISSUE], soonest_firing(s, s[g + UNIT]))
    if s[g + ISSUED] < s[g + ASKED]:  # all in flight: the next one goes where a beat has fired
        at = soonest_firing(s, s[g + UNIT])
        return max(s[g + NEXT_ISSUE], at + s[s[g + QUEUE] + CREDIT]) if at != NEVER else NEVER
    return s[g + NEXT_ISSUE] if has_tiles(s, g) else NEVER


@jit
def soonest_request(s):
    """A cycle before which no request that is not known reaches memory."""
    soonest = NEVER
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        soonest = min(soonest, soonest_issue(s, g))
    return soonest + s[GENERATOR_LATENCY] if soonest != NEVER else NEVER
