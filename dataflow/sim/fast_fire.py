"""What the fast engine compiles for units: they fire as far as their tokens and room are known.

The rules are those of `firing.py`. A unit taken from the worklist fires in chunks: some firings of
one turn of its innermost loop, or some whole turns, of which the loop around it tells none apart.
Within a turn a port is used at every firing, or at the last one, or not at all.
"""

from __future__ import annotations

from dataflow.sim.account import NETWORK
from dataflow.sim.fast_kernel import (
    AROUND,
    ARRIVALS,
    AT_MARK,
    CAPACITY,
    CHANNEL,
    CHUNK,
    CREDITS,
    CUT,
    DEPTH,
    EVERY,
    EVERY_PORTS,
    FIRED,
    FLIGHT,
    FREE,
    GAPS,
    HELD,
    HELD_POPPED,
    HIDDEN,
    II,
    INNER,
    IS_PLAIN,
    LACKS,
    LAST_FIRED,
    LAST_POPPED,
    LAST_PUSHED,
    LASTS,
    LATE,
    LEFT,
    LEG,
    LEVEL,
    LINKS,
    LOOPS,
    MARK,
    MAX_CYCLES,
    NEVER,
    OTHER_PORTS,
    OUTER,
    OUTPUTS,
    PORT_FIELDS,
    PORTS,
    PORTS_END,
    READ,
    READ_AT,
    REFERENCE,
    ROLE,
    ROOM_CHARGE,
    SELECT_FIELDS,
    SELECTS,
    SELECTS_END,
    SENT,
    TIMES,
    TOKEN_CHARGE,
    TOTAL,
    UNUSED,
    VISIT,
    WRAP,
    WRITE_AT,
    WRITTEN,
    enqueue,
    inlined,
    jit,
    pop,
    push,
)


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
    """How many firings have every time they need known: of the turn's `left`, or of whole turns."""
    count, around = left, s[u + AROUND]
    if s[u + EVERY_PORTS]:
        if around and left == s[u + INNER] and s[u + WRAP] == s[u + OUTER]:
            count = left * (s[around] - 1 - s[around + 1])  # the last turn may end that loop
        count = min(count, CHUNK)
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
        elif role != HELD:
            count = min(count, there * left)
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
def charge(s, u, place, turn, ending, at, gap):
    """Charge the gap before firing `place` of a chunk to the first of those that came last, at
    `at`; of a token's wait, what shared links made it late is charged to them."""
    outputs = s[u + OUTPUTS]
    for p in range(s[u + PORTS], s[u + PORTS_END], PORT_FIELDS):
        role = s[p + ROLE]
        if role == EVERY:
            needed = True
        elif role == HELD:
            needed = place == 0
        elif role == HELD_POPPED:
            needed = place % turn == 0
        else:
            needed = role != UNUSED and ending and place % turn == turn - 1
        if not needed:
            continue
        c = s[p + CHANNEL]
        slot = s[c + READ_AT] if p < outputs else s[c + WRITE_AT]
        slot += place if role == EVERY else place // turn
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
def hold_back(s, u, count, turn, ending):
    """Raise times noted to what ports not always used need, at a turn's first or last firing."""
    first, outputs = s[TIMES], s[u + OUTPUTS]
    for p in range(s[u + PORTS], s[u + PORTS_END], PORT_FIELDS):
        role = s[p + ROLE]
        if role in (UNUSED, EVERY) or (role >= LAST_POPPED and not ending):
            continue
        c = s[p + CHANNEL]
        ring = s[c + ARRIVALS] if p < outputs else s[c + CREDITS]
        slot = s[c + READ_AT] if p < outputs else s[c + WRITE_AT]
        place = first + turn - 1 if role >= LAST_POPPED else first
        turns = 1 if role == HELD else count // turn
        for _ in range(turns):
            s[place] = max(s[place], s[ring + slot])
            place += turn
            slot = slot + 1 if slot + 1 < s[c + CAPACITY] else 0


@inlined
def fire(s, u, count, turn, ending):
    """Make `count` firings, `turn` in each turn of the innermost loop, to its end if `ending`."""
    free, ii, first = s[u + FREE], s[u + II], s[TIMES]
    if s[u + EVERY_PORTS]:
        last = first + turn - 1
        needed_times(s, u, count)
        if s[u + OTHER_PORTS]:
            hold_back(s, u, count, turn, ending)
        for i in range(first, first + count):
            at = s[i]
            if at > free:
                charge(s, u, i - first, turn, ending, at, at - free)
                free = at
            s[i] = free
            free += ii
    else:
        shown = min(count, 2)  # those between the first and the last need nothing
        last = first + shown - 1
        s[first] = s[last] = 0
        hold_back(s, u, shown, shown, ending)
        for i in range(first, last + 1):
            if i > first:
                free += (count - 2) * ii
            at = s[i]
            if at > free:
                charge(s, u, 0 if i == first else count - 1, turn, ending, at, at - free)
                free = at
            s[i] = free
            free += ii
    s[u + FREE] = free
    s[u + LAST_FIRED] = free - ii
    s[u + FIRED] += count
    s[u + LEFT] -= turn
    s[TOTAL] += count
    turns = count // turn
    if turns > 1:
        s[s[u + AROUND] + 1] += turns - 1
    for p in range(s[u + PORTS], s[u + PORTS_END], PORT_FIELDS):
        role, c = s[p + ROLE], s[p + CHANNEL]
        if role == EVERY:
            start, moved, step = first, count, 1
        elif ending and role >= HELD_POPPED:
            start, moved, step = last, turns, turn
        else:
            continue
        if p < s[u + OUTPUTS]:
            pop(s, c, start, moved, step)
        else:
            push(s, c, start, moved, step)


@jit
def is_cut(s, u, left):
    """Whether the next firing comes at or after the cycle where the run is cut."""
    s[s[TIMES]] = 0
    needed_times(s, u, 1)
    hold_back(s, u, 1, 1, left == 1)
    return max(s[u + FREE], s[s[TIMES]]) >= s[MAX_CYCLES]


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
        count = min(count, mark - s[u + FIRED])
        if count >= 2 * left:
            fire(s, u, count // left * left, left, True)
        else:
            count = min(count, left)
            fire(s, u, count, count, count == left)
    if s[u + FIRED] == mark:
        s[AT_MARK] = 1
    enqueue(s, u)
