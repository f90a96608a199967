"""The StreamGraph: a Graph under a Schedule, as nodes with domains and channels with lifetimes.

A StreamNode runs once for every point of its domain (its time digits) and walks its tile in beats.
It emits along the domain digits that it does not carry. An Edge says how the tiles of one node
reach another: in a FIFO, beat by beat, or through a scratchpad, tile by tile. All of it follows
from the domains (see `dataflow/edges.py`); nothing is chosen here that a schedule does not say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from dataflow.digits import Digits, digits_of
from dataflow.errors import did_you_mean
from dataflow.index import affine
from dataflow.nodes import Graph, Node, Output
from dataflow.ops import REDUCES
from dataflow.schedule import NodeSchedule, Schedule, ScheduleError

COMPUTED = ("map", "einsum", "reduce", "mask")
FAN_IN = 4
"""Partial results that one unit of a merge tree joins (rule 5 of the rules of time)."""


@dataclass(frozen=True)
class StreamNode:
    """One graph node as it runs: or a part of one, or a load or a store.

    node: what it evaluates. argument: for loads, the tensor's own node. free: graph nodes that cost
    nothing and are worked out beside it (constants, `earlier`, `last`, reads). domain: time digits,
    outermost first; carried: those it accumulates over. walk: tile digits, slowest first; gone:
    those it reduces. Lanes run along `vector`. pack, unroll: see Schedule. merge: for a digit, how
    many parts along it the node joins at a firing.
    """

    name: str
    kind: str
    node: Node
    axes: tuple[str, ...]
    domain: tuple[str, ...]
    walk: tuple[str, ...]
    carried: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    free: tuple[Node, ...] = ()
    vector: str = ""
    lanes: int = 1
    pack: Mapping[str, int] = field(default_factory=dict)
    unroll: Mapping[str, int] = field(default_factory=dict)
    merge: Mapping[str, int] = field(default_factory=dict)
    argument: Node | None = None
    output: Output | None = None

    @property
    def loops(self) -> tuple[str, ...]:
        """All its loops, outermost first."""
        return (*self.domain, *self.walk)

    @property
    def emits(self) -> tuple[str, ...]:
        """Domain digits along which it puts out a tile."""
        return tuple(digit for digit in self.domain if digit not in self.carried)

    @property
    def emission(self) -> tuple[str, ...]:
        """Loops in the order of the beats it puts out."""
        return (*self.emits, *(digit for digit in self.walk if digit not in self.gone))

    def grain(self, digit: str) -> int:
        """Points of `digit` in one beat."""
        return self.lanes if digit == self.vector else 1

    def spread(self, digit: str) -> int:
        """Groups of `digit` that all copies together take at one trip of its loop."""
        return self.copies(digit) * self.pack.get(digit, 1) * self.merge.get(digit, 1)

    def copies(self, digit: str) -> int:
        """Units that share the digit."""
        return self.unroll.get(digit, 1)


@dataclass(frozen=True)
class Source:
    """What an argument of a node comes from.

    base: the computed, input or const node; via: the free nodes between, from the base outward;
    value: the last node of the off-chip part (a read of an input is part of its load).
    """

    base: Node
    via: tuple[Node, ...]
    argument: str

    @property
    def earlier(self) -> str:
        """The axis along which the value comes from the previous point, or ""."""
        return next((node.axis for node in self.via if node.op == "earlier"), "")

    @property
    def last(self) -> tuple[str, ...]:
        """Axes of which only the last point is taken."""
        return tuple(node.axis for node in self.via if node.op == "last")

    @property
    def off_chip(self) -> bool:
        """Whether the base waits in off-chip memory."""
        return self.base.op in ("input", "const")


def source_of(graph: Graph, name: str) -> Source:
    """Follow free nodes from `name` to what they read."""
    via: list[Node] = []
    node = graph.node(name)
    while node.op in ("read", "earlier", "last"):
        via.append(node)
        node = graph.node(node.args[0])
    return Source(node, tuple(reversed(via)), name)


def is_free(node: Node) -> bool:
    """Whether a node is a constant that units make themselves, from loop counters."""
    return node.op == "const" and node.fn in ("number", "affine")


@dataclass(frozen=True)
class Streams:
    """The nodes of a StreamGraph before its edges: what `dataflow.edges` derives channels from."""

    graph: Graph
    schedule: Schedule
    digits: Digits
    nodes: tuple[StreamNode, ...]

    def node(self, name: str) -> StreamNode:
        """The node called `name`."""
        return next(node for node in self.nodes if node.name == name)


def streams(graph: Graph, schedule: Schedule) -> Streams:
    """Work out the nodes of `graph` under `schedule`; ScheduleError lists all that does not fit."""
    digits = digits_of(graph, schedule)
    faults: list[str] = []
    nodes: list[StreamNode] = []
    for node in graph.nodes:
        if node.op in COMPUTED:
            nodes += _computed(graph, schedule, digits, node, faults)
    for output in graph.outputs:
        nodes.append(_store(graph, schedule, digits, output, faults))
    faults += _unknown_names(graph, schedule, nodes)
    if faults:
        raise ScheduleError(faults)
    return Streams(graph, schedule, digits, tuple(nodes))


def arguments(graph: Graph, node: Node) -> tuple[Source, ...]:
    """The sources of a computed node: its arguments, and initial values of what it carries."""
    found: list[Source] = []
    waiting = list(node.args)
    while waiting:
        source = source_of(graph, waiting.pop(0))
        if source not in found:
            found.append(source)
        for free in source.via:
            if free.op == "earlier" and isinstance(free.init, str):
                waiting.append(free.init)
    return tuple(found)


def _free_nodes(graph: Graph, node: Node) -> tuple[Node, ...]:
    """Free nodes that the unit of `node` evaluates, in the graph's order."""
    names: set[str] = set()
    for source in arguments(graph, node):
        if is_free(source.base):
            names.add(source.base.name)
        if not source.off_chip or is_free(source.base):
            names.update(free.name for free in source.via)
    return tuple(free for free in graph.nodes if free.name in names)


