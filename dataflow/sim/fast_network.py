"""A shared network compiled: the rules are those of `network.py`, a cycle at a time.

Everything lies in the kernel's one array `s`; a row is known by its place. A packet is known by its
leg and its number in it, initial tokens included; packet k has place k mod n in the rings of its
leg and of each of its sinks, whose size n is the capacity of the channel that they serve.
"""

from __future__ import annotations

from dataflow.sim.fast_kernel import (
    HIDDEN,
    LACKS,
    LAST_ARRIVAL,
    NEVER,
    READER,
    enqueue,
    jit,
)

# a network: what stays the same, ...
ENTRIES, ENTRIES_END, FIRST_LINK, LINKS_END, LANES, DEPTH = range(6)
ROUTER_CYCLES, LINK_CYCLES, LEAST_CYCLES = range(6, 9)
# ... the next cycle to work out, arrivals to come of packets inside, the first that units have not
# seen
CLOCK, FLYING, ARRIVED = range(9, 12)
NETWORK_FIELDS = 12
# where packets enter: its legs; the one whose packet is on its way in, its next flit and buffer
ENTRY_LINK, ENTRY_LEGS, ENTRY_LEGS_END, ENTRY_LEG, ENTRY_FLIT, ENTRY_BUFFER = range(6)
ENTRY_FIELDS = 6
# a link: the first of its buffers (0 where packets leave), the place of the virtual channel given
# away last; the buffers before it and for each the way that its front flit takes over the link (0:
# not this one), which of them it took from last, how many ask; flits moved
BUFFERS, GIVEN, FEEDERS, FEEDERS_END, ASKS, TAKEN_LAST, WANTED, MOVED = range(8)
LINK_FIELDS = 8
# a buffer: rings of its flits and of the cycles when their places are free; flits put in and gone;
# its place among the feeders of a link, the links that have yet to take its front flit
FLITS_AT, ROOM_AT, PUT, GONE, TAKEN, ONWARD, LEFT_AT, PLACE, ASKED = range(9)
BUFFER_FIELDS = 9
# a flit, with the way that it came
READY, FLIT_LEG, FLIT_NUMBER, FLIT_PLACE, FLIT_WAY = range(5)
FLIT_FIELDS = 5
# a way, one of a leg's links: lists of the ways on from its end, and of the sinks there
WAY_LINK, BRANCHES, BRANCHES_END, SINKS, SINKS_END = range(5)
WAY_FIELDS = 5
# a leg: its first way, flits of a packet, sinks; the word that counts packets known, the ring of
# when they set out
FIRST_WAY, FLITS, SINK_COUNT, KNOWN_AT, SET_OUT, SIZE, SENT_COUNT, ENTERED = range(8)
LEG_FIELDS = 8
# a sink: the leg it sends on over, or its channel, or 0; rings of when packets arrive (in order and
# not), packets delivered
FOLLOWING, PAUSE, CHANNEL_ROW, OUT, EARLY, SINK_SIZE, DELIVERED, ARRIVED_AT = range(8)
SINK_FIELDS = 8


@jit
def has_room(s, n, b, cycle):
    """Whether a flit may be sent to a buffer."""
    depth = s[n + DEPTH]
    return s[b + PUT] - s[b + GONE] < depth and s[s[b + ROOM_AT] + s[b + PUT] % depth] <= cycle


@jit
def free_buffer(s, n, link, cycle):
    """The next virtual channel of a link, in turn, that a packet can be given; 0: none."""
    lanes = s[n + LANES]
    for step in range(1, lanes + 1):
        b = s[link + BUFFERS] + (s[link + GIVEN] + step) % lanes * BUFFER_FIELDS
        if not s[b + TAKEN] and has_room(s, n, b, cycle):
            return b
    return 0


@jit
def give(s, link, b):
    """Give the virtual channel of a buffer to a packet."""
    s[b + TAKEN] = 1
    s[link + GIVEN] = (b - s[link + BUFFERS]) // BUFFER_FIELDS


@jit
def ask(s, n, b):
    """Let a buffer ask for the links that its front flit takes next."""
    flit = s[b + FLITS_AT] + s[b + GONE] % s[n + DEPTH] * FLIT_FIELDS
    way = s[flit + FLIT_WAY]
    for at in range(s[way + BRANCHES], s[way + BRANCHES_END]):
        link = s[s[at] + WAY_LINK]
        s[s[link + ASKS] + s[b + PLACE]] = s[at]
        s[link + WANTED] += 1
    s[b + ASKED] = s[way + BRANCHES_END] - s[way + BRANCHES]


