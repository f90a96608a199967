"""Builds a Program from a StreamGraph and its groups: units with loops, channels with capacities.

Every copy of a group becomes a compute unit; every channel a FIFO or a scratchpad with its write
and read units; every load and store an address generator. `mapping/links.py` says which copies talk
to which, `mapping/boxes.py` what their tiles cover. Nothing is decided here.
"""

from __future__ import annotations

from dataflow.program import Program
from dataflow.streams.edge import StreamGraph
from hwspecs import Machine
from mapping.building.compute_units import add_compute, add_states
from mapping.building.draft import Building
from mapping.building.fifos import add_fifo
from mapping.building.off_chip import add_off_chip
from mapping.building.scratchpads import add_scratchpad
from mapping.links import fifos
from mapping.pads import plan_pads
from mapping.partition import Group


def build(made: StreamGraph, groups: tuple[Group, ...], machine: Machine) -> Program:
    """Return the Program of `made`, not yet placed or routed."""
    building = Building(made, groups, machine)
    for group in groups:
        add_compute(building, group)
    for node in made.nodes:
        if node.kind in ("load", "store", "host"):
            add_off_chip(building, node)
    for edge in fifos(made, building.group_of):
        add_fifo(building, edge)
    for pad in plan_pads(made, building.group_of, machine):
        add_scratchpad(building, pad)
    for group in groups:
        add_states(building, group)
    return building.program()