def _computed(
    graph: Graph, schedule: Schedule, digits: Digits, node: Node, faults: list[str]
) -> list[StreamNode]:
    """The node as one StreamNode, or as parts and their total."""
    inner = {axis for name in node.args for axis in graph.node(name).axes}
    axes = tuple(dict.fromkeys((*node.axes, *(a for a in graph.axes if a in inner))))
    lost = tuple(axis for axis in axes if axis not in node.axes)
    reduced_time = digits.time_of(lost)
    reduced_tile = digits.tile_of(lost)
    part_name = f"{node.name}.part"
    plan = schedule.node(part_name if part_name in schedule.nodes else node.name)
    spread = [digit for digit in plan.unroll if digit in (*reduced_time, *reduced_tile)]
    domain = digits.time_of(axes)
    free = _free_nodes(graph, node)
    if not lost or (not reduced_time and not spread):
        made = StreamNode(
            node.name, "compute", node, axes, domain, digits.tile_of(axes), (), reduced_tile, free
        )
        return [_planned(schedule, digits, made, node.name, faults)]
    split = node.op == "einsum" or bool(reduced_tile)
    argument = node.args[0]
    nodes: list[StreamNode] = []
    if split:
        made = replace(node, name=part_name)
        part = StreamNode(
            part_name, "compute", made, axes, domain, digits.tile_of(axes), (), reduced_tile, free
        )
        nodes.append(_planned(schedule, digits, part, part_name, faults, fallback=node.name))
        argument, free = part_name, ()
    fn = node.fn if node.op == "reduce" else "sum"
    joined = (
        {digit: plan.unroll[digit] for digit in spread}
        if split
        else _spread_of_argument(graph, schedule, argument, reduced_time)
    )
    return [*nodes, *_totals(schedule, digits, node, fn, argument, domain, joined, free, faults)]


def _spread_of_argument(
    graph: Graph, schedule: Schedule, argument: str, reduced: tuple[str, ...]
) -> dict[str, int]:
    """Copies of the node behind `argument` over digits that its reader reduces."""
    unroll = schedule.node(source_of(graph, argument).base.name).unroll
    return {digit: unroll[digit] for digit in reduced if digit in unroll}


