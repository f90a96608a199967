"""Maps a graph onto a machine: schedule, streams, units, placement and routes, with their bound."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dataflow.nodes import Graph
from dataflow.program import Program
from dataflow.schedule import Schedule
from dataflow.streams import StreamGraph, stream
from dataflow.streams.node import StreamNode
from hwspecs import Machine
from mapping.bounds import Bound, bound
from mapping.build import build
from mapping.default_schedule import default_schedule
from mapping.errors import MappingError, refuse, shortage
from mapping.partition import Group, partition
from mapping.place import place
from mapping.route import route

SHARES = (1.0, 0.8, 0.6, 0.45, 0.3, 0.2)
"""Of the machine's units that a default schedule may take, tried in turn until its network can hold
all routes."""


@dataclass(frozen=True)
class Mapping:
    """A kernel on a machine: how it is scheduled, what that makes of it, and the proven bound."""

    schedule: Schedule
    stream: StreamGraph
    program: Program
    bound: Bound


def map_graph(graph: Graph, machine: Machine, schedule: Schedule | None = None) -> Mapping:
    """Map `graph` onto `machine`, by `schedule` or by the default one.

    Raises ScheduleError where the schedule does not fit the graph, MappingError where the machine
    runs out of something: what, by how much, and what would fit.
    """
    if schedule is not None:
        return _laid_out(graph, machine, schedule)
    refused: MappingError | None = None
    for share in SHARES:
        try:
            return _laid_out(graph, machine, default_schedule(graph, machine, share))
        except MappingError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _laid_out(graph: Graph, machine: Machine, schedule: Schedule) -> Mapping:
    made = stream(graph, schedule, machine.compute.lanes, machine.compute.fifo_depth_beats)
    groups = partition(made, machine)
    _check_copies(made, groups, machine)
    program = build(made, groups, machine)
    return Mapping(schedule, made, route(place(program)), bound(graph, machine))


def _check_copies(made: StreamGraph, groups: Iterable[Group], machine: Machine) -> None:
    """Refuse more copies than the machine has units, before any of them is built one by one."""
    where = f"{made.graph.name} on {machine.name}"
    needed = {
        "compute units": sum(g.cells * _copies(made.by_name[g.name]) for g in groups),
        "address generators": sum(_copies(n) for n in made.nodes if n.kind in ("load", "store")),
    }
    available = {
        "compute units": machine.grid.compute_units,
        "address generators": machine.generators.count,
    }
    faults = []
    for resource, count in needed.items():
        if count > available[resource]:
            line = shortage(where, resource, count, available[resource], "lower the unrolling")
            faults.append((line, resource, count, available[resource]))
    refuse(faults)


def _copies(node: StreamNode) -> int:
    return math.prod(node.unroll.values())
