"""What the fast engine compiles: units fire as far as their tokens and room are known.

The rules are those of `channel.py` and `firing.py`. A unit taken from the worklist fires in chunks
within one turn of its innermost loop: there a port is used at every firing, or at the last one, or
not at all.

All of a run lies in one array of whole numbers, `s`: first the words named below, then rows for
units, channels, ports and so on, then the rings. A row is known by its place, so `s[u + FREE]` is
a field of unit `u`, and a field may hold another row's place. (One array, as compiled code with
many takes Numba half a minute.)

A channel of capacity n has two rings of n times: push or pop number k has place k mod n. A pop
writes the time at which its slot is back, a push the time at which its token arrives; push k needs
the slot of pop k - n. The queue between a load or store and its generator is a channel too.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from dataflow.sim.account import NETWORK

CHUNK = 1024
"""Most firings worked out at once."""
VISIT = 1 << 16
"""Firings after which a unit lets the others go on."""
NEVER = int(np.iinfo(np.int64).max)

# words at the start of `s`; REFERENCE is the unit that stops when it has fired MARK times
TOTAL, BUDGET, HEAD, TAIL, WORKLIST, WORKLIST_END, MAX_CYCLES, CUT, TIMES = range(9)
# the network that channels share (0: none), the last cycle up to which memory knows all requests
SHARED, ASK_LIMIT = 9, 10
REFERENCE, MARK, AT_MARK, LEVELS, LEVELS_END, SKIPPED, ROOM = range(11, 18)
UNITS, UNITS_END, CHANNELS_AT, CHANNELS_END, SIZE = range(18, 23)
WORDS = 23

# a unit or generator: what it waits for (2 * channel, + 1 for a token; 0 for nothing), which it is
LACKS, IS_UNIT = range(2)
# a unit; its loops are pairs of trips and counter; where it IS_PLAIN, what its ports do in a turn
# of the innermost loop depends on nothing but WRAP, the first loop of those that end with it
FREE, FIRED, LAST_FIRED, II, LEFT, INNER, OUTER, DEPTH, LOOPS = range(2, 11)
PORTS, OUTPUTS, PORTS_END, EVERY_PORTS, OTHER_PORTS, IS_PLAIN, WRAP, GAPS = range(11, 19)
UNIT_FIELDS = 25
# a port, its LASTS up to SELECTS; ROLE and CHANNEL hold for one turn of the innermost loop
LEVEL, LATE, LINKS, LASTS, SELECTS, SELECTS_END, ROLE, CHANNEL = range(8)
PORT_FIELDS = 8
SELECT_FIELDS = 4
# a channel; READ and WRITTEN count pops and pushes, initial tokens included; SENT is the ring of
# times at which tokens set out, ARRIVALS itself but for a channel over a shared network: LEG is
# then its first leg, HIDDEN the tokens on their way, FLIGHT the cycles of one that meets no other
ARRIVALS, CREDITS, CAPACITY, READ, WRITTEN, READ_AT, WRITE_AT, LATENCY, CREDIT = range(9)
TOKEN_CHARGE, ROOM_CHARGE, READER, WRITER, PEAK, LAST_ARRIVAL, INITIAL, IS_QUEUE = range(9, 17)
SENT, LEG, HIDDEN, FLIGHT = range(17, 21)
CHANNEL_FIELDS = 21

# what a port does within one turn of the innermost loop
UNUSED, EVERY, HELD, HELD_POPPED, LAST_POPPED, LAST_PUSHED = range(6)

jit = njit(error_model="numpy")
inlined = njit(error_model="numpy", forceinline=True)


@intrinsic
def pointer(typing_context, array):
    """The array's first word as a pointer; its places count from there and none is below 0.

    An array's index may count from its end, and asking each time takes as long as all the rest.
    """

    def first_word(context, builder, signature, arguments):
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return types.CPointer(types.int64)(array), first_word


@inlined
def enqueue(s, member):
    """Put a unit or generator on the worklist."""
    s[member + LACKS] = 0
    tail = s[TAIL]
    s[tail] = member
    s[TAIL] = tail + 1 if tail + 1 < s[WORKLIST_END] else s[WORKLIST]


@inlined
def next_run(s, u):
    """Turn to the next run of the innermost loop and say what each port does in it."""
    loops, outer, depth = s[u + LOOPS], s[u + OUTER], s[u + DEPTH]
    wrap = outer
    if s[u + FIRED] > 0:
        while wrap > 0 and s[loops + 2 * wrap - 1] == s[loops + 2 * wrap - 2] - 1:
            wrap -= 1
        if wrap == 0:
            return False
        s[loops + 2 * wrap - 1] += 1
        for loop in range(wrap, outer):
            s[loops + 2 * loop + 1] = 0
        wrap = outer
    while wrap > 0 and s[loops + 2 * wrap - 1] == s[loops + 2 * wrap - 2] - 1:
        wrap -= 1
    s[u + LEFT] = s[u + INNER]
    if s[u + IS_PLAIN] and s[u + WRAP] == wrap:
        return True
    s[u + WRAP] = wrap
    every = others = 0
    for p in range(s[u + PORTS], s[u + PORTS_END], PORT_FIELDS):
        used = s[p + LEVEL] >= wrap
        for place in range(s[p + LASTS], s[p + SELECTS]):
            loop = s[place]
            used = used and s[loop + 1] == s[loop] - 1
        if used and s[p + LEVEL] >= depth:
            role = EVERY
        elif p >= s[u + OUTPUTS]:
            role = LAST_PUSHED if used else UNUSED
        elif s[p + LATE]:
            role = LAST_POPPED if used else UNUSED
        else:
            role = HELD_POPPED if used else HELD
        s[p + ROLE] = role
        every += role == EVERY
        others += role not in (EVERY, UNUSED)
        link = s[p + LINKS]
        for place in range(s[p + SELECTS], s[p + SELECTS_END], SELECT_FIELDS):
            link += s[s[place] + 1] // s[place + 1] % s[place + 2] * s[place + 3]
        s[p + CHANNEL] = s[link]
    s[u + EVERY_PORTS], s[u + OTHER_PORTS] = every, others
    return True


@inlined
def known(s, u, left):
    """How many of the next `left` firings have every time they need known."""
    count = left
    if s[u + EVERY_PORTS] and count > CHUNK:
        count = CHUNK
    outputs = s[u + OUTPUTS]
    for p in range(s[u + PORTS], s[u + PORTS_END], PORT_FIELDS):
        role = s[p + ROLE]
        if role == UNUSED:
            continue
        c = s[p + CHANNEL]
        there = s[c + WRITTEN] - s[c + READ]
        if p >= outputs:
            there = s[c + CAPACITY] - there
        else:
            there -= s[c + HIDDEN]
        if role == EVERY:
            count = min(count, there)
        elif there == 0:
            count = min(count, left - 1) if role >= LAST_POPPED else 0
    return count


@jit
def note_lack(s, u, left):
    """Note what the next firing waits for: tokens to pop, then tokens to see, then room."""
    outputs = s[u + OUTPUTS]
    for look in range(3):
        for p in range(s[u + PORTS], s[u + PORTS_END], PORT_FIELDS):
            role = s[p + ROLE]
            if role == UNUSED or (role >= LAST_POPPED and left > 1):
                continue
            c = s[p + CHANNEL]
            there = s[c + WRITTEN] - s[c + READ]
            if p >= outputs:
                if look == 2 and there == s[c + CAPACITY]:
                    s[u + LACKS] = 2 * c
                    return
            elif there == s[c + HIDDEN] and look == (
                role == HELD or (role == HELD_POPPED and left > 1)
            ):
                s[u + LACKS] = 2 * c + 1
                return


@jit
def charge(s, u, place, count, ending, at, gap):
    """Charge the gap before firing `place` of a chunk to the first of those that came last, at
    `at`; of a token's wait, what shared links made it late is charged to them."""
    outputs = s[u + OUTPUTS]
    for p in range(s[u + PORTS], s[u + PORTS_END], PORT_FIELDS):
        role = s[p + ROLE]
        if role in (HELD, HELD_POPPED):
            needed = place == 0
        elif role == EVERY:
            needed = True
        else:
            needed = role != UNUSED and ending and place == count - 1
        if not needed:
            continue
        c = s[p + CHANNEL]
        slot = s[c + READ_AT] if p < outputs else s[c + WRITE_AT]
        if role == EVERY:
            slot += place
            if slot >= s[c + CAPACITY]:
                slot -= s[c + CAPACITY]
        if p < outputs:
            if s[s[c + ARRIVALS] + slot] == at:
                if s[c + LEG]:
                    late = min(gap, at - s[s[c + SENT] + slot] - s[c + FLIGHT])
                    s[u + GAPS + NETWORK] += late
                    gap -= late
                s[u + GAPS + s[c + TOKEN_CHARGE]] += gap
                return
        elif s[s[c + CREDITS] + slot] == at:
            s[u + GAPS + s[c + ROOM_CHARGE]] += gap
            return


