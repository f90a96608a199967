"""Pull a factor out of a sum: sum_a (x / c) y = (sum_a x y) / c, where c lacks a.

Products likewise. Attention's division by the row sum leaves the product with the values, so
that it is done once a row, after the sum.
"""

from __future__ import annotations

from dataflow.graph import Graph, Node
from dataflow.rewrites.draft import Draft, RewriteError


def pull(graph: Graph, factor: str = "") -> Graph:
    """Return `graph` with factors pulled out of its sums; values to rounding.

    factor: name of the one `div` or `mul` node to pull; all that can be by default.
    Raises RewriteError where nothing can be pulled.
    """
    found = _next(graph, factor)
    if found is None:
        where = f"node {factor}" if factor else f"graph {graph.name}"
        raise RewriteError(
            f"{where}: a div or mul must stand in a sum over axes that its factor lacks, got none"
        )
    while found is not None:
        graph = _pull_one(graph, *found)
        found = _next(graph, factor)
    return graph


def _next(graph: Graph, factor: str) -> tuple[Node, Node, str, str] | None:
    """Return a sum, the scaled argument of it, and that one's value and factor."""
    for node in graph.nodes:
        if node.op != "einsum" and (node.op, node.fn) != ("reduce", "sum"):
            continue
        for arg in dict.fromkeys(node.args):
            scaled = graph.node(arg)
            split = _split(graph, scaled, node) if factor in ("", arg) else None
            if split is not None and node.args.count(arg) == 1:
                return node, scaled, *split
    return None


def _split(graph: Graph, scaled: Node, total: Node) -> tuple[str, str] | None:
    if scaled.op != "map" or scaled.fn not in ("div", "mul"):
        return None
    orders = [scaled.args] if scaled.fn == "div" else [scaled.args, scaled.args[::-1]]
    for value, factor in orders:
        axes = graph.node(factor).axes
        # a number is pulled by hand only: where it stands may be a matter of precision
        if axes and set(axes) <= set(total.axes) and set(graph.node(value).axes) >= set(axes):
            return value, factor
    return None


def _pull_one(graph: Graph, total: Node, scaled: Node, value: str, factor: str) -> Graph:
    draft = Draft(graph)
    if total.op == "reduce":
        inner = draft.reduce(f"{total.name}.sum", "sum", value, total.axes)
    else:
        args = tuple(value if arg == scaled.name else arg for arg in total.args)
        inner = draft.einsum(f"{total.name}.sum", total.axes, *args)
    draft.redirect(total.name, draft.map(total.name, scaled.fn, inner, factor))
    return draft.finish()
