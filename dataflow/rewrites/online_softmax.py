"""Online softmax: a row's maximum and the sums over it in one pass, block by block.

Found is r = max_a s together with sums over a of exp(s - r) y. The axis a becomes blocks
(digit `a.b`) of `block` points (digit `a.i`). Since exp(s - r) = exp(s - r') exp(r' - r), what
was summed under an older maximum r' is carried on by one factor a row:

    r    = max(r_was, max_i s)          r_was, l_was, acc_was: the values of the block before
    corr = exp(r_was - r)
    p    = exp(s - r)
    l    = l_was corr + sum_i p
    acc  = acc_was corr + sum_i p y

Divisions by l are pulled out of the sums, so that they happen once a row. A reader that keeps
the axis a (a softmax that leaves the graph) makes a second pass with the finished r and l.
Source: Milakov and Gimelshein, arXiv 1805.02867; Dao et al., arXiv 2205.14135.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dataflow.graph import Graph, Node
from dataflow.index import affine
from dataflow.rewrites.draft import (
    Digits,
    Draft,
    RewriteError,
    ancestors,
    respell,
    span,
    value_outside,
)
from dataflow.rewrites.pull import pull

# The maximum before the first block. Finite, so that a block that is masked altogether meets
# no inf - inf; a score would have to lie below it to be lost.
LOWEST = -1e30
_NEG_INF = -math.inf


@dataclass(frozen=True)
class _Row:
    """r = max of s over `axis`; `exps` are exp(s - r), `sums` the linear sums over them."""

    r: Node
    s: str
    axis: str
    exps: tuple[Node, ...]
    sums: tuple[Node, ...]


def online_softmax(graph: Graph, block: int = 64) -> Graph:
    """Return `graph` with each softmax-like row computed in one pass over blocks of its axis.

    Scores must lie above -1e30 or be -inf; a row without any finite score gives nan, as it does
    in the plain form. A block longer than the axis is cut to it; a shorter last block is padded.

    Raises RewriteError where block < 1 or no maximum has sums of exp(s - max) over its axis.
    """
    if block < 1:
        raise RewriteError(f"online_softmax: block must be >= 1, got {block}")
    names = [node.name for node in graph.nodes if _exps(graph, node)]
    if not names:
        raise RewriteError(
            f"graph {graph.name}: a max over one axis, read by exp(s - max), must be there, "
            "got none"
        )
    for name in names:
        graph = _one_pass(_pulled(graph, name), name, block)
    return graph


def _exps(graph: Graph, r: Node) -> tuple[Node, ...]:
    """Return the nodes exp(s - r), where r is a maximum of s over one axis."""
    if (r.op, r.fn) != ("reduce", "max") or len(graph.node(r.args[0]).axes) != len(r.axes) + 1:
        return ()
    shifted = [
        n.name for n in graph.consumers(r.name) if (n.fn, n.args) == ("sub", (*r.args, r.name))
    ]
    readers = [node for name in shifted for node in graph.consumers(name)]
    return tuple(node for node in readers if node.op == "map" and node.fn in ("exp", "exp2"))


def _pulled(graph: Graph, r: str) -> Graph:
    """Return `graph` with the factors of exp(s - r) that lack the axis pulled out of its sums."""
    for exp in _exps(graph, graph.node(r)):
        for reader in graph.consumers(exp.name):
            if reader.op == "map" and reader.fn in ("div", "mul"):
                try:
                    graph = pull(graph, reader.name)
                except RewriteError:
                    continue  # its readers keep the axis: a second pass
    return graph


def _row(graph: Graph, name: str) -> _Row:
    r = graph.node(name)
    s = graph.node(r.args[0])
    (axis,) = set(s.axes) - set(r.axes)
    exps = _exps(graph, r)
    sums = [n for e in exps for n in graph.consumers(e.name) if _is_linear(graph, n, e, r, axis)]
    if not sums:
        raise RewriteError(
            f"node {name}: some sum over {axis} must be linear in exp({s.name} - {name}), got none"
        )
    return _Row(r, s.name, axis, exps, tuple(sums))


def _is_linear(graph: Graph, total: Node, exp: Node, r: Node, axis: str) -> bool:
    """Whether `total` sums exp times what does not depend on r, over `axis` but no axis of r."""
    if total.op != "einsum" and (total.op, total.fn) != ("reduce", "sum"):
        return False
    others = [arg for arg in total.args if arg != exp.name]
    free = all(r.name not in ancestors(graph.by_name, arg) for arg in others)
    once = total.args.count(exp.name) == 1
    return once and free and axis not in total.axes and set(r.axes) <= set(total.axes)


def _one_pass(graph: Graph, name: str, block: int) -> Graph:
    row = _row(graph, name)
    draft, axis, extent = Draft(graph), row.axis, graph.extent(row.axis)
    size = max(1, min(block, extent))
    blocks = draft.axis(f"{axis}.b", -(-extent // size))
    inner = draft.axis(f"{axis}.i", size)
    digits = Digits({axis: size * affine(blocks) + inner}, {axis: (blocks, inner)})
    memo: dict[str, str] = {}
    s = _padded_scores(draft, row, digits, memo)

    over = (*row.r.axes, blocks)
    bm = draft.reduce("bm", "max", s, over)
    was = draft.recur(f"{name}.before", over, blocks, LOWEST)
    r = draft.map(name, "max", was, bm)
    draft.close(was, r)
    fns = list(dict.fromkeys(exp.fn for exp in row.exps))
    drop = draft.map(f"{name}.drop", "sub", was, r)
    corrs = {fn: draft.map("corr", fn, drop) for fn in fns}
    shifted = draft.map(f"{row.s}.shifted", "sub", s, r)
    powers = {exp.name: draft.map("p", exp.fn, shifted) for exp in row.exps}
    fn_of = {exp.name: exp.fn for exp in row.exps}

    for total in row.sums:
        (exp,) = [arg for arg in total.args if arg in powers]
        others = [_padded_factor(draft, a, row, digits, memo) for a in total.args if a != exp]
        stem = "acc" if others else "l"
        axes = (*over, *(a for a in total.axes if a not in over))
        if others:
            part = draft.einsum("ba", axes, powers[exp], *others)
        else:
            part = draft.reduce("bl", "sum", powers[exp], axes)
        before = draft.recur(f"{stem}.before", axes, blocks, 0.0)
        kept = draft.map(f"{stem}.kept", "mul", before, corrs[fn_of[exp]])
        now = draft.map(stem, "add", kept, part)
        draft.close(before, now)
        draft.redirect(total.name, draft.last(f"{stem}.last", now, blocks))
    draft.redirect(name, draft.last(f"{name}.last", r, blocks))
    return draft.finish()


def _harmless(draft: Draft, name: str, axis: str, value: float, wanted: float | None) -> bool:
    """Whether padded points may hold `value`: any finite one as a factor, none as a score."""
    if wanted is None:
        return math.isfinite(value)
    # exp(value - r) is 0 too wherever the row has a score of its own
    low_enough = value <= LOWEST and _never_empty(draft, draft.nodes[name], axis)
    return value == wanted or low_enough


def _never_empty(draft: Draft, node: Node, axis: str) -> bool:
    """Whether a mask keeps the first or the last point of `axis` in every row."""
    if node.op != "mask":
        return False
    ends = (0, draft.extents[axis] - 1)
    return any(span(node.index[0], draft.extents, {axis: (e, e)})[0] >= 0 for e in ends)


def _padding(draft: Draft, row: _Row, digits: Digits) -> tuple[int, int] | None:
    """Return the first and last padded point of the axis, None where the blocks fill it."""
    blocks, inner = digits.places[row.axis]
    extent, padded = draft.extents[row.axis], draft.extents[blocks] * draft.extents[inner]
    return (extent, padded - 1) if padded > extent else None


def _padded_scores(draft: Draft, row: _Row, digits: Digits, memo: dict[str, str]) -> str:
    """Return s over the digits, -inf on padded points, so that exp(s - r) is 0 there."""
    if draft.nodes[row.s].op == "input":
        # not into memo: the same input as a factor of a sum must read 0 there
        return respell(draft, row.s, digits, {}, fill=_NEG_INF)
    return _padded(draft, row.s, row, digits, memo, _NEG_INF)


def _padded_factor(draft: Draft, name: str, row: _Row, digits: Digits, memo: dict[str, str]) -> str:
    """Return a factor of exp(s - r) over the digits, finite on padded points: 0 x inf is nan."""
    return _padded(draft, name, row, digits, memo, None)


def _padded(
    draft: Draft, name: str, row: _Row, digits: Digits, memo: dict[str, str], wanted: float | None
) -> str:
    new = respell(draft, name, digits, memo)
    padding = _padding(draft, row, digits)
    if padding is None or row.axis not in draft.nodes[name].axes:
        return new
    value = value_outside(draft, name, {row.axis: padding})
    if value is not None and _harmless(draft, name, row.axis, value, wanted):
        return new
    keep = draft.extents[row.axis] - 1 - digits.forms[row.axis]
    return draft.mask(f"{name}.pad", new, keep, _NEG_INF if wanted is not None else 0.0)