@inlined
def needed_times(s, u, count):
    """Note the latest token or credit that each of `count` firings needs at ports always used."""
    times, outputs = s[TIMES], s[u + OUTPUTS]
    fresh = True
    for p in range(s[u + PORTS], s[u + PORTS_END], PORT_FIELDS):
        if s[p + ROLE] != EVERY:
            continue
        c = s[p + CHANNEL]
        ring = s[c + ARRIVALS] if p < outputs else s[c + CREDITS]
        slot = s[c + READ_AT] if p < outputs else s[c + WRITE_AT]
        before = min(count, s[c + CAPACITY] - slot)  # those before the ring turns
        at, past = ring + slot, ring - before
        if fresh:
            for i in range(before):
                s[times + i] = s[at + i]
            for i in range(before, count):
                s[times + i] = s[past + i]
        else:
            for i in range(before):
                s[times + i] = max(s[times + i], s[at + i])
            for i in range(before, count):
                s[times + i] = max(s[times + i], s[past + i])
        fresh = False


@inlined
def extra_time(s, u, first, last):
    """The latest time needed beside the ports always used, by a chunk's first or last firing."""
    at = 0
    for p in range(s[u + PORTS], s[u + PORTS_END], PORT_FIELDS):
        role = s[p + ROLE]
        c = s[p + CHANNEL]
        if role in (HELD, HELD_POPPED):
            if first:
                at = max(at, s[s[c + ARRIVALS] + s[c + READ_AT]])
        elif role == LAST_POPPED:
            if last:
                at = max(at, s[s[c + ARRIVALS] + s[c + READ_AT]])
        elif role == LAST_PUSHED and last:
            at = max(at, s[s[c + CREDITS] + s[c + WRITE_AT]])
    return at


