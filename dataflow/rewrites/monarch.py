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
Sources: Dao et al., Monarch, arXiv 2204.00595; Fu et al., FlashFFTConv, arXiv 2311.05908.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
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
from dataflow.rewrites.fourier_plan import Lengths, Plan, plan_transform


def monarch(
    graph: Graph,
    order: int = 2,
    max_radix: int = 256,
    radices: tuple[int, ...] | None = None,
    pair: bool = False,
    first_radix: int = 0,
) -> Graph:
    """Return `graph` with each long convolution carried out by Fourier products of `order` digits.

    Any length: circular ones whose length has fitting factors are transformed as they are, all
    others are zero-padded. radices: those to use, instead of the cheapest up to `max_radix`.
    first_radix: R1, where it is to be a certain one. A matrix unit may want its rows, R1 of them
    (R1 / 2 where half of the frequencies are kept), to be many.
    pair: where the transform is circular, signals of neighbouring points of the first axis that
    the filter lacks are transformed two at a time (an odd last one beside zeros); a padded one
    keeps half of its frequencies instead, which takes less.

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
    while convolution is not None:
        graph = _rewrite(graph, convolution, order, max_radix, radices, pair, first_radix)
        convolution = find_convolution(graph)
    return graph


@dataclass(frozen=True)
class _Pair:
    """A complex value: the names of its real and imaginary nodes."""

    re: str
    im: str


def _rewrite(
    graph: Graph,
    conv: Convolution,
    order: int,
    max_radix: int,
    radices: tuple[int, ...] | None,
    pair: bool,
    first_radix: int,
) -> Graph:
    _check_readers(graph, conv)
    lengths = Lengths(
        _extent(graph, conv.signal),
        _extent(graph, conv.filter),
        graph.extent(conv.axis),
        conv.offsets,
    )
    plan = plan_transform(f"node {conv.y}", lengths, order, max_radix, radices, pair, first_radix)
    draft = Draft(graph)
    chain = _Chain(draft, plan)
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
        signals = _Pair(
            _in_digits(draft, conv.signal, plan, n_axes, 0, pairs.at(0)),
            _in_digits(draft, conv.signal, plan, n_axes, 0, pairs.at(1)),
        )
        spectrum = chain.forward_complex("u", signals, n_axes, k_axes)
        product = _times(draft, chain.map_product, "y", spectrum, response)
        result = _joined(draft, conv.y, pairs, chain.back_complex("y", product, k_axes, m_axes))
        _leave(draft, conv, result, m_axes, plan, pairs.whole())
        return draft.finish()
    signal = _in_digits(draft, conv.signal, plan, n_axes, 0)
    spectrum = chain.forward("u", signal, n_axes, k_axes)
    product = _times(draft, chain.map_product, "y", spectrum, response)
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


def _joined(draft: Draft, name: str, pairs: _Pairs, value: _Pair) -> str:
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


def _filter_axes(chain: _Chain, lengths: Lengths, n_axes: tuple[str, ...]) -> tuple[str, ...]:
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


def _weighted(draft: Draft, value: _Pair, k1: str, plan: Plan) -> _Pair:
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
    return _Pair(
        draft.map("kw.r", "mul", value.re, weight), draft.map("kw.i", "mul", value.im, weight)
    )


@dataclass(frozen=True)
class _Chain:
    """The products of one convolution, added to `draft`, by the digits of `plan`."""

    draft: Draft
    plan: Plan

    def digits(self, stem: str, first: int) -> tuple[str, ...]:
        """Declare axes `stem`1, `stem`2, ...: `first` points of the first, Ri of the others."""
        extents = (first, *self.plan.radices[1:])
        return tuple(self.draft.axis(f"{stem}{i + 1}", e) for i, e in enumerate(extents))

    def forward(self, stem: str, real: str, n: Sequence[str], k: Sequence[str]) -> _Pair:
        """Return the transform over digits `k` of a real value over digits `n`."""
        draft = self.draft
        axes = _swapped(draft.nodes[real].axes, n[0], k[0])
        wave = self._matrix(0, n, k, "w", -1.0)
        value = _Pair(
            draft.einsum(f"{stem}1.r", axes, real, wave.re),
            draft.einsum(f"{stem}1.i", axes, real, wave.im),
        )
        return self._onward(stem, value, axes, n, k)

    def forward_complex(self, stem: str, value: _Pair, n: Sequence[str], k: Sequence[str]) -> _Pair:
        """Return the transform over digits `k` of a complex value over digits `n`."""
        axes = _swapped(self.draft.nodes[value.re].axes, n[0], k[0])
        wave = self._matrix(0, n, k, "w", -1.0)
        value = _times(self.draft, self._summed(axes), f"{stem}1", value, wave)
        return self._onward(stem, value, axes, n, k)

    def _onward(
        self, stem: str, value: _Pair, axes: tuple[str, ...], n: Sequence[str], k: Sequence[str]
    ) -> _Pair:
        """The twiddles and products after the first one."""
        draft = self.draft
        for i in range(1, len(n)):
            twiddle = self._twiddle(i, n, k, "t", -1.0)
            value = _times(draft, self.map_product, f"{stem}{i}.t", value, twiddle)
            axes = _swapped(axes, n[i], k[i])
            wave = self._matrix(i, n, k, "w", -1.0)
            value = _times(draft, self._summed(axes), f"{stem}{i + 1}", value, wave)
        return value

    def back(self, stem: str, name: str, value: _Pair, k: Sequence[str], m: Sequence[str]) -> str:
        """Return the real value over digits `m`, as node `name`, of P times a transform."""
        draft = self.draft
        value, axes = self._backward(stem, value, k, m)
        wave = self._matrix(0, m, k, "v", 1.0)
        real = draft.einsum(f"{stem}1.rr", axes, value.re, wave.re)
        return draft.map(name, "sub", real, draft.einsum(f"{stem}1.ii", axes, value.im, wave.im))

    def back_complex(self, stem: str, value: _Pair, k: Sequence[str], m: Sequence[str]) -> _Pair:
        """Return the complex value over digits `m` of P times a transform over `k`."""
        value, axes = self._backward(stem, value, k, m)
        wave = self._matrix(0, m, k, "v", 1.0)
        return _times(self.draft, self._summed(axes), f"{stem}1", value, wave)

    def _backward(
        self, stem: str, value: _Pair, k: Sequence[str], m: Sequence[str]
    ) -> tuple[_Pair, tuple[str, ...]]:
        """All products back but the last one, and the axes that the last one gives."""
        draft, axes = self.draft, self.draft.nodes[value.re].axes
        for i in reversed(range(1, len(k))):
            axes = _swapped(axes, k[i], m[i])
            wave = self._matrix(i, m, k, "v", 1.0)
            value = _times(draft, self._summed(axes), f"{stem}{i + 1}", value, wave)
            twiddle = self._twiddle(i, m, k, "s", -1.0)  # the forward one's numbers
            value = _times(draft, self.map_product, f"{stem}{i + 1}.t", value, twiddle, True)
        return value, _swapped(axes, k[0], m[0])

    def map_product(self, stem: str, x: str, y: str) -> str:
        """Add the pointwise product of two real values."""
        return self.draft.map(stem, "mul", x, y)

    def _summed(self, axes: tuple[str, ...]) -> Callable[[str, str, str], str]:
        return lambda stem, x, y: self.draft.einsum(stem, axes, x, y)

    def _matrix(self, i: int, n: Sequence[str], k: Sequence[str], stem: str, sign: float) -> _Pair:
        """Return e^(sign 2 pi i n_i k_i / Ri), over k_i n_i; the first with k_1 + 1/2 if turned."""
        radix, form = self.plan.radices[i], affine(k[i])
        if i == 0 and self.plan.turned:
            radix, form = 2 * radix, 2 * form + 1
        return self._wave(f"{stem}{i + 1}", (form, affine(n[i])), radix, (k[i], n[i]), sign)

    def _twiddle(self, i: int, n: Sequence[str], k: Sequence[str], stem: str, sign: float) -> _Pair:
        """Return e^(sign 2 pi i n_i (k_1 + R1 k_2 + ..) / (R1 .. Ri)), over k_1 .. k_(i-1) n_i."""
        radices = self.plan.radices
        form = sum((math.prod(radices[:j]) * affine(k[j]) for j in range(i)), Affine())
        period = math.prod(radices[: i + 1])
        if self.plan.turned:
            period, form = 2 * period, 2 * form + 1
        axes = (*k[:i], n[i])
        return self._wave(f"{stem}{i + 1}", (form, affine(n[i])), period, axes, sign)

    def _wave(
        self,
        stem: str,
        factors: tuple[Affine, ...],
        period: int,
        axes: tuple[str, ...],
        sign: float,
    ) -> _Pair:
        turn = self.draft.turn
        return _Pair(
            turn(f"{stem}.c", "cos_turn", factors, period, axes, 1.0),
            turn(f"{stem}.s", "sin_turn", factors, period, axes, sign),
        )


def _times(
    draft: Draft,
    product: Callable[[str, str, str], str],
    stem: str,
    a: _Pair,
    b: _Pair,
    conjugate: bool = False,
) -> _Pair:
    """Return the complex product of `a` and `b` (or its conjugate); `product` adds a real one."""
    rr, ii = product(f"{stem}.rr", a.re, b.re), product(f"{stem}.ii", a.im, b.im)
    ri, ir = product(f"{stem}.ri", a.re, b.im), product(f"{stem}.ir", a.im, b.re)
    if conjugate:
        return _Pair(draft.map(f"{stem}.r", "add", rr, ii), draft.map(f"{stem}.i", "sub", ir, ri))
    return _Pair(draft.map(f"{stem}.r", "sub", rr, ii), draft.map(f"{stem}.i", "add", ri, ir))


def _swapped(axes: Sequence[str], old: str, new: str) -> tuple[str, ...]:
    return tuple(new if axis == old else axis for axis in axes)
