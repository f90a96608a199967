"""The nodes of a StreamGraph: a graph node as it runs, with its domain, walk, lanes and copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from dataflow.nodes import Graph, Node, Output


@dataclass(frozen=True)
class StreamNode:
    """One graph node as it runs: or a part of one, or a load or a store.

    node: what it evaluates. argument: for loads, the tensor's own node. free: graph nodes that cost
    nothing and are worked out beside it (constants, `earlier`, `last`, reads). domain: time digits,
    outermost first; carried: those it accumulates over. walk: tile digits, slowest first; gone:
    those it reduces. Lanes run along `vector`. pack, unroll: see Schedule. merge: for a digit, how
    many parts along it the node joins at a firing. array: what a systolic array that works it out
    holds in its cells ("weight", "input" or "output"), or "".
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
    array: str = ""

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