@jit
def raise_peak(s, c, number, pushed):
    """Raise the peak until push `number`, made at `pushed`, fits; all earlier pops are known.

    Return the place of the pop that frees the last slot it may take.
    """
    peak = s[c + PEAK]
    if number >= s[c + INITIAL]:
        while number >= peak and s[s[c + CREDITS] + (number - peak) % s[c + CAPACITY]] > pushed:
            peak += 1
        s[c + PEAK] = peak
    return (number - peak) % s[c + CAPACITY]


@inlined
def is_above_peak(s, c, start, count):
    """Whether one of the next tokens was pushed before the pop `peak` before it was back."""
    peak, capacity, latency = s[c + PEAK], s[c + CAPACITY], s[c + LATENCY]
    if peak == capacity or s[c + IS_QUEUE]:
        return False
    sent, credits, credit = s[c + SENT], s[c + CREDITS], s[c + CREDIT]
    at = s[c + READ_AT]
    back = at - peak
    if back < 0:
        back += capacity
    above = 0
    for _ in range(min(count, peak)):
        above |= s[sent + at] - latency < s[credits + back]
        at = at + 1 if at + 1 < capacity else 0
        back = back + 1 if back + 1 < capacity else 0
    for i in range(start, start + count - peak):
        above |= s[sent + at] - latency < s[i] + credit
        at = at + 1 if at + 1 < capacity else 0
    return above != 0


@jit
def pop_above(s, c, start, count):
    """Pop `count` tokens, raising the peak where they ask for it."""
    sent, credits, capacity = s[c + SENT], s[c + CREDITS], s[c + CAPACITY]
    credit, latency = s[c + CREDIT], s[c + LATENCY]
    at = s[c + READ_AT]
    back = at - s[c + PEAK]
    if back < 0:
        back += capacity
    for i in range(start, start + count):
        pushed = s[sent + at] - latency
        if pushed < s[credits + back]:
            back = raise_peak(s, c, s[c + READ] + i - start, pushed)
        s[credits + at] = s[i] + credit
        at = at + 1 if at + 1 < capacity else 0
        back = back + 1 if back + 1 < capacity else 0


