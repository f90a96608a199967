"""Whether a run's state has come back to an earlier one: generators and memory, compiled.

As in `fast_same.py`. Between the two states each generator has moved by whole tiles, all of which
lie the same number of bytes further, and so will those to come as long as nothing is clipped. That
distance must be nothing to memory: a whole number of turns over its channels and, where its banks
are described, either of whole rows of all banks, or the same number of banks for every generator
that moves: then each bank must stand as the one so many places before it did. Generators of one
tensor move alike. Refreshes must come equally long after both states, so the cycles between are a
multiple of tREFI.
"""

from __future__ import annotations

from dataflow.sim.fast_dram import (
    BANK_FIELDS,
    BANK_STEP,
    BANKS_AT,
    CLOSE_AT,
    COLUMN,
    COLUMN_AT,
    DRAM,
    FAW,
    FOUR,
    GROUP,
    GROUP_BANKS,
    GROUP_FIELDS,
    GROUP_STEP,
    GROUPS,
    OLDEST_OF_FOUR,
    OPEN_AT,
    PENDING,
    RC,
    REFRESH_AT,
    REFRESHED,
    ROW,
    ROW_FIELDS,
    ROW_STEP,
    RTW,
    SERVED_FOR,
    TURN,
    WTR_L,
)
from dataflow.sim.fast_kernel import (
    ARRIVALS,
    CAPACITY,
    CREDITS,
    LACKS,
    NEVER,
    READ,
    WRITTEN,
    jit,
)
from dataflow.sim.fast_same import later, moved_loop
from dataflow.sim.fast_same_tiles import (
    distance_bursts,
    distance_bytes,
    local_distance,
    whole_tiles,
)
from dataflow.sim.fast_tiles import (
    ASKED,
    BACK,
    BASE,
    BEAT,
    BEATS,
    BURST,
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
    INTERLEAVE,
    ISSUED,
    LAST_BACK,
    LOOPS,
    NEEDS,
    NEXT_ISSUE,
    PARTS,
    PLACES,
    POINT,
    POINTS,
    QUEUE,
    REACH,
    SERVED,
    STORES,
    USED,
)


@jit
def lowest_issue(s, x, low):
    """The lesser of `low` and the cycle before which no generator has asked since `x`."""
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        if s[g + ISSUED] > x[g + ISSUED]:
            low = min(low, x[g + NEXT_ISSUE])
    return low


@jit
def generator_periods(s, x, g, cycles, low):
    """How many times a generator could do again what it did since `x`; 0 where it stands
    elsewhere."""
    if s[g + LACKS] != x[g + LACKS] or not same_counts(s, x, g):
        return 0
    if s[g + POINT] == x[g + POINT]:
        return NEVER if s[g + SERVED] == s[g + ISSUED] else 0
    if x[g + POINT] == 0 or s[g + LAST_BACK] - x[g + LAST_BACK] != cycles:
        return 0
    if s[g + NEXT_ISSUE] - x[g + NEXT_ISSUE] != cycles:
        return 0
    moved = moved_loop(s, x, s[g + LOOPS], s[g + POINTS])
    if moved < 0 or not same_flight(s, x, g, cycles, low):
        return 0
    counter = s[g + LOOPS] + 2 * moved + 1
    if s[counter] < x[counter] or not same_tiles(s, x, g):
        return 0
    if distance_bytes(s, x, g) % (s[INTERLEAVE] * s[CHANNELS]) != 0:
        return 0
    return whole_tiles(s, x, g, moved)


@jit
def same_counts(s, x, g):
    """Whether as many beats and bursts are at each stage."""
    q, beats, bursts = s[g + QUEUE], s[g + BEAT] - x[g + BEAT], s[g + ASKED] - x[g + ASKED]
    for place in (g + COLLECTED, q + READ, q + WRITTEN):
        if s[place] - x[place] != beats:
            return False
    if not s[g + STORES] and s[g + USED] - x[g + USED] != bursts:
        return False
    return s[g + ISSUED] - x[g + ISSUED] == bursts == s[g + SERVED] - x[g + SERVED]


