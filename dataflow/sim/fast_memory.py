"""The part of the fast engine that reaches off-chip memory, compiled: addresses, requests, service.

The rules and the bounds on running ahead are those of `offchip.py`; a generator is a member of the
worklist like a unit. Bursts are numbered through a generator's whole run, as are beats; burst or
beat k has place k mod n in the rings of its generator.

    request k of a load:  issue = max(issue of k-1 + 1, last use of burst k - outstanding + 1)
    request k of a store: issue = max(issue of k-1 + 1, firing of the burst's last beat)
    both:                 start = max(issue + generator latency, memory channel free)

Times inside a memory channel are whole cycles and whole parts of one: nothing is rounded.
"""

from __future__ import annotations

from dataflow.sim.fast_kernel import (
    ARRIVALS,
    CAPACITY,
    CREDITS,
    LACKS,
    NEVER,
    READ,
    WORDS,
    WRITE_AT,
    WRITTEN,
    enqueue,
    jit,
)

AHEAD_BEATS = 4096
"""As in `offchip.py`: beats not fired beyond which no further tile is looked at."""

# words at the start of `s`, after the kernel's: the machine's numbers, ...
OUTSTANDING, GENERATOR_LATENCY, LATENCY, BURST, INTERLEAVE, PARTS = range(WORDS, WORDS + 6)
READ_CYCLES, READ_PARTS, WRITE_CYCLES, WRITE_PARTS = range(WORDS + 6, WORDS + 10)
# ... bursts moved, the generator of a faulty tile, pairs of cycles and parts when a memory channel
# is free, the cycle at which each generator's oldest request not served reaches memory
READS, WRITES, FAULTY, FREE_AT, CHANNELS, HEADS, GENERATORS, GENERATORS_END = range(
    WORDS + 10, WORDS + 18
)
ALL_WORDS = WORDS + 18

# a generator, after what it shares with a unit: what stays the same, ...
UNIT, QUEUE, STORES, LOOPS, POINTS, FIRINGS, AXES, AXES_END, FORMS, FORMS_END = range(2, 12)
CONSTANT, BASE, ELEMENT, LANES, BEATS, BURSTS, OLDEST = range(12, 19)
# (BEATS and BURSTS: places of the rings below; OLDEST: its place in HEADS)
# ... its rings: by beat, as in `offchip.Requests` but counted through the run; by burst, its memory
# channel; by burst in flight the cycle its place was free again, it reaches memory, it is back
NEEDS, ENDS, PLACES, FREED, REACH, BACK = range(19, 25)
# ... what counts points, beats and bursts ...
POINT, BEAT, COLLECTED, ASKED, ISSUED, SERVED, USED, NEXT_ISSUE, LAST_BACK, USEFUL = range(25, 35)
# ... and of the tile in hand its next beat, bursts before it, the burst reached, the last end, the
# most bursts of a beat
TILE_BEAT, TILE_ASKED, AT_BURST, TILE_END, WIDEST = range(35, 40)
GENERATOR_FIELDS = 40
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
        channel = burst * s[BURST] // s[INTERLEAVE] % s[CHANNELS]
        s[s[g + PLACES] + s[g + ASKED] % s[g + BURSTS]] = s[FREE_AT] + 2 * channel
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
    if s[g + WIDEST] > s[OUTSTANDING]:
        s[FAULTY] = g
    return s[FAULTY] == 0


@jit
def issue(s, g, at):
    """Send the next request at cycle `at` or when the port is free."""
    number = s[g + ISSUED]
    at = max(at, s[g + NEXT_ISSUE])
    s[g + NEXT_ISSUE] = at + 1
    reach = at + s[GENERATOR_LATENCY]
    s[s[g + REACH] + number % (s[OUTSTANDING] + 1)] = reach
    if s[g + SERVED] == number:
        s[s[g + OLDEST]] = reach
    s[g + ISSUED] = number + 1


@jit
def hand_over(s, g):
    """Let a load see the beats whose bursts are all back."""
    q, window = s[g + QUEUE], s[OUTSTANDING] + 1
    while s[q + WRITTEN] < s[g + BEAT]:
        at = s[q + WRITE_AT]
        need = s[s[g + NEEDS] + at]
        if need > s[g + SERVED]:
            return
        s[s[q + ARRIVALS] + at] = s[s[g + BACK] + (need - 1) % window] if need else 0
        s[q + WRITTEN] += 1
        s[q + WRITE_AT] = at + 1 if at + 1 < s[g + BEATS] else 0