@inlined
def put(s, ring, slot, capacity, start, count, later):
    """Write `count` times noted from `start` on into a ring, plus `later`; return the next slot."""
    before = min(count, capacity - slot)
    at, past = ring + slot, ring - before
    for i in range(before):
        s[at + i] = s[start + i] + later
    for i in range(before, count):
        s[past + i] = s[start + i] + later
    slot += count
    return slot if slot < capacity else slot - capacity


@inlined
def pop(s, c, start, count):
    """Pop `count` tokens at the times noted from `start` on."""
    capacity = s[c + CAPACITY]
    if is_above_peak(s, c, start, count):
        pop_above(s, c, start, count)
        slot = s[c + READ_AT] + count
        s[c + READ_AT] = slot if slot < capacity else slot - capacity
    else:
        s[c + READ_AT] = put(
            s, s[c + CREDITS], s[c + READ_AT], capacity, start, count, s[c + CREDIT]
        )
    s[c + READ] += count
    if s[s[c + WRITER] + LACKS] == 2 * c:
        enqueue(s, s[c + WRITER])


@inlined
def push(s, c, start, count):
    """Push `count` tokens at the times noted from `start` on."""
    latency = s[c + LATENCY]
    s[c + WRITE_AT] = put(s, s[c + SENT], s[c + WRITE_AT], s[c + CAPACITY], start, count, latency)
    s[c + WRITTEN] += count
    if s[c + LEG]:
        s[c + HIDDEN] += count  # until the network delivers them
        return
    s[c + LAST_ARRIVAL] = s[start + count - 1] + latency
    if s[s[c + READER] + LACKS] == 2 * c + 1:
        enqueue(s, s[c + READER])


@inlined
def fire(s, u, count, left):
    """Make `count` firings, of which the last one ends the run where `count` is `left`."""
    ending = count == left
    free, ii, first = s[u + FREE], s[u + II], s[TIMES]
    last = first + count - 1
    if s[u + EVERY_PORTS]:
        needed_times(s, u, count)
        if s[u + OTHER_PORTS]:
            s[first] = max(s[first], extra_time(s, u, True, ending and count == 1))
            if ending and count > 1:
                s[last] = max(s[last], extra_time(s, u, False, True))
        for i in range(first, last + 1):
            at = s[i]
            if at > free:
                charge(s, u, i - first, count, ending, at, at - free)
                free = at
            s[i] = free
            free += ii
    else:
        last = min(last, first + 1)  # those between need nothing
        for i in range(first, last + 1):
            if i > first:
                free += (count - 2) * ii
            at = extra_time(s, u, i == first, ending and i == last)
            if at > free:
                place = 0 if i == first else count - 1
                charge(s, u, place, count, ending, at, at - free)
                free = at
            s[i] = free
            free += ii
    s[u + FREE] = free
    s[u + LAST_FIRED] = free - ii
    s[u + FIRED] += count
    s[u + LEFT] = left - count
    s[TOTAL] += count
    for p in range(s[u + PORTS], s[u + PORTS_END], PORT_FIELDS):
        role, c = s[p + ROLE], s[p + CHANNEL]
        start, moved = (first, count) if role == EVERY else (last, 1)
        if role != EVERY and not (ending and role >= HELD_POPPED):
            continue
        if p < s[u + OUTPUTS]:
            pop(s, c, start, moved)
        else:
            push(s, c, start, moved)


@jit
def is_cut(s, u, left):
    """Whether the next firing comes at or after the cycle where the run is cut."""
    s[s[TIMES]] = 0
    needed_times(s, u, 1)
    at = max(s[u + FREE], s[s[TIMES]], extra_time(s, u, True, left == 1))
    return at >= s[MAX_CYCLES]


@jit
def advance(s, u):
    """Fire as far as tokens and room are known, or to the reference unit's mark."""
    until, mark = s[TOTAL] + VISIT, s[MARK] if u == s[REFERENCE] else NEVER
    while s[TOTAL] < until and s[u + FIRED] < mark:
        if s[u + LEFT] == 0 and not next_run(s, u):
            return
        left = s[u + LEFT]
        count = known(s, u, left)
        if count == 0:
            note_lack(s, u, left)
            return
        if s[MAX_CYCLES] != NEVER:
            count = 1
            if is_cut(s, u, left):
                s[CUT] = 1
                return
        fire(s, u, min(count, mark - s[u + FIRED]), left)
    if s[u + FIRED] == mark:
        s[AT_MARK] = 1
    enqueue(s, u)
