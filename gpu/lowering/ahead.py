"""Steps that wait for each other: all that a step loads is asked for at its start.

A step of a loop that ends at a barrier can do nothing before it, so that every wait in it is one
after another. What it loads at places that the step decides, and what all programs left in the step
before, is asked for at once; where the state is zero, in the first step, is decided when it is used.
"""

from __future__ import annotations

from dataclasses import replace

from dataflow.index import affine
from gpu.plan import Barrier, Fetch, Load, Loop, Mask, Statement, Value

Body = tuple[Statement, ...]


def asked_for_early(body: Body) -> Body:
    """Return `body` with the loads of each loop over a barrier at the start of its step."""
    return tuple(_loop(s) if isinstance(s, Loop) else s for s in body)


def _loop(loop: Loop) -> Loop:
    if not any(isinstance(statement, Barrier) for statement in loop.body):
        return replace(loop, body=asked_for_early(loop.body))
    fetched: list[Statement] = []
    loaded: list[Statement] = []
    rest: list[Statement] = []
    later = (affine(loop.axis) - 1,)
    for statement in loop.body:
        if isinstance(statement, Fetch):
            out = statement.out
            left = Value(f"{out.name}_left", out.axes, out.type)
            fetched.append(replace(statement, out=left))
            rest.append(Mask(out, left, later, 0.0))
        elif isinstance(statement, Load) and _decided_by(loop.axis, statement):
            loaded.append(statement)
        else:
            rest.append(statement)
    return replace(loop, body=(*fetched, *loaded, *rest))


def _decided_by(axis: str, load: Load) -> bool:
    return any(form.coefficient(axis) for form in (*load.index, *load.guards))
