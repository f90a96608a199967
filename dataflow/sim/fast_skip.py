"""What a run may leave out, compiled: marks at which its state is looked at, periods, known steps.

The reference unit stops at marks: whenever the loops inside one of its levels have turned. At each
mark the whole state of the run is compared with one kept from an earlier mark of the same level
(`fast_same.py` says when they are the same); where it is the same, the run has a period, and jumps
as many periods ahead as every loop, tile and address allow: counts grow by as many times their
growth in one period, times by as many times its cycles, and rings turn. Nothing is estimated: what
comes after the jump is what would have come.

A level keeps a state where its fingerprint (a number made of a few words of it) was that of an
earlier mark, and compares as many marks later as lie between the two. Where an outer level has
turned, the inner ones start anew; after an inner jump the state that an outer one keeps holds, as
the jump ends in a state of the run like any other.

Levels of much work between two marks also remember the states at their last marks, and take the
step from one to the next again where they stand alike (`fast_known.py`).
"""

from __future__ import annotations

from dataflow.sim.fast_ahead import soonest_request
from dataflow.sim.fast_dram import (
    DRAM,
    REFRESH_AT,
)
from dataflow.sim.fast_jump import jump, keep
from dataflow.sim.fast_kernel import (
    AT_MARK,
    FIRED,
    FREE,
    LACKS,
    LEVELS,
    LEVELS_END,
    MARK,
    NEVER,
    REFERENCE,
    SIZE,
    UNIT_FIELDS,
    UNITS,
    UNITS_END,
    jit,
    pointer,
)
from dataflow.sim.fast_known import leads, take_step
from dataflow.sim.fast_memory import serve_up_to
from dataflow.sim.fast_same import (
    lowest,
    same_channels,
    same_worklist,
    unit_periods,
)
from dataflow.sim.fast_same_memory import (
    generator_periods,
    lowest_issue,
    same_memory,
)
from dataflow.sim.fast_tiles import (
    FREE_AT,
    GENERATOR_FIELDS,
    GENERATORS,
    GENERATORS_END,
    ISSUED,
    NEXT_ISSUE,
    OLDEST,
    PARTS,
    SERVED,
)

# a level of the reference unit, outermost first: its firings in one turn; its marks so far; where
# their fingerprints lie; marks between the state kept and the one it is compared with (0: none
# kept); the mark of that, and the one before which no other is kept; how long that was last put
# off; the cycle at the last mark, its fingerprint; the lag that was compared last, in vain; ...
STRIDE_FIRINGS, SEEN, HISTORY, LAG, DUE, AGAIN, DELAY, BEFORE, LAST, TRIED = range(10)
# ... states that it remembers as steps known, at most; the place of the first, and of the next to
# come, among all states kept; rings of their fingerprints and of whether the one after follows it;
# whether the last one is that of the last mark
KNOWN_MOST, KNOWN_FIRST, KNOWN_NEXT, KNOWN_MARKS, KNOWN_FOLLOWED, KNOWN_OPEN = range(10, 16)
LEVEL_FIELDS = 16
MARKS = 512
"""Fingerprints that a level remembers; no period of more marks is found."""
MOST_KNOWN = 128
"""States that a level remembers as steps known."""
TRIES = 8
"""Known steps compared at a mark."""
SPREAD = 0x9E3779B97F4A7C1
"""An odd number whose multiples fill a word evenly (2^60 by the golden ratio)."""


