"""Compute units: one a copy of a group, with what they carry from firing to firing."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dataflow.program import AxisWalk, Channel, Compute, Operation, Port
from dataflow.streams.node import StreamNode
from mapping import systolic
from mapping.boxes import node_axis
from mapping.building.draft import Building, Draft
from mapping.pads import copies_of, copy_name, state_elems, state_loop, touch_distance
from mapping.partition import Group, ii_of, terms_of
from mapping.systolic_units import next_fold


def add_compute(b: Building, group: Group) -> None:
    """Add the unit of every copy of a group."""
    nodes = [b.made.by_name[name] for name in group.members]
    main = b.made.by_name[group.main]
    b.main[group.name] = main
    latency = group.latency_cycles(b.machine)
    ii = max([ii_of(node, b.machine) for node in nodes])
    if any(touch_distance(b.made, node) == 1 for node in nodes):
        ii = max(ii, b.machine.compute.accumulate_latency_cycles)
    if main.array:
        latency = ii = 1
    for copy in copies_of(main):
        axes: dict[str, AxisWalk] = {}
        for node in nodes:
            for axis in _axes_of(b, node):
                axes.setdefault(axis, node_axis(b.digits, node, axis, copy))
        work = Compute(tuple(_operations(b, nodes, main)), axes)
        name = copy_name(group.name, copy)
        b.drafts[name] = Draft(
            name,
            "compute",
            b.loops(main),
            len(main.domain),
            latency,
            work,
            ii,
            group.cells,
            group.stages,
            main.array,
        )
        if main.array == "output":
            _next_fold(b, b.drafts[name], main)


def _next_fold(b: Building, draft: Draft, node: StreamNode) -> None:
    """Let the folds of a result that stays in an array follow one another."""
    made = next_fold(draft.name, systolic.fold_level(b.made, node), b.machine)
    if made:
        channel, port = made
        b.channels.append(channel)
        draft.inputs.append(port)
        draft.outputs.append(port)


def _axes_of(b: Building, node: StreamNode) -> list[str]:
    axes = [*node.axes, *node.node.axes]
    for free in node.free:
        axes += [axis for axis in free.axes if _counts(b, node, axis)]
    carried = [b.digits[digit].axis for digit in node.carried]
    return list(dict.fromkeys([*axes, *carried]))


def _counts(b: Building, node: StreamNode, axis: str) -> bool:
    return all(digit in node.loops for digit in b.digits.of_axis[axis])


def _operations(b: Building, nodes: list[StreamNode], main: StreamNode) -> Iterable[Operation]:
    seen: set[str] = set()
    for node in nodes:
        for free in node.free:
            if free.name not in seen:
                seen.add(free.name)
                loops = [d for d in main.domain if b.digits[d].axis == free.axis]
                carried = tuple(main.domain.index(d) for d in loops)
                yield Operation(free, carried if free.op == "earlier" else ())
        carried = tuple(main.domain.index(digit) for digit in node.carried)
        yield Operation(node.node, carried, terms_of(b.made, node) if node.merge else 0)


def add_states(b: Building, group: Group) -> None:
    """Accumulators and values carried to the next point, where their latency can show."""
    main = b.main[group.name]
    for name in group.members:
        node = b.made.by_name[name]
        outer = state_loop(b.made, node) or _fed_back_loop(b, group, node)
        if not outer:
            continue
        elems = state_elems(b.made, node, b.machine)
        inside = main.loops[main.loops.index(outer) + 1 :]
        firings = math.prod(b.made.trips(main, d) for d in inside)
        for copy in copies_of(main):
            if elems:
                b.reserve(f"{copy_name(name, copy)} state", name, elems)
            draft = b.drafts[copy_name(group.name, copy)]
            last = b.machine.compute.latency_cycles  # of a tree the last unit accumulates
            if firings * draft.ii_cycles < (last if node.merge else draft.latency_cycles):
                _feed_back(b, draft, node, main, outer)


def _fed_back_loop(b: Building, group: Group, node: StreamNode) -> str:
    """The loop along which a member of the group takes `node`'s value of the point before."""
    for edge in b.made.out_of(node.name):
        if edge.earlier and edge.target in group.members and edge.kind == "fifo":
            return b.digits.of_axis[edge.earlier][-1]
    return ""


def _feed_back(b: Building, draft: Draft, node: StreamNode, main: StreamNode, outer: str) -> None:
    """A channel from a unit to itself with one token a running result (rule 7)."""
    name = f"{draft.name} -> {draft.name}: {node.name}"
    kept = [d for d in node.loops if d not in node.gone and d not in node.carried]
    inside = node.loops[node.loops.index(outer) + 1 :]
    tokens = math.prod(b.made.trips(node, d) for d in inside if d in kept)
    level = b.level(main, [outer, *node.loops])
    b.channels.append(Channel(name, draft.name, draft.name, tokens + 1, 0, 1, tokens, "data"))
    draft.inputs.append(Port((name,), level))
    draft.outputs.append(Port((name,), level))
