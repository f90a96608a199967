"""Whole periods skipped, compiled: the marks at which a state is looked at, and the jump.

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
"""

from __future__ import annotations

from dataflow.sim.account import CAUSES
from dataflow.sim.fast_dram import (
    BANK_FIELDS,
    BANKS_AT,
    CLOSE_AT,
    COLUMN,
    COLUMN_AT,
    CONFLICTS,
    DRAM,
    FOUR,
    GROUP,
    GROUP_BANKS,
    GROUP_FIELDS,
    GROUPS,
    HITS,
    MISSES,
    OPEN_AT,
    QUEUES,
    REFRESH_AT,
    REFRESHED,
    REFRESHES,
    ROW,
    ROW_FIELDS,
    SERVED_FOR,
    TURN,
)
from dataflow.sim.fast_kernel import (
    ARRIVALS,
    AT_MARK,
    CAPACITY,
    CHANNEL_FIELDS,
    CHANNELS_AT,
    CHANNELS_END,
    CREDITS,
    FIRED,
    FREE,
    GAPS,
    IS_QUEUE,
    LACKS,
    LAST_ARRIVAL,
    LAST_FIRED,
    LEFT,
    LEVELS,
    LEVELS_END,
    LOOPS,
    MARK,
    NEVER,
    OUTER,
    READ,
    READ_AT,
    REFERENCE,
    ROOM,
    SKIPPED,
    TOTAL,
    UNIT_FIELDS,
    UNITS,
    UNITS_END,
    WRITE_AT,
    WRITTEN,
    jit,
    pointer,
)
from dataflow.sim.fast_memory import locate
from dataflow.sim.fast_same import (
    lowest,
    moved_loop,
    same_channels,
    same_worklist,
    turn_ring,
    unit_periods,
)
from dataflow.sim.fast_same_memory import (
    bank_turn,
    distance_bursts,
    generator_periods,
    local_distance,
    lowest_issue,
    row_after,
    same_memory,
    turned,
)
from dataflow.sim.fast_tiles import (
    ASKED,
    AXES,
    AXES_END,
    AXIS_FIELDS,
    BACK,
    BANK_OF,
    BEAT,
    BEATS,
    BURSTS,
    CHANNELS,
    COLLECTED,
    ENDS,
    FREE_AT,
    FREED,
    GENERATOR_FIELDS,
    GENERATORS,
    GENERATORS_END,
    ISSUED,
    LAST_BACK,
    NEEDS,
    NEXT,
    NEXT_ISSUE,
    OLDEST,
    OUTSTANDING,
    PARTS,
    PLACES,
    POINT,
    POINTS,
    QUEUE,
    REACH,
    READS,
    ROW_OF,
    SERVED,
    USED,
    USEFUL,
    WRITES,
    find_coordinates,
)
from dataflow.sim.fast_tiles import LOOPS as GENERATOR_LOOPS

# a level of the reference unit, outermost first: its firings in one turn; its marks so far; where
# their fingerprints lie; marks between the state kept and the one it is compared with (0: none
# kept); the mark of that, and the one before which no other is kept; how long that was last put
# off; the cycle at the last mark; the lag that was compared last, in vain
STRIDE_FIRINGS, SEEN, HISTORY, LAG, DUE, AGAIN, DELAY, BEFORE, TRIED = range(9)
LEVEL_FIELDS = 9
MARKS = 512
"""Fingerprints that a level remembers; no period of more marks is found."""
SPREAD = 0x9E3779B97F4A7C1
"""An odd number whose multiples fill a word evenly (2^60 by the golden ratio)."""


