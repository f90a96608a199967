"""Makes stream nodes of graph nodes: one each, or parts and their total; and one store an output.

A node that reduces over time digits, or is copied over a digit that it reduces, comes in parts:
`c.part` reduces inside a tile, `c` adds the parts up as they come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dataflow.errors import did_you_mean
from dataflow.nodes import Graph, Node, Output
from dataflow.ops import reduce_row
from dataflow.schedule import NodeSchedule, Schedule, ScheduleError
from dataflow.streams.digits import Digits, digits_of
from dataflow.streams.node import StreamNode, arguments, is_free, memory_order, source_of

COMPUTED = ("map", "einsum", "reduce", "mask")


@dataclass(frozen=True)
class Streams:
    """The nodes of a StreamGraph before its channels, which `dataflow.streams.derive` adds."""

    graph: Graph
    schedule: Schedule
    digits: Digits
    nodes: tuple[StreamNode, ...]

    def node(self, name: str) -> StreamNode:
        """The node called `name`."""
        return next(node for node in self.nodes if node.name == name)


def streams(graph: Graph, schedule: Schedule) -> Streams:
    """Work out the nodes of `graph` under `schedule`; ScheduleError lists all that does not fit."""
    graph = _with_copies(graph)
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


def _with_copies(graph: Graph) -> Graph:
    """`graph` with a copy where no unit makes a value that one must make.

    A store only moves tiles: it takes no input as it is, nor a value of earlier, whose first points
    its reader makes. What an earlier carries must come from a unit, not from a load.
    """
    copies: dict[str, Node] = {}

    def copied(name: str) -> str:
        if name not in copies:
            own = f"{name}.copy"
            while own in graph.by_name:
                own += ".copy"
            copies[name] = Node(own, "map", graph.node(name).axes, (name,), fn="identity")
        return copies[name].name

    nodes = []
    for node in graph.nodes:
        if node.op == "earlier":
            source = source_of(graph, node.args[0])
            if source.off_chip and not source.earlier:
                node = replace(node, args=(copied(node.args[0]),))
        nodes.append(node)
    outputs = []
    for output in graph.outputs:
        source = source_of(graph, output.node)
        if source.off_chip or source.earlier:
            output = replace(output, node=copied(output.node))
        outputs.append(output)
    return replace(graph, nodes=(*nodes, *copies.values()), outputs=tuple(outputs))


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
    lost_digits = {*reduced_time, *reduced_tile}
    spread = [digit for digit, n in plan.unroll.items() if n > 1 and digit in lost_digits]
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
    total = _total(schedule, digits, node, fn, argument, domain, joined, free, faults)
    return [*nodes, total]


def _spread_of_argument(
    graph: Graph, schedule: Schedule, argument: str, reduced: tuple[str, ...]
) -> dict[str, int]:
    """Copies of the node behind `argument` over digits that its reader reduces."""
    unroll = schedule.node(source_of(graph, argument).base.name).unroll
    return {digit: unroll[digit] for digit in reduced if unroll.get(digit, 1) > 1}


def _total(
    schedule: Schedule,
    digits: Digits,
    node: Node,
    fn: str,
    argument: str,
    domain: tuple[str, ...],
    joined: Mapping[str, int],
    free: tuple[Node, ...],
    faults: list[str],
) -> StreamNode:
    """The total that joins the parts of all copies and accumulates over time."""
    reduce_row(fn)
    carried = tuple(d for d in domain if digits[d].axis not in node.axes)
    made = Node(node.name, "reduce", node.axes, (argument,), fn=fn)
    walk = digits.tile_of(node.axes)
    total = StreamNode(
        node.name, "compute", made, node.axes, domain, walk, carried, (), free, merge=joined
    )
    return _planned(schedule, digits, total, node.name, faults, ignore=tuple(joined))


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
    array = plan.array or ""
    return replace(
        node, walk=walk, vector=vector, lanes=lanes, unroll=unroll, pack=pack, array=array
    )


def _unknown_names(graph: Graph, schedule: Schedule, nodes: list[StreamNode]) -> list[str]:
    loads = [f"load {node.name}" for node in graph.nodes if node.op in ("input", "const")]
    names = {node.name for node in nodes} | set(loads)
    names |= {f"{load} -> {node.name}" for load in loads for node in nodes}
    names |= {f"{node.name}.part" for node in graph.nodes if node.op in ("einsum", "reduce")}
    faults = []
    for name in schedule.nodes:
        if name not in names:
            hint = did_you_mean(name, sorted(names))
            rule = f"must be a node of the kernel, got {name!r}; {hint}"
            faults.append(schedule.fault(("nodes", name), rule, True))
    return faults
