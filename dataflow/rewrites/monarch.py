"""Monarch: a long convolution as a chain of small Fourier products.

With n = S1 n1 + S2 n2 + ..., S_i = R_(i+1) R_(i+2) ..., and k = k1 + R1 k2 + R1 R2 k3 + ...,

    w_P^(n k) = product over i of  w_Ri^(n_i k_i)  w_(R1..Ri)^(n_i (k1 + R1 k2 + .. up to k_(i-1)))

so a transform of length P = R1 R2 .. is, digit by digit, a pointwise twiddle and a product with
an Ri x Ri matrix. The convolution is: signal forward, filter forward, pointwise product, back.
Every complex value is a pair of real nodes, signs sit in the constants.

Work that is not done: the signal is real, so the first product is of reals, the last gives reals
only, and half of the first digit's frequencies stand for their conjugates; or, with `pair`, two
real signals are the two parts of one complex one, which a real filter keeps apart. Where signal or
result are shorter than P their first digit is cut to what they reach. The factor 1 / P stands on
the filter's spectrum, where it keeps the numbers of a 16-bit machine within their range.

With `gauss` a product with a Fourier matrix of c + i s takes three real ones (Gauss; Knuth, The
Art of Computer Programming 2, 4.6.4): of p = (a + b) c, the real part is
p - b (c + s) and the imaginary one p - a (c - s). On a machine that adds to what a product finds,
the two subtractions cost nothing; c + s is Hartley's cas of the angle, c - s that of its negative.
Other sources: Dao et al., Monarch, arXiv 2204.00595; Fu et al., FlashFFTConv, arXiv 2311.05908.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dataflow.graph import Graph
from dataflow.index import Affine, affine
from dataflow.rewrites.convolution import Convolution, Factor, find_convolution
from dataflow.rewrites.draft import (
    Digits,
    Draft,
    RewriteError,
    ancestors,
    respell,
    span,
    value_outside,
)
from dataflow.rewrites.fourier_chain import Chain, Pair, times
from dataflow.rewrites.fourier_plan import Lengths, Plan, Wanted, plan_transform


def monarch(
    graph: Graph,
    order: int = 2,
    max_radix: int = 256,
    radices: tuple[int, ...] | None = None,
    pair: bool = False,
    first_radix: int = 0,
    gauss: bool = False,
) -> Graph:
    """Return `graph` with each long convolution carried out by Fourier products of `order` digits.

    Any length: circular ones whose length has fitting factors are transformed as they are, all
    others are zero-padded. radices: those to use, instead of the cheapest up to `max_radix`.
    first_radix: R1, where it is to be a certain one. A matrix unit may want its rows, R1 of them
    (R1 / 2 where half of the frequencies are kept), to be many.
    pair: where the transform is circular, signals of neighbouring points of the first axis that
    the filter lacks are transformed two at a time (an odd last one beside zeros); a padded one
    keeps half of its frequencies instead, which takes less.
    gauss: a complex product with a Fourier matrix takes three real ones instead of four, and an
    addition before them; in 16 bits what it rounds is larger by up to the square root of 2.

    Raises RewriteError where there is no convolution, where its result is read by anything but
    pointwise code on the way to the outputs, or where the radices do not fit.
    """
    if order < 2:
        raise RewriteError(f"monarch: order must be >= 2, got {order}")
    convolution = find_convolution(graph)
    if convolution is None:
        raise RewriteError(
            f"graph {graph.name}: a sum over m of x[m] z[n - m + c] must be there, got none"
        )
    wanted = Wanted(order, max_radix, radices, first_radix, pair, gauss)
    while convolution is not None:
        graph = _rewrite(graph, convolution, wanted)
        convolution = find_convolution(graph)
    return graph


def _rewrite(graph: Graph, conv: Convolution, wanted: Wanted) -> Graph:
    _check_readers(graph, conv)
    lengths = Lengths(
        _extent(graph, conv.signal),
        _extent(graph, conv.filter),
        graph.extent(conv.axis),
        conv.offsets,
    )
    plan = plan_transform(f"node {conv.y}", lengths, wanted)
    draft = Draft(graph)
    chain = Chain(draft, plan)
    n_axes = chain.digits("n", plan.first_digit(lengths.signal))
    j_axes = _filter_axes(chain, lengths, n_axes)
    k_axes = chain.digits("k", plan.half)
    m_axes = chain.digits("m", plan.first_digit(lengths.result))

    terms = [
        (_in_digits(draft, conv.filter, plan, j_axes, c), sign) for c, sign in plan.filter_reads
    ]
    response = chain.forward("k", _signed_sum(draft, terms), j_axes, k_axes)
    response = _weighted(draft, response, k_axes[0], plan)
    if plan.paired:
        pairs = _pairs(draft, conv)
        signals = Pair(
            _in_digits(draft, conv.signal, plan, n_axes, 0, pairs.at(0)),
            _in_digits(draft, conv.signal, plan, n_axes, 0, pairs.at(1)),
        )
        spectrum = chain.forward_complex("u", signals, n_axes, k_axes)
        product = times(draft, chain.map_product, "y", spectrum, response)
        result = _joined(draft, conv.y, pairs, chain.back_complex("y", product, k_axes, m_axes))
        _leave(draft, conv, result, m_axes, plan, pairs.whole())
        return draft.finish()
    signal = _in_digits(draft, conv.signal, plan, n_axes, 0)
    spectrum = chain.forward("u", signal, n_axes, k_axes)
    product = times(draft, chain.map_product, "y", spectrum, response)
    result = chain.back("y", conv.y, product, k_axes, m_axes)
    _leave(draft, conv, result, m_axes, plan, Digits({}, {}))
    return draft.finish()


@dataclass(frozen=True)
class _Pairs:
    """An axis of the signal as pairs: axis = 2 pair + side."""

    axis: str
    pair: str
    side: str

    def at(self, side: int) -> Digits:
        """The axis at one side of every pair."""
        return Digits({self.axis: 2 * affine(self.pair) + side}, {self.axis: (self.pair,)})

    def whole(self) -> Digits:
        """The axis as both of its digits."""
        form = 2 * affine(self.pair) + self.side
        return Digits({self.axis: form}, {self.axis: (self.pair, self.side)})


def _pairs(draft: Draft, conv: Convolution) -> _Pairs:
    """Split the first axis that the signal has and the filter lacks; its names in the result."""
    held = {name for _, name in conv.filter.names}
    own = [name for _, name in conv.signal.names if name not in held]
    if not own:
        raise RewriteError(
            f"node {conv.y}: pairs must be along an axis that the filter lacks, got none"
        )
    extent = -(-draft.extents[own[0]] // 2)
    return _Pairs(own[0], draft.axis(f"{own[0]}.pair", extent), draft.axis(f"{own[0]}.side", 2))


def _joined(draft: Draft, name: str, pairs: _Pairs, value: Pair) -> str:
    """Return the real value over pairs and sides of which `value` holds the sides as its parts."""
    side = draft.affine("side", affine(pairs.side), (pairs.side,))
    axes = draft.nodes[value.re].axes
    place = axes.index(pairs.pair) + 1
    return draft.map_over(
        name, "where", (*axes[:place], pairs.side, *axes[place:]), side, value.im, value.re
    )


def _leave(
    draft: Draft,
    conv: Convolution,
    result: str,
    axes: Sequence[str],
    plan: Plan,
    others: Digits,
) -> None:
    """Write all that follows the convolution over its digits, and join them in the outputs.

    others: further axes of the result that are written anew.
    """
    form = _position(plan, axes)
    digits = Digits({conv.axis: form, **others.forms}, {conv.axis: tuple(axes), **others.places})
    memo = {conv.y: result}
    padding = (draft.extents[conv.axis], span(form, draft.extents, {})[1])
    for i, output in enumerate(draft.outputs):
        if conv.y not in ancestors(draft.nodes, output.node):
            continue
        spans = [span(f, draft.extents, {conv.axis: padding}) for f in output.index]
        ends = [draft.extents[axis] for axis in output.axes]
        dropped = any(high < 0 or low >= end for (low, high), end in zip(spans, ends, strict=True))
        if padding[0] <= padding[1] and not dropped:
            raise RewriteError(
                f"node {output.node}: points past the end of {conv.axis} must fall outside of "
                f"output {output.name}, got {', '.join(str(f) for f in output.index)}"
            )
        node = respell(draft, output.node, digits, memo)
        index = digits.index(output.index)
        draft.outputs[i] = dataclasses.replace(output, node=node, index=index)


def _extent(graph: Graph, factor: Factor) -> int:
    return graph.extent(factor.axis)


def _check_readers(graph: Graph, conv: Convolution) -> None:
    """The result's axis becomes digits, which no index form can join again before an output."""
    faults = []
    for node in graph.nodes:
        if node.name == conv.y or conv.y not in ancestors(graph.by_name, node.name):
            continue
        if conv.axis not in node.axes or node.op not in ("map", "mask", "einsum", "reduce"):
            faults.append(
                f"node {node.name}: readers of the convolution {conv.y} must be pointwise along "
                f"{conv.axis}, got {node.op} over {' '.join(node.axes)}"
            )
    if faults:
        raise RewriteError(faults)


