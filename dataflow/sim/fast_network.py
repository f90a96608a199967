"""A shared network compiled: the rules are those of `network.py`, a cycle at a time.

Everything lies in the kernel's one array `s`; a row is known by its place. A packet is known by its
leg and its number in it, initial tokens included; packet k has place k mod n in the rings of its
leg, whose size n is the capacity of the channel that it serves.
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
ENTRIES, ENTRIES_END, FIRST_LINK, LINKS_END, FIRST_LEG, LEGS_END, LANES, DEPTH = range(8)
ROUTER_CYCLES, LINK_CYCLES, LEAST_CYCLES = range(8, 11)
# ... the next cycle to work out, the packets inside, the first arrival that units have not seen
CLOCK, FLYING, ARRIVED = range(11, 14)
NETWORK_FIELDS = 14
# where packets enter: its legs; the one whose packet is on its way in, its next flit and buffer
ENTRY_LINK, ENTRY_LEGS, ENTRY_LEGS_END, ENTRY_LEG, ENTRY_FLIT, ENTRY_BUFFER = range(6)
ENTRY_FIELDS = 6
# a link: the first of its buffers (0 where packets leave), the place of the virtual channel given
# away last; the buffers before it, which of them it took last and how many want it; flits moved
BUFFERS, GIVEN, FEEDERS, FEEDERS_END, TAKEN_LAST, WANTED, MOVED = range(7)
LINK_FIELDS = 7
# a buffer: rings of its flits and of the cycles when their places are free; flits put in and gone
FLITS_AT, ROOM_AT, PUT, GONE, TAKEN, ONWARD, LEFT_AT = range(7)
BUFFER_FIELDS = 7
# a flit
READY, FLIT_LEG, FLIT_NUMBER, FLIT_PLACE, FLIT_LINK = range(5)
FLIT_FIELDS = 5
# a leg: the place of its list of links, flits of a packet; the leg after it, or the channel, or 0;
# the word that counts packets known, rings of when they set out and arrive (in order and not)
PATH, FLITS, FOLLOWING, PAUSE, CHANNEL_ROW, KNOWN_AT, SET_OUT, OUT, EARLY, SIZE = range(10)
SENT_COUNT, ENTERED, DELIVERED, ARRIVED_AT = range(10, 14)
LEG_FIELDS = 14


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
def link_wanted(s, n, b):
    """The link that the front flit of a buffer takes next."""
    flit = s[b + FLITS_AT] + s[b + GONE] % s[n + DEPTH] * FLIT_FIELDS
    return s[s[s[flit + FLIT_LEG] + PATH] + s[flit + FLIT_LINK] + 1]


@jit
def fill(s, n, b, ready, leg, number, place, link):
    """Put a flit into a buffer that has room for it."""
    flit = s[b + FLITS_AT] + s[b + PUT] % s[n + DEPTH] * FLIT_FIELDS
    s[flit + READY], s[flit + FLIT_LEG], s[flit + FLIT_NUMBER] = ready, leg, number
    s[flit + FLIT_PLACE], s[flit + FLIT_LINK] = place, link
    s[b + PUT] += 1
    if s[b + PUT] - s[b + GONE] == 1:
        s[link_wanted(s, n, b) + WANTED] += 1


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
        s[n + FLYING] += 1
    link = s[e + ENTRY_LINK]
    if s[e + ENTRY_BUFFER] == 0:
        s[e + ENTRY_BUFFER] = free_buffer(s, n, link, cycle)
        if s[e + ENTRY_BUFFER]:
            give(s, link, s[e + ENTRY_BUFFER])
    b = s[e + ENTRY_BUFFER]
    if b == 0 or not has_room(s, n, b, cycle):
        return
    s[link + MOVED] += 1
    fill(s, n, b, cycle + s[n + ROUTER_CYCLES], leg, s[leg + ENTERED] - 1, s[e + ENTRY_FLIT], 0)
    s[e + ENTRY_FLIT] += 1
    if s[e + ENTRY_FLIT] == s[leg + FLITS]:
        s[b + TAKEN] = 0
        s[e + ENTRY_LEG] = 0


@jit
def may_send(s, n, link, b, cycle):
    """Whether the front flit of a buffer may leave over a link in this cycle."""
    if s[b + PUT] == s[b + GONE] or s[b + LEFT_AT] == cycle:
        return False
    flit = s[b + FLITS_AT] + s[b + GONE] % s[n + DEPTH] * FLIT_FIELDS
    if s[flit + READY] > cycle or link_wanted(s, n, b) != link:
        return False
    if s[link + BUFFERS] == 0:
        return True
    if s[flit + FLIT_PLACE] == 0:
        return free_buffer(s, n, link, cycle) != 0
    return has_room(s, n, s[b + ONWARD], cycle)


@jit
def move(s, n, link, b, cycle):
    """Take the front flit of a buffer over a link."""
    depth = s[n + DEPTH]
    flit = s[b + FLITS_AT] + s[b + GONE] % depth * FLIT_FIELDS
    leg, number, place = s[flit + FLIT_LEG], s[flit + FLIT_NUMBER], s[flit + FLIT_PLACE]
    arrival, is_tail = cycle + s[n + LINK_CYCLES], place == s[leg + FLITS] - 1
    if s[link + BUFFERS]:
        if place == 0:
            s[b + ONWARD] = free_buffer(s, n, link, cycle)
            give(s, link, s[b + ONWARD])
        onward, ready = s[b + ONWARD], arrival + s[n + ROUTER_CYCLES]
        fill(s, n, onward, ready, leg, number, place, s[flit + FLIT_LINK] + 1)
        if is_tail:
            s[onward + TAKEN] = 0
    s[s[b + ROOM_AT] + s[b + GONE] % depth] = arrival
    s[b + GONE] += 1
    s[b + LEFT_AT] = cycle
    s[link + WANTED] -= 1
    s[link + MOVED] += 1
    if s[b + PUT] > s[b + GONE]:
        s[link_wanted(s, n, b) + WANTED] += 1
    if is_tail and s[link + BUFFERS] == 0:
        arrive(s, n, leg, number, arrival)


@jit
def arrive(s, n, leg, number, cycle):
    """Deliver a packet, and those that overtook it."""
    size = s[leg + SIZE]
    s[n + FLYING] -= 1
    s[s[leg + EARLY] + number % size] = cycle
    while True:
        slot = s[leg + DELIVERED] % size
        at = max(s[leg + ARRIVED_AT], s[s[leg + EARLY] + slot])
        if s[s[leg + EARLY] + slot] == 0:
            return
        s[s[leg + EARLY] + slot] = 0
        s[leg + ARRIVED_AT] = at
        s[leg + DELIVERED] += 1
        following, c = s[leg + FOLLOWING], s[leg + CHANNEL_ROW]
        s[s[leg + OUT] + slot] = at + s[leg + PAUSE]
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
    first, end, at = s[link + FEEDERS], s[link + FEEDERS_END], s[link + TAKEN_LAST]
    for _ in range(first, end):
        at = at + 1 if at + 1 < end else first
        if may_send(s, n, link, s[at], cycle):
            s[link + TAKEN_LAST] = at
            move(s, n, link, s[at], cycle)
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
