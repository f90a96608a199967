"""Errors that carry every fault of an input, each with its place and a hint."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

_LONG_WORD = re.compile(r"(\S{500})\S{500,}")


class FaultsError(ValueError):
    """One raise for all faults of an input: `faults` holds one line each, words of absurd length
    cut short."""

    def __init__(self, faults: str | Sequence[str]):
        given = (faults,) if isinstance(faults, str) else faults
        self.faults: tuple[str, ...] = tuple(_LONG_WORD.sub(r"\1...", fault) for fault in given)
        super().__init__("\n".join(self.faults))


def did_you_mean(got: object, choices: Iterable[str]) -> str:
    """Return the hint that ends a message about a wrong name.

    >>> did_you_mean("exb", ["exp", "log"])
    'did you mean exp?'
    >>> did_you_mean("zzz", ["exp", "log"])
    'known: exp, log'
    >>> did_you_mean("zzz", [])
    'there are none'
    """
    names = list(choices)
    near = difflib.get_close_matches(str(got), names, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]}?"
    return f"known: {', '.join(names)}" if names else "there are none"
