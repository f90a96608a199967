"""The part of the fast engine that reaches off-chip memory, compiled: generators and service.

The rules and the bounds on running ahead are those of `offchip.py` and `memory.py`.

    request k of a load:  issue = max(issue of k-1 + 1, last use of burst k - outstanding + 1)
    request k of a store: issue = max(issue of k-1 + 1, firing of the burst's last beat)
    both:                 start = max(issue + generator latency, memory channel free), or as
                          `fast_dram.py` says

Times inside a memory channel are whole cycles and whole parts of one: nothing is rounded.
"""

from __future__ import annotations

from dataflow.sim.fast_dram import (
    BANK_FIELDS,
    BANK_STEP,
    BANKS_AT,
    DRAM,
    GROUP_BANKS,
    GROUP_STEP,
    GROUPS,
    PENDING,
    QUEUES,
    REFRESH_AT,
    ROW_FIELDS,
    ROW_STEP,
    SERVED_FOR,
    TURN,
    column_time,
    grant,
    pass_turn,
    refresh,
    refresh_until,
)
from dataflow.sim.fast_kernel import (
    ARRIVALS,
    ASK_LIMIT,
    CAPACITY,
    CREDITS,
    LACKS,
    NEVER,
    READ,
    WRITE_AT,
    WRITTEN,
    enqueue,
    jit,
)
from dataflow.sim.fast_tiles import (
    ASKED,
    BACK,
    BANK_OF,
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
    GENERATOR_LATENCY,
    GENERATORS,
    GENERATORS_END,
    HEADS,
    IN_FLIGHT,
    INTERLEAVE,
    ISSUED,
    LAST_BACK,
    LATENCY,
    NEEDS,
    NEXT,
    NEXT_ISSUE,
    OLDEST,
    PARTS,
    PLACES,
    QUEUE,
    REACH,
    READ_CYCLES,
    READ_PARTS,
    READS,
    ROW_OF,
    SERVED,
    STORES,
    UNIT,
    USED,
    WINDOW,
    WRITE_CYCLES,
    WRITE_PARTS,
    WRITES,
    next_tile,
)

AHEAD_BEATS = 4096
"""As in `offchip.py`: beats not fired beyond which no further tile is looked at."""


@jit
def issue(s, g, at):
    """Send the next request at cycle `at` or when the port is free."""
    number = s[g + ISSUED]
    at = max(at, s[g + NEXT_ISSUE])
    s[g + NEXT_ISSUE] = at + 1
    reach = at + s[GENERATOR_LATENCY]
    s[s[g + REACH] + number % (s[g + IN_FLIGHT] + 1)] = reach
    s[g + ISSUED] = number + 1
    if s[DRAM]:
        ask(s, g, number)
    elif s[g + SERVED] == number:
        s[s[g + OLDEST]] = reach