@jit
def same_flight(s, x, g, cycles, low):
    """Whether the beats handed over and the bursts in flight are the same, `cycles` later."""
    q, window, size = s[g + QUEUE], s[g + IN_FLIGHT] + 1, s[g + BEATS]
    beats, bursts = s[g + BEAT] - x[g + BEAT], s[g + ASKED] - x[g + ASKED]
    tokens, credits = s[q + READ], s[g + COLLECTED]
    if s[g + STORES]:
        tokens, credits = s[g + COLLECTED], s[q + WRITTEN]
    ends = s[q + READ] + (s[q + CAPACITY] if s[g + STORES] else 0)
    if not later_ring(s, x, s[q + ARRIVALS], size, tokens, s[q + WRITTEN], beats, cycles, low):
        return False
    if not later_ring(s, x, s[q + CREDITS], size, credits, ends, beats, cycles, low):
        return False
    for k in range(max(bursts, s[g + ISSUED] - window + 1), s[g + ISSUED]):
        slot, before = k % window, (k - bursts) % window
        if k >= s[g + SERVED]:
            if s[s[g + REACH] + slot] - x[s[g + REACH] + before] != cycles:
                return False
            if not s[DRAM] or s[s[g + BACK] + slot] == x[s[g + BACK] + before] == -1:
                continue
            if min(s[s[g + BACK] + slot], x[s[g + BACK] + before]) < 0:
                return False
        if not later(s, x, s[g + BACK] + slot, s[g + BACK] + before, cycles, low):
            return False
    if s[g + STORES]:
        return True
    for k in range(max(bursts, s[g + ISSUED] - s[g + IN_FLIGHT]), s[g + USED]):
        at, before = s[g + FREED] + k % window, s[g + FREED] + (k - bursts) % window
        if not later(s, x, at, before, cycles, low):
            return False
    return True


@jit
def later_ring(s, x, ring, size, first, end, turn, cycles, low):
    """Whether the entries of a ring are those of `turn` numbers before, `cycles` later."""
    at, before = first % size, (first - turn) % size
    for _ in range(first, end):
        if not later(s, x, ring + at, ring + before, cycles, low):
            return False
        at = at + 1 if at + 1 < size else 0
        before = before + 1 if before + 1 < size else 0
    return True


@jit
def same_tiles(s, x, g):
    """Whether the tiles looked at and not done ask for the same bursts, so much further."""
    beats, bursts = s[g + BEAT] - x[g + BEAT], s[g + ASKED] - x[g + ASKED]
    distance = distance_bursts(s, x, g) if s[DRAM] else 0
    for k in range(s[g + COLLECTED], s[g + BEAT]):
        at, before = k % s[g + BEATS], (k - beats) % s[g + BEATS]
        for ring in (NEEDS, ENDS):
            if s[s[g + ring] + at] - x[s[g + ring] + before] != bursts:
                return False
    for k in range(s[g + SERVED], s[g + ASKED]):
        at, before = k % s[g + BURSTS], (k - bursts) % s[g + BURSTS]
        if s[s[g + PLACES] + at] - x[s[g + PLACES] + before] != distance:
            return False
    return True


@jit
def same_memory(s, x, cycles, low):
    """Whether memory's channels stand the same, `cycles` later."""
    if s[DRAM]:
        turn = bank_turn(s, x)
        if turn < 0:
            return False
        for d in range(s[FREE_AT], s[FREE_AT] + s[CHANNELS] * ROW_FIELDS, ROW_FIELDS):
            if not same_dram(s, x, d, cycles * s[PARTS], low * s[PARTS], turn):
                return False
        return True
    for place in range(s[FREE_AT], s[FREE_AT] + 2 * s[CHANNELS], 2):
        shifted = s[place] - x[place] == cycles and s[place + 1] == x[place + 1]
        if not shifted and (x[place] >= low or s[place] >= low + cycles):
            return False
    return True


