"""A kernel of one product turned so that its wider side is the columns: (A B)' = B' A'.

A warp group multiplies 64 rows by up to 256 columns at once. With 64 x 256 it reads 10 KiB of
shared memory for 128 cycles of work, with two of 64 x 128 rows 12 KiB: 2 + 8 against 2 (2 + 4).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gpu.plan import Carried, Dot, Kernel, Loop, Statement, Value


def turned(kernel: Kernel) -> Kernel:
    """Return `kernel` with every tile transposed, where its only product has more rows."""
    dots = [s for s in kernel.statements() if isinstance(s, Dot)]
    if len(dots) != 1 or any(len(side) != 1 for side in (dots[0].m, dots[0].n)):
        return kernel
    rows, columns = (kernel.lanes(side[0]) for side in (dots[0].m, dots[0].n))
    if rows <= columns or columns % max(64, 16 * kernel.warps):
        return kernel
    return replace(kernel, body=tuple(_statement(s) for s in kernel.body))


def _statement(statement: Statement) -> Statement:
    if isinstance(statement, Loop):
        carried = tuple(
            Carried(_turn(c.value), _turn(c.init), _turn(c.next)) for c in statement.carried
        )
        body = tuple(_statement(s) for s in statement.body)
        return replace(statement, body=body, carried=carried)
    fields: dict[str, Any] = {
        name: _turn(value) for name, value in vars(statement).items() if isinstance(value, Value)
    }
    args = getattr(statement, "args", None)
    if args is not None:
        fields["args"] = tuple(_turn(arg) for arg in args)
    if isinstance(statement, Dot):
        fields |= {"left": _turn(statement.right), "right": _turn(statement.left)}
        fields |= {"m": statement.n, "n": statement.m}
    return replace(statement, **fields)


def _turn(value: Any) -> Any:
    if isinstance(value, Value) and len(value.axes) == 2:
        return replace(value, axes=value.axes[::-1])
    return value
