"""How far the tiles of a generator have moved, and whether any is clipped, compiled."""

from __future__ import annotations

from dataflow.sim.fast_kernel import (
    NEVER,
    jit,
)
from dataflow.sim.fast_tiles import (
    AXES,
    AXES_END,
    AXIS_FIELDS,
    BURST,
    CHANNELS,
    COPIES,
    COPY,
    COUNT,
    COUNTER,
    DIGIT_EXTENT,
    DIGIT_FIELDS,
    DIGITS,
    DIGITS_END,
    ELEMENT,
    EXTENT,
    FACTOR,
    FACTORS,
    FORM_FIELDS,
    FORMS,
    FORMS_END,
    LIMIT,
    LOOPS,
    OFFSET,
    PIECE_FIELDS,
    PIECE_STEP,
    PIECES,
    PIECES_END,
    POINTS,
    STRIDE,
)


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
def distance_bytes(s, x, g):
    """How far the tiles of a generator have moved since `x`."""
    elems = 0
    for loop in range(s[g + POINTS]):
        counter = s[g + LOOPS] + 2 * loop + 1
        turns = s[counter] - x[counter]
        if turns != 0:
            for a in range(s[g + AXES], s[g + AXES_END], AXIS_FIELDS):
                elems += s[a + FACTOR] * coordinates_moved(s, a, counter, turns)
    return elems * s[g + ELEMENT]


@jit
def distance_bursts(s, x, g):
    """The same in bursts, rounded down."""
    return distance_bytes(s, x, g) // s[BURST]


@jit
def local_distance(s, x, g):
    """The same in bursts of one channel."""
    return distance_bursts(s, x, g) // s[CHANNELS]


@jit
def whole_tiles(s, x, g, moved):
    """How many times the loop may go on by as much as since `x` with no tile clipped by it."""
    counter = s[g + LOOPS] + 2 * moved + 1
    step = s[counter] - x[counter]
    low, high = 0, (s[counter - 1] - 1 - s[counter]) // step + 1
    while high - low > 1:  # `low` periods are known to fit, `high` are not
        middle = (low + high) // 2
        if fits(s, x, g, counter, x[counter], s[counter] + middle * step):
            low = middle
        else:
            high = middle
    return low


@jit
def fits(s, x, g, counter, first, final):
    """Whether no tile is clipped where a loop stands at any trip from `first` to `final`.

    The loops inside it turn, those outside stand as in `s`. Axes along which the loops that stand
    elsewhere in `x` move nothing are the same in both, clipped or not, and not asked.
    """
    for a in range(s[g + AXES], s[g + AXES_END], AXIS_FIELDS):
        if not moves(s, x, g, a):
            continue
        for d in range(s[a + DIGITS], s[a + DIGITS_END], DIGIT_FIELDS):
            if not digit_fits(s, x, d, counter, final):
                return False
        if last_coordinate(s, a, counter, final) >= s[a + EXTENT]:
            return False
    for f in range(s[g + FORMS], s[g + FORMS_END], FORM_FIELDS):
        if not stays_inside(s, x, g, f, counter, first, final):
            return False
    return True


@jit
def moves(s, x, g, a):
    """Whether the loops that stand elsewhere in `x` move anything along an axis."""
    for loop in range(s[g + POINTS]):
        counter = s[g + LOOPS] + 2 * loop + 1
        if s[counter] != x[counter] and coordinates_moved(s, a, counter, 1) != 0:
            return True
    return False


@jit
def digit_fits(s, x, d, counter, final):
    """Whether a digit is not clipped by the loop at `counter`, or by those that stand elsewhere."""
    moved = False
    for p in range(s[d + PIECES], s[d + PIECES_END], PIECE_FIELDS):
        place = s[p + COUNTER]
        if place == 0 or (place != counter and s[place] == x[place]):
            continue
        moved = True
        at = final if place == counter else s[place]
        if at * s[p + COPIES] + s[p + COPY] >= s[p + COUNT]:
            return False
    return not moved or last_index(s, d, counter, final) < s[d + DIGIT_EXTENT]


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
def stays_inside(s, x, g, f, counter, first, final):
    """Whether one index of the tensor stays within it, or is the same in `x`."""
    low = high = s[f + OFFSET]
    factors, moved = s[f + FACTORS], False
    for a in range(s[g + AXES], s[g + AXES_END], AXIS_FIELDS):
        factor = s[factors]
        factors += 1
        moved = moved or (factor != 0 and moves(s, x, g, a))
        one = factor * first_coordinate(s, a, counter, first)
        other = factor * min(s[a + EXTENT] - 1, last_coordinate(s, a, counter, final))
        low, high = low + min(one, other), high + max(one, other)
    return not moved or (low >= 0 and high < s[f + LIMIT])
