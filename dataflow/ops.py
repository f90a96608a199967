"""The one table of operations: NumPy meaning and flops, a row each.

The reference, the bounds, the simulator and the GPU lowering read it. Flops count one for an
add, multiply, compare, minimum or maximum, and one for each special function, whatever a
machine spends on it; moves and selections count none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dataflow.errors import FaultsError, did_you_mean
from dataflow.nodes import Graph, Node


class OperationError(FaultsError):
    """An operation that the table has no row for."""


@dataclass(frozen=True)
class MapRow:
    """A pointwise operation: `numpy(*args)` on broadcast arrays; flops an element."""

    name: str
    arity: int
    numpy: Callable[..., Any]
    flops: int


@dataclass(frozen=True)
class ReduceRow:
    """A reduction: `combine` is the row of MAPS that joins two partial results."""

    name: str
    numpy: Callable[..., Any]
    combine: str
    identity: float


def _sigmoid(x: Any) -> Any:
    # exp of a non-positive number only, so that no large |x| overflows
    small = np.exp(-np.abs(x))
    return np.where(np.asarray(x) >= 0, 1 / (1 + small), small / (1 + small))


def _erf(x: Any) -> Any:
    flat = [math.erf(v) for v in np.asarray(x, dtype=float).ravel()]
    return np.asarray(flat).reshape(np.shape(x))


def _number(compare: Callable[..., Any]) -> Callable[..., Any]:
    """Comparisons give 1.0 and 0.0: every value of a graph is a number."""
    return lambda *args: np.asarray(compare(*args), dtype=float)


_ROWS = (
    MapRow("identity", 1, np.positive, 0),
    MapRow("add", 2, np.add, 1),
    MapRow("sub", 2, np.subtract, 1),
    MapRow("mul", 2, np.multiply, 1),
    MapRow("div", 2, np.divide, 1),
    MapRow("max", 2, np.maximum, 1),
    MapRow("min", 2, np.minimum, 1),
    MapRow("neg", 1, np.negative, 1),
    MapRow("abs", 1, np.abs, 1),
    MapRow("exp", 1, np.exp, 1),
    MapRow("exp2", 1, np.exp2, 1),
    MapRow("log", 1, np.log, 1),
    MapRow("log2", 1, np.log2, 1),
    MapRow("tanh", 1, np.tanh, 1),
    MapRow("sigmoid", 1, _sigmoid, 1),
    MapRow("erf", 1, _erf, 1),
    MapRow("cos", 1, np.cos, 1),
    MapRow("sin", 1, np.sin, 1),
    MapRow("relu", 1, lambda x: np.maximum(x, 0.0), 1),
    MapRow("sqrt", 1, np.sqrt, 1),
    MapRow("rsqrt", 1, lambda x: 1 / np.sqrt(x), 1),
    MapRow("reciprocal", 1, lambda x: 1 / np.asarray(x), 1),
    MapRow("square", 1, np.square, 1),
    MapRow("lt", 2, _number(np.less), 1),
    MapRow("le", 2, _number(np.less_equal), 1),
    MapRow("gt", 2, _number(np.greater), 1),
    MapRow("ge", 2, _number(np.greater_equal), 1),
    MapRow("eq", 2, _number(np.equal), 1),
    MapRow("logical_and", 2, _number(np.logical_and), 1),
    MapRow("where", 3, lambda c, x, y: np.where(np.asarray(c) != 0, x, y), 0),
)
MAPS: dict[str, MapRow] = {row.name: row for row in _ROWS}
REDUCES: dict[str, ReduceRow] = {
    "sum": ReduceRow("sum", np.sum, "add", 0.0),
    "max": ReduceRow("max", np.max, "max", -math.inf),
    "min": ReduceRow("min", np.min, "min", math.inf),
}


def row(fn: str) -> MapRow:
    """Return the row of the pointwise operation `fn`; OperationError names the nearest."""
    if fn not in MAPS:
        hint = did_you_mean(fn, MAPS)
        raise OperationError(f"map: operation must be a row of the table, got {fn!r}; {hint}")
    return MAPS[fn]


def reduce_row(fn: str) -> ReduceRow:
    """Return the row of the reduction `fn`; OperationError names the nearest."""
    if fn not in REDUCES:
        hint = did_you_mean(fn, REDUCES)
        raise OperationError(f"reduce: operation must be a row of the table, got {fn!r}; {hint}")
    return REDUCES[fn]


def contracted(node: Node, graph: Graph) -> tuple[str, ...]:
    """Return the axes that an einsum or reduce sums over, in order of first appearance."""
    if node.op not in ("einsum", "reduce"):
        return ()
    seen = dict.fromkeys(axis for arg in node.args for axis in graph.node(arg).axes)
    return tuple(axis for axis in seen if axis not in node.axes)


def flops_of(node: Node, graph: Graph) -> int:
    """Return the flops that one element of the node's value takes.

    An einsum of two arguments takes 2 for each contracted point (1 where nothing is contracted),
    a reduction 1 for each.
    """
    if node.op == "map":
        return row(node.fn).flops
    points = math.prod(graph.shape(contracted(node, graph)))
    if node.op == "reduce":
        return points
    if node.op == "einsum":
        sums = 1 if contracted(node, graph) else 0
        return (len(node.args) - 1 + sums) * points
    return 0


def elements_of(node: Node, graph: Graph) -> int:
    """Return the number of elements of the node's value."""
    return math.prod(graph.shape(node.axes))


def bytes_of(node: Node, graph: Graph, element_bytes: int = 4) -> int:
    """Return the bytes of the node's value at `element_bytes` an element."""
    return elements_of(node, graph) * element_bytes


def total_flops(graph: Graph) -> int:
    """Return the flops of one evaluation of the whole graph."""
    return sum(flops_of(node, graph) * elements_of(node, graph) for node in graph.nodes)
