"""Traffic over a shared network alone: latency and throughput, without a Program.

A mesh of routers, each with one node that sends and takes packets. Uniform random traffic: in each
cycle a node starts a packet with probability load / flits, to any other node with equal chance
(Dally, Towles, 2004, 3.2 and 23.1). Times are those of `network.py`; `engine="fast"` has them
worked out by `fast_network.py`, equal to the cycle.

No more than this many flits a node and cycle cross the middle of a k x k mesh, k even: half of the
k^2 nodes send, of what they send k^2/2 of k^2 - 1 packets cross, over k links of a flit a cycle:

    bound = k / (k^2/2 x (k^2/2) / (k^2 - 1)) = 4 (k^2 - 1) / k^3
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dataflow.errors import did_you_mean
from dataflow.network_plan import Links, NetworkPlan
from dataflow.program import Site
from dataflow.sim.network import Network
from dataflow.sim.result import EngineError
from hwspecs.network import Packets

Send = tuple[int, int]
"""A leg, and the cycle in which a packet of it sets out."""


@dataclass(frozen=True)
class Point:
    """One point of a latency curve: flits a node and cycle offered and taken, mean cycles from a
    packet's setting out to its arrival (in its node's queue too), packets measured."""

    offered: float
    accepted: float
    latency_cycles: float
    packets: int


def mesh(rows: int, columns: int, packets: Packets, flits: int = 1) -> NetworkPlan:
    """Return a mesh with a leg from each node to each other, sources first, in row-major order."""
    cells = [(row, column) for row in range(rows) for column in range(columns)]
    links = Links()
    for source in cells:
        for sink in cells:
            if sink != source:
                path = links.path(("from", source), _row_then_column(source, sink), ("to", sink))
                links.leg([path], flits)
    return links.plan(packets, {})


def _row_then_column(source: Site, sink: Site) -> list[Site]:
    def steps(start: int, stop: int) -> range:
        return range(start + 1, stop + 1) if stop > start else range(start - 1, stop - 1, -1)

    cells = [source, *((source[0], column) for column in steps(source[1], sink[1]))]
    return [*cells, *((row, sink[1]) for row in steps(source[0], sink[0]))]


def bisection_bound(side: int) -> float:
    """Flits a node and cycle of uniform random traffic that a mesh of even `side` can carry."""
    return 4 * (side**2 - 1) / side**3


def uniform_random(nodes: int, load: float, flits: int, cycles: int, seed: int) -> list[Send]:
    """Return the packets of `cycles` cycles over a `mesh` of `nodes`, in order of cycle."""
    random = np.random.default_rng(seed)
    starts = random.random((cycles, nodes)) < load / flits
    sinks = random.integers(0, nodes - 1, (cycles, nodes))
    return [
        (int(node) * (nodes - 1) + int(sinks[cycle, node]), int(cycle))
        for cycle, node in zip(*np.nonzero(starts), strict=True)
    ]


def arrivals(
    plan: NetworkPlan, sends: Sequence[Send], cycles: int, engine: str = "fast"
) -> list[int]:
    """Return when each packet arrives; -1 where not as the first `cycles` cycles are worked out.

    sends: in order of cycle within each leg. Packets of a leg count as arrived in order.
    """
    if engine not in ("simpy", "fast"):
        hint = did_you_mean(engine, ("simpy", "fast"))
        raise EngineError(f"arrivals: engine must be one of simpy, fast, got {engine!r}; {hint}")
    by_leg: list[list[int]] = [[] for _ in plan.legs]
    for number, (leg, _) in enumerate(sends):
        by_leg[leg].append(number)
    if engine == "simpy":
        came = _arrivals(plan, sends, cycles)
    else:
        from dataflow.sim import fast_traffic  # Numba takes a while to load

        came = fast_traffic.arrivals(plan, sends, cycles)
    found = [-1] * len(sends)
    for numbers, times in zip(by_leg, came, strict=True):
        for number, time in zip(numbers, times, strict=False):
            found[number] = time
    return found


def _arrivals(plan: NetworkPlan, sends: Sequence[Send], cycles: int) -> list[list[int]]:
    """Arrivals by leg, by the definition."""
    came: list[list[int]] = [[] for _ in plan.legs]
    network = Network(plan, lambda leg, cycle: came[leg].append(cycle))
    for leg, cycle in sends:
        network.send(leg, cycle)
    for cycle in range(cycles):
        network.tick(cycle)
    return came


def measure(
    plan: NetworkPlan, nodes: int, load: float, cycles: int, seed: int = 0, engine: str = "fast"
) -> Point:
    """Return what uniform random traffic of `load` flits a node and cycle meets.

    The first third of `cycles` warms up; what sets out or arrives in the last two is measured. Past
    saturation the latency is that of the packets that arrived, and grows with `cycles`.
    """
    flits = plan.legs[0].flits
    sends = uniform_random(nodes, load, flits, cycles, seed)
    came = arrivals(plan, sends, cycles, engine)
    start = cycles // 3
    taken = sum(start <= at < cycles for at in came)
    waits = [
        at - cycle for (_, cycle), at in zip(sends, came, strict=True) if cycle >= start and at >= 0
    ]
    per_node = nodes * (cycles - start)
    offered = sum(cycle >= start for _, cycle in sends) * flits / per_node
    latency = sum(waits) / len(waits) if waits else float("nan")
    return Point(offered, taken * flits / per_node, latency, len(waits))