@jit
def fill(s, n, b, ready, leg, number, place, way):
    """Put a flit into a buffer that has room for it."""
    flit = s[b + FLITS_AT] + s[b + PUT] % s[n + DEPTH] * FLIT_FIELDS
    s[flit + READY], s[flit + FLIT_LEG], s[flit + FLIT_NUMBER] = ready, leg, number
    s[flit + FLIT_PLACE], s[flit + FLIT_WAY] = place, way
    s[b + PUT] += 1
    if s[b + PUT] - s[b + GONE] == 1:
        ask(s, n, b)


@jit
def first_packet(s, e):
    """The leg whose packet sets out first from an entry, the first declared in a tie; 0: none."""
    found, cycle = 0, NEVER
    for place in range(s[e + ENTRY_LEGS], s[e + ENTRY_LEGS_END]):
        leg = s[place]
        if s[leg + ENTERED] < s[s[leg + KNOWN_AT]]:
            at = s[s[leg + SET_OUT] + s[leg + ENTERED] % s[leg + SIZE]]
            if at < cycle:
                found, cycle = leg, at
    return found


@jit
def enter(s, n, e, cycle):
    """Bring the next flit of an entry's packet into the first router's buffers."""
    leg = s[e + ENTRY_LEG]
    if leg == 0:
        leg = first_packet(s, e)
        if leg == 0 or s[s[leg + SET_OUT] + s[leg + ENTERED] % s[leg + SIZE]] > cycle:
            return
        s[e + ENTRY_LEG], s[e + ENTRY_FLIT], s[e + ENTRY_BUFFER] = leg, 0, 0
        s[leg + ENTERED] += 1
        s[n + FLYING] += s[leg + SINK_COUNT]
    link = s[e + ENTRY_LINK]
    if s[e + ENTRY_BUFFER] == 0:
        s[e + ENTRY_BUFFER] = free_buffer(s, n, link, cycle)
        if s[e + ENTRY_BUFFER]:
            give(s, link, s[e + ENTRY_BUFFER])
    b = s[e + ENTRY_BUFFER]
    if b == 0 or not has_room(s, n, b, cycle):
        return
    s[link + MOVED] += 1
    ready, number = cycle + s[n + ROUTER_CYCLES], s[leg + ENTERED] - 1
    fill(s, n, b, ready, leg, number, s[e + ENTRY_FLIT], s[leg + FIRST_WAY])
    s[e + ENTRY_FLIT] += 1
    if s[e + ENTRY_FLIT] == s[leg + FLITS]:
        s[b + TAKEN] = 0
        s[e + ENTRY_LEG] = 0


@jit
def may_send(s, n, link, b, cycle):
    """Whether the front flit of a buffer may leave over a link in this cycle."""
    flit = s[b + FLITS_AT] + s[b + GONE] % s[n + DEPTH] * FLIT_FIELDS
    if s[flit + READY] > cycle or s[b + LEFT_AT] == cycle:
        return False
    if s[link + BUFFERS] == 0:
        return True
    if s[flit + FLIT_PLACE] == 0:
        return free_buffer(s, n, link, cycle) != 0
    return has_room(s, n, s[b + ONWARD], cycle)


@jit
def move(s, n, link, b, way, cycle):
    """Take the front flit of a buffer over a link, which is on its way."""
    flit = s[b + FLITS_AT] + s[b + GONE] % s[n + DEPTH] * FLIT_FIELDS
    leg, number, place = s[flit + FLIT_LEG], s[flit + FLIT_NUMBER], s[flit + FLIT_PLACE]
    arrival, is_tail = cycle + s[n + LINK_CYCLES], place == s[leg + FLITS] - 1
    if s[link + BUFFERS]:
        if place == 0:
            s[b + ONWARD] = free_buffer(s, n, link, cycle)
            give(s, link, s[b + ONWARD])
        onward = s[b + ONWARD]
        fill(s, n, onward, arrival + s[n + ROUTER_CYCLES], leg, number, place, way)
        if is_tail:
            s[onward + TAKEN] = 0
    s[s[link + ASKS] + s[b + PLACE]] = 0
    s[link + WANTED] -= 1
    s[link + MOVED] += 1
    s[b + ASKED] -= 1
    if s[b + ASKED] == 0:
        leave(s, n, b, cycle)
    if is_tail and s[link + BUFFERS] == 0:
        for at in range(s[way + SINKS], s[way + SINKS_END]):
            arrive(s, n, s[at], number, arrival)