@jit
def bank_turn(s, x):
    """By how many banks the generators that moved have moved; -1 where that is not the same."""
    turn, mixed = -1, False
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        distance = local_distance(s, x, g)
        if s[g + POINT] == x[g + POINT]:
            continue
        if distance % (s[GROUP_STEP] * s[GROUPS]) != 0 or distance % s[BANK_STEP] != 0:
            return -1
        banks = distance // s[BANK_STEP] % s[GROUP_BANKS]
        if s[BANK_STEP] * s[GROUP_BANKS] != s[ROW_STEP] and distance % s[ROW_STEP] != 0:
            return -1
        if turn >= 0 and turn != banks:
            return -1
        turn = banks
        for h in range(s[GENERATORS], g, GENERATOR_FIELDS):
            other = local_distance(s, x, h)
            if s[h + BASE] == s[g + BASE] and other != distance:
                return -1
            mixed = mixed or other != distance
    if mixed and not rows_apart(s):
        return -1
    return max(turn, 0)


@jit
def rows_apart(s):
    """Whether tensors start in banks of their own, so that no row holds two of them."""
    bank_bytes = s[BANK_STEP] * s[CHANNELS] * s[BURST]
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        if s[g + BASE] % bank_bytes != 0:
            return False
    return True


@jit
def same_dram(s, x, d, parts, low, turn):
    """Whether a channel stands the same, `parts` later and its banks `turn` places on."""
    if s[d + PENDING] != x[d + PENDING] or s[d + REFRESH_AT] - x[d + REFRESH_AT] != parts:
        return False
    if not later(s, x, d + TURN, d + TURN, parts, low):
        return False
    if not later(s, x, d + REFRESHED, d + REFRESHED, parts, x[d + REFRESH_AT]):
        return False
    # what is waited for after each of these is less
    low -= max(s[FAW], s[RC], s[RTW], s[WTR_L])
    for field in range(COLUMN, FOUR):
        if not later(s, x, d + field, d + field, parts, low):
            return False
    for k in range(4):
        at, before = (s[d + OLDEST_OF_FOUR] + k) % 4, (x[d + OLDEST_OF_FOUR] + k) % 4
        if not later(s, x, s[d + FOUR] + at, s[d + FOUR] + before, parts, low):
            return False
    first = s[s[d + BANKS_AT] + GROUP]
    for place in range(first, first + s[GROUPS] * GROUP_FIELDS):
        if not later(s, x, place, place, parts, low):
            return False
    for number in range(s[GROUPS] * s[GROUP_BANKS]):
        before = s[d + BANKS_AT] + number * BANK_FIELDS
        at = s[d + BANKS_AT] + turned(s, number, turn) * BANK_FIELDS
        if not same_bank(s, x, at, before, number, parts, low):
            return False
    return True


@jit
def turned(s, number, turn):
    """The bank `turn` places after bank `number` in its group."""
    group, bank = number // s[GROUP_BANKS], number % s[GROUP_BANKS]
    return group * s[GROUP_BANKS] + (bank + turn) % s[GROUP_BANKS]


@jit
def row_after(s, number, row, distance):
    """The row that lies `distance` bursts after the start of a row of bank `number`."""
    return row + (number % s[GROUP_BANKS] * s[BANK_STEP] % s[ROW_STEP] + distance) // s[ROW_STEP]


@jit
def same_bank(s, x, at, before, number, parts, low):
    """Whether bank `at` stands as bank `before` did."""
    row = x[before + ROW]
    if row >= 0:
        row = row_after(s, number, row, local_distance(s, x, x[before + SERVED_FOR]))
    if s[at + ROW] != row:
        return False
    for field in (COLUMN_AT, CLOSE_AT, OPEN_AT):
        if not later(s, x, at + field, before + field, parts, low):
            return False
    return True
