"""The fast engine: the times of a run worked out by compiled code; values are not.

It runs the same timing graph as the SimPy engine by the same rules, and its result is equal in
everything: cycles, accounts, peaks, traffic, deadlocks. `fast_arrays.py` writes a graph as arrays,
`fast_fire.py` fires units, `fast_memory.py` serves requests.
"""

from __future__ import annotations

import time
import zlib
from pathlib import Path

import numpy as np
from numba import njit

from dataflow.program import Program
from dataflow.sim import (
    account,
    fast_ahead,
    fast_dram,
    fast_fire,
    fast_jump,
    fast_kernel,
    fast_known,
    fast_memory,
    fast_network,
    fast_same,
    fast_same_memory,
    fast_same_tiles,
    fast_skip,
    fast_tiles,
    offchip,
    timing_graph,
)
from dataflow.sim.account import CAUSES
from dataflow.sim.deadlock import Blocked, DeadlockError, judge
from dataflow.sim.fast_arrays import Layout
from dataflow.sim.fast_fire import advance
from dataflow.sim.fast_kernel import (
    ASK_LIMIT,
    AT_MARK,
    BUDGET,
    CAPACITY,
    CREDITS,
    CUT,
    FIRED,
    FREE,
    GAPS,
    HEAD,
    INITIAL,
    IS_UNIT,
    LACKS,
    LAST_ARRIVAL,
    LAST_FIRED,
    LATENCY,
    MAX_CYCLES,
    NEVER,
    PEAK,
    READ,
    REFERENCE,
    SENT,
    SHARED,
    TAIL,
    TOTAL,
    WORKLIST,
    WORKLIST_END,
    WRITTEN,
    jit,
    pointer,
)
from dataflow.sim.fast_levels import states_kept
from dataflow.sim.fast_memory import first_cycle, run_generator, serve
from dataflow.sim.fast_network import CLOCK, run_network
from dataflow.sim.fast_rows import row_counts
from dataflow.sim.fast_skip import at_mark
from dataflow.sim.fast_tiles import FAULTY, GENERATOR_LATENCY, WINDOW
from dataflow.sim.interrupt import Progress, stop_on_signal
from dataflow.sim.result import Interrupted, OffChip, Result
from dataflow.sim.timing_graph import TimingGraph

_PROGRESS_FIRINGS = 1 << 16


@jit
def share(s):
    """Let the network or memory decide, whichever must first; False where nothing is asked for.

    With all units waiting, the network's next cycle is before any arrival, and what that makes a
    unit ask for reaches memory a generator's latency later: up to then memory knows all requests.
    Nothing is back from memory before its first cycle + window - generator latency + 1.
    """
    n = s[SHARED]
    first = first_cycle(s)
    s[ASK_LIMIT] = s[n + CLOCK] + s[GENERATOR_LATENCY]
    if first <= s[ASK_LIMIT]:
        return serve(s)
    bound = first if first == NEVER else first + s[WINDOW] - s[GENERATOR_LATENCY]
    if run_network(s, n, bound):
        return True
    s[ASK_LIMIT] = NEVER
    return serve(s)


def _compiled(stamp: int):
    """Return `run`, from Numba's cache on disk where all its source is the same.

    Numba looks at the file of the outermost function only; `stamp`, a checksum of all of them, is
    part of the key as `run` reads it.
    """

    @njit(cache=True, error_model="numpy")
    def run(array, kept):
        """Run until nothing can move; False where it paused or an access is faulty."""
        s = pointer(array)  # pyright: ignore[reportCallIssue]
        while stamp >= 0:
            while s[HEAD] != s[TAIL]:
                member = s[s[HEAD]]
                s[HEAD] = s[HEAD] + 1 if s[HEAD] + 1 < s[WORKLIST_END] else s[WORKLIST]
                if s[member + IS_UNIT]:
                    advance(s, member)
                else:
                    run_generator(s, member)
                if s[AT_MARK]:
                    at_mark(s, kept)
                if s[FAULTY] or s[TOTAL] >= s[BUDGET]:
                    return False
            if not (share(s) if s[SHARED] else serve(s)):
                return True
        return True

    return run


_SOURCES = (
    fast_kernel.__file__,
    fast_ahead.__file__,
    fast_dram.__file__,
    fast_fire.__file__,
    fast_jump.__file__,
    fast_known.__file__,
    fast_tiles.__file__,
    fast_memory.__file__,
    fast_network.__file__,
    fast_same.__file__,
    fast_same_memory.__file__,
    fast_same_tiles.__file__,
    fast_skip.__file__,
    __file__,
)
_run = _compiled(zlib.crc32(b"".join(Path(path).read_bytes() for path in _SOURCES)))


def _peak(words: memoryview, row: list[int]) -> int:
    """The most slots of a channel taken at once, the pushes not popped yet included."""
    capacity, read, written, peak = row[CAPACITY], row[READ], row[WRITTEN], row[PEAK]
    for number in range(max(read, row[INITIAL]), written):
        pushed = words[row[SENT] + number % capacity] - row[LATENCY]
        while number >= peak and (
            number - peak >= read or words[row[CREDITS] + (number - peak) % capacity] > pushed
        ):
            peak += 1
    return peak


