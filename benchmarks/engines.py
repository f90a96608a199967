"""Times both engines side by side: published cases, and long set-ups of others' simulators.

The compiled engine runs without and with leaving out what repeats; all three give the same cycles.
Times are the process's own processor time, the best of a few runs, after Numba has compiled.

Beside them: Tungsten's simulator runs a median of 2.8 thousand cycles a second where runs are
longer than 10^4 cycles (ideal network). The adder tree (1,024 generators of 2^18 items, FIFOs of
32) and the merge (two of 2^24 items) are set-ups that DAM is measured on (Zhang et al., ISCA 2024);
the SimPy engine runs them with fewer items, as its time is in proportion to them.
"""

from __future__ import annotations

import time
from dataclasses import replace

import hwspecs
from dataflow.cases import case_schedule
from dataflow.graph import Graph
from dataflow.kernels import build
from dataflow.program import Channel, Host, Loop, Port, Program, Unit
from dataflow.sim import Result, fast_engine, simpy_engine, timing_graph
from dataflow.validate import published, read_cases
from mapping import map_graph

RUNS = 5
TUNGSTEN_CYCLES_PER_S = 2.8e3
FIFO_DEPTH = 32


def reduction(items: int, sources: int) -> Program:
    """Return a tree of two-input units over `sources` generators of `items` items each."""
    loops = (Loop("n", items),)
    units, channels = [], []

    def unit(name: str, inputs: tuple[str, ...], output: str = "") -> None:
        ports = tuple(Port((each,), 1) for each in inputs)
        outputs = (Port((output,), 1),) if output else ()
        units.append(Unit(name, "compute", loops, 1, ports, outputs, 1, Host("", ""), 1))

    def channel(writer: str, reader: str) -> str:
        channels.append(Channel(writer, writer, reader, FIFO_DEPTH, 1))
        return writer

    level = [f"source{place}" for place in range(sources)]
    for name in level:
        unit(name, (), name)
    depth = 0
    while len(level) > 1:
        above = [f"add{depth}_{place}" for place in range(len(level) // 2)]
        for place, name in enumerate(above):
            pair = tuple(channel(level[2 * place + way], name) for way in range(2))
            unit(name, pair, name)
        level, depth = above, depth + 1
    unit("sink", (channel(level[0], "sink"),))
    return Program(Graph("reduction", {}, (), ()), None, tuple(units), tuple(channels))


def best(program: Program, engine: str, runs: int = RUNS) -> tuple[float, Result]:
    """Return the least processor seconds of a few runs, and the result: `simpy`, `scan`, `skip`."""
    seconds: list[float] = []
    for _ in range(runs):
        started = time.process_time()
        if engine == "simpy":
            result = simpy_engine.run(program, None)
        else:
            graph = timing_graph.build(program)
            result = fast_engine.Run(program, graph, skip=engine == "skip").go()
        seconds.append(time.process_time() - started)
    return min(seconds), result


def compare(name: str, program: Program, small: Program | None = None) -> None:
    """Print one line; `small` is what the SimPy engine runs instead."""
    simpy_s, by_simpy = best(small or program, "simpy", 1 if small else 2)
    scan_s, scanned = best(program, "scan", 2 if small else RUNS)
    skip_s, skipped = best(program, "skip", 2 if small else RUNS)
    assert replace(skipped, wall_seconds=0.0) == replace(scanned, wall_seconds=0.0)
    firings, few = (sum(unit.firings for unit in p.units) for p in (program, small or program))
    assert small or by_simpy.cycles == scanned.cycles
    simpy_s *= firings / few
    print(
        f"{name:28s} {scanned.cycles:>14,} {firings:>15,} {simpy_s:>10.3g} {scan_s:>9.3g}"
        f" {skip_s:>9.3g} {simpy_s / scan_s:>7,.0f}x {simpy_s / skip_s:>9,.0f}x"
        f" {scanned.cycles / simpy_s / 1e3:>10,.3g} {scanned.cycles / skip_s / 1e3:>12,.3g}"
    )


def main() -> None:
    """Print the table."""
    plasticine = hwspecs.load("plasticine")
    case = next(case for case in read_cases(published()) if case.name == "GEMM_0")
    graph, schedule = case_schedule(case)
    gemm = map_graph(graph, hwspecs.load("tungsten_20x20"), schedule).program
    short = map_graph(build("attention", {"n": 512, "m": 512, "d": 64}), plasticine).program
    best(reduction(16, 2), "skip", 1)  # compiles, or loads what was compiled
    print(
        f"{'':28s} {'cycles':>14s} {'firings':>15s} {'SimPy s':>10s} {'scan s':>9s} {'skip s':>9s}"
        f" {'scan':>8s} {'skip':>10s} {'SimPy kc/s':>10s} {'skip kc/s':>12s}"
    )
    compare("GEMM_0, tungsten_20x20", gemm)
    compare("attention 512, plasticine", short)
    compare("adder tree, 1024 x 2^18", reduction(1 << 18, 1024), reduction(1 << 8, 1024))
    compare("merge, 2 x 2^24", reduction(1 << 24, 2), reduction(1 << 18, 2))
    print(f"Tungsten's simulator, median: {TUNGSTEN_CYCLES_PER_S / 1e3} thousand cycles a second")


if __name__ == "__main__":
    main()
