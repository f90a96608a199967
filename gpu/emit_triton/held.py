"""What a loop holds of 16-bit tiles stays as narrow as it lies in memory.

A tile that is loaded before a loop and widened for pointwise code in it would be held at 32 bits,
since a compiler moves out of a loop whatever stands still: twice the registers, for steps on end.
Here each step widens it anew, behind an instruction that no compiler moves.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gpu.plan import ITEM_BYTES, Cast, Kernel, Loop, Statement, Value, with_values
from gpu.uses import operands

FEWEST = 4
"""Numbers a thread from which on it matters: two registers for four."""
THREADS = 32


@dataclass(frozen=True)
class Widen(Cast):
    """A Cast that every step makes anew; out is wider than arg, a tile of 16-bit numbers."""


def held_narrow(kernel: Kernel) -> Kernel:
    """Return `kernel` with each widening before a loop that the loop needs made in it."""
    casts: dict[str, Cast] = {}
    body: list[Statement] = []
    for statement in kernel.body:
        if isinstance(statement, Cast) and _widens(kernel, statement):
            casts[statement.out.name] = statement
        body.append(_in_loop(statement, casts) if isinstance(statement, Loop) else statement)
    return replace(kernel, body=tuple(body))


def _widens(kernel: Kernel, cast: Cast) -> bool:
    numbers = math.prod(kernel.lanes(axis) for axis in cast.arg.axes)
    return (
        ITEM_BYTES[cast.arg.type] == 2
        and ITEM_BYTES[cast.out.type] == 4
        and numbers >= FEWEST * THREADS * kernel.warps
    )


def _in_loop(loop: Loop, casts: dict[str, Cast]) -> Loop:
    """Each of `casts` where the loop first needs it, under another name."""
    wide: dict[str, Value] = {}
    body: list[Statement] = []

    def renamed(value: Value) -> Value:
        return wide.get(value.name, value)

    for statement in loop.body:
        if isinstance(statement, Loop):
            body.append(_in_loop(statement, casts))
            continue
        for value in operands(statement):
            if isinstance(value, Value) and value.name in casts and value.name not in wide:
                cast = casts[value.name]
                wide[value.name] = replace(value, name=f"{value.name}_wide")
                body.append(Widen(wide[value.name], cast.arg))
        body.append(with_values(statement, renamed))
    return replace(loop, body=tuple(body))