@jit
def at_mark(s, kept):
    """Go on from a mark without firing as far as possible; set the next mark."""
    s[AT_MARK] = 0
    if s[GENERATORS] < s[GENERATORS_END]:
        serve_up_to(s, soonest_request(s) - 1)
    while passes(s, kept):
        pass
    innermost = s[s[LEVELS_END] - LEVEL_FIELDS + STRIDE_FIRINGS]
    s[MARK] = (s[s[REFERENCE] + FIRED] // innermost + 1) * innermost


@jit
def passes(s, kept):
    """Compare states that are due, jump where one is the same; whether a known step was taken."""
    fired, turned_outer = s[s[REFERENCE] + FIRED], False
    for level in range(s[LEVELS], s[LEVELS_END], LEVEL_FIELDS):
        if fired % s[level + STRIDE_FIRINGS] != 0:
            continue
        if turned_outer:
            start_anew(s, level)
        if look(s, state(s, kept, (level - s[LEVELS]) // LEVEL_FIELDS), level):
            for inner in range(level, s[LEVELS_END], LEVEL_FIELDS):
                start_anew(s, inner)
                s[inner + KNOWN_OPEN] = 0
            return False
        if s[level + KNOWN_MOST] and recall(s, kept, level):
            for inner in range(level + LEVEL_FIELDS, s[LEVELS_END], LEVEL_FIELDS):
                start_anew(s, inner)
                s[inner + KNOWN_OPEN] = 0
            return True
        turned_outer = True
    return False


@jit
def state(s, kept, place):
    """One of the states kept."""
    return pointer(kept[place * s[SIZE] : (place + 1) * s[SIZE]])  # pyright: ignore[reportCallIssue]


@jit
def recall(s, kept, level):
    """Take a step known from this state, or remember the state; whether a step was taken."""
    most, first, after = s[level + KNOWN_MOST], s[level + KNOWN_FIRST], s[level + KNOWN_NEXT]
    marks, followed, tries = s[level + KNOWN_MARKS], s[level + KNOWN_FOLLOWED], TRIES
    for back in range(2, most + 1):  # the last one is followed by none yet
        place = (after - back) % most
        if s[followed + place] and s[marks + place] == s[level + LAST]:
            x, y = state(s, kept, first + place), state(s, kept, first + (place + 1) % most)
            if leads(s, x, y):
                take_step(s, x, y, state(s, kept, len(kept) // s[SIZE] - 1))
                s[level + KNOWN_OPEN] = 0
                return True
            tries -= 1
            if tries == 0:
                break
    keep(s, state(s, kept, first + after))
    s[marks + after], s[followed + after] = s[level + LAST], 0
    s[followed + (after - 1) % most] = s[level + KNOWN_OPEN]
    s[level + KNOWN_OPEN] = 1
    s[level + KNOWN_NEXT] = (after + 1) % most
    return False


@jit
def start_anew(s, level):
    """Forget the marks of a level."""
    s[level + SEEN] = s[level + LAG] = s[level + AGAIN] = s[level + DELAY] = 0
    s[level + TRIED] = 0


@jit
def look(s, x, level):
    """Look at the state at a level's mark; whether the run has jumped."""
    mark = fingerprint(s, s[level + BEFORE])
    s[level + BEFORE], s[level + LAST] = s[s[REFERENCE] + FREE], mark
    seen, history = s[level + SEEN], s[level + HISTORY]
    s[level + SEEN] += 1
    if s[level + LAG] and seen == s[level + DUE]:
        periods = same_periods(s, x)
        if periods > 0:
            jump(s, x, periods)
            return True
        s[level + AGAIN] = seen + s[level + DELAY]
        s[level + DELAY] = 2 * s[level + DELAY] + s[level + LAG]
        s[level + TRIED] = s[level + LAG]
        s[level + LAG] = 0
    if not s[level + LAG] and seen >= s[level + AGAIN]:
        for lag in range(s[level + TRIED] + 1, min(seen, MARKS) + 1):
            if s[history + (seen - lag) % MARKS] == mark:
                s[level + LAG], s[level + DUE] = lag, seen + lag
                keep(s, x)
                break
        else:
            s[level + TRIED] = 0
    s[history + seen % MARKS] = mark
    return False


@jit
def mixed(mark, word):
    """A fingerprint with one more word in it."""
    mark = (mark ^ word) * SPREAD
    return mark ^ (mark >> 29)


@jit
def fingerprint(s, since):
    """A number that is the same where two states are, and hardly ever where they are not.

    Units that have not fired since a cycle count by what they wait for alone.
    """
    now, mark = s[s[REFERENCE] + FREE], 0
    for u in range(s[UNITS], s[UNITS_END], UNIT_FIELDS):
        mark = mixed(mark, s[u + LACKS])
        if s[u + FREE] > since:
            mark = mixed(mark, now - s[u + FREE])
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        mark = mixed(mark, s[g + ISSUED] - s[g + SERVED])
        if s[g + NEXT_ISSUE] > since:
            mark = mixed(mark, now - s[g + NEXT_ISSUE])
        if s[s[g + OLDEST]] != NEVER:
            mark = mixed(mark, now - s[s[g + OLDEST]])
    if s[DRAM]:
        mark = mixed(mark, s[s[FREE_AT] + REFRESH_AT] - now * s[PARTS])
    return mark


@jit
def same_periods(s, x):
    """How many periods the run may jump; 0 where its state is not the one kept."""
    cycles = s[s[REFERENCE] + FREE] - x[s[REFERENCE] + FREE]
    if cycles < 1 or not same_worklist(s, x):
        return 0
    periods = NEVER
    for u in range(s[UNITS], s[UNITS_END], UNIT_FIELDS):
        periods = min(periods, unit_periods(s, x, u, cycles))
        if periods < 1:
            return 0
    low = lowest_issue(s, x, lowest(s, x))
    if not same_channels(s, x, cycles, low):
        return 0
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        periods = min(periods, generator_periods(s, x, g, cycles, low))
        if periods < 1:
            return 0
    if s[GENERATORS] < s[GENERATORS_END] and not same_memory(s, x, cycles, low):
        return 0
    return periods