@jit
def queue_of(s, d, g):
    """Where the numbers of the oldest (-1: none) and newest request of a generator lie."""
    return s[d + QUEUES] + 2 * ((g - s[GENERATORS]) // GENERATOR_FIELDS)


@jit
def locate(s, g, number):
    """Note the bank and row of a request; return its channel."""
    bursts = s[INTERLEAVE] // s[BURST]
    burst = s[s[g + PLACES] + number % s[g + BURSTS]]
    block = burst // bursts
    local = block // s[CHANNELS] * bursts + burst % bursts
    d = s[FREE_AT] + block % s[CHANNELS] * ROW_FIELDS
    bank = local // s[GROUP_STEP] % s[GROUPS] * s[GROUP_BANKS]
    bank += local // s[BANK_STEP] % s[GROUP_BANKS]
    slot = number % (s[g + IN_FLIGHT] + 1)
    s[s[g + BANK_OF] + slot] = s[d + BANKS_AT] + bank * BANK_FIELDS
    s[s[g + ROW_OF] + slot] = local // s[ROW_STEP]
    return d


@jit
def ask(s, g, number):
    """Put a request into the queue of its channel."""
    window = s[g + IN_FLIGHT] + 1
    slot = number % window
    d = locate(s, g, number)
    s[s[g + BACK] + slot] = -1  # not back yet
    queue = queue_of(s, d, g)
    if s[queue] < 0:
        s[queue] = number
    else:
        s[s[g + NEXT] + s[queue + 1] % window] = number
    s[queue + 1] = number
    s[s[g + NEXT] + slot] = -1
    s[d + PENDING] += 1


@jit
def next_turn(s, d):
    """The time of a channel's next turn."""
    reach, queue = NEVER, s[d + QUEUES]
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        if s[queue] >= 0:
            reach = min(reach, s[s[g + REACH] + s[queue] % (s[g + IN_FLIGHT] + 1)])
        queue += 2
    return max(s[d + TURN], reach * s[PARTS])


@jit
def take_turn(s, d, at):
    """Grant the request that could read or write first."""
    queue = s[d + QUEUES]
    found, column, reached = 0, NEVER, NEVER
    refresh_until(s, d, at)
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        if s[queue] >= 0:
            slot = s[queue] % (s[g + IN_FLIGHT] + 1)
            reach = s[s[g + REACH] + slot]
            if reach * s[PARTS] <= at:
                bank, row = s[s[g + BANK_OF] + slot], s[s[g + ROW_OF] + slot]
                time = column_time(s, d, at, bank, row, s[g + STORES])
                if time < column or (time == column and reach < reached):
                    found, column, reached = g, time, reach
        queue += 2
    if column >= s[d + REFRESH_AT]:
        refresh(s, d)  # what comes first may then be another
        return
    queue = queue_of(s, d, found)
    slot = s[queue] % (s[found + IN_FLIGHT] + 1)
    bank, row = s[s[found + BANK_OF] + slot], s[s[found + ROW_OF] + slot]
    end = grant(s, d, at, column, bank, row, s[found + STORES])
    s[bank + SERVED_FOR] = found
    s[s[found + BACK] + slot] = -(-end // s[PARTS]) + s[LATENCY]
    s[WRITES if s[found + STORES] else READS] += 1
    s[queue] = s[s[found + NEXT] + slot]
    s[d + PENDING] -= 1
    pass_turn(s, d, at, column)


@jit
def take_back(s, g):
    """Count the bursts that are back, in order."""
    back, window = s[g + BACK], s[g + IN_FLIGHT] + 1
    while s[g + SERVED] < s[g + ISSUED]:
        slot = s[g + SERVED] % window
        if s[back + slot] < 0:
            return
        s[g + LAST_BACK] = max(s[g + LAST_BACK], s[back + slot])
        s[back + slot] = s[g + LAST_BACK]
        s[g + SERVED] += 1


@jit
def first_turn(s):
    """The first turn of any channel; NEVER where none is pending."""
    first = NEVER
    for d in range(s[FREE_AT], s[FREE_AT] + s[CHANNELS] * ROW_FIELDS, ROW_FIELDS):
        if s[d + PENDING]:
            first = min(first, next_turn(s, d))
    return first


@jit
def serve_turns(s, horizon):
    """Take the turns of all channels up to the end of cycle `horizon`."""
    before = (horizon + 1) * s[PARTS] if horizon < NEVER // s[PARTS] - 1 else NEVER
    for d in range(s[FREE_AT], s[FREE_AT] + s[CHANNELS] * ROW_FIELDS, ROW_FIELDS):
        while s[d + PENDING]:
            at = next_turn(s, d)
            if at >= before:
                break
            take_turn(s, d, at)
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        take_back(s, g)


@jit
def hand_over(s, g):
    """Let a load see the beats whose bursts are all back."""
    q, window = s[g + QUEUE], s[g + IN_FLIGHT] + 1
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
    q, window = s[g + QUEUE], s[g + IN_FLIGHT] + 1
    while s[q + READ] + s[q + CAPACITY] < s[g + BEAT]:
        at = (s[q + READ] + s[q + CAPACITY]) % s[g + BEATS]
        before = s[s[g + ENDS] + at] - s[g + IN_FLIGHT]
        if before > s[g + SERVED]:
            return
        back = s[s[g + BACK] + (before - 1) % window] if before > 0 else 0
        s[s[q + CREDITS] + at] = back
        s[q + READ] += 1


@jit
def run_load(s, g):
    """Request bursts ahead of beats, each when one in flight was used up."""
    q, freed, window = s[g + QUEUE], s[g + FREED], s[g + IN_FLIGHT] + 1
    while s[g + COLLECTED] < s[q + READ]:
        at = s[g + COLLECTED] % s[g + BEATS]
        end = s[s[g + ENDS] + at]
        for burst in range(s[g + USED], end):
            s[freed + burst % window] = s[s[q + CREDITS] + at]
        s[g + USED] = end
        s[g + COLLECTED] += 1
    while True:
        limit = min(s[g + ASKED], s[g + USED] + s[g + IN_FLIGHT])
        while s[g + ISSUED] < limit:
            before = s[g + ISSUED] - s[g + IN_FLIGHT]
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
    stores, number, window = s[g + STORES], s[g + SERVED], s[g + IN_FLIGHT] + 1
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
def serve_requests(s, horizon):
    """Serve the requests up to `horizon` in order of (cycle, declaration)."""
    first = next_head(s)
    while first > 0 and s[s[first + OLDEST]] <= horizon:
        serve_one(s, first)
        first = next_head(s)


@jit
def first_cycle(s):
    """The first cycle in which memory has something to decide; NEVER where it has nothing."""
    if s[DRAM]:
        first = first_turn(s)
        return first // s[PARTS] if first != NEVER else NEVER
    first = next_head(s)
    return s[s[first + OLDEST]] if first else NEVER


@jit
def serve_up_to(s, horizon):
    """Let memory decide what comes up to a cycle, and the units know of it."""
    if s[DRAM]:
        serve_turns(s, horizon)
    else:
        serve_requests(s, horizon)
    for g in range(s[GENERATORS], s[GENERATORS_END], GENERATOR_FIELDS):
        if s[g + STORES]:
            allow(s, g)
        else:
            hand_over(s, g)
        wake(s, g)


@jit
def serve(s):
    """With all units waiting, let memory decide as far as is known; False without any request."""
    first = first_cycle(s)
    if first == NEVER:
        return False
    serve_up_to(s, min(first + s[WINDOW], s[ASK_LIMIT]))
    return True
