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
from dataflow.sim.fast_tiles import (
    ASKED,
    AXES,
    AXES_END,
    AXIS_FIELDS,
    BACK,
    BASE,
    BEAT,
    BEATS,
    BURST,
    BURSTS,
    CHANNELS,
    COLLECTED,
    COPIES,
    COPY,
    COUNT,
    COUNTER,
    DIGIT_EXTENT,
    DIGIT_FIELDS,
    DIGITS,
    DIGITS_END,
    ELEMENT,
    ENDS,
    EXTENT,
    FACTOR,
    FACTORS,
    FORM_FIELDS,
    FORMS,
    FORMS_END,
    FREE_AT,
    FREED,
    GENERATOR_FIELDS,
    GENERATORS,
    GENERATORS_END,
    INTERLEAVE,
    ISSUED,
    LAST_BACK,
    LIMIT,
    LOOPS,
    NEEDS,
    NEXT_ISSUE,
    OFFSET,
    OUTSTANDING,
    PARTS,
    PIECE_FIELDS,
    PIECE_STEP,
    PIECES,
    PIECES_END,
    PLACES,
    POINT,
    POINTS,
    QUEUE,
    REACH,
    SERVED,
    STORES,
    STRIDE,
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
    if s[counter] < x[counter] or not same_tiles(s, x, g, moved):
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
    q, window, size = s[g + QUEUE], s[OUTSTANDING] + 1, s[g + BEATS]
    beats, bursts = s[g + BEAT] - x[g + BEAT], s[g + ASKED] - x[g + ASKED]
    tokens, credits = s[q + READ], s[g + COLLECTED]
    if s[g + STORES]:
        tokens, credits = s[g + COLLECTED], s[q + WRITTEN]
    ends = s[q + READ] + (s[q + CAPACITY] if s[g + STORES] else 0)
    for k in range(tokens, s[q + WRITTEN]):
        at, before = s[q + ARRIVALS] + k % size, s[q + ARRIVALS] + (k - beats) % size
        if not later(s, x, at, before, cycles, low):
            return False
    for k in range(credits, ends):
        at, before = s[q + CREDITS] + k % size, s[q + CREDITS] + (k - beats) % size
        if not later(s, x, at, before, cycles, low):
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
    for k in range(max(bursts, s[g + ISSUED] - s[OUTSTANDING]), s[g + USED]):
        at, before = s[g + FREED] + k % window, s[g + FREED] + (k - bursts) % window
        if not later(s, x, at, before, cycles, low):
            return False
    return True


@jit
def same_tiles(s, x, g, moved):
    """Whether the tiles looked at and not done ask for the same bursts, so much further."""
    beats, bursts = s[g + BEAT] - x[g + BEAT], s[g + ASKED] - x[g + ASKED]
    distance = distance_bursts(s, x, g, moved) if s[DRAM] else 0
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
def coordinates_moved(s, a, counter, turns):
    """How far the coordinates of an axis move where a loop turns on."""
    moved = 0
    for d in range(s[a + DIGITS], s[a + DIGITS_END], DIGIT_FIELDS):
        for p in range(s[d + PIECES], s[d + PIECES_END], PIECE_FIELDS):
            if s[p + COUNTER] == counter:
                moved += s[d + STRIDE] * s[p + PIECE_STEP] * s[p + COPIES] * turns
    return moved


@jit
def distance_bytes(s, x, g, moved):
    """How far the tiles of a generator have moved since `x`."""
    counter, elems = s[g + LOOPS] + 2 * moved + 1, 0
    for a in range(s[g + AXES], s[g + AXES_END], AXIS_FIELDS):
        elems += s[a + FACTOR] * coordinates_moved(s, a, counter, s[counter] - x[counter])
    return elems * s[g + ELEMENT]


@jit
def distance_bursts(s, x, g, moved):
    """The same in bursts, rounded down."""
    return distance_bytes(s, x, g, moved) // s[BURST]


@jit
def local_distance(s, x, g):
    """The same in bursts of one channel; 0 where the generator has not moved."""
    moved = moved_loop(s, x, s[g + LOOPS], s[g + POINTS])
    return distance_bursts(s, x, g, moved) // s[CHANNELS] if moved >= 0 else 0


@jit
def whole_tiles(s, x, g, moved):
    """How many times the loop may go on by as much as since `x` with no tile clipped by it."""
    distance = distance_bytes(s, x, g, moved)
    if distance % (s[INTERLEAVE] * s[CHANNELS]) != 0:
        return 0
    counter = s[g + LOOPS] + 2 * moved + 1
    step = s[counter] - x[counter]
    low, high = 0, (s[counter - 1] - 1 - s[counter]) // step + 1
    while high - low > 1:  # `low` periods are known to fit, `high` are not
        middle = (low + high) // 2
        if fits(s, g, moved, x[counter], s[counter] + middle * step):
            low = middle
        else:
            high = middle
    return low


@jit
def fits(s, g, moved, first, final):
    """Whether a loop may stand at any trip from `first` to `final` with no tile clipped by it."""
    counter = s[g + LOOPS] + 2 * moved + 1
    for a in range(s[g + AXES], s[g + AXES_END], AXIS_FIELDS):
        if coordinates_moved(s, a, counter, 1) == 0:
            continue
        for d in range(s[a + DIGITS], s[a + DIGITS_END], DIGIT_FIELDS):
            for p in range(s[d + PIECES], s[d + PIECES_END], PIECE_FIELDS):
                if s[p + COUNTER] == counter:
                    if final * s[p + COPIES] + s[p + COPY] >= s[p + COUNT]:
                        return False
                    if last_index(s, d, counter, final) >= s[d + DIGIT_EXTENT]:
                        return False
        if last_coordinate(s, a, counter, final) >= s[a + EXTENT]:
            return False
    for f in range(s[g + FORMS], s[g + FORMS_END], FORM_FIELDS):
        if not stays_inside(s, g, f, counter, first, final):
            return False
    return True


@jit
def last_index(s, d, counter, at):
    """The greatest index of a digit where a loop stands at `at` and those inside turn."""
    index = 0
    for p in range(s[d + PIECES], s[d + PIECES_END], PIECE_FIELDS):
        place = s[p + COUNTER]
        trip = at
        if place == 0:
            trip = NEVER
        elif place > counter:
            trip = s[place - 1] - 1
        elif place < counter:
            trip = s[place]
        most = (s[p + COUNT] - 1 - s[p + COPY]) // s[p + COPIES]
        index += s[p + PIECE_STEP] * (max(0, min(trip, most)) * s[p + COPIES] + s[p + COPY])
    return index


@jit
def last_coordinate(s, a, counter, at):
    """The greatest coordinate of an axis where a loop stands at `at` and those inside turn."""
    coordinate = 0
    for d in range(s[a + DIGITS], s[a + DIGITS_END], DIGIT_FIELDS):
        index = last_index(s, d, counter, at)
        coordinate += s[d + STRIDE] * min(index, s[d + DIGIT_EXTENT] - 1)
    return coordinate


@jit
def first_coordinate(s, a, counter, at):
    """The least coordinate of an axis where a loop stands at `at` and those inside at 0."""
    coordinate = 0
    for d in range(s[a + DIGITS], s[a + DIGITS_END], DIGIT_FIELDS):
        for p in range(s[d + PIECES], s[d + PIECES_END], PIECE_FIELDS):
            place, trip = s[p + COUNTER], 0
            if place == counter:
                trip = at
            elif place != 0 and place < counter:
                trip = s[place]
            index = s[p + PIECE_STEP] * (trip * s[p + COPIES] + s[p + COPY])
            coordinate += s[d + STRIDE] * index
    return coordinate


@jit
def stays_inside(s, g, f, counter, first, final):
    """Whether one index of the tensor stays within it, or does not move with the loop."""
    low = high = s[f + OFFSET]
    factors, moves = s[f + FACTORS], False
    for a in range(s[g + AXES], s[g + AXES_END], AXIS_FIELDS):
        factor = s[factors]
        factors += 1
        moves = moves or (factor != 0 and coordinates_moved(s, a, counter, 1) != 0)
        one = factor * first_coordinate(s, a, counter, first)
        other = factor * min(s[a + EXTENT] - 1, last_coordinate(s, a, counter, final))
        low, high = low + min(one, other), high + max(one, other)
    return not moves or (low >= 0 and high < s[f + LIMIT])


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
