"""Off-chip memory in the fast engine: where its numbers lie; the requests of a tile, compiled.

A generator is a member of the worklist like a unit. Bursts are numbered through its whole run, as
are beats; burst or beat k has place k mod n in the rings of its generator. What a tile's beats need
is worked out as `offchip.requests` says.
"""

from __future__ import annotations

from dataflow.sim.fast_dram import DRAM, DRAM_WORDS
from dataflow.sim.fast_kernel import jit

# words at the start of `s`, after the kernel's: the machine's numbers, ...
GENERATOR_LATENCY, LATENCY, BURST, INTERLEAVE, PARTS = range(DRAM_WORDS, DRAM_WORDS + 5)
READ_CYCLES, READ_PARTS, WRITE_CYCLES, WRITE_PARTS = range(DRAM_WORDS + 5, DRAM_WORDS + 9)
# ... bursts moved, the generator of a faulty tile, pairs of cycles and parts when a memory channel
# is free (or the rows of channels, where their DRAM is described), the cycle at which each
# generator's oldest request not served reaches memory, ...
READS, WRITES, FAULTY, FREE_AT, CHANNELS, HEADS, GENERATORS, GENERATORS_END = range(
    DRAM_WORDS + 9, DRAM_WORDS + 17
)
# ... cycles after the first request or turn not decided, up to which all requests are known
WINDOW = DRAM_WORDS + 17
ALL_WORDS = DRAM_WORDS + 18

# a generator, after what it shares with a unit: what stays the same, ...
UNIT, QUEUE, STORES, LOOPS, POINTS, FIRINGS, AXES, AXES_END, FORMS, FORMS_END = range(2, 12)
CONSTANT, BASE, ELEMENT, LANES, BEATS, BURSTS, OLDEST = range(12, 19)
# (BEATS and BURSTS: places of the rings below; OLDEST: its place in HEADS)
# ... its rings: by beat, as in `offchip.Requests` but counted through the run; by burst, its memory
# channel (its number, where DRAM is described); by burst in flight the cycle its place was free
# again, it reaches memory, it is back; ...
NEEDS, ENDS, PLACES, FREED, REACH, BACK = range(19, 25)
# ... what counts points, beats and bursts ...
POINT, BEAT, COLLECTED, ASKED, ISSUED, SERVED, USED, NEXT_ISSUE, LAST_BACK, USEFUL = range(25, 35)
# ... and of the tile in hand its next beat, bursts before it, the burst reached, the last end, the
# most bursts of a beat
TILE_BEAT, TILE_ASKED, AT_BURST, TILE_END, WIDEST = range(35, 40)
# ... with DRAM also by burst in flight its bank, its row, the next one in its channel
BANK_OF, ROW_OF, NEXT = range(40, 43)
# places of the rings by burst in flight, less one: as many may be
IN_FLIGHT = 43
GENERATOR_FIELDS = 44
# an axis: MOVED_BY is the innermost loop that moves it, -1 for none; of the tile in hand the
# coordinates, how many, their step (0 where uneven), the one of the row in hand
EXTENT, DIGITS, DIGITS_END, FACTOR, MOVED_BY, COORDS, SCRATCH, LENGTH, STEP, AT = range(10)
AXIS_FIELDS = 10
# a digit, and a piece of it; COUNTER is the place of its loop's counter, 0 for none
STRIDE, DIGIT_EXTENT, PIECES, PIECES_END = range(4)
DIGIT_FIELDS = 4
PIECE_STEP, COUNT, COUNTER, COPIES, COPY = range(5)
PIECE_FIELDS = 5
# one affine form of the index; FACTORS are those of all axes in order
OFFSET, LIMIT, FACTORS, OUTSIDE, ROW = range(5)
FORM_FIELDS = 5


@jit
def spread(s, start, count, first, step, ways):
    """Replace `count` words by their sums with first, first + step, ...: `ways` for each."""
    for i in range(count - 1, -1, -1):
        value = s[start + i] + first
        for way in range(ways - 1, -1, -1):
            s[start + i * ways + way] = value + way * step
    return count * ways


