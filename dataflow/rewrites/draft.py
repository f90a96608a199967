"""What all rewrites share: a graph in the making, and an axis written in digits.

A rewrite opens a `Draft` on a graph, adds nodes beside the old ones, redirects the readers of
the old ones, and closes with `finish`, which drops what nothing needs any more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dataflow.errors import FaultsError
from dataflow.graph import Graph, Node, Output, in_order, live, verify
from dataflow.index import Affine, affine
from dataflow.ops import row


class RewriteError(FaultsError):
    """A rewrite whose side condition does not hold; each fault names its node."""


class Draft:
    """The nodes, axes and outputs of a graph while a rewrite changes them.

    Nodes are added under a stem. A stem that an old node still holds gets a provisional name;
    `finish` gives the stem itself to the new node where the old one was dropped.
    """

    def __init__(self, graph: Graph):
        self.name = graph.name
        self.extents: dict[str, int] = dict(graph.axes)
        self.nodes: dict[str, Node] = dict(graph.by_name)
        self.outputs: list[Output] = list(graph.outputs)
        self._stems: dict[str, str] = {}
        self._known: dict[Node, str] = {}

    def axis(self, stem: str, extent: int) -> str:
        """Declare an axis called `stem`, or `stem_2`, ... where that is taken; returns its name."""
        name = _untaken(stem, self.extents)
        self.extents[name] = extent
        return name

    def add(self, stem: str, node: Node) -> str:
        """Add `node` (its name is ignored) and return its name; an equal node is reused."""
        key = dataclasses.replace(node, name="")
        if key not in self._known:
            name = _untaken(stem, self.nodes)
            self.nodes[name] = dataclasses.replace(node, name=name)
            self._stems[name] = stem
            self._known[key] = name
        return self._known[key]

    def number(self, value: float, axes: Iterable[str] = ()) -> str:
        """Add a number, the same at every point of `axes`."""
        return self.add("number", Node("", "const", tuple(axes), fn="number", fill=float(value)))

    def turn(
        self,
        stem: str,
        fn: str,
        factors: Iterable[Affine],
        period: int,
        axes: Iterable[str],
        scale: float = 1.0,
    ) -> str:
        """Add scale * cos|sin(2 pi * product(factors) / period) over `axes`."""
        node = Node("", "const", tuple(axes), fn=fn, index=tuple(factors))
        return self.add(stem, dataclasses.replace(node, period=period, scale=float(scale)))

    def map(self, stem: str, fn: str, *args: str) -> str:
        """Add a pointwise operation over the union of its arguments' axes."""
        axes = dict.fromkeys(axis for arg in args for axis in self.nodes[arg].axes)
        return self.add(stem, Node("", "map", tuple(axes), args, fn=fn))

    def map_over(self, stem: str, fn: str, axes: Iterable[str], *args: str) -> str:
        """Add a pointwise operation whose value is over `axes`."""
        return self.add(stem, Node("", "map", tuple(axes), args, fn=fn))

    def affine(self, stem: str, form: Affine, axes: Iterable[str]) -> str:
        """Add the number that an affine form of `axes` gives."""
        return self.add(stem, Node("", "const", tuple(axes), fn="affine", index=(form,)))

    def einsum(self, stem: str, axes: Iterable[str], *args: str) -> str:
        """Add a sum of products over all axes of the arguments that are not in `axes`."""
        return self.add(stem, Node("", "einsum", tuple(axes), args))

    def reduce(self, stem: str, fn: str, arg: str, axes: Iterable[str]) -> str:
        """Add a reduction of `arg` that leaves `axes`."""
        return self.add(stem, Node("", "reduce", tuple(axes), (arg,), fn=fn))

    def mask(self, stem: str, arg: str, form: Affine, fill: float) -> str:
        """Add `arg` where `form` >= 0 and `fill` elsewhere."""
        axes = self.nodes[arg].axes
        return self.add(stem, Node("", "mask", axes, (arg,), index=(form,), fill=float(fill)))

    def last(self, stem: str, arg: str, axis: str) -> str:
        """Add `arg` at the last point of `axis`."""
        axes = tuple(a for a in self.nodes[arg].axes if a != axis)
        return self.add(stem, Node("", "last", axes, (arg,), axis=axis))

    def recur(self, stem: str, axes: Iterable[str], axis: str, init: float | str) -> str:
        """Add an `earlier` without its argument, which `close` gives."""
        name = _untaken(stem, self.nodes)
        self.nodes[name] = Node(name, "earlier", tuple(axes), axis=axis, init=init)
        self._stems[name] = stem
        return name

    def close(self, earlier: str, arg: str) -> None:
        """Let `earlier` carry `arg`."""
        self.nodes[earlier] = dataclasses.replace(self.nodes[earlier], args=(arg,))

    def redirect(self, old: str, new: str) -> None:
        """Let every reader of `old`, outputs included, read `new`; their axes must be equal."""
        swap = {old: new}
        for node in list(self.nodes.values()):
            if node.name != new and old in node.sources:
                self.nodes[node.name] = _renamed(node, swap)
        self.outputs = [dataclasses.replace(o, node=swap.get(o.node, o.node)) for o in self.outputs]

    def finish(self) -> Graph:
        """Return the verified graph: only what outputs need, in order, under the wanted names."""
        nodes = in_order(self.nodes.values())
        graph = live(Graph(self.name, self.extents, nodes, tuple(self.outputs)))
        used = {axis for node in graph.nodes for axis in node.axes}
        used |= {axis for output in graph.outputs for axis in output.axes}
        axes = {axis: extent for axis, extent in graph.axes.items() if axis in used}
        taken = {node.name for node in graph.nodes if node.name not in self._stems}
        names: dict[str, str] = {}
        for node in graph.nodes:
            if node.name in self._stems:
                names[node.name] = _untaken(self._stems[node.name], taken)
                taken.add(names[node.name])
        nodes = tuple(
            dataclasses.replace(_renamed(node, names), name=names.get(node.name, node.name))
            for node in graph.nodes
        )
        outputs = tuple(
            dataclasses.replace(o, node=names.get(o.node, o.node)) for o in graph.outputs
        )
        return verify(Graph(self.name, axes, nodes, outputs))


