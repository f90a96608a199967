"""What the statements of a plan read, and what they make."""

from __future__ import annotations

from gpu.plan import (
    Cast,
    Dot,
    Loop,
    Map,
    Mask,
    Operand,
    Permute,
    Publish,
    Reduce,
    Stack,
    Statement,
    Store,
    Unstack,
    Value,
)


def operands(statement: Statement) -> tuple[Operand, ...]:
    """What a statement reads."""
    if isinstance(statement, Map | Stack):
        return statement.args
    if isinstance(statement, Dot):
        acc = () if statement.acc is None else (statement.acc,)
        return (statement.left, statement.right, *acc)
    if isinstance(statement, Mask | Reduce | Permute | Unstack | Cast | Store | Publish):
        return (statement.arg,)
    return ()


def made(statement: Statement) -> tuple[str, ...]:
    """Names that a statement defines."""
    if isinstance(statement, Loop):
        return tuple(carried.value.name for carried in statement.carried)
    if isinstance(statement, Unstack):
        return tuple(out.name for out in statement.outs)
    out = getattr(statement, "out", None)
    return (out.name,) if isinstance(out, Value) else ()
