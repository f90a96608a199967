"""What every printed figure means, one sentence a term; `--explain` and the tests read it."""

from __future__ import annotations

DEFINITIONS: dict[str, str] = {
    "cycles": "The last arrival of a token or acknowledgement, plus one, in whole cycles of the"
    " machine's clock; loading the configuration is not counted.",
    "time": "Cycles divided by the machine's clock.",
    "bound": "Cycles that no mapping of this kernel on this machine can go below, whatever the"
    " schedule: the busiest of its resources at full rate, each proven in mapping/bounds.py.",
    "bound by": "The resource whose part of the bound is the largest; of a layer's step, the"
    " busiest resource and its part of the step, or latency round the recurrence and what is left.",
    "distance": "Cycles divided by the bound; 1.00 is as fast as the machine can be.",
    "mapping bound": "Cycles that this mapping cannot go below: the firings of its busiest unit,"
    " its busiest scratchpad, or the off-chip bytes it moves at the peak rate.",
    "critical": "The resource in which the chain of causes behind the run's end spent the most"
    " cycles, and on what; --why lists the chain, docs/accounting.md says how it is found.",
    "utilisation": "Firings of compute units times their initiation interval, summed over all"
    " cells of all chains, as a share of the machine's compute units times the cycles of the run.",
    "compute units": "Cells of the grid that compute, used of those there are; a chain of"
    " operations that is longer than a unit's stages takes several.",
    "memory units": "Scratchpad cells used of those there are, by capacity and by ports.",
    "generators": "Off-chip address generators used of those there are: one a load or store unit.",
    "off-chip read": "Bytes of whole bursts read from off-chip memory.",
    "off-chip written": "Bytes of whole bursts written to off-chip memory.",
    "off-chip useful": "Bytes of those bursts that the kernel asked for.",
    "off-chip rate": "Bytes read and written divided by the time, beside the peak rate.",
    "row hits": "Bursts whose row was open already in their bank.",
    "row misses": "Bursts that found no row open in their bank, as after a refresh, and those that"
    " found another row open, which had to be closed first.",
    "refreshes": "Refreshes of all memory channels until their last burst, and the most cycles that"
    " those of one channel took, in which none of its rows was open.",
    "rate a channel": "Bytes that a memory channel moved divided by the time, the least and the"
    " most of all channels.",
    "values": "The outputs that the units computed, tile by tile, beside a float64 evaluation of"
    " the kernel; docs/values.md derives the bound on the error from the machine's number types.",
    "largest error": "The largest absolute difference from float64 over all elements.",
    "error bound": "What rounding to the machine's number types explains: 1.5 times the largest"
    " deviation of trials with random roundings at every node, plus 4 of their standard"
    " deviations.",
    "rms error": "The root mean square difference from float64 over all elements.",
    "unit": "A unit of hardware, or a chain of them, that runs one loop nest.",
    "kind": "What the unit is: compute, scratchpad write or read, off-chip load or store, or host.",
    "cells": "Grid cells that the unit and its copies take.",
    "firings": "How often the unit fired, all copies together.",
    "busy": "Cycles in which the unit fired or its initiation interval had not passed.",
    "waiting": "Cycles in which a unit stood still because data had not arrived yet.",
    "blocked": "Cycles in which a unit stood still because a reader had not made room.",
    "bank": "Cycles in which lanes met in one bank of a scratchpad and took turns.",
    "network": "Cycles in which a beat waited for a shared link.",
    "off-chip": "Cycles in which a unit stood still because off-chip memory had not delivered or"
    " taken its data.",
    "done": "Cycles after the unit's last firing.",
    "total": "busy + waiting + blocked + bank + network + off-chip + done: the cycles of the run,"
    " for every unit.",
    "channel": "A bounded first-in-first-out edge, called by the nodes that it joins.",
    "place": "Where the channel's data waits: in a FIFO, in a scratchpad or off-chip.",
    "copies": "Units or channels of that name, which unrolling makes; shares are their means.",
    "depth": "Beats that a FIFO holds, those in flight included, or tiles that a scratchpad holds.",
    "peak": "The most tokens that were in the channel at once, or whole tiles in the scratchpad; -"
    " for a running state, or the store of a deep FIFO, whose channel has a row of its own.",
    "bytes": "Bytes that the scratchpads take, all copies and buffers together.",
    "because": "Why the buffer is there and as deep as it is, derived from the schedule.",
    "firings a second": "Firings of all units divided by the seconds that the simulation took.",
    "mapping time": "Seconds that schedule, placement and routes took on this computer.",
    "wall time": "Seconds that the simulation took on this computer, mapping not counted.",
    "machine": "Name of the machine file, and a hash of its content that no comment or layout"
    " changes.",
    "model version": "Version of the rules of time; results of one version can be compared, and the"
    " CHANGELOG says by how much modelled time changed between versions.",
    "resource": "What the cycles of the chain went to: a unit, a channel or off-chip memory, copies"
    " taken together.",
    "spent on": "How the resource spent them.",
    "share": "Cycles as a share of the run.",
    "links": "Stretches of the chain.",
    "since": "The first cycle of the stretch; it ends where the next one begins.",
    "interval": "A unit's own initiation intervals: nothing that it needed came later.",
    "pipeline": "From a unit's firing to its result.",
    "wires": "A token's way through its channel, hop by hop.",
    "room": "A free slot's way back to the writer that waited for it.",
    "generator": "A load's or store's requests, one a cycle, and their way to memory.",
    "burst": "Data moving over the pins of a memory channel.",
    "row": "A memory channel that closes and opens rows, or may not open one yet.",
    "refresh": "A memory channel that is refreshed and opens its rows again.",
    "group": "Bursts of one bank group, kept further apart than those of two.",
    "turn": "A memory channel that changes between reads and writes.",
    "access": "From a burst's turn on the pins to its data, or acknowledgement, at the generator.",
    "end": "The cycle of the last event itself.",
    "with": "The machine with a little more of one resource: one more, twice as much, a cycle less,"
    " a tenth more bandwidth, or a clock a tenth faster.",
    "in the file": "The numbers of the machine's file that differ; the same change by hand gives"
    " the same cycles.",
    "same schedule": "Cycles of the kernel on that machine by the schedule at hand, laid out anew.",
    "new schedule": "Cycles by the default schedule that is chosen for that machine; - where a"
    " schedule was given.",
    "saved": "Time saved by the same schedule, as a share of the run: that of its cycles, but where"
    " the clock changed. Negative where it takes longer.",
    "saved anew": "Time saved by the new schedule, as a share of the run.",
    "reference": "Published cycles of the case.",
    "error": "Cycles divided by the published cycles, minus one.",
    "mean absolute error": "Mean over the cases of the error without its sign.",
    "worst absolute error": "The largest error of a case without its sign.",
    "rank correlation": "Spearman's correlation between our cycles and the published ones: 1 where"
    " both put the cases in the same order.",
    "reference PCUs": "Published virtual compute units of the case, those that make addresses"
    " among them.",
    "PCUs": "Compute units that our mapping takes.",
    "reference PMUs": "Published virtual memory units of the case.",
    "PMUs": "Memory units that our mapping takes.",
    "PCUs apart": "Our compute units less the published ones, the least and the most of all cases.",
    "PMUs apart": "Our memory units less the published ones, the least and the most of all cases.",
    "reference ms": "Published milliseconds of the layer's T steps.",
    "ms": "T times the cycles of a step, over the machine's clock: the layer's T steps in a run"
    " whose weights are on chip already, as they were in the published ones.",
    "reference TFLOP/s": "TFLOP/s of the published milliseconds: 16 H^2 operations a step of an"
    " LSTM, 12 H^2 of a GRU.",
    "TFLOP/s": "The same operations over our milliseconds.",
    "ratio": "Our milliseconds over the published ones.",
    "cycles/step": "Cycles of twice as many steps, less those of the run, over its steps, by the"
    " schedule that is found for a long sequence.",
    "run ms": "The run of T steps by its own default schedule, from weights in off-chip"
    " memory to the last result.",
    "mean ratio": "Geometric mean of the ratios.",
    "outside": "Layers whose ratio is outside 0.7 to 1.4; docs/validation.md says why.",
}


def definition(term: str) -> str:
    """Return what a printed term means; KeyError where none was written, which is a bug."""
    return DEFINITIONS[term]