@dataclasses.dataclass(frozen=True)
class Digits:
    """How axes are written anew: `forms[axis]` over the axes `places[axis]` that replace it.

    `suffix` ends the names of the nodes written so, where several stand side by side.
    """

    forms: Mapping[str, Affine]
    places: Mapping[str, tuple[str, ...]]
    suffix: str = ""

    def axes(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Return `axes` with each rewritten one replaced by its digits."""
        return tuple(dict.fromkeys(d for a in axes for d in self.places.get(a, (a,))))

    def index(self, forms: Iterable[Affine]) -> tuple[Affine, ...]:
        """Return index forms over the digits."""
        return tuple(form.substitute(self.forms) for form in forms)


def respell(
    draft: Draft, name: str, digits: Digits, memo: dict[str, str], fill: float = 0.0
) -> str:
    """Return the node that has `name`'s value with its axes written in `digits`.

    Inputs are read at the digits' forms, with `fill` outside; every other node is computed over
    the digits, so that the only reads are those of inputs. Values at digits outside the old
    axes are whatever the operations make of the fill. `memo` (old to new name) is extended.

    Raises RewriteError where a node runs along a rewritten axis, or sums over one of the digits.
    """
    node = draft.nodes[name]
    if name in memo or not any(axis in digits.places for axis in node.axes):
        return memo.get(name, name)
    axes = digits.axes(node.axes)
    if node.op == "input":
        index = digits.index(affine(axis) for axis in node.axes)
        read = Node("", "read", axes, (name,), index=index, fill=fill)
        memo[name] = draft.add(name + (digits.suffix or ".d"), read)
        return memo[name]
    if node.axis in digits.places:
        raise RewriteError(
            f"node {name}: axis must not be split where a recurrence runs along it, "
            f"got {node.op} along {node.axis}"
        )
    if node.op == "earlier":
        memo[name] = draft.recur(name + digits.suffix, axes, node.axis, node.init)
        if isinstance(node.init, str):
            init = respell(draft, node.init, digits, memo)
            draft.nodes[memo[name]] = dataclasses.replace(draft.nodes[memo[name]], init=init)
        draft.close(memo[name], respell(draft, node.args[0], digits, memo))
        return memo[name]
    _check_sums(draft, node, digits)
    # what a read's index says of its source stays: only the axes that it reads over are new
    args = node.args if node.op == "read" else _respell_all(draft, node.args, digits, memo)
    index = digits.index(node.index)
    new = dataclasses.replace(node, axes=axes, args=args, index=index)
    memo[name] = draft.add(name + digits.suffix, new)
    return memo[name]


def _respell_all(
    draft: Draft, names: Iterable[str], digits: Digits, memo: dict[str, str]
) -> tuple[str, ...]:
    return tuple(respell(draft, name, digits, memo) for name in names)


def _check_sums(draft: Draft, node: Node, digits: Digits) -> None:
    if node.op not in ("einsum", "reduce"):
        return
    held = {axis for arg in node.args for axis in draft.nodes[arg].axes}
    new = {place for axis in node.axes for place in digits.places.get(axis, ())}
    clash = sorted((held - set(node.axes)) & new)
    if clash:
        raise RewriteError(
            f"node {node.name}: summed axes must not be among the new digits, "
            f"got {', '.join(clash)}"
        )


Ranges = Mapping[str, tuple[int, int]]


def span(form: Affine, extents: Mapping[str, int], ranges: Ranges) -> tuple[int, int]:
    """Return the least and greatest value of `form`; axes in `ranges` run from first to last."""
    low = high = form.constant
    for name, coefficient in form.terms:
        first, last = ranges.get(name, (0, extents[name] - 1))
        ends = sorted((coefficient * first, coefficient * last))
        low, high = low + ends[0], high + ends[1]
    return low, high


def value_outside(draft: Draft, name: str, ranges: Ranges) -> float | None:
    """Return the one number that node `name` holds where axes lie in `ranges`, or None.

    `ranges` (first and last point, inclusive) must lie outside the axes' extents: what is asked
    for is the value that `respell` leaves on padded points.
    """
    node = draft.nodes[name]
    if node.op == "const" and node.fn == "number":
        return node.fill
    if node.op == "input":
        return 0.0 if any(axis in ranges for axis in node.axes) else None
    if node.op == "read":
        source = draft.nodes[node.args[0]]
        for axis, form in zip(source.axes, node.index, strict=True):
            low, high = span(form, draft.extents, ranges)
            if high < 0 or low >= draft.extents[axis]:
                return node.fill
        return None
    if node.op not in ("map", "mask"):
        return None
    known = [value_outside(draft, arg, ranges) for arg in node.args]
    if node.op == "mask":
        low, high = span(node.index[0], draft.extents, ranges)
        return node.fill if high < 0 or known[0] == node.fill else known[0] if low >= 0 else None
    if any(value is None for value in known):
        return None
    return float(_quiet(row(node.fn).numpy, known))


def _quiet(function: Callable[..., Any], args: Iterable[Any]) -> Any:
    with np.errstate(all="ignore"):
        return function(*(np.float64(arg) for arg in args))


def ancestors(nodes: Mapping[str, Node], name: str) -> set[str]:
    """Return the names of all nodes that `name` depends on, itself included."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting.extend(nodes[one].sources)
    return found


def _renamed(node: Node, names: Mapping[str, str]) -> Node:
    init = names.get(node.init, node.init) if isinstance(node.init, str) else node.init
    args = tuple(names.get(arg, arg) for arg in node.args)
    return dataclasses.replace(node, args=args, init=init)


def _untaken(stem: str, taken: Iterable[str]) -> str:
    held = taken if isinstance(taken, (Mapping, set)) else set(taken)
    name, count = stem, 1
    while name in held:
        count += 1
        name = f"{stem}_{count}"
    return name
