"""Derives the channels of a StreamGraph: where each value waits and how often it is read again.

The rules, for a channel from P to C:

* P's tiles are those of its emission: the domain digits it emits along, then the tile digits it
  does not reduce. A digit that C loops over and the value lacks is *reuse*.
* FIFO: C takes beats in the order and width in which P makes them, every reuse loop of C inside
  the last loop that the value has. Anything else is a scratchpad.
* Scratchpad: the tile holds what the value has inside `common`, the longest run of leading loops
  in which C's domain and P's emission agree. C replays it along its reuse loops. What P emits
  inside `common` and C does not follow is packed into the tile.
* `earlier` is a feedback channel that starts with what one point of its axis emits.
* An off-chip tensor is loaded once for every point of the loops outside its tile.

How much a channel holds is worked out in `dataflow/streams/depths.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from dataflow.errors import did_you_mean
from dataflow.index import affine
from dataflow.nodes import Graph
from dataflow.schedule import Schedule, ScheduleError
from dataflow.streams.arrays import array_faults, waits_beside_array
from dataflow.streams.depths import with_depths
from dataflow.streams.digits import Digits
from dataflow.streams.edge import Edge, StreamGraph, ends
from dataflow.streams.loads import contiguous, load_edge
from dataflow.streams.node import Source, StreamNode, address_strides, arguments, is_free, source_of
from dataflow.streams.padding import padded_groups
from dataflow.streams.rules import faults_of, padding_faults
from dataflow.streams.split import Streams, streams


def stream(graph: Graph, schedule: Schedule, lanes: int = 16, fifo_beats: int = 16) -> StreamGraph:
    """Derive the StreamGraph of `graph` under `schedule`.

    lanes: elements of a beat of an off-chip transfer that the schedule does not set. fifo_beats:
    what an ordinary FIFO holds. Raises ScheduleError with every fault.
    """
    return _stream(_Key.of(graph, schedule), lanes, fifo_beats)


def connected(graph: Graph, schedule: Schedule, lanes: int = 16) -> StreamGraph:
    """Derive the StreamGraph up to how much its channels hold, which `stream` works out as well."""
    return _connected(_Key.of(graph, schedule), lanes)


@dataclass(frozen=True)
class _Key:
    """A graph, known by itself, and a schedule, by what it says and where it was read, as faults
    name their places. Searches on machines that differ little derive the same streams again."""

    known_by: tuple[int, str, int]
    graph: Graph = field(compare=False)
    schedule: Schedule = field(compare=False)

    @classmethod
    def of(cls, graph: Graph, schedule: Schedule) -> _Key:
        return cls((id(graph), schedule.model_dump_json(), schedule.read_at), graph, schedule)


@lru_cache(maxsize=512)
def _stream(key: _Key, lanes: int, fifo_beats: int) -> StreamGraph:
    made = _connected(key, lanes)
    return replace(made, edges=with_depths(made, fifo_beats))


@lru_cache(maxsize=512)
def _connected(key: _Key, lanes: int) -> StreamGraph:
    graph, schedule = key.graph, key.schedule
    made = streams(graph, schedule)
    nodes = {node.name: node for node in made.nodes}
    edges: list[Edge] = []
    faults: list[str] = []
    loads: dict[tuple, str] = {}
    for target in made.nodes:
        for source in _sources(made, nodes, target):
            if source.off_chip:
                edge = load_edge(made, nodes, loads, target, source, lanes, faults)
            else:
                edge = _edge(made.digits, nodes[source.base.name], target, source)
                edge = _collected_at(schedule, edge, target, faults)
            edges.append(_chosen(schedule, nodes, edge, faults))
    ordered = _default_vectors(made, nodes, lanes)
    edges = [_settle(made.digits, ordered, edge, schedule, faults) for edge in edges]
    _check_merges(schedule, ordered, edges, faults)
    faults += faults_of(schedule, made.digits, ordered, edges)
    faults += array_faults(made, ordered, edges)
    _check_channel_names(schedule, ordered, edges, faults)
    if faults:
        raise ScheduleError(faults)
    groups = padded_groups(made.digits, ordered, edges)
    faults += padding_faults(schedule, made.digits, ordered, edges, groups)
    if faults:
        raise ScheduleError(faults)
    return StreamGraph(
        made.graph, schedule, made.digits, tuple(ordered.values()), tuple(edges), groups, ordered
    )


def _sources(made: Streams, nodes: Mapping[str, StreamNode], target: StreamNode) -> list[Source]:
    """What `target` reads, free constants left out."""
    node = target.node
    if target.kind in ("store", "host"):
        return [source_of(made.graph, node.name)]
    if all(name in nodes and name not in made.graph.by_name for name in node.args):
        return [Source(nodes[name].node, (), name) for name in node.args]
    return [source for source in arguments(made.graph, node) if not is_free(source.base)]


def _edge(digits: Digits, source: StreamNode, target: StreamNode, via: Source) -> Edge:
    """The channel from a computed value, its kind still to be settled."""
    touching = _touching_axes(via)
    shared = _shared_axes(via)
    # What the target adds up it also takes one after the other.
    summed = {digits[d].axis for d in (*target.carried, *target.merge) if d in source.emission}
    touching |= summed
    shared |= summed
    touch = tuple(d for d in target.loops if digits[d].axis in touching)
    mapped = any(free.op == "read" for free in via.via)
    emits = [d for d in source.emits if digits[d].axis not in via.last]
    common = 0
    while (
        common < len(target.domain)
        and common < len(emits)
        and target.domain[common] == emits[common]
        and digits[emits[common]].axis in shared
    ):
        common += 1
    return Edge(
        source.name,
        target.name,
        source.node.name,
        "",
        common,
        touch,
        via.earlier,
        via.last,
        mapped,
        tuple(d for d in source.emission if mapped and digits[d].axis not in _shared_axes(via)),
    )


def _shared_axes(source: Source) -> set[str]:
    """Axes of the base that a reader follows under their own name."""
    axes = set(source.base.axes) - set(source.last)
    base_axes = source.base.axes
    for free in source.via:
        if free.op == "read":
            kept = {a for a, form in zip(base_axes, free.index, strict=True) if form == affine(a)}
            axes &= kept
        base_axes = free.axes
    return axes


def _touching_axes(source: Source) -> set[str]:
    """Axes of the reader that choose among the base's elements."""
    axes = set(source.base.axes) - set(source.last)
    for free in source.via:
        if free.op == "read":
            axes = {name for form in free.index for name in form.symbols()} & set(free.axes)
    return axes