@jit
def at_mark(s, kept):
    """Compare states that are due and jump where one is the same; set the next mark."""
    fired, size = s[s[REFERENCE] + FIRED], len(kept) * LEVEL_FIELDS // (s[LEVELS_END] - s[LEVELS])
    s[AT_MARK] = 0
    turned_outer = False
    for level in range(s[LEVELS], s[LEVELS_END], LEVEL_FIELDS):
        if fired % s[level + STRIDE_FIRINGS] != 0:
            continue
        if turned_outer:
            start_anew(s, level)
        start = (level - s[LEVELS]) // LEVEL_FIELDS * size
        x = pointer(kept[start : start + size])  # pyright: ignore[reportCallIssue]
        if look(s, x, level):
            for inner in range(level, s[LEVELS_END], LEVEL_FIELDS):
                start_anew(s, inner)
            break
        turned_outer = True
    innermost = s[s[LEVELS_END] - LEVEL_FIELDS + STRIDE_FIRINGS]
    s[MARK] = (s[s[REFERENCE] + FIRED] // innermost + 1) * innermost


@jit
def start_anew(s, level):
    """Forget the marks of a level."""
    s[level + SEEN] = s[level + LAG] = s[level + AGAIN] = s[level + DELAY] = 0
    s[level + TRIED] = 0


@jit
def look(s, x, level):
    """Look at the state at a level's mark; whether the run has jumped."""
    mark = fingerprint(s, s[level + BEFORE])
    s[level + BEFORE] = s[s[REFERENCE] + FREE]
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
    if s[DRAM]:
        mark = mixed(mark, s[s[FREE_AT] + REFRESH_AT] - now * s[PARTS])
    return mark


@jit
def copy_ring(s, x, ring, size, first, end):
    """Copy the entries of a ring from number `first` to before `end`."""
    for k in range(first, end):
        x[ring + k % size] = s[ring + k % size]


@jit
def keep(s, x):
    """Copy all of the state that is looked at again."""
    for place in range(s[ROOM]):
        x[place] = s[place]
    for c in range(s[CHANNELS_AT], s[CHANNELS_END], CHANNEL_FIELDS):
        if not s[c + IS_QUEUE]:
            copy_ring(s, x, s[c + ARRIVALS], s[c + CAPACITY], 0, s[c + CAPACITY])
            copy_ring(s, x, s[c + CREDITS], s[c + CAPACITY], 0, s[c + CAPACITY])
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        q, beats, bursts = s[g + QUEUE], s[g + BEATS], s[g + BURSTS]
        copy_ring(s, x, s[g + NEEDS], beats, s[g + COLLECTED], s[g + BEAT])
        copy_ring(s, x, s[g + ENDS], beats, s[g + COLLECTED], s[g + BEAT])
        copy_ring(s, x, s[q + ARRIVALS], beats, s[g + COLLECTED], s[q + WRITTEN])
        copy_ring(s, x, s[q + CREDITS], beats, s[g + COLLECTED], s[q + READ] + beats)
        copy_ring(s, x, s[g + PLACES], bursts, s[g + SERVED], s[g + ASKED])
        for ring in (FREED, REACH, BACK):
            copy_ring(s, x, s[g + ring], s[OUTSTANDING] + 1, 0, s[OUTSTANDING] + 1)


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


@jit
def grow(s, x, place, periods):
    """Let a count grow as it has since `x`, so many times."""
    s[place] += periods * (s[place] - x[place])


@jit
def jump(s, x, periods):
    """Do so many times more what was done since `x`, whose rings then hold nothing."""
    ahead = periods * (s[s[REFERENCE] + FREE] - x[s[REFERENCE] + FREE])
    s[SKIPPED] += periods * (s[TOTAL] - x[TOTAL])
    grow(s, x, TOTAL, periods)
    if s[GENERATORS] < s[GENERATORS_END]:
        jump_memory(s, x, periods, ahead)  # first, as it asks how far the generators have moved
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        if s[g + POINT] != x[g + POINT]:
            jump_generator(s, x, g, periods, ahead)
    for c in range(s[CHANNELS_AT], s[CHANNELS_END], CHANNEL_FIELDS):
        if s[c + WRITTEN] != x[c + WRITTEN] and not s[c + IS_QUEUE]:
            jump_channel(s, x, c, periods, ahead)
    for u in range(s[UNITS], s[UNITS_END], UNIT_FIELDS):
        if s[u + FIRED] != x[u + FIRED]:
            for loop in range(s[u + OUTER]):
                grow(s, x, s[u + LOOPS] + 2 * loop + 1, periods)
            for place in range(u + GAPS, u + GAPS + len(CAUSES)):
                grow(s, x, place, periods)
            grow(s, x, u + LEFT, periods)
            grow(s, x, u + FIRED, periods)
            s[u + FREE] += ahead
            s[u + LAST_FIRED] += ahead


@jit
def jump_channel(s, x, c, periods, ahead):
    """Move a channel's counts and times on."""
    turn, capacity = periods * (s[c + WRITTEN] - x[c + WRITTEN]), s[c + CAPACITY]
    if not s[c + IS_QUEUE]:
        turn_ring(s, x, s[c + ARRIVALS], capacity, 0, capacity, turn, ahead)
        turn_ring(s, x, s[c + CREDITS], capacity, 0, capacity, turn, ahead)
    s[c + READ] += turn
    s[c + WRITTEN] += turn
    s[c + READ_AT] = s[c + READ] % capacity
    s[c + WRITE_AT] = s[c + WRITTEN] % capacity
    s[c + LAST_ARRIVAL] += ahead


@jit
def jump_generator(s, x, g, periods, ahead):
    """Move a generator, with its queue, on."""
    q, window, size = s[g + QUEUE], s[OUTSTANDING] + 1, s[g + BEATS]
    beats, bursts = periods * (s[g + BEAT] - x[g + BEAT]), periods * (s[g + ASKED] - x[g + ASKED])
    moved = moved_loop(s, x, s[g + GENERATOR_LOOPS], s[g + POINTS])
    distance = periods * distance_bursts(s, x, g, moved) if s[DRAM] else 0
    first = s[g + COLLECTED]
    turn_ring(s, x, s[g + NEEDS], size, first, s[g + BEAT], beats, bursts)
    turn_ring(s, x, s[g + ENDS], size, first, s[g + BEAT], beats, bursts)
    turn_ring(s, x, s[q + ARRIVALS], size, first, s[q + WRITTEN], beats, ahead)
    turn_ring(s, x, s[q + CREDITS], size, first, s[q + READ] + size, beats, ahead)
    first = s[g + SERVED]
    turn_ring(s, x, s[g + PLACES], s[g + BURSTS], first, s[g + ASKED], bursts, distance)
    for ring in (FREED, REACH):
        turn_ring(s, x, s[g + ring], window, 0, window, bursts, ahead)
    turn_ring(s, x, s[g + BACK], window, 0, window, bursts, 0)
    for place in range(s[g + BACK], s[g + BACK] + window):
        s[place] += ahead if s[place] >= 0 else 0
    jump_channel(s, x, q, periods, ahead)
    for place in (POINT, BEAT, COLLECTED, ASKED, ISSUED, SERVED, USED, USEFUL):
        grow(s, x, g + place, periods)
    s[g + NEXT_ISSUE] += ahead
    s[g + LAST_BACK] += ahead
    if s[s[g + OLDEST]] != NEVER:
        s[s[g + OLDEST]] += ahead
    grow(s, x, s[g + GENERATOR_LOOPS] + 2 * moved + 1, periods)
    for a in range(s[g + AXES], s[g + AXES_END], AXIS_FIELDS):
        find_coordinates(s, a)
    if s[DRAM]:
        jump_requests(s, x, g, bursts)


@jit
def jump_requests(s, x, g, bursts):
    """Move the requests on that wait at a channel, all of their numbers by `bursts`."""
    window = s[OUTSTANDING] + 1
    for ring in (BANK_OF, ROW_OF, NEXT):
        turn_ring(s, x, s[g + ring], window, 0, window, bursts, 0)
    for place in range(s[g + NEXT], s[g + NEXT] + window):
        s[place] += bursts if s[place] >= 0 else 0
    for number in range(s[g + SERVED], s[g + ISSUED]):
        if s[s[g + BACK] + number % window] < 0:
            locate(s, g, number)
    for d in range(s[FREE_AT], s[FREE_AT] + s[CHANNELS] * ROW_FIELDS, ROW_FIELDS):
        queue = s[d + QUEUES] + 2 * ((g - s[GENERATORS]) // GENERATOR_FIELDS)
        if s[queue] >= 0:
            s[queue] += bursts
            s[queue + 1] += bursts


@jit
def jump_memory(s, x, periods, ahead):
    """Move memory's channels on."""
    grow(s, x, READS, periods)
    grow(s, x, WRITES, periods)
    if not s[DRAM]:
        for place in range(s[FREE_AT], s[FREE_AT] + 2 * s[CHANNELS], 2):
            s[place] += ahead
        return
    turn, parts = periods * bank_turn(s, x), ahead * s[PARTS]
    for d in range(s[FREE_AT], s[FREE_AT] + s[CHANNELS] * ROW_FIELDS, ROW_FIELDS):
        for place in range(d + COLUMN, d + FOUR):
            s[place] += parts
        for place in range(s[d + FOUR], s[d + FOUR] + 4):
            s[place] += parts
        for field in (TURN, REFRESH_AT, REFRESHED):
            s[d + field] += parts
        first = s[s[d + BANKS_AT] + GROUP]
        for place in range(first, first + s[GROUPS] * GROUP_FIELDS):
            s[place] += parts
        for field in (HITS, MISSES, CONFLICTS, REFRESHES):
            grow(s, x, d + field, periods)
        jump_banks(s, x, d, periods, parts, turn)


@jit
def jump_banks(s, x, d, periods, parts, turn):
    """Move a channel's banks on: each then stands as the one `turn` places before it did."""
    banks = s[d + BANKS_AT]
    rows = s[GROUPS] * s[GROUP_BANKS]
    for number in range(rows):
        bank = banks + number * BANK_FIELDS
        if s[bank + ROW] >= 0:
            distance = periods * local_distance(s, x, s[bank + SERVED_FOR])
            s[bank + ROW] = row_after(s, number, s[bank + ROW], distance)
    for place in range(banks, banks + rows * BANK_FIELDS):
        x[place] = s[place]
    for number in range(rows):
        bank = banks + turned(s, number, turn) * BANK_FIELDS
        before = banks + number * BANK_FIELDS
        s[bank + ROW] = x[before + ROW]
        s[bank + SERVED_FOR] = x[before + SERVED_FOR]
        for field in (COLUMN_AT, CLOSE_AT, OPEN_AT):
            s[bank + field] = x[before + field] + parts
