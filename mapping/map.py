"""Maps a graph onto a machine: schedule, streams, units, placement and routes, with their bound."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from dataflow.nodes import Graph
from dataflow.program import Program
from dataflow.schedule import Schedule
from dataflow.streams import StreamGraph, stream
from dataflow.streams.node import StreamNode
from hwspecs import Machine
from mapping.bounds import Bound, bound
from mapping.build import build
from mapping.default_schedule import candidates
from mapping.errors import MappingError, refuse, shortage
from mapping.partition import Group, partition
from mapping.place import place
from mapping.resources import needs
from mapping.route import route

LAYOUTS = 6
"""Default schedules that are laid out before giving up."""
LESS = 0.65
"""Share of the units of a schedule whose routes did not fit that the next one may take."""


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
    share = 1.0
    for layout in range(LAYOUTS):
        chosen = candidates(graph, machine, share)[0]
        try:
            return _laid_out(graph, machine, chosen.schedule)
        except MappingError:
            if layout == LAYOUTS - 1:
                raise
        share = LESS * needs(chosen.made, chosen.groups, machine).share_of(machine)
    raise AssertionError("the last layout returns or raises")


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
