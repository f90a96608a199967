"""A kernel of one product turned so that its wider side is the columns: (A B)' = B' A'.

A warp group multiplies 64 rows by up to 256 columns at once. With 64 x 256 it reads 10 KiB of
shared memory for 128 cycles of work, with two of 64 x 128 rows 12 KiB: 2 + 8 against 2 (2 + 4).
"""

from __future__ import annotations

from dataclasses import replace

from gpu.plan import Dot, Kernel, Loop, Statement, Value, with_values


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
    made = with_values(statement, _turn)
    if isinstance(made, Loop):
        return replace(made, body=tuple(_statement(s) for s in made.body))
    if isinstance(made, Dot):
        return replace(made, left=made.right, right=made.left, m=made.n, n=made.m)
    return made


def _turn(value: Value) -> Value:
    return replace(value, axes=value.axes[::-1]) if len(value.axes) == 2 else value
