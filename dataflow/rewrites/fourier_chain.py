"""The products of a convolution by Fourier transforms, digit by digit, as nodes of a draft.

The algebra is that of `dataflow.rewrites.monarch`; a `Plan` says which digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataflow.index import Affine, affine
from dataflow.rewrites.draft import Draft
from dataflow.rewrites.fourier_plan import Plan


@dataclass(frozen=True)
class Pair:
    """A complex value: the names of its real and imaginary nodes."""

    re: str
    im: str


@dataclass(frozen=True)
class Chain:
    """The products of one convolution, added to `draft`, by the digits of `plan`."""

    draft: Draft
    plan: Plan

    def digits(self, stem: str, first: int) -> tuple[str, ...]:
        """Declare axes `stem`1, `stem`2, ...: `first` points of the first, Ri of the others."""
        extents = (first, *self.plan.radices[1:])
        return tuple(self.draft.axis(f"{stem}{i + 1}", e) for i, e in enumerate(extents))

    def forward(self, stem: str, real: str, n: Sequence[str], k: Sequence[str]) -> Pair:
        """Return the transform over digits `k` of a real value over digits `n`."""
        draft = self.draft
        axes = _swapped(draft.nodes[real].axes, n[0], k[0])
        wave = self._matrix(0, n, k, "w", -1.0)
        value = Pair(
            draft.einsum(f"{stem}1.r", axes, real, wave.re),
            draft.einsum(f"{stem}1.i", axes, real, wave.im),
        )
        return self._onward(stem, value, axes, n, k)

    def forward_complex(self, stem: str, value: Pair, n: Sequence[str], k: Sequence[str]) -> Pair:
        """Return the transform over digits `k` of a complex value over digits `n`."""
        axes = _swapped(self.draft.nodes[value.re].axes, n[0], k[0])
        value = self._waved(f"{stem}1", value, axes, 0, n, k, "w", -1.0)
        return self._onward(stem, value, axes, n, k)

    def _onward(
        self, stem: str, value: Pair, axes: tuple[str, ...], n: Sequence[str], k: Sequence[str]
    ) -> Pair:
        """The twiddles and products after the first one."""
        draft = self.draft
        for i in range(1, len(n)):
            twiddle = self._twiddle(i, n, k, "t", -1.0)
            value = times(draft, self.map_product, f"{stem}{i}.t", value, twiddle)
            axes = _swapped(axes, n[i], k[i])
            value = self._waved(f"{stem}{i + 1}", value, axes, i, n, k, "w", -1.0)
        return value

    def back(self, stem: str, name: str, value: Pair, k: Sequence[str], m: Sequence[str]) -> str:
        """Return the real value over digits `m`, as node `name`, of P times a transform."""
        draft = self.draft
        value, axes = self._backward(stem, value, k, m)
        wave = self._matrix(0, m, k, "v", 1.0)
        real = draft.einsum(f"{stem}1.rr", axes, value.re, wave.re)
        return draft.map(name, "sub", real, draft.einsum(f"{stem}1.ii", axes, value.im, wave.im))

    def back_complex(self, stem: str, value: Pair, k: Sequence[str], m: Sequence[str]) -> Pair:
        """Return the complex value over digits `m` of P times a transform over `k`."""
        value, axes = self._backward(stem, value, k, m)
        return self._waved(f"{stem}1", value, axes, 0, m, k, "v", 1.0)

    def _backward(
        self, stem: str, value: Pair, k: Sequence[str], m: Sequence[str]
    ) -> tuple[Pair, tuple[str, ...]]:
        """All products back but the last one, and the axes that the last one gives."""
        draft, axes = self.draft, self.draft.nodes[value.re].axes
        for i in reversed(range(1, len(k))):
            axes = _swapped(axes, k[i], m[i])
            value = self._waved(f"{stem}{i + 1}", value, axes, i, m, k, "v", 1.0)
            twiddle = self._twiddle(i, m, k, "s", -1.0)  # the forward one's numbers
            value = times(draft, self.map_product, f"{stem}{i + 1}.t", value, twiddle, True)
        return value, _swapped(axes, k[0], m[0])

    def map_product(self, stem: str, x: str, y: str) -> str:
        """Add the pointwise product of two real values."""
        return self.draft.map(stem, "mul", x, y)

    def _summed(self, axes: tuple[str, ...]) -> Callable[[str, str, str], str]:
        return lambda stem, x, y: self.draft.einsum(stem, axes, x, y)

    def _waved(
        self,
        stem: str,
        value: Pair,
        axes: tuple[str, ...],
        i: int,
        n: Sequence[str],
        k: Sequence[str],
        table: str,
        sign: float,
    ) -> Pair:
        """Return the complex product over `axes` of a value and the matrix of digit i."""
        if not self.plan.gauss:
            wave = self._matrix(i, n, k, table, sign)
            return times(self.draft, self._summed(axes), stem, value, wave)
        draft, turn = self.draft, self.draft.turn
        (k_form, n_form), period, places = self._angle(i, n, k)
        cos = turn(f"{table}{i + 1}.c", "cos_turn", (k_form, n_form), period, places)
        # -(c + s) and -(c - s) of c + i s = e^(sign 2 pi i ..): an angle's sign is a factor's
        plus, minus = (
            turn(
                f"{table}{i + 1}.{part}", "cas_turn", (factor * k_form, n_form), period, places, -1
            )
            for part, factor in (("p", int(sign)), ("m", -int(sign)))
        )
        total = draft.map(f"{stem}.sum", "add", value.re, value.im)
        shared = draft.einsum(f"{stem}.cc", axes, total, cos)
        of_im = draft.einsum(f"{stem}.ip", axes, value.im, plus)
        of_re = draft.einsum(f"{stem}.rm", axes, value.re, minus)
        return Pair(
            draft.map(f"{stem}.r", "add", shared, of_im),
            draft.map(f"{stem}.i", "add", shared, of_re),
        )

    def _angle(
        self, i: int, n: Sequence[str], k: Sequence[str]
    ) -> tuple[tuple[Affine, Affine], int, tuple[str, str]]:
        """Factors, period and axes of n_i k_i / Ri turns; the first has k_1 + 1/2 if turned."""
        radix, form = self.plan.radices[i], affine(k[i])
        if i == 0 and self.plan.turned:
            radix, form = 2 * radix, 2 * form + 1
        return (form, affine(n[i])), radix, (k[i], n[i])

    def _matrix(self, i: int, n: Sequence[str], k: Sequence[str], stem: str, sign: float) -> Pair:
        """Return e^(sign 2 pi i n_i k_i / Ri), over k_i n_i."""
        factors, period, axes = self._angle(i, n, k)
        return self._wave(f"{stem}{i + 1}", factors, period, axes, sign)

    def _twiddle(self, i: int, n: Sequence[str], k: Sequence[str], stem: str, sign: float) -> Pair:
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
    ) -> Pair:
        turn = self.draft.turn
        return Pair(
            turn(f"{stem}.c", "cos_turn", factors, period, axes, 1.0),
            turn(f"{stem}.s", "sin_turn", factors, period, axes, sign),
        )


def times(
    draft: Draft,
    product: Callable[[str, str, str], str],
    stem: str,
    a: Pair,
    b: Pair,
    conjugate: bool = False,
) -> Pair:
    """Return the complex product of `a` and `b` (or its conjugate); `product` adds a real one."""
    rr, ii = product(f"{stem}.rr", a.re, b.re), product(f"{stem}.ii", a.im, b.im)
    ri, ir = product(f"{stem}.ri", a.re, b.im), product(f"{stem}.ir", a.im, b.re)
    if conjugate:
        return Pair(draft.map(f"{stem}.r", "add", rr, ii), draft.map(f"{stem}.i", "sub", ir, ri))
    return Pair(draft.map(f"{stem}.r", "sub", rr, ii), draft.map(f"{stem}.i", "add", ri, ir))


def _swapped(axes: Sequence[str], old: str, new: str) -> tuple[str, ...]:
    return tuple(new if axis == old else axis for axis in axes)
