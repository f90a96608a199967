"""A machine's DRAM written as words and rows of the fast engine's array, and read back from it.

`fast_dram.py` says what they mean.
"""

from __future__ import annotations

from typing import Any

from dataflow.sim import fast_dram as dram
from dataflow.sim import fast_tiles as tiles
from dataflow.sim.dram import FOUR, DramCounts, strides, timing
from dataflow.sim.result import EngineError
from hwspecs import Machine

_MOST_PARTS = 1 << 24
_TIMES = {
    dram.CL: "cl",
    dram.CWL: "cwl",
    dram.BURST_TIME: "burst",
    dram.RCD: "rcd",
    dram.RP: "rp",
    dram.RAS: "ras",
    dram.RC: "rc",
    dram.CCD_S: "ccd_s",
    dram.CCD_L: "ccd_l",
    dram.RRD_S: "rrd_s",
    dram.RRD_L: "rrd_l",
    dram.FAW: "faw",
    dram.RTP: "rtp",
    dram.WR: "wr",
    dram.WTR_S: "wtr_s",
    dram.WTR_L: "wtr_l",
    dram.RTW: "rtw",
    dram.RFC: "rfc",
    dram.REFI: "refi",
}


def dram_words(machine: Machine, window_cycles: int) -> dict[int, int]:
    """Return the words of a machine's DRAM; a burst's time adds to the window of what is known.

    Raises EngineError where its times have no common part of a cycle that is large enough.
    """
    spec = machine.off_chip.dram
    assert spec is not None
    times = timing(machine)
    if times.parts > _MOST_PARTS:
        raise EngineError(
            f"{machine.name}: dram times must be cycles of fractions with a common denominator"
            f" of at most {_MOST_PARTS}, got {times.parts}; round the clock or pass engine='simpy'"
        )
    group_step, bank_step, row_step = strides(spec)
    words = {word: getattr(times, name) for word, name in _TIMES.items()}
    return words | {
        dram.DRAM: 1,
        tiles.PARTS: times.parts,
        tiles.WINDOW: window_cycles + times.lead_cycles - 1,
        dram.GROUP_STEP: group_step,
        dram.GROUPS: spec.bank_groups,
        dram.BANK_STEP: bank_step,
        dram.GROUP_BANKS: spec.banks,
        dram.ROW_STEP: row_step,
    }


def add_rows(layout: Any, machine: Machine, generators: int) -> None:
    """Add a row for every channel, with its groups, banks and a queue for each generator."""
    spec, times = machine.off_chip.dram, timing(machine)
    assert spec is not None
    never = -max(times.refi, times.rc)
    rows = layout.rows(machine.off_chip.channels, dram.ROW_FIELDS)
    layout.set(0, {tiles.FREE_AT: rows[0]})
    for d in rows:
        groups = layout.rows(spec.bank_groups, dram.GROUP_FIELDS)
        for group in groups:
            fields = (dram.GROUP_COLUMN, dram.GROUP_WRITTEN, dram.GROUP_OPENED)
            layout.set(group, dict.fromkeys(fields, never))
        banks = layout.rows(spec.bank_groups * spec.banks, dram.BANK_FIELDS)
        for number, bank in enumerate(banks):
            layout.set(bank, {dram.ROW: -1, dram.GROUP: groups[number // spec.banks]})
        fields = (dram.COLUMN, dram.LAST_READ, dram.DATA_WRITTEN, dram.OPENED)
        layout.set(d, dict.fromkeys(fields, never))
        layout.set(
            d,
            {
                dram.FOUR: layout.add([never] * FOUR),
                dram.REFRESH_AT: times.refi,
                dram.BANKS_AT: banks[0],
                dram.BANKS_END: banks[-1] + dram.BANK_FIELDS,
                dram.QUEUES: layout.add([-1] * (2 * generators)),
            },
        )


def row_counts(s: Any) -> tuple[DramCounts, ...]:
    """Return what the banks of each channel did, from the array of a run."""
    if not s[dram.DRAM]:
        return ()
    first, counts = int(s[tiles.FREE_AT]), []
    for channel in range(int(s[tiles.CHANNELS])):
        d = first + channel * dram.ROW_FIELDS
        fields = (dram.HITS, dram.MISSES, dram.CONFLICTS, dram.REFRESHES)
        hits, misses, conflicts, refreshes = (int(s[d + field]) for field in fields)
        cycles = refreshes * int(s[dram.RFC]) // int(s[tiles.PARTS])
        counts.append(DramCounts(hits, misses, conflicts, refreshes, cycles))
    return tuple(counts)
