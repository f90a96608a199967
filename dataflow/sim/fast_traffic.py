"""Traffic over a network alone, compiled."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

from numba import njit

from dataflow.network_plan import NetworkPlan
from dataflow.sim import fast_kernel, fast_network
from dataflow.sim.fast_kernel import WORDS, pointer
from dataflow.sim.fast_network import DELIVERED, OUT, SENT_COUNT, SET_OUT, tick
from dataflow.sim.fast_network_arrays import Words, add_network


def _compiled(stamp: int):
    """As in `fast_engine.py`: `stamp` makes Numba's cache look at all source."""

    @njit(cache=True, error_model="numpy")
    def run(array, n, cycles):
        """Work out `cycles` cycles."""
        s = pointer(array)  # pyright: ignore[reportCallIssue]
        cycle = 0
        while cycle < cycles and stamp >= 0:
            tick(s, n, cycle)
            cycle += 1

    return run


_SOURCES = (fast_kernel.__file__, fast_network.__file__, __file__)
_run = _compiled(zlib.crc32(b"".join(Path(path).read_bytes() for path in _SOURCES)))


def arrivals(plan: NetworkPlan, sends: Sequence[tuple[int, int]], cycles: int) -> list[list[int]]:
    """Arrivals at each sink in the first `cycles` cycles."""
    times: list[list[int]] = [[] for _ in plan.legs]
    for leg, cycle in sends:
        times[leg].append(cycle)
    words = Words(WORDS)
    sizes = [max(1, len(its)) for its in times]
    rows = add_network(words, plan, sizes, [sizes[sink.leg] for sink in plan.sinks])
    s = words.array()
    for row, its in zip(rows.legs, times, strict=True):
        s[row + SENT_COUNT] = len(its)
        s[s[row + SET_OUT] : s[row + SET_OUT] + len(its)] = its
    _run(s, rows.network, cycles)
    return [s[s[row + OUT] : s[row + OUT] + s[row + DELIVERED]].tolist() for row in rows.sinks]