def _collected_at(schedule: Schedule, edge: Edge, target: StreamNode, faults: list[str]) -> Edge:
    """Let a tile collect more of the domain where the schedule names an outer loop for it."""
    at = schedule.channel(edge.source, edge.target).at
    if at is None:
        return edge
    allowed = target.domain[: edge.common]
    if at and at not in allowed:
        rule = f"must be one of the loops that both ends share ({', '.join(allowed)}), got {at!r}"
        faults.append(schedule.fault(("channels", edge.name, "at"), rule))
        return edge
    return replace(edge, common=allowed.index(at) + 1 if at else 0, kind="scratchpad")


def _chosen(
    schedule: Schedule, nodes: Mapping[str, StreamNode], edge: Edge, faults: list[str]
) -> Edge:
    """Take over what the schedule says of the channel; names may leave out `load`."""
    base = nodes[edge.source]
    plain = base.argument.name if base.argument else edge.source
    plan = schedule.channels.get(f"{plain} -> {edge.target}") or schedule.channel(
        edge.source, edge.target
    )
    return replace(
        edge,
        kind=plan.locality or edge.kind,
        depth=plan.depth or 0,
        why="by the schedule" if plan.depth else "",
        banking=plan.banking,
    )


def _default_vectors(
    made: Streams, nodes: Mapping[str, StreamNode], lanes: int
) -> dict[str, StreamNode]:
    """Give stores lanes along their contiguous digit where the schedule sets none."""
    result: dict[str, StreamNode] = {}
    for name, node in nodes.items():
        if node.kind == "store" and not node.vector and node.walk and node.output:
            output = node.output
            strides = address_strides(made.graph, output.axes, output.index, node.axes)
            order = sorted(
                node.walk,
                key=lambda d: -abs(strides[made.digits[d].axis]) * made.digits[d].stride,
            )
            node = replace(node, walk=tuple(order))
            if contiguous(made.digits, strides, order[-1]):
                width = min(lanes, made.digits[order[-1]].extent)
                node = replace(node, vector=order[-1], lanes=width)
        result[name] = node
    return result


