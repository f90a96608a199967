"""Affine forms over named axes: the only index arithmetic a graph may use.

A form is `sum(coefficient * axis) + constant` with whole coefficients. Forms print as
text that parses back to the same form.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dataflow.errors import FaultsError

NAME = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*"
_TERM = re.compile(rf"\s*(?:(\d+)\s*\*\s*({NAME})|({NAME})\s*\*\s*(\d+)|(\d+)|({NAME}))")
_SIGN = re.compile(r"\s*([+-])")


class AffineError(FaultsError):
    """A text or value that is no affine form."""


@dataclass(frozen=True)
class Affine:
    """`constant + sum(coefficient * name)`; terms sorted by name, no zero coefficients.

    >>> str(64 * affine("n1") + "n2" - 3)
    '64*n1 + n2 - 3'
    """

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    def __post_init__(self) -> None:
        total: dict[str, int] = {}
        for name, coefficient in self.terms:
            total[name] = total.get(name, 0) + operator.index(coefficient)
        kept = tuple(sorted((name, c) for name, c in total.items() if c))
        object.__setattr__(self, "terms", kept)
        object.__setattr__(self, "constant", operator.index(self.constant))

    def __add__(self, other: Affine | str | int) -> Affine:
        form = affine(other)
        return Affine(self.terms + form.terms, self.constant + form.constant)

    __radd__ = __add__

    def __mul__(self, factor: int) -> Affine:
        factor = operator.index(factor)
        return Affine(tuple((n, c * factor) for n, c in self.terms), self.constant * factor)

    __rmul__ = __mul__

    def __neg__(self) -> Affine:
        return self * -1

    def __sub__(self, other: Affine | str | int) -> Affine:
        return self + -affine(other)

    def __rsub__(self, other: Affine | str | int) -> Affine:
        return affine(other) - self

    def coefficient(self, name: str) -> int:
        """Return the coefficient of `name`, 0 where it does not appear."""
        return dict(self.terms).get(name, 0)

    def symbols(self) -> tuple[str, ...]:
        """Return the names that appear, sorted."""
        return tuple(name for name, _ in self.terms)

    def evaluate(self, values: Mapping[str, Any]) -> Any:
        """Return the form's value: an int for ints, a (broadcast) array for arrays.

        Raises AffineError where a symbol has no value.
        """
        missing = [name for name in self.symbols() if name not in values]
        if missing:
            raise AffineError(f"{self}: values must be given for {', '.join(missing)}")
        total: Any = self.constant
        for name, coefficient in self.terms:
            total = total + coefficient * values[name]
        return total

    def substitute(self, forms: Mapping[str, Affine | str | int]) -> Affine:
        """Return the form with each name of `forms` replaced by its form.

        >>> str(affine("2*n + 1").substitute({"n": affine("4*a + b")}))
        '8*a + 2*b + 1'
        """
        result = Affine((), self.constant)
        for name, coefficient in self.terms:
            result = result + affine(forms.get(name, Affine(((name, 1),)))) * coefficient
        return result

    def bounds(self, extents: Mapping[str, int]) -> tuple[int, int]:
        """Return the least and greatest value while each name runs over 0..extent-1."""
        ends = [(c * (extents[name] - 1)) for name, c in self.terms]
        low = self.constant + sum(min(0, end) for end in ends)
        return low, self.constant + sum(max(0, end) for end in ends)

    def __str__(self) -> str:
        parts = [(c, name if abs(c) == 1 else f"{abs(c)}*{name}") for name, c in self.terms]
        if self.constant or not parts:
            parts.append((self.constant, str(abs(self.constant))))
        text = "".join(f" {'-' if c < 0 else '+'} {body}" for c, body in parts)
        return text[3:] if text.startswith(" + ") else f"-{text[3:]}"


def affine(value: Affine | str | int) -> Affine:
    """Return `value` as a form: a whole number, a name, or text such as `2*n + 1`."""
    if isinstance(value, Affine):
        return value
    if isinstance(value, str):
        return parse_affine(value)
    return Affine((), operator.index(value))


def parse_affine(text: str) -> Affine:
    """Return the form that `text` writes, so that `parse_affine(str(a)) == a`.

    Raises AffineError with the column of the first character that does not fit.
    """
    at, sign, result = 0, 1, Affine()
    start = _SIGN.match(text)
    if start:
        at, sign = start.end(), -1 if start.group(1) == "-" else 1
    while True:
        term = _TERM.match(text, at)
        if term is None:
            raise AffineError(_fault(text, at, "a number, a name, or number*name"))
        left, left_name, right_name, right, number, name = term.groups()
        symbol = left_name or right_name or name
        factor = sign * int(left or right or number or 1)
        result = result + (Affine(((symbol, factor),)) if symbol else Affine((), factor))
        at = term.end()
        if not text[at:].strip():
            return result
        joint = _SIGN.match(text, at)
        if joint is None:
            raise AffineError(_fault(text, at, "+ or -"))
        at, sign = joint.end(), -1 if joint.group(1) == "-" else 1


def _fault(text: str, at: int, rule: str) -> str:
    rest = text[at:].strip()
    got = repr(rest[:20]) if rest else "the end"
    return f"affine form {text!r}, column {at + 1}: the text must go on with {rule}, got {got}"
