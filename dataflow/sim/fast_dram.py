"""Banks, rows and refresh of the fast engine, compiled; the rules are those of `dram.py`.

Times are whole parts of a cycle. Which requests wait at a channel `fast_memory.py` keeps.
"""

from __future__ import annotations

from dataflow.sim.fast_kernel import WORDS, jit

# words after the kernel's: whether the machine describes its DRAM, its times, ...
DRAM, CL, CWL, BURST_TIME, RCD, RP, RAS, RC, CCD_S, CCD_L, RRD_S, RRD_L = range(WORDS, WORDS + 12)
FAW, RTP, WR, WTR_S, WTR_L, RTW, RFC, REFI = range(WORDS + 12, WORDS + 20)
# ... and how a burst's number within its channel gives group, bank of the group, and row
GROUP_STEP, GROUPS, BANK_STEP, GROUP_BANKS, ROW_STEP = range(WORDS + 20, WORDS + 25)
DRAM_WORDS = WORDS + 25

# a channel: its turn; the last read or write, read, data written, opening; the last four openings
# and which is the oldest; refreshes; ...
TURN, COLUMN, LAST_READ, DATA_WRITTEN, OPENED, FOUR, OLDEST_OF_FOUR, REFRESH_AT, REFRESHED = range(
    9
)
# ... where its banks and its queues lie, requests in these; counts
BANKS_AT, BANKS_END, QUEUES, PENDING, HITS, MISSES, CONFLICTS, REFRESHES = range(9, 17)
ROW_FIELDS = 17
# a group: its last read or write, data written, opening
GROUP_COLUMN, GROUP_WRITTEN, GROUP_OPENED = range(3)
GROUP_FIELDS = 3
# a bank: its open row (-1: none), from when its columns, its closing, its opening may come; the
# generator it served last
ROW, COLUMN_AT, CLOSE_AT, OPEN_AT, GROUP, SERVED_FOR = range(6)
BANK_FIELDS = 6


@jit
def open_time(s, d, at, bank):
    """When a row of `bank` that is not open yet would open."""
    group = s[bank + GROUP]
    closed = at if s[bank + ROW] < 0 else max(at, s[bank + CLOSE_AT]) + s[RP]
    opened = max(s[group + GROUP_OPENED] + s[RRD_L], s[d + OPENED] + s[RRD_S])
    opened = max(opened, s[s[d + FOUR] + s[d + OLDEST_OF_FOUR]] + s[FAW])
    return max(closed, s[bank + OPEN_AT], opened)


@jit
def column_time(s, d, at, bank, row, writes):
    """When a request could read or write."""
    group = s[bank + GROUP]
    ready = s[bank + COLUMN_AT] if s[bank + ROW] == row else open_time(s, d, at, bank) + s[RCD]
    bus = max(s[group + GROUP_COLUMN] + s[CCD_L], s[d + COLUMN] + s[CCD_S])
    if writes:
        other = s[d + LAST_READ] + s[RTW]
    else:
        other = max(s[group + GROUP_WRITTEN] + s[WTR_L], s[d + DATA_WRITTEN] + s[WTR_S])
    return max(at, ready, bus, other)


@jit
def grant(s, d, at, column, bank, row, writes):
    """Open the row where it is not, read or write at `column`; return when the burst ends."""
    group = s[bank + GROUP]
    if s[bank + ROW] == row:
        s[d + HITS] += 1
    else:
        s[d + (CONFLICTS if s[bank + ROW] >= 0 else MISSES)] += 1
        opened = open_time(s, d, at, bank)
        s[d + OPENED] = s[group + GROUP_OPENED] = opened
        s[s[d + FOUR] + s[d + OLDEST_OF_FOUR]] = opened
        s[d + OLDEST_OF_FOUR] = (s[d + OLDEST_OF_FOUR] + 1) % 4
        s[bank + ROW] = row
        s[bank + COLUMN_AT] = opened + s[RCD]
        s[bank + CLOSE_AT] = opened + s[RAS]
        s[bank + OPEN_AT] = opened + s[RC]
    s[d + COLUMN] = s[group + GROUP_COLUMN] = column
    if writes:
        end = column + s[CWL] + s[BURST_TIME]
        s[d + DATA_WRITTEN] = s[group + GROUP_WRITTEN] = end
        s[bank + CLOSE_AT] = max(s[bank + CLOSE_AT], end + s[WR])
    else:
        end = column + s[CL] + s[BURST_TIME]
        s[d + LAST_READ] = column
        s[bank + CLOSE_AT] = max(s[bank + CLOSE_AT], column + s[RTP])
    return end


@jit
def pass_turn(s, d, at, column):
    """The next turn comes no earlier than a row cycle before the bus is free."""
    s[d + TURN] = max(at, column + s[CCD_S] - s[RC])


@jit
def refresh(s, d):
    """Close every row, refresh, and say when rows may open again."""
    start, closed = max(s[d + REFRESH_AT], s[d + REFRESHED]), 0
    for bank in range(s[d + BANKS_AT], s[d + BANKS_END], BANK_FIELDS):
        if s[bank + ROW] >= 0:
            start, closed = max(start, s[bank + CLOSE_AT]), 1
    s[d + REFRESHED] = start + closed * s[RP] + s[RFC]
    for bank in range(s[d + BANKS_AT], s[d + BANKS_END], BANK_FIELDS):
        s[bank + ROW] = -1
        s[bank + OPEN_AT] = max(s[bank + OPEN_AT], s[d + REFRESHED])
    s[d + REFRESH_AT] += s[REFI]
    s[d + REFRESHES] += 1


@jit
def refresh_until(s, d, at):
    """Make the refreshes that are due by `at`, those of a long idle time at once."""
    while s[d + REFRESH_AT] <= at:
        refresh(s, d)
        missed = (at - s[d + REFRESH_AT]) // s[REFI]
        if missed > 0:
            s[d + REFRESH_AT] += missed * s[REFI]
            s[d + REFRESHES] += missed