def _totals(
    schedule: Schedule,
    digits: Digits,
    node: Node,
    fn: str,
    argument: str,
    domain: tuple[str, ...],
    joined: Mapping[str, int],
    free: tuple[Node, ...],
    faults: list[str],
) -> list[StreamNode]:
    """A tree of merges, FAN_IN parts a unit, and the total that accumulates over time."""
    REDUCES[fn]
    nodes: list[StreamNode] = []
    carried = tuple(d for d in domain if digits[d].axis not in node.axes)
    walk = digits.tile_of(node.axes)
    kept = {d: n for d, n in schedule.node(node.name).unroll.items() if d not in joined}
    level = 0
    digit = next(iter(joined), "")
    copies = math.prod(joined.values())
    covered = dict(joined)
    if len(joined) > 1 and copies > FAN_IN:
        path = ("nodes", argument, "unroll")
        rule = f"must not share more than {FAN_IN} copies between two reduced digits, got {copies}"
        faults.append(schedule.fault(path, rule))
    while len(joined) == 1 and copies > FAN_IN:
        left = -(-copies // FAN_IN)
        while covered[digit] % left:
            left += 1
        name = f"{node.name}.sum{level}"
        made = Node(name, "reduce", node.axes, (argument,), fn=fn)
        merged = StreamNode(name, "compute", made, node.axes, domain, walk, free=free)
        plan = NodeSchedule(
            walk=schedule.node(name).walk,
            vector=schedule.node(name).vector or schedule.node(node.name).vector,
        )
        merged = _with_plan(digits, merged, plan)
        unroll = {digit: left, **kept}
        joins = {digit: covered[digit] // left}
        nodes.append(replace(merged, unroll=unroll, merge=joins))
        argument, free, copies, level = name, (), left, level + 1
    made = Node(node.name, "reduce", node.axes, (argument,), fn=fn)
    total = StreamNode(
        node.name, "compute", made, node.axes, domain, walk, carried, (), free, merge=covered
    )
    planned = _planned(schedule, digits, total, node.name, faults, ignore=tuple(joined))
    return [*nodes, planned]


def _store(
    graph: Graph, schedule: Schedule, digits: Digits, output: Output, faults: list[str]
) -> StreamNode:
    """The node that puts an output into off-chip memory, or a scalar into a host register."""
    node = graph.node(output.node)
    name = f"store {output.name}"
    kind = "store" if output.axes else "host"
    source = source_of(graph, node.name)
    free = () if source.off_chip else source.via
    order = memory_order(graph, output.axes, output.index, node.axes)
    made = StreamNode(name, kind, node, node.axes, digits.time_of(node.axes), (), free=free)
    walk = tuple(d for axis in order for d in digits.tile_of([axis]))
    made = replace(made, walk=walk, output=output)
    return _planned(schedule, digits, made, name, faults)


def memory_order(
    graph: Graph, tensor_axes: Iterable[str], index: Iterable, axes: Iterable[str]
) -> tuple[str, ...]:
    """`axes` from the one with the largest address stride to the one with the smallest.

    `index` gives the coordinates of a row-major tensor over `tensor_axes` as affine forms of
    `axes`; axes that no address depends on come first.
    """
    strides = address_strides(graph, tensor_axes, index, axes)
    moving = sorted((a for a in axes if strides[a]), key=lambda a: -abs(strides[a]))
    return (*(a for a in axes if not strides[a]), *moving)


def address_strides(
    graph: Graph, tensor_axes: Iterable[str], index: Iterable, axes: Iterable[str]
) -> dict[str, int]:
    """For each of `axes`, how far a step along it moves in a row-major tensor, in elements."""
    strides = dict.fromkeys(axes, 0)
    step = 1
    for axis, form in reversed(list(zip(tensor_axes, index, strict=True))):
        for name, coefficient in form.terms:
            strides[name] = strides.get(name, 0) + coefficient * step
        step *= graph.extent(axis)
    return strides


def _planned(
    schedule: Schedule,
    digits: Digits,
    node: StreamNode,
    name: str,
    faults: list[str],
    fallback: str = "",
    ignore: tuple[str, ...] = (),
) -> StreamNode:
    """Apply the schedule's settings for `name`, checking that each names a digit of the node."""
    name = fallback if fallback and name not in schedule.nodes else name
    plan = schedule.node(name)
    loops = set(node.loops)
    tiles = tuple(node.walk)
    for kind, allowed in (("vector", set(tiles)), ("pack", set(tiles)), ("unroll", loops)):
        for digit in getattr(plan, kind):
            if digit not in allowed and digit not in ignore:
                path = ("nodes", name, kind, digit)
                what = "loop" if kind == "unroll" else "tile digit"
                hint = did_you_mean(digit, sorted(allowed))
                faults.append(schedule.fault(path, f"must be a {what} of {name}; {hint}", True))
    if plan.walk is not None and sorted(plan.walk) != sorted(tiles):
        path = ("nodes", name, "walk")
        rule = f"must be an order of {', '.join(tiles) or 'nothing'}, got {list(plan.walk)}"
        faults.append(schedule.fault(path, rule))
        return node
    for digit in node.carried:
        if digit in plan.unroll and digit not in ignore:
            path = ("nodes", name, "unroll", digit)
            faults.append(
                schedule.fault(path, f"must not copy {name}: it accumulates over {digit}")
            )
    plan = plan.model_copy(
        update={"unroll": {d: n for d, n in plan.unroll.items() if d not in ignore}}
    )
    return _with_plan(digits, node, plan)


def _with_plan(digits: Digits, node: StreamNode, plan: NodeSchedule) -> StreamNode:
    walk = plan.walk
    if walk is None:
        # Reduced digits innermost, so that a register can hold the running result.
        walk = tuple(sorted(node.walk, key=lambda digit: digit in node.gone))
    vector, lanes = next(iter(plan.vector.items()), ("", 1))
    unroll = {d: n for d, n in plan.unroll.items() if n > 1 and d in (*node.domain, *walk)}
    pack = {d: n for d, n in plan.pack.items() if n > 1 and d in walk}
    return replace(node, walk=walk, vector=vector, lanes=lanes, unroll=unroll, pack=pack)


def _unknown_names(graph: Graph, schedule: Schedule, nodes: list[StreamNode]) -> list[str]:
    names = {node.name for node in nodes} | {f"load {n.name}" for n in graph.nodes}
    names |= {f"{node.name}.part" for node in graph.nodes if node.op in ("einsum", "reduce")}
    faults = []
    for name in schedule.nodes:
        if name not in names:
            hint = did_you_mean(name, sorted(names))
            rule = f"must be a node of the kernel, got {name!r}; {hint}"
            faults.append(schedule.fault(("nodes", name), rule, True))
    return faults


def identity_index(axes: Iterable[str]) -> tuple:
    """The forms of a tensor that is stored over its own axes."""
    return tuple(affine(axis) for axis in axes)