@jit
def allow(s, g):
    """Let a store see the beats up to the first whose bursts would exceed those in flight."""
    q, window = s[g + QUEUE], s[OUTSTANDING] + 1
    while s[q + READ] + s[q + CAPACITY] < s[g + BEAT]:
        at = (s[q + READ] + s[q + CAPACITY]) % s[g + BEATS]
        before = s[s[g + ENDS] + at] - s[OUTSTANDING]
        if before > s[g + SERVED]:
            return
        back = s[s[g + BACK] + (before - 1) % window] if before > 0 else 0
        s[s[q + CREDITS] + at] = back
        s[q + READ] += 1


@jit
def run_load(s, g):
    """Request bursts ahead of beats, each when one in flight was used up."""
    q, freed, window = s[g + QUEUE], s[g + FREED], s[OUTSTANDING] + 1
    while s[g + COLLECTED] < s[q + READ]:
        at = s[g + COLLECTED] % s[g + BEATS]
        end = s[s[g + ENDS] + at]
        for burst in range(s[g + USED], end):
            s[freed + burst % window] = s[s[q + CREDITS] + at]
        s[g + USED] = end
        s[g + COLLECTED] += 1
    while True:
        limit = min(s[g + ASKED], s[g + USED] + s[OUTSTANDING])
        while s[g + ISSUED] < limit:
            before = s[g + ISSUED] - s[OUTSTANDING]
            issue(s, g, s[freed + before % window] if before >= 0 else 0)
        waits = s[g + ISSUED] < s[g + ASKED]
        if waits or s[g + BEAT] - s[g + COLLECTED] > AHEAD_BEATS or not next_tile(s, g):
            break
        hand_over(s, g)


@jit
def run_store(s, g):
    """Write the bursts that the beats fired complete; allow further beats."""
    q = s[g + QUEUE]
    while s[g + COLLECTED] < s[q + WRITTEN]:
        at = s[g + COLLECTED] % s[g + BEATS]
        for _ in range(s[g + ISSUED], s[s[g + ENDS] + at]):
            issue(s, g, s[s[q + ARRIVALS] + at])
        s[g + COLLECTED] += 1
    while s[g + BEAT] - s[g + COLLECTED] <= AHEAD_BEATS and next_tile(s, g):
        allow(s, g)


@jit
def run_generator(s, g):
    """Go on as far as is known, wake the unit, wait for its next beat."""
    stores, q = s[g + STORES], s[g + QUEUE]
    if stores:
        run_store(s, g)
    else:
        run_load(s, g)
    s[g + LACKS] = 2 * q + stores
    wake(s, g)


@jit
def wake(s, g):
    """Put the unit on the worklist where what it waits for from its generator has come."""
    q, unit, stores = s[g + QUEUE], s[g + UNIT], s[g + STORES]
    fill = s[q + WRITTEN] - s[q + READ]
    there = s[q + CAPACITY] - fill if stores else fill
    if s[unit + LACKS] == 2 * q + 1 - stores and there > 0:
        enqueue(s, unit)


@jit
def serve_one(s, g):
    """Serve the oldest request of a generator."""
    stores, number, window = s[g + STORES], s[g + SERVED], s[OUTSTANDING] + 1
    place = s[s[g + PLACES] + number % s[g + BURSTS]]
    reach = s[s[g + REACH] + number % window]
    cycles, parts = s[place], s[place + 1]
    if cycles < reach:
        cycles, parts = reach, 0
    cycles += s[WRITE_CYCLES] if stores else s[READ_CYCLES]
    parts += s[WRITE_PARTS] if stores else s[READ_PARTS]
    if parts >= s[PARTS]:
        cycles, parts = cycles + 1, parts - s[PARTS]
    s[place], s[place + 1] = cycles, parts
    s[WRITES if stores else READS] += 1
    back = cycles + (parts > 0) + s[LATENCY]
    s[g + LAST_BACK] = max(s[g + LAST_BACK], back)
    s[s[g + BACK] + number % window] = s[g + LAST_BACK]
    s[g + SERVED] = number + 1
    pending = number + 1 < s[g + ISSUED]
    s[s[g + OLDEST]] = s[s[g + REACH] + (number + 1) % window] if pending else NEVER


@jit
def next_head(s):
    """The generator whose request reaches memory first, the first declared in a tie; 0: none."""
    found, cycle, head = 0, NEVER, s[HEADS]
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        if s[head] < cycle:
            found, cycle = g, s[head]
        head += 1
    return found


@jit
def serve(s):
    """Serve the requests up to the horizon in order of (cycle, declaration); False without any."""
    first = next_head(s)
    if first == 0:
        return False
    horizon = s[s[first + OLDEST]] + s[LATENCY] + s[GENERATOR_LATENCY]
    while first > 0 and s[s[first + OLDEST]] <= horizon:
        serve_one(s, first)
        first = next_head(s)
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        if s[g + STORES]:
            allow(s, g)
        else:
            hand_over(s, g)
        wake(s, g)
    return True
