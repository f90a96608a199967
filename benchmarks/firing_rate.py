"""Times the simulator a firing on GEMM_0, beside a bare two-process SimPy channel in the same run.

The bare channel is the least that a SimPy model of two units can do: a process each, one timeout a
beat, a bounded queue between them. Both figures are of the process's own processor time, the best
of a few runs, so that other work on the computer counts little.
"""

from __future__ import annotations

import resource
import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import simpy

import hwspecs
from dataflow.cases import case_schedule
from dataflow.sim import simulate
from dataflow.validate import published, read_cases
from mapping import map_graph

BEATS = 100_000
DEPTH = 16
RUNS = 3
LIMIT_US = 3.0
"""Microseconds a firing that the simulator must not exceed."""


def bare_channel(beats: int = BEATS) -> int:
    """Move `beats` through a bounded queue between two SimPy processes; return the cycles."""
    env = simpy.Environment()
    queue: deque[int] = deque()
    waiting: dict[str, simpy.Event] = {}

    def wake(who: str) -> None:
        if who in waiting:
            waiting.pop(who).succeed()

    def writer() -> Generator[simpy.Event, Any, None]:
        for beat in range(beats):
            if len(queue) >= DEPTH:
                waiting["writer"] = env.event()
                yield waiting["writer"]
            queue.append(beat)
            wake("reader")
            yield env.timeout(1)

    def reader() -> Generator[simpy.Event, Any, None]:
        for _ in range(beats):
            if not queue:
                waiting["reader"] = env.event()
                yield waiting["reader"]
            queue.popleft()
            wake("writer")
            yield env.timeout(1)

    env.process(writer())
    env.process(reader())
    env.run()
    return int(env.now)


def best_s(action: Callable[[], Any]) -> tuple[float, Any]:
    """Return the least processor seconds of a few runs, and what the last one gave."""
    seconds, result = [], None
    for _ in range(RUNS):
        started = time.process_time()
        result = action()
        seconds.append(time.process_time() - started)
    return min(seconds), result


def main() -> None:
    """Print both rates, the memory used, and whether the limit is kept."""
    case = next(case for case in read_cases(published()) if case.name == "GEMM_0")
    graph, schedule = case_schedule(case)
    program = map_graph(graph, hwspecs.load("tungsten_20x20"), schedule).program
    bare_s, _ = best_s(bare_channel)
    ours_s, result = best_s(lambda: simulate(program, None, values=False, engine="simpy"))
    bare_us, ours_us = bare_s / (2 * BEATS) * 1e6, ours_s / result.firings * 1e6
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"bare SimPy channel  {bare_us:6.2f} us a firing   {2 * BEATS:>9,} firings")
    print(f"GEMM_0              {ours_us:6.2f} us a firing   {result.firings:>9,} firings")
    units = len(program.units)
    print(f"                    {ours_s:6.2f} s for {result.cycles:,} cycles of {units} units")
    verdict = "kept" if ours_us <= LIMIT_US else "BROKEN"
    print(f"limit               {LIMIT_US:6.2f} us a firing   {verdict}")
    print(f"peak memory         {peak_mib:6.0f} MiB, imports included")


if __name__ == "__main__":
    main()
