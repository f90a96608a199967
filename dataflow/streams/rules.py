"""Rules that loops, copies and channels must keep together; each breach is a fault with its place.

* A recurrence runs point by point: what goes round in it is neither copied over its axis, nor
  collected along it in a tile, nor added up over a loop outside it. Its axis may be cut into
  blocks, whose loop its own nodes then have right outside the one over points.
* No more copies or packed points of a digit than it has groups of lanes.
* An axis of which the last point is wanted has no points past it, of uneven copies or tiles.
* Copies that meet at a scratchpad over a loop outside its tile: as many on either side, or one
  writer that deals its tiles out.
* Partial results do not wait in one tile: it has no place for the digits that they are parts of.
* Off-chip beats run along the innermost digit of a tile, one point of any other digit at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dataflow.schedule import Schedule
from dataflow.streams.digits import Digits
from dataflow.streams.edge import Edge
from dataflow.streams.node import StreamNode


def faults_of(
    schedule: Schedule, digits: Digits, nodes: Mapping[str, StreamNode], edges: Iterable[Edge]
) -> list[str]:
    """Every breach of the rules above."""
    edges = tuple(edges)
    faults = [
        *_recurrences(schedule, digits, nodes, edges),
        *_copies(schedule, digits, nodes),
        *_turns(schedule, nodes, edges),
        *_parts(schedule, digits, nodes, edges),
        *_off_chip(schedule, nodes),
    ]
    return list(dict.fromkeys(faults))


def _recurrences(
    schedule: Schedule, digits: Digits, nodes: Mapping[str, StreamNode], edges: tuple[Edge, ...]
) -> Iterator[str]:
    for back in edges:
        if not back.earlier:
            continue
        own = digits.time_of([back.earlier])
        inside = _reached(edges, back.target) & _reached(edges, back.source, backward=True)
        for name in sorted(inside | {back.source, back.target}):
            yield from _point_by_point(schedule, nodes[name], own, back.value)
        for edge in edges:
            within = edge is back or (edge.source in inside and edge.target in inside)
            if not within or edge.kind != "scratchpad":
                continue
            if own[-1] not in nodes[edge.target].domain[: edge.common]:
                path = ("channels", edge.name) if edge.name in schedule.channels else ("time",)
                rule = f"must leave {own[-1]} outside the tiles of {edge.name}, got it inside"
                why = "they go round in its recurrence; put it outermost"
                yield schedule.fault(path, f"{rule}; {why}")


def _point_by_point(
    schedule: Schedule, node: StreamNode, own: tuple[str, ...], value: str
) -> Iterator[str]:
    """A node of a recurrence takes the points of its axis, whose digits are `own`, one by one."""
    name, *parts = own[::-1]
    for digit in own:
        if node.copies(digit) > 1:
            path = ("nodes", node.name, "unroll", digit)
            why = f"{value} of one point of it needs the point before"
            yield schedule.fault(path, f"must be 1, got {node.copies(digit)}; {why}")
    if name not in node.domain:
        return
    outside = node.domain[: node.domain.index(name)]
    for early in (d for d in outside if d in node.carried):
        rule = f"must name {name} before {early}: at each {name} {node.name} adds up over it"
        yield schedule.fault(("time",), rule)
    first = outside.index(parts[0]) if parts and parts[0] in outside else len(outside)
    for between in (d for d in outside[first + 1 :] if d not in node.carried):
        rule = f"must name {between} before {parts[0]} or after {name}"
        why = f"{node.name} of one point of {name} needs the point before"
        yield schedule.fault(("time",), f"{rule}; {why}")


def padding_faults(
    schedule: Schedule,
    digits: Digits,
    nodes: Mapping[str, StreamNode],
    edges: Iterable[Edge],
    groups: Mapping[tuple[str, str], int],
) -> list[str]:
    """Axes of which a value is taken at the last point but that are padded: the last turn of a
    loop would be past the end. A recurrence may run past it, as nothing goes back from there: its
    state starts afresh at the first point."""
    edges = tuple(edges)
    axes = dict.fromkeys(axis for e in edges for axis in e.last if axis)
    faults = []
    for digit in (digits[name] for axis in axes for name in digits.of_axis[axis]):
        reach = {name: groups.get((name, digit.name), 0) for name in nodes}
        padded = max(reach[name] * nodes[name].grain(digit.name) for name in nodes)
        copied = [name for name in nodes if nodes[name].spread(digit.name) > 1]
        if padded > digit.extent:
            path = ("nodes", copied[0], "unroll", digit.name) if copied else ("time",)
            rule = f"must divide the {digit.extent} points of {digit.name}"
            why = f"the last point of {digit.axis} is wanted, so that none may follow it"
            faults.append(schedule.fault(path, f"{rule}, got them padded to {padded}; {why}"))
    for axis in axes:
        covered = sum((digits[d].extent - 1) * digits[d].stride for d in digits.of_axis[axis]) + 1
        if covered != digits.extent(axis):
            rule = f"must divide the {digits.extent(axis)} points of {axis}"
            faults.append(schedule.fault(("tile", axis), f"{rule}: its last point is wanted"))
    return faults


def _reached(edges: tuple[Edge, ...], start: str, backward: bool = False) -> set[str]:
    """Nodes that `start` leads to (or that lead to it), itself only where it is in a cycle."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        name = waiting.pop()
        for edge in edges:
            here, there = (edge.target, edge.source) if backward else (edge.source, edge.target)
            if here == name and there not in found:
                found.add(there)
                waiting.append(there)
    return found