class Run:
    """One run of a timing graph."""

    def __init__(
        self,
        program: Program,
        graph: TimingGraph,
        progress: Progress | None = None,
        max_cycles: int | None = None,
        skip: bool = True,
    ):
        self.program = program
        self.graph = graph
        self.progress = progress
        self.stop = False
        self.layout = Layout(program, graph)
        self.s = self.layout.array()
        self.s[MAX_CYCLES] = NEVER if max_cycles is None else max_cycles
        if max_cycles is not None or not skip:
            self.s[REFERENCE] = 0
        self.kept = states_kept(self.s)

    def go(self) -> Result:
        """Run to the end and return the result."""
        started = time.perf_counter()
        try:
            with stop_on_signal(self):
                self.start()
        except KeyboardInterrupt:
            raise Interrupted(self._result(started, complete=False)) from None
        cut = bool(self.s[CUT])
        if not cut and not self.finished:
            raise self._deadlock()
        return self._result(started, complete=not cut)

    def start(self) -> None:
        """Run until nothing can move."""
        s = self.s
        while True:
            s[BUDGET] = s[TOTAL] + _PROGRESS_FIRINGS
            ended = _run(s, self.kept)
            if s[FAULTY]:
                self._refuse(int(s[FAULTY]))
            if ended:
                return
            if self.progress is not None:
                cycle = max(self._units(LAST_FIRED))
                self.progress(int(s[TOTAL]), self.graph.firings, cycle)
            if self.stop:
                raise KeyboardInterrupt

    def _rows(self, rows: range) -> np.ndarray:
        """Rows that follow each other, as such."""
        return self.s[rows.start : rows.stop].reshape(len(rows), rows.step)

    def _units(self, field: int) -> list[int]:
        """A field of every unit."""
        words = self.s.data
        return [words[u + field] for u in self.layout.units]

    @property
    def finished(self) -> bool:
        """Whether every unit has fired all it will."""
        return self._units(FIRED) == [plan.firings for plan in self.graph.units]

    def _refuse(self, g: int) -> None:
        """Raise what the SimPy engine says about the tile in hand of a generator."""
        _, unit, tensor = self.layout.generated[self.layout.generators.index(g)]
        loops = int(self.s[g + fast_tiles.LOOPS])
        counters = self.s[loops + 1 : loops + 2 * unit.points : 2].tolist()
        offchip.check_tile(unit, tensor, self.program.machine, counters)
        raise AssertionError(f"{unit.name}: a tile was refused that the rules allow")

    def _result(self, started: float, complete: bool) -> Result:
        s, layout = self.s, self.layout
        words = s.data
        units = self._rows(layout.units).tolist()
        channels = self._rows(layout.channels[: len(self.graph.channels)])
        ends = [-1, *[row[LAST_FIRED] for row in units]]
        arrivals = zip(channels[:, LAST_ARRIVAL].tolist(), self.graph.channels, strict=True)
        ends += [arrival for arrival, plan in arrivals if plan.carries]
        ends += [words[g + fast_tiles.LAST_BACK] for g in layout.generators]
        cycles = max(ends) + 1
        accounts = {
            plan.name: account.close(
                plan.name,
                row[GAPS : GAPS + len(CAUSES)],
                row[FIRED],
                plan.ii_cycles,
                plan.kind in ("write", "read"),
                cycles,
            )
            for plan, row in zip(self.graph.units, units, strict=True)
        }
        return Result(
            cycles=cycles,
            accounts=accounts,
            channel_peaks=self._peaks(channels),
            off_chip=self._traffic(),
            firings=int(s[TOTAL]),
            wall_seconds=time.perf_counter() - started,
            complete=complete,
            engine="fast",
        )

    def _peaks(self, rows: np.ndarray) -> dict[str, int]:
        """The most slots of each channel taken at once."""
        written, initial = rows[:, WRITTEN], rows[:, INITIAL]
        pushed = written != initial
        peaks = np.where(pushed, rows[:, PEAK], initial).tolist()
        for place in np.flatnonzero(pushed & (written > np.maximum(rows[:, READ], initial))):
            peaks[place] = _peak(self.s.data, rows[place].tolist())
        names = [plan.name for plan in self.graph.channels]
        return dict(zip(names, peaks, strict=True))

    def _traffic(self) -> OffChip:
        s = self.s
        if not self.layout.generated:
            return OffChip()
        reads, writes = int(s[fast_tiles.READS]), int(s[fast_tiles.WRITES])
        burst = int(s[fast_tiles.BURST])
        useful = sum(
            int(s[g + fast_tiles.USEFUL] * s[g + fast_tiles.ELEMENT])
            for g in self.layout.generators
        )
        return OffChip(reads * burst, writes * burst, reads + writes, useful, row_counts(s))

    def _deadlock(self) -> DeadlockError:
        """Say who waits for what, and find the capacity that would do."""
        waits: dict[str, tuple[int, str]] = {}
        blocked = []
        for plan, u in zip(self.graph.units, self.layout.units, strict=True):
            if self.s[u + FIRED] == plan.firings:
                continue
            c, is_token = divmod(int(self.s[u + LACKS]), 2)
            what = "token" if is_token else "room"
            place = self.layout.channels.index(c)
            channel = self.graph.channels[place]
            fill = int(self.s[c + WRITTEN] - self.s[c + READ])
            since = int(self.s[u + FREE])
            blocked.append(Blocked(plan.name, channel.name, what, fill, channel.capacity, since))
            waits[plan.name] = (place, what)
        cycle = max(self._units(LAST_FIRED))
        return judge(self.program, self.graph, blocked, waits, cycle, self._finishes)

    def _finishes(self, graph: TimingGraph) -> bool:
        """Whether another graph runs to its end."""
        run = Run(self.program, graph)
        run.start()
        return run.finished


def run(
    program: Program,
    progress: Progress | None = None,
    max_cycles: int | None = None,
    skip: bool = True,
) -> Result:
    """Return the times of `program`; raises as `simulate` does.

    skip: whether whole periods may be skipped, which changes nothing but how long it takes.
    """
    return Run(program, timing_graph.build(program), progress, max_cycles, skip).go()
