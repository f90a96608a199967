"""Kernels as flat, frozen graphs over named axes, and the plain calls that build them.

>>> g = Builder("gemm", i=4, j=4, k=8)
>>> a, b = g.input("a", "i k"), g.input("b", "k j")
>>> g.output("c", g.einsum("i k, k j -> i j", a, b))
>>> [node.op for node in g.build().nodes]
['input', 'input', 'einsum']
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from dataflow.errors import did_you_mean
from dataflow.index import Affine, affine
from dataflow.nodes import (
    CONSTS,
    MERGES,
    OPS,
    Axes,
    Graph,
    GraphError,
    Node,
    Output,
    in_order,
    live,
    recurrences,
)
from dataflow.verify import verify

__all__ = [
    "CONSTS",
    "MERGES",
    "OPS",
    "Axes",
    "Builder",
    "Graph",
    "GraphError",
    "Node",
    "Output",
    "in_order",
    "live",
    "recurrences",
    "verify",
]

Names = str | Iterable[str]  # axis names: "i k", or a sequence of them
Form = Affine | str | int
Value = Node | str | float  # a node, its name, or a number


class Builder:
    """Builds a Graph by plain calls, each of which returns the Node that it added.

    Arguments may be nodes, their names or numbers (a number becomes a `const` without axes).
    Every call takes `name=`; without it the name follows the operation and stays unique.
    Node values and axes are as in `dataflow.nodes.Node`.
    """

    def __init__(self, name: str, /, **extents: int):
        self.name = name
        self._extents: dict[str, int] = {}
        self._nodes: dict[str, Node] = {}
        self._outputs: list[Output] = []
        for axis, extent in extents.items():
            self.axis(axis, extent)

    @classmethod
    def of(cls, graph: Graph, keep: Iterable[str] | None = None) -> Builder:
        """Return a builder that holds `graph`'s axes, outputs and nodes (or those in `keep`).

        With `keep`, the outputs are left out too: the caller puts its own.
        """
        builder = cls(graph.name)
        builder._extents.update(graph.axes)
        kept = None if keep is None else set(keep)
        builder._nodes = {n.name: n for n in graph.nodes if kept is None or n.name in kept}
        builder._outputs = list(graph.outputs) if kept is None else []
        return builder

    def axis(self, name: str, extent: int) -> str:
        """Declare an axis, or repeat it with the same extent; returns its name."""
        if self._extents.setdefault(name, extent) != extent:
            raise self._error(f"axis {name}: extent must be {self._extents[name]}, got {extent}")
        return name

    def extent(self, axis: str) -> int:
        """Return the extent of a declared axis."""
        if axis not in self._extents:
            hint = did_you_mean(axis, self._extents)
            raise self._error(f"axis must be declared, got {axis!r}; {hint}")
        return self._extents[axis]

    def fresh(self, stem: str) -> str:
        """Return `stem`, or `stem_2`, `stem_3`, ... where a node has that name already."""
        name, count = stem, 1
        while name in self._nodes:
            count += 1
            name = f"{stem}_{count}"
        return name

    def fresh_axis(self, stem: str, extent: int) -> str:
        """Declare an axis called `stem`, or `stem_2`, ... where that is taken; returns its name."""
        name, count = stem, 1
        while name in self._extents:
            count += 1
            name = f"{stem}_{count}"
        return self.axis(name, extent)

    def node(self, value: Value) -> Node:
        """Return the node meant by a node, a name, or a number (added as a const)."""
        if isinstance(value, (int, float)):
            return self.number(value)
        name = value.name if isinstance(value, Node) else value
        if name not in self._nodes:
            hint = did_you_mean(name, self._nodes)
            raise self._error(f"argument must be a node of the graph, got {name!r}; {hint}")
        return self._nodes[name]

    def add(self, node: Node) -> Node:
        """Add a ready node; its name must be new."""
        if node.name in self._nodes:
            raise self._error(f"node {node.name}: name must be unique, got it twice")
        self._nodes[node.name] = node
        return node

    def input(self, name: str, axes: Names) -> Node:
        """Add an input tensor."""
        return self.add(Node(name, "input", _names(axes)))

    def number(self, value: float, axes: Names = (), *, name: str = "") -> Node:
        """Add a number, the same at every point of `axes`; a scalar is added once only."""
        axes = _names(axes)
        if not name and not axes:
            for node in self._nodes.values():
                # repr tells -0.0 from 0.0 and finds nan again
                if (node.op, node.fn, node.axes) == ("const", "number", ()) and repr(
                    node.fill
                ) == repr(float(value)):
                    return node
        name = name or self.fresh("number")
        return self.add(Node(name, "const", axes, fn="number", fill=float(value)))

    def affine(self, form: Form, axes: Names, *, name: str = "") -> Node:
        """Add the values of an affine form over `axes`."""
        name = name or self.fresh("affine")
        return self.add(Node(name, "const", _names(axes), fn="affine", index=(affine(form),)))

    def turn(
        self,
        fn: str,
        factors: Sequence[Form],
        period: int,
        axes: Names,
        *,
        scale: float = 1.0,
        name: str = "",
    ) -> Node:
        """Add scale * cos|sin(2 pi * product(factors) / period); `fn` is "cos" or "sin"."""
        fn = fn if fn.endswith("_turn") else f"{fn}_turn"
        index = tuple(affine(factor) for factor in factors)
        node = Node(name or self.fresh(fn), "const", _names(axes), fn=fn, index=index)
        return self.add(dataclasses.replace(node, period=period, scale=float(scale)))

    def map(self, fn: str, *args: Value, axes: Names | None = None, name: str = "") -> Node:
        """Add a pointwise operation; axes: the union in order of first appearance, or `axes`."""
        nodes = [self.node(arg) for arg in args]
        union = dict.fromkeys(axis for node in nodes for axis in node.axes)
        over = tuple(union) if axes is None else _names(axes)
        names = tuple(node.name for node in nodes)
        return self.add(Node(name or self.fresh(fn), "map", over, names, fn=fn))

    def einsum(self, spec: str, *args: Value, name: str = "") -> Node:
        """Add a sum of products, written as in einops: `"i k, k j -> i j"`.

        The names are those of the arguments' axes; what the right side lacks is summed over.
        """
        nodes = [self.node(arg) for arg in args]
        left, arrow, right = spec.partition("->")
        parts = [tuple(part.split()) for part in left.split(",")]
        if not arrow:
            raise self._error(f"einsum {spec!r}: it must hold ->, got none")
        if len(parts) != len(nodes):
            raise self._error(f"einsum {spec!r}: arguments must be {len(parts)}, got {len(nodes)}")
        for part, node in zip(parts, nodes, strict=True):
            if sorted(part) != sorted(node.axes):
                axes = " ".join(node.axes)
                got = " ".join(part)
                raise self._error(f"einsum {spec!r}: axes of {node.name} must be {axes}, got {got}")
        names = tuple(node.name for node in nodes)
        return self.add(Node(name or self.fresh("einsum"), "einsum", _names(right), names))

    def contract(self, axes: Names, *args: Value, name: str = "") -> Node:
        """Add a sum of products over all axes of the arguments that are not in `axes`."""
        names = tuple(self.node(arg).name for arg in args)
        return self.add(Node(name or self.fresh("einsum"), "einsum", _names(axes), names))

    def reduce(self, fn: str, x: Value, over: Names, *, name: str = "") -> Node:
        """Add a reduction (`sum`, `max`, `min`) over the axes named in `over`."""
        node, gone = self.node(x), _names(over)
        for axis in gone:
            if axis not in node.axes:
                hint = did_you_mean(axis, node.axes)
                raise self._error(
                    f"reduce of {node.name}: over must be its axes, got {axis}; {hint}"
                )
        axes = tuple(axis for axis in node.axes if axis not in gone)
        return self.add(Node(name or self.fresh(fn), "reduce", axes, (node.name,), fn=fn))

    def read(
        self, x: Value, axes: Names, index: Sequence[Form], *, fill: float = 0.0, name: str = ""
    ) -> Node:
        """Add x at `index` (one form an axis of x, over `axes`), `fill` outside x."""
        node = self.node(x)
        forms = tuple(affine(form) for form in index)
        name = name or self.fresh("read")
        read = Node(name, "read", _names(axes), (node.name,), index=forms, fill=float(fill))
        return self.add(read)

    def mask(
        self, x: Value, form: Form, *, fill: float = 0.0, axes: Names | None = None, name: str = ""
    ) -> Node:
        """Add x where `form` >= 0 and `fill` elsewhere."""
        node = self.node(x)
        over = node.axes if axes is None else _names(axes)
        name = name or self.fresh("mask")
        keep = (affine(form),)
        return self.add(Node(name, "mask", over, (node.name,), index=keep, fill=float(fill)))

    def recur(self, name: str, axes: Names, axis: str, init: float | str | Node = 0.0) -> Node:
        """Add the value that `close` will carry along `axis`, to be used before it is defined.

        >>> g = Builder("running_sum", t=4)
        >>> x = g.input("x", "t")
        >>> before = g.recur("before", "t", axis="t")
        >>> total = g.close(before, g.map("add", before, x))
        >>> g.output("y", total)
        >>> len(g.build().nodes)
        3
        """
        start = self.node(init).name if isinstance(init, (str, Node)) else float(init)
        return self.add(Node(name, "earlier", _names(axes), axis=axis, init=start))

    def close(self, earlier: Value, x: Value) -> Node:
        """Let `earlier` (from `recur`) be x at the axis's previous point; returns x."""
        node, carried = self.node(earlier), self.node(x)
        if node.op != "earlier" or node.args:
            raise self._error(f"node {node.name}: close must be given an open recur, got {node}")
        self._nodes[node.name] = dataclasses.replace(node, args=(carried.name,))
        return carried

    def earlier(
        self, x: Value, axis: str, init: float | str | Node = 0.0, *, name: str = ""
    ) -> Node:
        """Add x at the previous point of `axis`, where no cycle is meant."""
        node = self.node(x)
        before = self.recur(name or self.fresh("earlier"), node.axes, axis, init)
        self.close(before, node)
        return self._nodes[before.name]

    def last(self, x: Value, axis: str, *, name: str = "") -> Node:
        """Add x at the last point of `axis`."""
        node = self.node(x)
        axes = tuple(a for a in node.axes if a != axis)
        return self.add(Node(name or self.fresh("last"), "last", axes, (node.name,), axis=axis))

    def output(
        self,
        name: str,
        x: Value,
        axes: Names | None = None,
        index: Sequence[Form] | None = None,
        merge: str = "",
    ) -> None:
        """Let x leave the graph as `name`; without `axes`, over its own axes as they are."""
        node = self.node(x)
        over = node.axes if axes is None else _names(axes)
        forms = over if index is None else index
        stored = tuple(affine(form) for form in forms)
        self._outputs.append(Output(name, node.name, over, stored, merge))

    def build(self) -> Graph:
        """Return the verified graph; GraphError lists all that is wrong with it."""
        nodes = tuple(self._nodes.values())
        return verify(Graph(self.name, self._extents, nodes, tuple(self._outputs)))

    def _error(self, fault: str) -> GraphError:
        return GraphError(f"graph {self.name}, {fault}")


def _names(names: Names) -> tuple[str, ...]:
    return tuple(names.split()) if isinstance(names, str) else tuple(names)