def _copies(schedule: Schedule, digits: Digits, nodes: Mapping[str, StreamNode]) -> Iterator[str]:
    for node in nodes.values():
        for kind, counts in (("pack", node.pack), ("unroll", node.unroll)):
            for digit, count in counts.items():
                packed = node.grain(digit) * (node.pack.get(digit, 1) if kind == "unroll" else 1)
                most = -(-digits[digit].extent // packed)
                if count > most:
                    path = ("nodes", node.name, kind, digit)
                    rule = f"must be at most {most}, the groups of {packed} that {digit} has"
                    yield schedule.fault(path, f"{rule}, got {count}")


def _turns(
    schedule: Schedule, nodes: Mapping[str, StreamNode], edges: tuple[Edge, ...]
) -> Iterator[str]:
    for edge in edges:
        source, target = nodes[edge.source], nodes[edge.target]
        if edge.kind != "scratchpad":
            continue
        for digit in target.domain[: edge.common]:
            writers, readers = source.copies(digit), target.copies(digit)
            if digit not in edge.touch or digit in target.merge or writers in (1, readers):
                continue
            allowed = f"1 or {readers}" if readers > 1 else "1"
            rule = f"must be {allowed}, as {target.name} has {readers} over {digit}"
            why = f"each tile of {edge.name} is filled by one of them"
            yield schedule.fault(
                ("nodes", source.name, "unroll", digit), f"{rule}, got {writers}; {why}"
            )


def _parts(
    schedule: Schedule, digits: Digits, nodes: Mapping[str, StreamNode], edges: tuple[Edge, ...]
) -> Iterator[str]:
    for edge in edges:
        source, target = nodes[edge.source], nodes[edge.target]
        outside = target.domain[: edge.common]
        for digit in source.emits if source.kind == "compute" else ():
            lacks = digits[digit].axis not in source.node.axes
            lacks = lacks or (bool(target.merge) and digit in target.carried)
            if edge.kind == "scratchpad" and lacks and digit not in outside:
                path = ("channels", edge.name, "at")
                rule = f"must be {digit} or a loop inside it: {source.name} gives parts of a result"
                yield schedule.fault(path, rule)


def _off_chip(schedule: Schedule, nodes: Mapping[str, StreamNode]) -> Iterator[str]:
    for name, node in nodes.items():
        if node.kind not in ("load", "store"):
            continue
        if node.lanes > 1 and node.walk and node.vector != node.walk[-1]:
            path = ("nodes", name, "vector", node.vector)
            rule = f"must be the innermost digit of its tile, {node.walk[-1]}, got {node.vector}"
            yield schedule.fault(path, rule, True)
        for digit in schedule.node(name).pack:
            path = ("nodes", name, "pack", digit)
            yield schedule.fault(path, "must be left out: off-chip beats are not packed", True)
