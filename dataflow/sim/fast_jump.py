"""A state kept, and a run moved on by as much as lies between two states, compiled.

Counts grow by as many times their growth, times by as many times the cycles between, and rings
turn; what that needs of the two states, `fast_same.py` and `fast_known.py` find out.
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
    CAPACITY,
    CHANNEL_FIELDS,
    CHANNELS_AT,
    CHANNELS_END,
    CREDITS,
    FIRED,
    FREE,
    GAPS,
    IS_QUEUE,
    LAST_ARRIVAL,
    LAST_FIRED,
    LEFT,
    LOOPS,
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
)
from dataflow.sim.fast_memory import locate
from dataflow.sim.fast_same import (
    turn_ring,
)
from dataflow.sim.fast_same_memory import (
    bank_turn,
    row_after,
    turned,
)
from dataflow.sim.fast_same_tiles import distance_bursts, local_distance
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
    IN_FLIGHT,
    ISSUED,
    LAST_BACK,
    NEEDS,
    NEXT,
    NEXT_ISSUE,
    OLDEST,
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


@jit
def copy_ring(s, x, ring, size, first, end):
    """Copy the entries of a ring from number `first` to before `end`, at most all."""
    if first >= end:
        return
    start = first % size
    stop = start + end - first
    copy(s, x, ring + start, ring + min(stop, size))
    if stop > size:
        copy(s, x, ring, ring + stop - size)


@jit
def copy(s, x, start, end):
    """Copy words."""
    for place in range(start, end):
        x[place] = s[place]


@jit
def keep(s, x):
    """Copy all of the state that is looked at again."""
    copy(s, x, 0, s[ROOM])
    copy_rings(s, x)


@jit
def copy_rings(s, x):
    """Copy what rings hold; where the rings lie and turn is the same in both."""
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
            copy_ring(s, x, s[g + ring], s[g + IN_FLIGHT] + 1, 0, s[g + IN_FLIGHT] + 1)
        if s[DRAM]:
            copy_ring(s, x, s[g + NEXT], s[g + IN_FLIGHT] + 1, 0, s[g + IN_FLIGHT] + 1)


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
    q, window, size = s[g + QUEUE], s[g + IN_FLIGHT] + 1, s[g + BEATS]
    beats, bursts = periods * (s[g + BEAT] - x[g + BEAT]), periods * (s[g + ASKED] - x[g + ASKED])
    distance = periods * distance_bursts(s, x, g) if s[DRAM] else 0
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
    for loop in range(s[g + POINTS]):
        grow(s, x, s[g + GENERATOR_LOOPS] + 2 * loop + 1, periods)
    for a in range(s[g + AXES], s[g + AXES_END], AXIS_FIELDS):
        find_coordinates(s, a)
    if s[DRAM]:
        jump_requests(s, x, g, bursts)


@jit
def jump_requests(s, x, g, bursts):
    """Move the requests on that wait at a channel, all of their numbers by `bursts`."""
    window = s[g + IN_FLIGHT] + 1
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