@jit
def leave(s, n, b, cycle):
    """Let go of the front flit of a buffer, which has left over all its links."""
    s[s[b + ROOM_AT] + s[b + GONE] % s[n + DEPTH]] = cycle + s[n + LINK_CYCLES]
    s[b + GONE] += 1
    s[b + LEFT_AT] = cycle
    if s[b + PUT] > s[b + GONE]:
        ask(s, n, b)


@jit
def arrive(s, n, sink, number, cycle):
    """Deliver a packet, and those that overtook it."""
    size, early = s[sink + SINK_SIZE], s[sink + EARLY]
    s[n + FLYING] -= 1
    s[early + number % size] = cycle
    while True:
        slot = s[sink + DELIVERED] % size
        if s[early + slot] == 0:
            return
        at = max(s[sink + ARRIVED_AT], s[early + slot])
        s[early + slot] = 0
        s[sink + ARRIVED_AT] = at
        s[sink + DELIVERED] += 1
        following, c = s[sink + FOLLOWING], s[sink + CHANNEL_ROW]
        s[s[sink + OUT] + slot] = at + s[sink + PAUSE]
        if following:
            s[following + SENT_COUNT] += 1
        elif c:
            s[c + HIDDEN] -= 1
            s[c + LAST_ARRIVAL] = at
            s[n + ARRIVED] = min(s[n + ARRIVED], at)
            if s[s[c + READER] + LACKS] == 2 * c + 1:
                enqueue(s, s[c + READER])


@jit
def take_turns(s, n, link, cycle):
    """Let a link take a flit from the first buffer, after the one it took last, that has one."""
    feeders, asks = s[link + FEEDERS], s[link + ASKS]
    count, at = s[link + FEEDERS_END] - feeders, s[link + TAKEN_LAST]
    for _ in range(count):
        at = at + 1 if at + 1 < count else 0
        if s[asks + at] and may_send(s, n, link, s[feeders + at], cycle):
            s[link + TAKEN_LAST] = at
            move(s, n, link, s[feeders + at], s[asks + at], cycle)
            return


@jit
def tick(s, n, cycle):
    """Work out one cycle, with all packets known that set out until then."""
    for e in range(s[n + ENTRIES], s[n + ENTRIES_END], ENTRY_FIELDS):
        enter(s, n, e, cycle)
    for link in range(s[n + FIRST_LINK], s[n + LINKS_END], LINK_FIELDS):
        if s[link + WANTED]:
            take_turns(s, n, link, cycle)


@jit
def first_set_out(s, n):
    """The cycle in which the first packet outside sets out; NEVER where there is none."""
    cycle = NEVER
    for e in range(s[n + ENTRIES], s[n + ENTRIES_END], ENTRY_FIELDS):
        leg = first_packet(s, e)
        if leg:
            cycle = min(cycle, s[s[leg + SET_OUT] + s[leg + ENTERED] % s[leg + SIZE]])
    return cycle


@jit
def run_network(s, n, bound):
    """Work out the cycles up to `bound`, to which all that sets out is known, or till units may
    send more: not before an arrival and the least latency of a channel; False: it is empty."""
    s[n + ARRIVED] = NEVER
    if s[n + FLYING] == 0 and first_set_out(s, n) == NEVER:
        return False
    while s[n + CLOCK] <= bound:
        if s[n + FLYING] == 0:
            # never back: a packet that sets out is known before its cycle is worked out
            s[n + CLOCK] = max(s[n + CLOCK], min(first_set_out(s, n), bound))
        tick(s, n, s[n + CLOCK])
        s[n + CLOCK] += 1
        if s[n + ARRIVED] != NEVER:
            bound = min(bound, s[n + ARRIVED] + s[n + LEAST_CYCLES] - 1)
        elif s[n + FLYING] == 0 and first_set_out(s, n) == NEVER:
            break
    return True
