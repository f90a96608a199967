"""Faults of a specification file, each with its place, raised together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

GIVEN = "given"
"""The rule that a value breaks by not being there."""


@dataclass(frozen=True, order=True)
class Fault:
    """One thing wrong at one place of a file; prints as `file:line:column: path rule`.

    `line` and `column` count from 1; 0 means that the fault has no place inside the file
    (it cannot be read at all). `path` is the dotted way to the value, empty for the whole file.
    """

    source: str
    line: int
    column: int
    path: str
    message: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}:{self.column}" if self.line else self.source
        text = f"{place}: {self.path + ' ' if self.path else ''}{self.message}"
        # A file may hold escapes such as "\ud800" that no terminal can print.
        return text.encode("utf-8", "backslashreplace").decode("utf-8")


class SpecError(ValueError):
    """A specification file was refused; `faults` holds every reason, in order of place."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults: tuple[Fault, ...] = tuple(sorted(set(faults)))
        super().__init__("\n".join(map(str, self.faults)))

    def __reduce__(self) -> tuple[type[SpecError], tuple[tuple[Fault, ...]]]:
        return type(self), (self.faults,)


class RuleError(ValueError):
    """A single value breaks `rule`; whoever knows its place turns this into a Fault."""

    def __init__(self, rule: str, hint: str = "") -> None:
        self.rule = rule
        self.hint = hint
        super().__init__(f"must be {rule}{'; ' + hint if hint else ''}")