def _filter_axes(chain: Chain, lengths: Lengths, n_axes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the filter's digits: the signal's, unless its first digit has another extent."""
    plan, draft = chain.plan, chain.draft
    reach = max((lengths.filter - c for c, _ in plan.filter_reads), default=1)
    first = plan.first_digit(max(1, reach))
    if first == draft.extents[n_axes[0]]:
        return n_axes
    return (draft.axis("j1", first), *n_axes[1:])


def _in_digits(
    draft: Draft,
    factor: Factor,
    plan: Plan,
    axes: Sequence[str],
    offset: int,
    others: Digits | None = None,
) -> str:
    """Return a factor's value at `offset` + S1 n1 + S2 n2 + .. over digits n_i, 0 outside it.

    others: axes of the convolution's result that are written anew as well.
    """
    form = _position(plan, axes) + offset
    anew = others or Digits({}, {})
    moved = [(axis, name) for axis, name in factor.names if axis != name or name in anew.forms]
    forms = {axis: anew.forms.get(name, affine(name)) for axis, name in moved}
    places = {axis: anew.places.get(name, (name,)) for axis, name in moved}
    digits = Digits({factor.axis: form, **forms}, {factor.axis: tuple(axes), **places})
    new = respell(draft, factor.node, digits, {})
    low, high = span(form, draft.extents, {})
    end = draft.extents[factor.axis] - 1
    outside = [((low, -1), form)] if low < 0 else []
    outside += [((end + 1, high), end - form)] if high > end else []
    for reach, keep in outside:
        if value_outside(draft, factor.node, {factor.axis: reach}) != 0.0:
            new = draft.mask(f"{factor.node}.pad", new, keep, 0.0)
    return new


def _position(plan: Plan, axes: Sequence[str]) -> Affine:
    """Return S1 n1 + S2 n2 + .. over digits n_i."""
    return sum(
        (math.prod(plan.radices[i + 1 :]) * affine(axis) for i, axis in enumerate(axes)), Affine()
    )


def _signed_sum(draft: Draft, terms: Sequence[tuple[str, int]]) -> str:
    """Return the sum of one or more nodes with signs."""
    total, sign = terms[0]
    if sign < 0:
        total = draft.map("k.neg", "neg", total)
    for name, sign in terms[1:]:
        total = draft.map("k.turned", "add" if sign > 0 else "sub", total, name)
    return total


def _weighted(draft: Draft, value: Pair, k1: str, plan: Plan) -> Pair:
    """Return `value` / P, doubled where the frequency also stands for its conjugate.

    With frequencies k that is everywhere but at k1 = 0 and, where it exists, k1 = R1 / 2; with
    frequencies k + 1/2 it is everywhere; of pairs it is nowhere.
    """
    once = 1.0 / plan.length
    if plan.turned or plan.paired:
        weight = draft.number(once if plan.paired else 2 * once)
    else:
        weight = draft.mask("k.once", draft.number(2 * once, (k1,)), affine(k1) - 1, once)
        if plan.radices[0] % 2 == 0:
            form = plan.radices[0] // 2 - 1 - affine(k1)
            weight = draft.mask("k.weight", weight, form, once)
    return Pair(
        draft.map("kw.r", "mul", value.re, weight), draft.map("kw.i", "mul", value.im, weight)
    )