def _settle(
    digits: Digits,
    nodes: Mapping[str, StreamNode],
    edge: Edge,
    schedule: Schedule,
    faults: list[str],
) -> Edge:
    """FIFO or scratchpad: what the schedule says, else a FIFO wherever the orders agree."""
    source, target = nodes[edge.source], nodes[edge.target]
    streams_ = not edge.mapped and _same_order(digits, source, target, edge)
    streams_ = streams_ and not waits_beside_array(source, target, edge)
    if edge.kind == "fifo" and not streams_:
        path = ("channels", edge.name, "locality")
        why = f"{target.name} does not take beats in the order in which {source.name} makes them"
        if waits_beside_array(source, target, edge):
            why = "blocks go into and out of a systolic array row by row"
        faults.append(schedule.fault(path, f"must be scratchpad, got fifo; {why}"))
    off_chip = source.kind == "load"
    kind = edge.kind or ("fifo" if streams_ and not off_chip else "scratchpad")
    if edge.banking and kind == "fifo":
        path = ("channels", edge.name, "banking")
        faults.append(schedule.fault(path, f"must be left out for a FIFO, got {edge.banking}"))
    return replace(edge, kind=kind)


def _same_order(digits: Digits, source: StreamNode, target: StreamNode, edge: Edge) -> bool:
    made = [d for d in source.emission if digits[d].axis not in edge.last]
    made = [d for d in made if _moves(digits, source, d)]
    loops = [d for d in target.loops if _moves(digits, target, d)]
    taken = [d for d in loops if d in edge.touch]
    if made != taken or (taken and loops[: len(taken)] != taken):
        return False
    for digit in edge.touch:
        if source.grain(digit) != target.grain(digit):
            return False
        if digit not in target.merge and not _divide(ends(source, digit), ends(target, digit)):
            return False
    return source.vector in edge.touch or not _wide(source, edge)


def _moves(digits: Digits, node: StreamNode, digit: str) -> bool:
    """Whether the digit takes more than one beat."""
    return digits[digit].extent > node.grain(digit)


def _wide(source: StreamNode, edge: Edge) -> bool:
    return source.lanes > 1 and source.vector in source.emission


def _divide(a: int, b: int) -> bool:
    return a % b == 0 or b % a == 0


def _check_merges(
    schedule: Schedule, nodes: Mapping[str, StreamNode], edges: Iterable[Edge], faults: list[str]
) -> None:
    """A digit that the writer is copied over and the reader lacks must be merged there."""
    for edge in edges:
        source, target = nodes[edge.source], nodes[edge.target]
        for digit, count in source.unroll.items():
            if (
                digit in source.emission
                and digit not in edge.touch
                and digit not in target.merge
                and not edge.mapped
                and digit not in edge.last
            ):
                faults.append(
                    schedule.fault(
                        ("nodes", source.name, "unroll", digit),
                        f"must be 1: {target.name} needs one value for all {count} copies",
                    )
                )


def _check_channel_names(
    schedule: Schedule, nodes: Mapping[str, StreamNode], edges: Iterable[Edge], faults: list[str]
) -> None:
    edges = tuple(edges)
    names = {edge.name for edge in edges} | {edge.name.removeprefix("load ") for edge in edges}
    # A load of its own for each of several readers is known by its tensor, too.
    for edge in edges:
        argument = nodes[edge.source].argument
        if argument:
            names.add(f"{argument.name} -> {edge.target}")
    for name in schedule.channels:
        if name not in names:
            hint = did_you_mean(name, sorted(names))
            rule = f"must be a channel of the kernel, got {name!r}; {hint}"
            faults.append(schedule.fault(("channels", name), rule, True))
