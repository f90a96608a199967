"""The plain data of a graph: nodes, outputs, axes. Algebra only, no tiles, no machine.

What each operation means stands in `dataflow/reference.py`, which rules it must keep in
`dataflow/verify.py`. Build graphs with `dataflow.graph.Builder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dataflow.errors import FaultsError, did_you_mean
from dataflow.index import Affine

OPS = ("input", "const", "map", "einsum", "reduce", "mask", "read", "earlier", "last")
TURNS = ("cos_turn", "sin_turn", "cas_turn")
CONSTS = ("number", "affine", *TURNS)
MERGES = ("", "add", "max")


class GraphError(FaultsError):
    """A graph that breaks a rule; each fault names its node."""


@dataclass(frozen=True)
class Node:
    """One operation. Its value is a dense array over `axes`, in that order.

    index: `read`: one form a source axis, over this node's axes; `mask`: one form, the value
        is kept where it is >= 0; const `affine`: one form, the value; const `cos_turn`,
        `sin_turn` and `cas_turn` (their sum, as Hartley named it): factors,
        value = scale * cos|sin|cas(2 pi * product(factors) / period).
    fill: `read`: value outside the source; `mask`: value where the condition fails; const
        `number`: the number.
    axis, init: `earlier` (value at the axis's first point: a number, or the name of a node that
        lacks the axis) and `last`.
    """

    name: str
    op: str
    axes: tuple[str, ...]
    args: tuple[str, ...] = ()
    fn: str = ""
    index: tuple[Affine, ...] = ()
    fill: float = 0.0
    axis: str = ""
    init: float | str = 0.0
    period: int = 1
    scale: float = 1.0

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of all nodes read, the initial value of an `earlier` included."""
        if self.op == "earlier" and isinstance(self.init, str):
            return (*self.args, self.init)
        return self.args

    @property
    def sources_now(self) -> tuple[str, ...]:
        """Names of the nodes read at the same point: all but what an `earlier` carries."""
        if self.op == "earlier":
            return (self.init,) if isinstance(self.init, str) else ()
        return self.args


@dataclass(frozen=True)
class Output:
    """A tensor that leaves the graph: `node` stored at `index`, one form an output axis.

    Points whose index falls outside the output are dropped; points that nothing writes hold 0
    (-inf where merge is `max`). `merge` says how values that meet in one point are joined, and
    is empty where the map is injective.
    """

    name: str
    node: str
    axes: tuple[str, ...]
    index: tuple[Affine, ...]
    merge: str = ""


class Axes(Mapping[str, int]):
    """Axis names and extents: ordered, immutable, hashable."""

    __slots__ = ("_extents",)

    def __init__(self, extents: Mapping[str, int] | Iterable[tuple[str, int]] = ()):
        self._extents: dict[str, int] = dict(extents)

    def __getitem__(self, name: str) -> int:
        return self._extents[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._extents)

    def __len__(self) -> int:
        return len(self._extents)

    def __hash__(self) -> int:
        return hash(frozenset(self._extents.items()))

    def __repr__(self) -> str:
        return f"Axes({self._extents})"


@dataclass(frozen=True)
class Graph:
    """A kernel: nodes in an order in which every value but a carried one precedes its use."""

    name: str
    axes: Mapping[str, int]
    nodes: tuple[Node, ...]
    outputs: tuple[Output, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "axes", Axes(self.axes))
        object.__setattr__(self, "_by_name", {node.name: node for node in self.nodes})

    @property
    def by_name(self) -> Mapping[str, Node]:
        """Nodes by name."""
        return self._by_name  # type: ignore[attr-defined]

    def node(self, name: str) -> Node:
        """Return the node called `name`; GraphError with the nearest name where none is."""
        if name not in self.by_name:
            hint = did_you_mean(name, self.by_name)
            raise GraphError(f"graph {self.name}: node must be one of it, got {name!r}; {hint}")
        return self.by_name[name]

    def extent(self, axis: str) -> int:
        """Return the number of points of `axis`; GraphError with the nearest name if unknown."""
        if axis not in self.axes:
            hint = did_you_mean(axis, self.axes)
            raise GraphError(f"graph {self.name}: axis must be one of it, got {axis!r}; {hint}")
        return self.axes[axis]

    def shape(self, axes: Iterable[str]) -> tuple[int, ...]:
        """Return the extents of `axes`, in order."""
        return tuple(self.extent(axis) for axis in axes)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The input nodes, in order."""
        return tuple(node for node in self.nodes if node.op == "input")

    def consumers(self, name: str) -> tuple[Node, ...]:
        """Return the nodes that read `name`, in order; outputs are not among them."""
        return tuple(node for node in self.nodes if name in node.sources)


def in_order(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """Return `nodes` sorted so that every value but a carried one precedes its use.

    The sort is stable: nodes already in order stay as they are. Names that are not among the
    nodes are ignored (verify reports them). Raises GraphError on a cycle without `earlier`.
    """
    waiting = list(nodes)
    names = {node.name for node in waiting}
    done: set[str] = set()
    result: list[Node] = []
    while waiting:
        rest: list[Node] = []
        for node in waiting:
            if all(s in done or s not in names for s in node.sources_now):
                result.append(node)
                done.add(node.name)
            else:
                rest.append(node)
        if len(rest) == len(waiting):
            cycle = ", ".join(node.name for node in rest)
            raise GraphError(f"nodes {cycle}: a cycle must pass an earlier node, got one without")
        waiting = rest
    return tuple(result)


def live(graph: Graph) -> Graph:
    """Return `graph` without the nodes that no output depends on; inputs and axes stay."""
    needed: set[str] = set()
    waiting = [output.node for output in graph.outputs]
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting.extend(graph.node(name).sources)
    kept = tuple(node for node in graph.nodes if node.op == "input" or node.name in needed)
    return Graph(graph.name, graph.axes, kept, graph.outputs)


def recurrences(graph: Graph) -> tuple[tuple[Node, ...], ...]:
    """Return the groups of nodes that depend on themselves through `earlier`, in node order.

    Each group is one strongly connected part of the graph; its nodes are run point by point.
    """
    place = {node.name: i for i, node in enumerate(graph.nodes)}
    before = [0] * len(graph.nodes)  # bit j of before[i]: node i depends on node j
    changed = True
    while changed:
        changed = False
        for i, node in enumerate(graph.nodes):
            reach = before[i]
            for j in (place[source] for source in node.sources):
                reach |= 1 << j | before[j]
            changed = changed or reach != before[i]
            before[i] = reach
    groups: list[tuple[Node, ...]] = []
    grouped: set[int] = set()
    for i in range(len(graph.nodes)):
        if i in grouped or not before[i] >> i & 1:
            continue
        members = [j for j in range(i, len(before)) if before[i] >> j & 1 and before[j] >> i & 1]
        grouped.update(members)
        groups.append(tuple(graph.nodes[j] for j in members))
    return tuple(groups)
