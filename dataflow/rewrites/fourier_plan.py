"""Choose the length and radices of a Fourier transform that carries out a convolution.

A transform of length P = R1 R2 ... wraps the convolution around at P. Two kinds are used:

- cyclic, frequencies k: exact for a circular convolution whose length is P.
- turned, frequencies k + 1/2: what wraps around comes back negated. A zero-padded convolution
  needs none of it, and of real data every frequency has a partner other than itself (k1 and
  R1 - 1 - k1), so that exactly half of them are computed.

Cost counts real multiply-adds of one signal row, forward and back.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

from dataflow.rewrites.draft import RewriteError

_LANES = 16  # radices are multiples of it where the length allows: rows of a matrix unit


@dataclass(frozen=True)
class Lengths:
    """Extents of a convolution: its signal, filter and result, and its offsets."""

    signal: int
    filter: int
    result: int
    offsets: tuple[int, ...]

    @property
    def circular(self) -> bool:
        """Whether the sum is the circular convolution of the result's length."""
        fits = max(self.signal, self.filter) <= self.result
        return self.offsets == (0, self.result) and fits


@dataclass(frozen=True)
class Wanted:
    """What a plan is asked for: see `monarch`, whose arguments these are."""

    order: int = 2
    max_radix: int = 256
    radices: tuple[int, ...] | None = None
    first_radix: int = 0
    pair: bool = False
    gauss: bool = False


