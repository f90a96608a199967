"""What the fast engine's compiled parts share: where its words lie; tokens through a channel.

The rules are those of `channel.py`.

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
# a unit; its loops are pairs of trips and counter, the innermost turns INNER times; where it
# IS_PLAIN, what its ports do in a turn of that depends on nothing but WRAP, the first loop of those
# that end with it; AROUND is the loop around it where that tells no turns apart (0: none)
FREE, FIRED, LAST_FIRED, II, LEFT, INNER, OUTER, DEPTH, LOOPS = range(2, 11)
PORTS, OUTPUTS, PORTS_END, EVERY_PORTS, OTHER_PORTS, IS_PLAIN, WRAP, AROUND, GAPS = range(11, 20)
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
def is_above_peak(s, c, start, count, step):
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
    for i in range(count - peak):
        above |= s[sent + at] - latency < s[start + i * step] + credit
        at = at + 1 if at + 1 < capacity else 0
    return above != 0


@jit
def pop_above(s, c, start, count, step):
    """Pop `count` tokens, raising the peak where they ask for it."""
    sent, credits, capacity = s[c + SENT], s[c + CREDITS], s[c + CAPACITY]
    credit, latency = s[c + CREDIT], s[c + LATENCY]
    at = s[c + READ_AT]
    back = at - s[c + PEAK]
    if back < 0:
        back += capacity
    for i in range(count):
        pushed = s[sent + at] - latency
        if pushed < s[credits + back]:
            back = raise_peak(s, c, s[c + READ] + i, pushed)
        s[credits + at] = s[start + i * step] + credit
        at = at + 1 if at + 1 < capacity else 0
        back = back + 1 if back + 1 < capacity else 0


@inlined
def put(s, ring, slot, capacity, start, count, step, later):
    """Write every `step`-th time noted from `start` on, `later` added; return the next slot."""
    before = min(count, capacity - slot)
    at, past = ring + slot, ring - before
    if step == 1:
        for i in range(before):
            s[at + i] = s[start + i] + later
        for i in range(before, count):
            s[past + i] = s[start + i] + later
    else:
        for i in range(before):
            s[at + i] = s[start + i * step] + later
        for i in range(before, count):
            s[past + i] = s[start + i * step] + later
    slot += count
    return slot if slot < capacity else slot - capacity


@inlined
def pop(s, c, start, count, step):
    """Pop `count` tokens at every `step`-th time noted from `start` on."""
    capacity = s[c + CAPACITY]
    if is_above_peak(s, c, start, count, step):
        pop_above(s, c, start, count, step)
        slot = s[c + READ_AT] + count
        s[c + READ_AT] = slot if slot < capacity else slot - capacity
    else:
        s[c + READ_AT] = put(
            s, s[c + CREDITS], s[c + READ_AT], capacity, start, count, step, s[c + CREDIT]
        )
    s[c + READ] += count
    if s[s[c + WRITER] + LACKS] == 2 * c:
        enqueue(s, s[c + WRITER])


@inlined
def push(s, c, start, count, step):
    """Push `count` tokens at every `step`-th time noted from `start` on."""
    latency = s[c + LATENCY]
    s[c + WRITE_AT] = put(
        s, s[c + SENT], s[c + WRITE_AT], s[c + CAPACITY], start, count, step, latency
    )
    s[c + WRITTEN] += count
    if s[c + LEG]:
        s[c + HIDDEN] += count  # until the network delivers them
        return
    s[c + LAST_ARRIVAL] = s[start + (count - 1) * step] + latency
    if s[s[c + READER] + LACKS] == 2 * c + 1:
        enqueue(s, s[c + READER])
