"""Which loops a kernel has, in which order, and what each makes: the passes over an axis.

A kernel's *roots* are what must come out: stores, and sums that a loop finishes. A root lies on a
path of loops. Roots on one path share its loops, unless one of them reads what another finishes:
that opens a new pass, a later loop over the same axis. Whatever a pass needs and does not find
finished is worked out again inside it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass

from dataflow.nodes import Graph, Node
from dataflow.ops import contracted
from gpu.schedule import GpuScheduleError

Loops = tuple[str, ...]


@dataclass(frozen=True)
class Nest:
    """The loops of a kernel: its nodes, their loops, and which loops each node finishes."""

    graph: Graph
    order: Loops
    memory: frozenset[str]
    where: str

    def loops_of(self, axes: Iterable[str]) -> Loops:
        """Loops among `axes`, outermost first."""
        wanted = set(axes)
        return tuple(axis for axis in self.order if axis in wanted)

    def outer(self, node: Node) -> Loops:
        """Loops in which the value of `node` is to be had."""
        return self.loops_of(node.axes)

    def inner(self, node: Node) -> Loops:
        """Loops in which the node runs: those of its value and those that it finishes."""
        return self.loops_of((*node.axes, *self._finished(node)))

    def finishes(self, node: Node) -> bool:
        """Whether the value is there only after some loop has ended."""
        return node.name not in self.memory and self.inner(node) != self.outer(node)

    def check(self, nodes: Iterable[Node]) -> None:
        """Raise GpuScheduleError where a sum has no single innermost loop that finishes it."""
        faults = []
        for node in nodes:
            outer, inner = self.outer(node), self.inner(node)
            over = ", ".join(axis for axis in inner if axis not in outer)
            if self.finishes(node) and inner[: len(outer)] != outer:
                faults.append(
                    f"{self.where}.loop: {node.name} is summed up over {over}, which must be "
                    f"inside {', '.join(outer)}, got the order {', '.join(self.order)}"
                )
            elif len(inner) > len(outer) + 1:
                faults.append(
                    f"{self.where}.loop: {node.name} must be summed up over one loop, got {over}; "
                    f"leave the others whole in the tile"
                )
        if faults:
            raise GpuScheduleError(faults)

    def _finished(self, node: Node) -> tuple[str, ...]:
        return (node.axis,) if node.op == "last" else contracted(node, self.graph)


def cone(graph: Graph, names: Iterable[str], memory: Container[str]) -> list[Node]:
    """Return all nodes that `names` depend on, in graph order, none behind what is in memory."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(() if name in memory else graph.node(name).sources)
    return [node for node in graph.nodes if node.name in seen]


def levels(nest: Nest, at: Loops, targets: Iterable[str]) -> dict[str, int]:
    """Return for `targets` and all they depend on how many loops inside `at` must have ended.

    Nodes of one recurrence have one level.
    """
    ordered = cone(nest.graph, targets, nest.memory)
    level = {node.name: 0 for node in ordered}
    for _ in range(len(ordered) + 1):
        changed = False
        for node in ordered:
            for name in () if node.name in nest.memory else node.sources:
                source = nest.graph.node(name)
                ended = nest.finishes(source) and nest.outer(source) == at
                least = level[name] + (1 if ended else 0)
                changed = changed or least > level[node.name]
                level[node.name] = max(level[node.name], least)
        if not changed:
            return level
    raise GpuScheduleError(
        f"{nest.where}.loop: a recurrence must not read what one of its own loops finishes"
    )


def roots_within(nest: Nest, names: Iterable[str]) -> tuple[str, ...]:
    """Return all nodes that finish a loop among those that `names` depend on, in graph order."""
    return tuple(n.name for n in cone(nest.graph, names, nest.memory) if nest.finishes(n))
