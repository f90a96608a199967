"""Quantities written with their unit, such as `1 GHz`, `256 KiB`, `51.2 GB/s`, `2 cycles`.

Decimal prefixes (kB, MB, GB) mean powers of 1000, binary ones (KiB, MiB, GiB) powers of 1024.
Every quantity of a machine is positive, so signs, zero, NaN and infinity are refused here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from difflib import get_close_matches
from fractions import Fraction

from hwspecs.errors import RuleError

_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_NUMBER = r"[0-9]{1,18}(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,2})?"
_LONGEST = 12
"""Characters of a text with its unit beyond which a smaller unit is shorter."""
_QUANTITY = re.compile(rf"({_NUMBER})[ \t]*([A-Za-z/]+)", re.ASCII)


@dataclass(frozen=True)
class Quantity:
    """One kind of quantity: its units as factors of the base unit, and what it may be.

    `maximum` is in base units; `whole` quantities have no fractions of the base unit.
    """

    name: str
    example: str
    units: dict[str, int]
    maximum: int
    whole: bool

    @property
    def pattern(self) -> str:
        """Regular expression of the accepted text, for editors."""
        return rf"^{_NUMBER}[ \t]*({'|'.join(self.units)})$"


FREQUENCY = Quantity(
    "a frequency",
    "1 GHz",
    {"Hz": 1, "kHz": 10**3, "MHz": 10**6, "GHz": 10**9},
    maximum=10**12,
    whole=False,
)
SIZE = Quantity("a size", "256 KiB", _BYTES, maximum=2**60, whole=True)
RATE = Quantity(
    "a rate",
    "51.2 GB/s",
    {f"{unit}/s": factor for unit, factor in _BYTES.items()},
    maximum=10**18,
    whole=False,
)
DURATION = Quantity(
    "a whole number of cycles", "2 cycles", {"cycles": 1, "cycle": 1}, maximum=10**9, whole=True
)
TIME = Quantity(
    "a time of whole picoseconds",
    "13.75 ns",
    {"ps": 1, "ns": 10**3, "us": 10**6},
    maximum=10**9,
    whole=True,
)
DEPTH = Quantity(
    "a whole number of beats", "16 beats", {"beats": 1, "beat": 1}, maximum=10**6, whole=True
)
FLITS = Quantity(
    "a whole number of flits", "8 flits", {"flits": 1, "flit": 1}, maximum=10**6, whole=True
)


def parse(text: object, quantity: Quantity) -> int | float:
    """Return the value of `text` in base units: an int where `quantity` is whole, else a float.

    Raises RuleError where the number, the unit or the range is wrong.

    >>> parse("256 KiB", SIZE)
    262144
    >>> parse("51.2 GB/s", RATE)
    51200000000.0
    """
    rule = f"{quantity.name} such as '{quantity.example}'"
    if isinstance(text, int | float) and not isinstance(text, bool):
        unit = quantity.example.split()[-1]
        raise RuleError(rule, f"write the unit too, for example '{str(text)[:20]} {unit}'")
    match = _QUANTITY.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise RuleError(rule)
    number, unit = match.groups()
    if unit not in quantity.units:
        raise RuleError(rule, _unit_hint(unit, quantity))
    return _in_range(Fraction(number) * quantity.units[unit], quantity)


def number(value: int | float, quantity: Quantity) -> int | float:
    """Return a plain number already in base units after the checks that `parse` makes.

    >>> number(2, DURATION)
    2
    """
    if not math.isfinite(value):
        raise RuleError(f"{quantity.name}, finite")
    return _in_range(Fraction(value), quantity)


def text(value: int | float, quantity: Quantity) -> str:
    """Return the text that `parse` takes back as `value`, with the largest unit of at least one.

    >>> text(262144, SIZE), text(14.08e9, RATE), text(6, DURATION)
    ('256 KiB', '14.08 GB/s', '6 cycles')
    """
    for unit, factor in sorted(quantity.units.items(), key=lambda row: -row[1]):
        if value == 1 and unit[:-1] in quantity.units:
            continue  # 1 cycle, not cycles
        shown = f"{float(Fraction(value) / factor):.12g} {unit}"
        if value >= factor and len(shown) <= _LONGEST and parse(shown, quantity) == value:
            return shown
    base = next(unit for unit, factor in quantity.units.items() if factor == 1)
    return f"{value:.17g} {base}" if isinstance(value, float) else f"{value} {base}"


def _in_range(exact: Fraction, quantity: Quantity) -> int | float:
    base = next(unit for unit, factor in quantity.units.items() if factor == 1)
    if not 0 < exact <= quantity.maximum:
        raise RuleError(f"{quantity.name} above 0 and at most {quantity.maximum} {base}")
    if not quantity.whole:
        return float(exact)
    if exact.denominator != 1:
        raise RuleError(f"a whole number of {base}")
    return int(exact)


def _unit_hint(unit: str, quantity: Quantity) -> str:
    folded = {known.lower(): known for known in quantity.units}
    near = get_close_matches(unit.lower(), folded, n=1, cutoff=0.6)
    if near:
        return f"did you mean the unit {folded[near[0]]}?"
    return f"units are {', '.join(quantity.units)}"
