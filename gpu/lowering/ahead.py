"""Steps that wait for each other: loads asked for at the start, sums together, results stored late.

A step of a loop that ends at a barrier can do nothing before it, so that every wait in it is one
after another. What it loads at places that the step decides, and what all programs left in the
step before, is asked for at once; that the state is zero in the first step is put in at its use.
Sums whose parts lie with several warps pass through shared memory, a wait each: those of tiles of
one shape that do not need each other stand side by side, for an emitter to make them at once.
Results go to memory behind the barrier, which else would wait until they are there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from dataflow.index import affine
from gpu.plan import (
    AxisPlan,
    Barrier,
    Fetch,
    Load,
    Loop,
    Mask,
    Publish,
    Reduce,
    Statement,
    Store,
    Value,
)
from gpu.uses import made, operands

Body = tuple[Statement, ...]

AT_ONCE = 64
"""Numbers a thread that may wait for the last of their sums: a quarter of its registers."""
THREADS = 32


def ahead(body: Body, axes: Mapping[str, AxisPlan], warps: int) -> Body:
    """Return `body` with each loop over a barrier so rearranged."""
    return tuple(_loop(s, axes, warps) if isinstance(s, Loop) else s for s in body)


def _loop(loop: Loop, axes: Mapping[str, AxisPlan], warps: int) -> Loop:
    if not any(isinstance(statement, Barrier) for statement in loop.body):
        return replace(loop, body=ahead(loop.body, axes, warps))
    body = _loads_first(loop)
    for statement in body:
        if isinstance(statement, Reduce):
            tile = math.prod(axes[axis].tile for axis in statement.arg.axes)
            body = _side_by_side(body, statement, AT_ONCE * THREADS * warps // tile)
    return replace(loop, body=tuple(_stores_last(body)))


def _stores_last(body: Sequence[Statement]) -> list[Statement]:
    stores = [statement for statement in body if isinstance(statement, Store)]
    return [*(statement for statement in body if not isinstance(statement, Store)), *stores]


def _loads_first(loop: Loop) -> list[Statement]:
    """The loop's body, what it fetches and loads at places that its step decides in front."""
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
    return [*fetched, *loaded, *rest]


def _decided_by(axis: str, load: Load) -> bool:
    return any(form.coefficient(axis) for form in (*load.index, *load.guards))


def _side_by_side(body: Sequence[Statement], first: Reduce, most: int) -> list[Statement]:
    """`body` with at most `most` sums like `first`, and that do not come of it, right after it.

    What they need comes before them, what needs any of them after; nothing is moved past a store.
    """
    place = next(i for i, s in enumerate(body) if s is first)
    if place and alike(body[place - 1], first):
        return list(body)
    before: list[Statement] = []
    group: list[Statement] = [first]
    after: list[Statement] = []
    known = (list(body), place)
    come_of = set(made(first))
    for at, statement in enumerate(body[place + 1 :], place + 1):
        if isinstance(statement, Store | Publish | Barrier | Loop):
            break
        needs = {value.name for value in operands(statement) if isinstance(value, Value)}
        if needs & come_of:
            after.append(statement)
            come_of.update(made(statement))
        elif len(group) < most and alike(statement, first):
            group.append(statement)
            come_of.update(made(statement))
            known = ([*body[:place], *before, *group, *after], at)
        else:
            before.append(statement)
    ordered, last = known
    return [*ordered, *body[last + 1 :]] if len(group) > 1 else list(body)


def alike(statement: Statement, first: Reduce) -> bool:
    """Whether two sums can be made in one passage through shared memory."""
    return (
        isinstance(statement, Reduce)
        and (statement.fn, statement.axes) == (first.fn, first.axes)
        and (statement.arg.axes, statement.arg.type) == (first.arg.axes, first.arg.type)
    )