@jit
def find_coordinates(s, a):
    """Work out the coordinates of an axis, ascending; `coordinates.coordinates` says which."""
    start, index = s[a + COORDS], s[a + SCRATCH]
    s[start] = 0
    count = 1
    for d in range(s[a + DIGITS], s[a + DIGITS_END], DIGIT_FIELDS):
        s[index] = 0
        found = 1
        for p in range(s[d + PIECES], s[d + PIECES_END], PIECE_FIELDS):
            step, copies, copy = s[p + PIECE_STEP], s[p + COPIES], s[p + COPY]
            if s[p + COUNTER] == 0:
                ways = max(0, -(-(s[p + COUNT] - copy) // copies))
                found = spread(s, index, found, step * copy, step * copies, ways)
            else:
                at = s[s[p + COUNTER]] * copies + copy
                found = spread(s, index, found, step * at, 0, 1) if at < s[p + COUNT] else 0
        kept = 0
        for i in range(index, index + found):
            if s[i] < s[d + DIGIT_EXTENT]:
                s[index + kept] = s[d + STRIDE] * s[i]
                kept += 1
        for i in range(count - 1, -1, -1):
            value = s[start + i]
            for way in range(kept - 1, -1, -1):
                s[start + i * kept + way] = value + s[index + way]
        count *= kept
    s[a + LENGTH] = keep_sorted(s, start, count, s[a + EXTENT])
    step = s[start + 1] - s[start] if s[a + LENGTH] > 1 else 1
    for i in range(start + 2, start + s[a + LENGTH]):
        if s[i] - s[i - 1] != step:
            step = 0
    s[a + STEP] = step


@jit
def keep_sorted(s, start, count, extent):
    """Keep the words below `extent`, ascending (which they nearly are); return how many."""
    kept = 0
    for i in range(start, start + count):
        value = s[i]
        if value < extent:
            place = start + kept
            while place > start and s[place - 1] > value:
                s[place] = s[place - 1]
                place -= 1
            s[place] = value
            kept += 1
    return kept


@jit
def close_beats(s, g, until, fresh):
    """The beats of the tile before `until` end where the next element lies in the last burst or,
    where `fresh`, in none yet."""
    needs = s[g + ASKED] - s[g + TILE_ASKED]
    end = needs if fresh else needs - 1
    at = (s[g + BEAT] + s[g + TILE_BEAT]) % s[g + BEATS]
    for _ in range(s[g + TILE_BEAT], until):
        s[g + WIDEST] = max(s[g + WIDEST], needs - s[g + TILE_END])
        s[g + TILE_END] = end
        s[s[g + NEEDS] + at] = s[g + TILE_ASKED] + needs
        s[s[g + ENDS] + at] = s[g + TILE_ASKED] + end
        at = at + 1 if at + 1 < s[g + BEATS] else 0
    s[g + TILE_BEAT] = max(s[g + TILE_BEAT], until)


@jit
def touch(s, g, beat, low, high):
    """Elements of `beat` touch the bursts from number `low` to `high` of memory."""
    at = s[g + AT_BURST]
    if s[g + TILE_BEAT] < beat:
        close_beats(s, g, beat, low != at)
    for burst in range(low + (low == at), high + 1):
        place = burst
        if not s[DRAM]:
            place = s[FREE_AT] + 2 * (burst * s[BURST] // s[INTERLEAVE] % s[CHANNELS])
        s[s[g + PLACES] + s[g + ASKED] % s[g + BURSTS]] = place
        s[g + ASKED] += 1
    s[g + AT_BURST] = high


@jit
def find_outside(s, g):
    """Note which of the tensor's axes the tile leaves; return how many."""
    outside = 0
    for f in range(s[g + FORMS], s[g + FORMS_END], FORM_FIELDS):
        low = high = s[f + OFFSET]
        factors = s[f + FACTORS]
        for a in range(s[g + AXES], s[g + AXES_END], AXIS_FIELDS):
            factor = s[factors]
            factors += 1
            if s[a + LENGTH] > 0:
                one = factor * s[s[a + COORDS]]
                other = factor * s[s[a + COORDS] + s[a + LENGTH] - 1]
                low, high = low + min(one, other), high + max(one, other)
        s[f + OUTSIDE] = low < 0 or high >= s[f + LIMIT]
        outside += s[f + OUTSIDE]
    return outside


@jit
def is_inside(s, g, coord):
    """Whether the element of the row in hand at `coord` of the last axis lies inside the tensor."""
    for f in range(s[g + FORMS], s[g + FORMS_END], FORM_FIELDS):
        if s[f + OUTSIDE]:
            axes = (s[g + AXES_END] - s[g + AXES]) // AXIS_FIELDS
            at = s[f + ROW] + s[s[f + FACTORS] + axes - 1] * coord
            if at < 0 or at >= s[f + LIMIT]:
                return False
    return True


@jit
def start_row(s, g, last, outside):
    """Return the element offset of the row in hand; note where it lies in the tensor's axes."""
    first = s[g + AXES]
    offset = s[g + CONSTANT]
    for a in range(first, last, AXIS_FIELDS):
        offset += s[a + FACTOR] * s[s[a + COORDS] + s[a + AT]]
    if outside:
        for f in range(s[g + FORMS], s[g + FORMS_END], FORM_FIELDS):
            s[f + ROW] = s[f + OFFSET]
            factors = s[f + FACTORS]
            for a in range(first, last, AXIS_FIELDS):
                s[f + ROW] += s[factors] * s[s[a + COORDS] + s[a + AT]]
                factors += 1
    return offset


@jit
def walk_row(s, g, last, offset, beat, outside):
    """Touch the bursts of a row, whose first beat is `beat`."""
    size, lanes, burst = s[g + ELEMENT], s[g + LANES], s[BURST]
    base, length, start = s[g + BASE], s[last + LENGTH], s[last + COORDS]
    factor = s[last + FACTOR]
    stride = factor * s[last + STEP] * size
    if not outside and s[last + STEP] and 0 <= stride <= burst:
        at = base + (offset + factor * s[start]) * size
        for first in range(0, length, lanes):
            final = min(first + lanes, length) - 1
            touch(s, g, beat, (at + first * stride) // burst, (at + final * stride) // burst)
            s[g + USEFUL] += final - first + 1
            beat += 1
        return
    for i in range(length):
        coord = s[start + i]
        if not outside or is_inside(s, g, coord):
            at = (base + (offset + factor * coord) * size) // burst
            touch(s, g, beat + i // lanes, at, at)
            s[g + USEFUL] += 1


@jit
def next_row(s, first, last):
    """Turn to the next row: the axes before `last` count like an odometer."""
    for a in range(last - AXIS_FIELDS, first - 1, -AXIS_FIELDS):
        s[a + AT] += 1
        if s[a + AT] < s[a + LENGTH]:
            return
        s[a + AT] = 0


@jit
def next_tile(s, g):
    """Work out the requests of the next point; False where there is none or it is faulty."""
    moved, loops = -1, s[g + LOOPS]
    if s[g + POINT] > 0:
        moved = s[g + POINTS] - 1
        while moved >= 0 and s[loops + 2 * moved + 1] == s[loops + 2 * moved] - 1:
            moved -= 1
        if moved < 0:
            return False
        s[loops + 2 * moved + 1] += 1
        for loop in range(moved + 1, s[g + POINTS]):
            s[loops + 2 * loop + 1] = 0
    s[g + POINT] += 1
    first, last = s[g + AXES], s[g + AXES_END] - AXIS_FIELDS
    rows = 1
    for a in range(first, last + 1, AXIS_FIELDS):
        if s[a + MOVED_BY] >= moved:
            find_coordinates(s, a)
        s[a + AT] = 0
        if a < last:
            rows *= s[a + LENGTH]
    s[g + TILE_BEAT], s[g + TILE_END], s[g + WIDEST] = 0, 0, 0
    s[g + TILE_ASKED] = s[g + ASKED]
    s[g + AT_BURST] = -1
    row_beats = -(-s[last + LENGTH] // s[g + LANES])
    if rows * row_beats > s[g + FIRINGS]:
        s[FAULTY] = g
        return False
    outside = find_outside(s, g) > 0
    for row in range(rows if row_beats else 0):
        offset = start_row(s, g, last, outside)
        walk_row(s, g, last, offset, row * row_beats, outside)
        next_row(s, first, last)
    close_beats(s, g, s[g + FIRINGS], True)
    s[g + BEAT] += s[g + FIRINGS]
    if s[g + WIDEST] > s[g + IN_FLIGHT]:
        s[FAULTY] = g
    return s[FAULTY] == 0
