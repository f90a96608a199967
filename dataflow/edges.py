"""Derives the channels of a StreamGraph: where each value waits, how often it is read again, how
much of it must be held. The rules, for a channel from P to C:

* P's tiles are those of its emission: the domain digits it emits along, then the tile digits it
  does not reduce. A digit that C loops over and the value lacks is *reuse*.
* FIFO: C takes beats in the order and width in which P makes them, every reuse loop of C inside
  the last loop that the value has. Anything else is a scratchpad.
* Scratchpad: the tile holds what the value has inside `common`, the longest run of leading loops
  in which C's domain and P's emission agree. C replays it along its reuse loops. What P emits
  inside `common` and C does not follow is packed into the tile.
* Where a second path from P (or from a node that P streams from) to C passes a reduction or a
  tile, C waits for it, so this channel must hold what meanwhile arrives: a whole pass of the
  digits that the other path collects. Naive attention's full-row buffer follows from this.
* `earlier` is a feedback channel that starts with what one point of its axis emits.
* An off-chip tensor is loaded once for every point of the loops outside its tile.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from dataflow.digits import Digits
from dataflow.errors import did_you_mean
from dataflow.index import Affine, affine
from dataflow.nodes import Graph, Node
from dataflow.schedule import NodeSchedule, Schedule, ScheduleError
from dataflow.stream import (
    Source,
    StreamNode,
    Streams,
    address_strides,
    arguments,
    is_free,
    source_of,
    streams,
)


@dataclass(frozen=True)
class Edge:
    """A channel between stream nodes.

    value: the graph node whose tiles pass. earlier, last: axes along which the value comes from
    the previous or the last point. touch: loops of the target that choose among its elements.
    common: how many leading domain loops of the target stand still while a tile is used. depth:
    beats held (FIFO, 0 for an ordinary one) or tiles (scratchpad); why: where that comes from.
    """

    source: str
    target: str
    value: str
    kind: str
    common: int
    touch: tuple[str, ...]
    earlier: str = ""
    last: tuple[str, ...] = ()
    mapped: bool = False
    depth: int = 0
    why: str = ""

    @property
    def name(self) -> str:
        """The name schedules know it by."""
        return f"{self.source} -> {self.target}"


@dataclass(frozen=True)
class StreamGraph:
    """Nodes, channels, and how many groups of each digit each node counts.

    groups[node, digit] is padded so that all nodes joined by a channel agree; a node's loop over
    the digit turns groups / spread times.
    """

    graph: Graph
    schedule: Schedule
    digits: Digits
    nodes: tuple[StreamNode, ...]
    edges: tuple[Edge, ...]
    groups: Mapping[tuple[str, str], int]
    by_name: Mapping[str, StreamNode] = field(default_factory=dict)

    def trips(self, node: StreamNode, digit: str) -> int:
        """How often one copy of `node` turns its loop over `digit`."""
        return self.groups[node.name, digit] // node.spread(digit)

    def into(self, name: str) -> tuple[Edge, ...]:
        """The channels that `name` reads."""
        return tuple(edge for edge in self.edges if edge.target == name)

    def out_of(self, name: str) -> tuple[Edge, ...]:
        """The channels that `name` writes."""
        return tuple(edge for edge in self.edges if edge.source == name)

    def reuse(self, edge: Edge) -> int:
        """How often the target reads each element of a tile."""
        target = self.by_name[edge.target]
        inside = (*target.domain[edge.common :], *target.walk)
        return math.prod(self.trips(target, digit) for digit in inside if digit not in edge.touch)

    def tile_elems(self, edge: Edge) -> int:
        """Elements of one tile of a scratchpad channel, all copies together."""
        source, target = self.by_name[edge.source], self.by_name[edge.target]
        outside = set(target.domain[: edge.common])
        return math.prod(
            min(self.groups[source.name, d] * source.grain(d), self._padded(source, d))
            for d in source.emission
            if d not in outside and self.digits[d].axis not in edge.last
        )

    def _padded(self, node: StreamNode, digit: str) -> int:
        grain = node.grain(digit)
        return -(-self.digits[digit].extent // grain) * grain

    def __str__(self) -> str:
        lines = [f"streams of {self.graph.name}"]
        for node in self.nodes:
            lines.append(f"  {node.name}: {_node_text(self, node)}")
        for edge in self.edges:
            lines.append(f"  {edge.name}: {_edge_text(self, edge)}")
        return "\n".join(lines)


def stream(graph: Graph, schedule: Schedule, lanes: int = 16, fifo_beats: int = 16) -> StreamGraph:
    """Derive the StreamGraph of `graph` under `schedule`.

    lanes: elements of a beat of an off-chip transfer that the schedule does not set. fifo_beats:
    what an ordinary FIFO holds. Raises ScheduleError with every fault.
    """
    made = streams(graph, schedule)
    nodes = {node.name: node for node in made.nodes}
    edges: list[Edge] = []
    faults: list[str] = []
    loads: dict[tuple, str] = {}
    for target in made.nodes:
        for source in _sources(made, nodes, target):
            if source.off_chip:
                edge = _load(made, nodes, loads, target, source, lanes, faults)
            else:
                edge = _edge(made.digits, nodes[source.base.name], target, source)
                edge = _collected_at(schedule, edge, target, faults)
            edges.append(_chosen(schedule, nodes, edge, faults))
    ordered = _default_vectors(made, nodes, lanes)
    edges = [_settle(made.digits, ordered, edge) for edge in edges]
    _check_merges(schedule, ordered, edges, faults)
    _check_channel_names(schedule, edges, faults)
    if faults:
        raise ScheduleError(faults)
    groups = _groups(made.digits, ordered, edges)
    result = StreamGraph(
        graph, schedule, made.digits, tuple(ordered.values()), tuple(edges), groups, ordered
    )
    return replace(result, edges=_held(result, fifo_beats))


def _sources(made: Streams, nodes: Mapping[str, StreamNode], target: StreamNode) -> list[Source]:
    """What `target` reads, free constants left out."""
    node = target.node
    if target.kind in ("store", "host"):
        return [source_of(made.graph, node.name)]
    if all(name in nodes and name not in made.graph.by_name for name in node.args):
        return [Source(nodes[name].node, (), name) for name in node.args]
    return [source for source in arguments(made.graph, node) if not is_free(source.base)]


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
    )


def _load(
    made: Streams,
    nodes: dict[str, StreamNode],
    loads: dict[tuple, str],
    target: StreamNode,
    source: Source,
    lanes: int,
    faults: list[str],
) -> Edge:
    """The channel from an off-chip tensor; adds its load node unless another reader has the same."""
    base, digits = source.base, made.digits
    if any(free.op != "read" for free in source.via) or len(source.via) > 1:
        faults.append(
            f"node {target.name}: {base.name} must be read from off-chip memory by one "
            f"affine read, got {', '.join(f.op for f in source.via)}"
        )
    value = source.via[-1] if source.via else base
    index = value.index if source.via else tuple(affine(axis) for axis in base.axes)
    touch = tuple(d for d in target.loops if digits[d].axis in value.axes)
    common = _loaded_at(made.schedule, base.name, target, touch, faults)
    outside = target.domain[:common]
    own = f"load {base.name} -> {target.name}"
    plan = made.schedule.node(own if own in made.schedule.nodes else f"load {base.name}")
    # Copies of the reader over a loop that the tensor does not follow share one load, unless the
    # schedule copies the load too.
    served = {d: n for d, n in target.unroll.items() if d in outside and d not in touch}
    served = {d: n for d, n in served.items() if d not in plan.unroll}
    touch = (*touch, *(d for d in outside if d not in touch and d not in served))
    key = (base.name, value.name, outside, tuple(served.items()))
    if key not in loads:
        name = own if f"load {base.name}" in nodes else f"load {base.name}"
        loads[key] = name
        nodes[name] = _load_node(made, base, value, index, outside, served, plan, name, lanes)
    return Edge(loads[key], target.name, value.name, "", common, touch)


def _load_node(
    made: Streams,
    base: Node,
    value: Node,
    index: tuple[Affine, ...],
    outside: tuple[str, ...],
    served: Mapping[str, int],
    plan: NodeSchedule,
    name: str,
    lanes: int,
) -> StreamNode:
    """A load of `base` seen as `value`: a tile for each point of `outside`, in memory order."""
    digits = made.digits
    strides = address_strides(made.graph, base.axes, index, value.axes)
    inside = [d for d in digits.by_name if digits[d].axis in value.axes and d not in outside]
    inside.sort(key=lambda d: -abs(strides[digits[d].axis]) * digits[d].stride)
    vector, width = next(iter(plan.vector.items()), ("", 1))
    if not plan.vector and inside and _contiguous(digits, strides, inside[-1]):
        vector, width = inside[-1], min(lanes, digits[inside[-1]].extent)
    unroll = {d: n for d, n in plan.unroll.items() if n > 1 and d in outside}
    return StreamNode(
        name,
        "load",
        value,
        value.axes,
        outside,
        tuple(inside),
        vector=vector,
        lanes=width,
        unroll=unroll,
        merge=served,
        argument=base,
    )


def _contiguous(digits: Digits, strides: Mapping[str, int], digit: str) -> bool:
    return abs(strides[digits[digit].axis]) * digits[digit].stride == 1


def _loaded_at(
    schedule: Schedule, tensor: str, target: StreamNode, touch: tuple[str, ...], faults: list[str]
) -> int:
    """How many domain loops of `target` lie outside the loaded tile."""
    name = f"{tensor} -> {target.name}"
    at = (schedule.channels.get(name) or schedule.channel(f"load {tensor}", target.name)).at
    if at is None:
        return max((i + 1 for i, d in enumerate(target.domain) if d in touch), default=0)
    if at == "":
        return 0
    if at not in target.domain:
        rule = f"must be a domain loop of {target.name} ({', '.join(target.domain)}), got {at!r}"
        faults.append(schedule.fault(("channels", name, "at"), rule))
        return 0
    return target.domain.index(at) + 1


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
        kind=plan.locality or "",
        depth=plan.depth or 0,
        why="by the schedule" if plan.depth else "",
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
            if _contiguous(made.digits, strides, order[-1]):
                width = min(lanes, made.digits[order[-1]].extent)
                node = replace(node, vector=order[-1], lanes=width)
        result[name] = node
    return result


def _settle(digits: Digits, nodes: Mapping[str, StreamNode], edge: Edge) -> Edge:
    """FIFO or scratchpad: what the schedule says, else a FIFO wherever the orders agree."""
    source, target = nodes[edge.source], nodes[edge.target]
    streams_ = not edge.mapped and _same_order(digits, source, target, edge)
    if edge.kind == "fifo" and not streams_:
        raise ScheduleError(
            f"channel {edge.name}: locality must be scratchpad, got fifo; {target.name} does not "
            f"take beats in the order in which {source.name} makes them"
        )
    off_chip = source.kind == "load"
    kind = edge.kind or ("fifo" if streams_ and not off_chip else "scratchpad")
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
        if digit not in target.merge and not _divide(
            _copies(source, digit), _copies(target, digit)
        ):
            return False
    return source.vector in edge.touch or not _wide(source, edge)


def _moves(digits: Digits, node: StreamNode, digit: str) -> bool:
    """Whether the digit takes more than one beat."""
    return digits[digit].extent > node.grain(digit)


def _wide(source: StreamNode, edge: Edge) -> bool:
    return source.lanes > 1 and source.vector in source.emission


def _copies(node: StreamNode, digit: str) -> int:
    return node.copies(digit) * node.pack.get(digit, 1)


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


def _check_channel_names(schedule: Schedule, edges: Iterable[Edge], faults: list[str]) -> None:
    names = {edge.name for edge in edges} | {edge.name.removeprefix("load ") for edge in edges}
    for name in schedule.channels:
        if name not in names:
            hint = did_you_mean(name, sorted(names))
            rule = f"must be a channel of the kernel, got {name!r}; {hint}"
            faults.append(schedule.fault(("channels", name), rule, True))


def scatter(source: StreamNode, target: StreamNode, digit: str) -> str:
    """How tiles of `source` reach scratchpads of the copies of `target` over `digit`.

    "whole": one copy, or every copy gets everything; "deal": the writer deals its beats out in
    turn; "pair": each writer copy belongs to one reader copy.
    """
    copies = target.copies(digit)
    if copies == 1:
        return "whole"
    block = target.grain(digit) * target.pack.get(digit, 1)
    writers = _copies(source, digit)
    if writers == 1 and block % source.grain(digit) == 0:
        return "deal"
    if (
        source.grain(digit) == target.grain(digit)
        and writers % (copies * block // target.grain(digit)) == 0
    ):
        return "pair"
    return "whole"


def _groups(
    digits: Digits, nodes: Mapping[str, StreamNode], edges: Iterable[Edge]
) -> dict[tuple[str, str], int]:
    """Pad every digit of every node so that channels carry as many beats as are taken."""
    keys = [(node.name, digit) for node in nodes.values() for digit in node.loops]
    parent = {key: key for key in keys}

    def find(key: tuple[str, str]) -> tuple[str, str]:
        while parent[key] != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    factor: dict[tuple[str, str], list[int]] = {key: [nodes[key[0]].spread(key[1])] for key in keys}
    for edge in edges:
        source, target = nodes[edge.source], nodes[edge.target]
        outside = set(target.domain[: edge.common])
        for digit in edge.touch:
            if digit not in source.loops:
                continue
            if edge.kind == "fifo" or digit in outside:
                parent[find((source.name, digit))] = find((target.name, digit))
            elif scatter(source, target, digit) == "deal":
                block = target.grain(digit) * target.pack.get(digit, 1) // source.grain(digit)
                factor[source.name, digit].append(block * target.copies(digit))
        for digit in target.merge:
            if digit in source.loops and digit in target.loops:
                parent[find((source.name, digit))] = find((target.name, digit))
        for digit in outside - set(edge.touch):
            if digit in source.loops and digit in target.loops:
                parent[find((source.name, digit))] = find((target.name, digit))
    wanted: dict[tuple[str, str], list[int]] = {}
    for key in keys:
        wanted.setdefault(find(key), []).extend(factor[key])
    result = {}
    for name, digit in keys:
        least = -(-digits[digit].extent // nodes[name].grain(digit))
        step = math.lcm(*wanted[find((name, digit))])
        result[name, digit] = -(-least // step) * step
    return result


def _held(made: StreamGraph, fifo_beats: int) -> tuple[Edge, ...]:
    """Set how much each channel must hold while its reader waits for another path."""
    delays = _Delays(made)
    return tuple(_with_depth(made, edge, delays, fifo_beats) for edge in made.edges)


def _with_depth(made: StreamGraph, edge: Edge, delays: _Delays, fifo_beats: int) -> Edge:
    source, target = made.by_name[edge.source], made.by_name[edge.target]
    if edge.depth:
        return edge
    hold, steps, through = delays.beside(edge)
    held = [
        digit
        for digit in source.emission
        if digit in hold
        and made.digits[digit].axis not in edge.last
        and made.trips(source, digit) > 1
    ]
    if edge.kind == "fifo":
        if not held or edge.earlier:
            return _taking_turns(made, edge, fifo_beats)
        inside = source.emission[source.emission.index(held[0]) :]
        beats = math.prod(made.trips(target, d) for d in inside if d in target.loops)
        why = f"{target.name} waits for {through} over {held[0]}: a whole pass, plus one FIFO"
        return replace(edge, depth=steps * beats + fifo_beats, why=why)
    outside = target.domain[: edge.common]
    crossed = [d for d in outside if d in hold]
    if crossed:
        inner = outside[outside.index(crossed[0]) :]
        tiles = math.prod(made.trips(target, d) for d in inner) + 1
        why = f"{target.name} waits for {through} over {crossed[0]}: a whole pass, plus one tile"
        return replace(edge, depth=tiles, why=why)
    tiles = math.prod(made.trips(target, d) for d in outside)
    if tiles == 1 and not edge.earlier:
        return replace(edge, depth=1, why="its tile never changes")
    if steps > 1 and held:
        return replace(edge, depth=steps + 1, why=f"{through} takes {steps} tiles longer")
    return replace(edge, depth=2, why="one tile fills while another is read")


def _taking_turns(made: StreamGraph, edge: Edge, fifo_beats: int) -> Edge:
    """Where copies on one side take turns, each FIFO must hold a whole turn: the copies may wait
    for one another, since they share operands."""
    source, target = made.by_name[edge.source], made.by_name[edge.target]
    for digit in edge.touch:
        if digit in target.merge or source.copies(digit) == target.copies(digit):
            continue
        inside = source.emission[source.emission.index(digit) + 1 :]
        beats = math.prod(made.trips(target, d) for d in inside if d in target.loops)
        if beats > fifo_beats:
            why = f"copies over {digit} take turns of {beats} beats"
            return replace(edge, depth=beats + fifo_beats, why=why)
    return edge


class _Delays:
    """What other paths collect before they reach the reader of a channel."""

    def __init__(self, made: StreamGraph) -> None:
        self.made = made
        self.forward = [edge for edge in made.edges if not edge.earlier]
        self.order = {node.name: place for place, node in enumerate(_topological(made))}
        self._paths: dict[str, dict[str, tuple[frozenset[str], int, str]]] = {}

    def beside(self, edge: Edge) -> tuple[frozenset[str], int, str]:
        """Digits collected on paths to `edge.target` beside `edge`, how often, and by which node."""
        hold: frozenset[str] = frozenset()
        steps, through = 0, ""
        for fork in self._streaming_into(edge.source):
            reached = self._from(fork)
            for other in self.forward:
                if other.target != edge.target or other is edge or other.source not in reached:
                    continue
                if other.source == edge.source and other.value == edge.value:
                    continue
                digits, count, name = reached[other.source]
                more = self._collected(other)
                digits, count = digits | more, count + bool(more)
                if digits:
                    hold |= digits
                    name = name or other.source
                    steps, through = (count, name) if count > steps else (steps, through)
        return hold, steps, through

    def _streaming_into(self, name: str) -> list[str]:
        """`name` and all nodes whose beats reach it with nothing collected on the way."""
        found = [name]
        for place in found:
            if place != name and self._reduced(place):
                continue
            for edge in self.forward:
                if (
                    edge.target == place
                    and edge.kind == "fifo"
                    and edge.source not in found
                    and not edge.last
                    and not self._reduced(place)
                ):
                    found.append(edge.source)
        return found

    def _from(self, fork: str) -> dict[str, tuple[frozenset[str], int, str]]:
        """For each node reachable from `fork`: digits collected on the way, steps, last collector."""
        if fork in self._paths:
            return self._paths[fork]
        reached: dict[str, tuple[frozenset[str], int, str]] = {fork: (frozenset(), 0, "")}
        for edge in sorted(self.forward, key=lambda e: self.order[e.source]):
            if edge.source not in reached:
                continue
            digits, steps, through = reached[edge.source]
            more = self._collected(edge)
            own = self._reduced(edge.target)
            digits, steps = digits | more | own, steps + bool(more) + bool(own)
            through = edge.target if own else through or (edge.source if more else "")
            old = reached.get(edge.target, (frozenset(), 0, ""))
            best = (steps, through) if steps >= old[1] else (old[1], old[2])
            reached[edge.target] = (old[0] | digits, *best)
        self._paths[fork] = reached
        return reached

    def _reduced(self, name: str) -> frozenset[str]:
        node = self.made.by_name[name]
        return frozenset((*node.gone, *node.carried))

    def _collected(self, edge: Edge) -> frozenset[str]:
        """Digits that a channel gathers before its reader sees any of them."""
        digits = {d for axis in edge.last for d in self.made.digits.of_axis[axis]}
        if edge.kind == "scratchpad":
            source = self.made.by_name[edge.source]
            outside = self.made.by_name[edge.target].domain[: edge.common]
            digits |= {d for d in source.emission if d not in outside}
        return frozenset(digits)


def _topological(made: StreamGraph) -> list[StreamNode]:
    """Nodes in an order in which every channel but a feedback runs forward."""
    waiting = list(made.nodes)
    done: set[str] = set()
    result: list[StreamNode] = []
    while waiting:
        ready = [
            node
            for node in waiting
            if all(e.source in done for e in made.into(node.name) if not e.earlier)
        ]
        if not ready:
            names = ", ".join(node.name for node in waiting)
            raise ScheduleError(f"nodes {names}: a cycle must pass an earlier node")
        for node in ready:
            done.add(node.name)
        result += ready
        waiting = [node for node in waiting if node.name not in done]
    return result


def _node_text(made: StreamGraph, node: StreamNode) -> str:
    parts = []
    for title, names in (("for", node.domain), ("walk", node.walk)):
        loops = " ".join(f"{d}={made.trips(node, d)}" for d in names)
        if loops:
            parts.append(f"{title} {loops}")
    if node.carried:
        parts.append(f"carries {' '.join(node.carried)}")
    if node.gone:
        parts.append(f"reduces {' '.join(node.gone)}")
    if node.vector:
        parts.append(f"lanes {node.vector} x {node.lanes}")
    for title in ("pack", "unroll", "merge"):
        counts = getattr(node, title)
        if counts:
            parts.append(f"{title} " + " ".join(f"{d}={n}" for d, n in counts.items()))
    return "; ".join(parts) or "once"


def _edge_text(made: StreamGraph, edge: Edge) -> str:
    place = edge.kind
    if edge.kind == "scratchpad":
        place += f" of {edge.depth} x {made.tile_elems(edge)} elements"
    elif edge.depth:
        place += f" of {edge.depth} beats"
    text = f"{edge.value} in a {place}, read {made.reuse(edge)}x"
    if edge.earlier:
        text += f", from the point of {edge.earlier} before"
    if edge.last:
        text += f", last of {' '.join(edge.last)}"
    return text + (f" ({edge.why})" if edge.why else "")