@dataclass(frozen=True)
class Plan:
    """radices R1, R2, ...; reads of the filter as (offset, sign): sign * z[t + offset], t < P.

    paired: two signals are transformed as one complex one. gauss: a complex product takes three
    real ones.
    """

    radices: tuple[int, ...]
    turned: bool
    filter_reads: tuple[tuple[int, int], ...]
    paired: bool = False
    gauss: bool = False

    @property
    def length(self) -> int:
        """The transform's length P."""
        return math.prod(self.radices)

    @property
    def step(self) -> int:
        """Points between two values of the first digit, P / R1."""
        return self.length // self.radices[0]

    @property
    def half(self) -> int:
        """Frequencies kept of the first digit; the others, if any, are their conjugates."""
        if self.paired:
            return self.radices[0]
        return self.radices[0] // 2 + (0 if self.turned else 1)

    def first_digit(self, points: int) -> int:
        """Return how many values of the first digit reach `points` points."""
        return min(self.radices[0], -(-points // self.step))


def plan_transform(where: str, lengths: Lengths, wanted: Wanted) -> Plan:
    """Return the cheapest plan that is as wanted, or that of the radices given.

    Raises RewriteError, beginning with `where`, where no radices reach the padded length or
    those given do not fit.
    """
    if not any(_early(lengths, c) or _late(lengths, c) for c in lengths.offsets):
        raise RewriteError(
            f"{where}: some offset must let the filter meet the signal, got {lengths.offsets}"
        )
    needed = _padded_length(lengths)
    if wanted.radices is not None:
        return _given(where, lengths, wanted.radices, needed, wanted)
    found = [_padded(lengths, one, wanted) for one in _padded_radices(needed, wanted)]
    if lengths.circular:
        exact = _factorings(lengths.result, wanted.order, wanted.max_radix)
        found += [_exact(one, wanted) for one in exact]
    first = wanted.first_radix
    found = [plan for plan in found if first in (0, plan.radices[0])]
    if not found and first:
        raise RewriteError(
            f"{where}: first radix must begin a product of {wanted.order} radices that carries "
            f"length {needed}, got {first}; 0 leaves it free"
        )
    if not found:
        raise RewriteError(
            f"{where}: padded length must be at most {wanted.max_radix}^{wanted.order}, "
            f"got {needed}; a higher order takes longer ones"
        )
    return min(found, key=lambda plan: (_cost(plan, lengths), max(plan.radices), plan.radices))


def _exact(radices: tuple[int, ...], wanted: Wanted) -> Plan:
    return Plan(radices, False, ((0, 1),), wanted.pair, wanted.gauss)


def _padded(lengths: Lengths, radices: tuple[int, ...], wanted: Wanted) -> Plan:
    reads = _filter_reads(lengths, math.prod(radices))
    return Plan(radices, True, reads, gauss=wanted.gauss)


def _given(
    where: str, lengths: Lengths, radices: tuple[int, ...], needed: int, wanted: Wanted
) -> Plan:
    length = math.prod(radices)
    if len(radices) < 2 or min(radices) < 2:
        raise RewriteError(f"{where}: radices must be two or more numbers >= 2, got {radices}")
    if lengths.circular and length == lengths.result:
        return _exact(radices, wanted)
    if length < needed or radices[0] % 2:
        exact = f" or exactly {lengths.result}" if lengths.circular else ""
        raise RewriteError(
            f"{where}: radices must multiply to at least {needed}, the first one even,{exact} "
            f"got {radices}"
        )
    return _padded(lengths, radices, wanted)


def _early(lengths: Lengths, offset: int) -> bool:
    """Whether some result meets z[j + offset] with j = n - m >= 0."""
    return lengths.filter - offset > 0 and lengths.result - 1 + offset >= 0


def _late(lengths: Lengths, offset: int) -> bool:
    """Whether some result meets z[j + offset] with j = n - m < 0, kept at P + j."""
    return offset >= 1 and offset - lengths.signal + 1 < lengths.filter and lengths.signal > 1


def _padded_length(lengths: Lengths) -> int:
    """Return the least P at which no result meets a filter value that is not its own.

    j = n - m runs from 1 - signal to result - 1 and lies at j mod P. z[t + c] for j >= 0 must
    end before the first place of a j < 0, and z[t - P + c] begin after the last of a j >= 0.
    """
    least = lengths.signal + lengths.result - 1
    for c in lengths.offsets:
        if _early(lengths, c):
            least = max(least, lengths.filter - c + lengths.signal - 1)
        if _late(lengths, c):
            least = max(least, lengths.result + c)
    return max(1, least)


def _filter_reads(lengths: Lengths, length: int) -> tuple[tuple[int, int], ...]:
    early = [(c, 1) for c in lengths.offsets if _early(lengths, c)]
    late = [(c - length, -1) for c in lengths.offsets if _late(lengths, c)]
    return tuple(early + late)


def _padded_radices(needed: int, wanted: Wanted) -> list[tuple[int, ...]]:
    """Return radices of a product >= `needed`, as multiples of 16 lanes where that is not waste.

    The first is twice as coarse, since only half of its frequencies are computed, or the one that
    is wanted, if it is even.
    """
    first, order, longest = wanted.first_radix, wanted.order, wanted.max_radix
    grain = _LANES
    left = -(-needed // first) if first else 0
    while grain > 1 and (grain ** (order - 1) > left if first else 2 * grain**order > needed):
        grain //= 2
    coarse = range(2 * grain, longest + 1, 2 * grain)
    firsts = coarse if not first else [first] if first % 2 == 0 and first <= longest else []
    fine = range(max(2, grain), min(longest, max(2, needed)) + 1, grain)
    rest = [tuple(sorted(r)) for r in itertools.combinations_with_replacement(fine, order - 1)]
    found = []
    for tail in rest:
        step = math.prod(tail)
        found += [(r, *tail) for r in firsts if r * step >= needed]
    return found


def _factorings(length: int, order: int, max_radix: int) -> list[tuple[int, ...]]:
    """Return the ways to write `length` as `order` factors from 2 to `max_radix`."""
    if order == 1:
        return [(length,)] if 2 <= length <= max_radix else []
    firsts = [r for r in range(2, min(max_radix, length) + 1) if length % r == 0]
    return [(r, *rest) for r in firsts for rest in _factorings(length // r, order - 1, max_radix)]


def _cost(plan: Plan, lengths: Lengths) -> int:
    each = 3 if plan.gauss else 4  # real products of a complex one
    if plan.paired:  # one complex product a digit and way, for two signals
        return each * plan.length * sum(plan.radices)
    rows = plan.half * plan.step
    ends = plan.first_digit(lengths.signal) + plan.first_digit(lengths.result)
    return 2 * rows * ends + 2 * each * rows * sum(plan.radices[1:])
