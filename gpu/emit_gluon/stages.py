"""How a loop's body overlaps on Hopper: which part of it runs a step ahead of which.

A loop whose state is summed up by products of computed values (attention: the value product reads
the scores' exponentials) is cut in two. The first stage holds all that does not need that state;
the second adds to it. In one turn of the printed loop the first stage works on a step and the
second on the step before, so that the products of both are in flight beside the pointwise code.
A loop that only sums products of loaded tiles keeps its last products in flight from step to step.
Any other body runs in order, each product issued as soon as its operands are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpu.plan import Dot, Load, Loop, Statement, Store, Value
from gpu.uses import made, operands


@dataclass(frozen=True)
class Stages:
    """A loop's body: `first` runs on a step while `second` runs on the step before.

    second: empty where the body is not cut. deferred: the body only sums products of loaded tiles.
    """

    first: tuple[Statement, ...]
    second: tuple[Statement, ...] = ()
    deferred: bool = False


def stages(loop: Loop) -> Stages:
    """Cut the body of a loop; see the module's text."""
    body = loop.body
    if _deferred(loop):
        return Stages(tuple(body), deferred=True)
    second = _second(loop)
    first = tuple(statement for statement in body if not _is_in(statement, second))
    if not second or not any(isinstance(s, Dot) for s in first) or _reads(loop, first, second):
        return Stages(early(body))
    return Stages(first, tuple(second))


def early(body: Iterable[Statement]) -> tuple[Statement, ...]:
    """The body with each product right after the last of its operands.

    >>> early(())
    ()
    """
    waiting = list(body)
    names = {name for statement in waiting for name in made(statement)}
    done: set[str] = set()
    order: list[Statement] = []
    while waiting:
        ready = [s for s in waiting if not (_needs(s) & names) - done]
        chosen = next((s for s in ready if isinstance(s, Dot)), ready[0])
        waiting = [s for s in waiting if s is not chosen]
        order.append(chosen)
        done.update(made(chosen))
    return tuple(order)


def _needs(statement: Statement) -> set[str]:
    found = {value.name for value in operands(statement) if isinstance(value, Value)}
    if isinstance(statement, Loop):
        for carried in statement.carried:
            if isinstance(carried.init, Value):
                found.add(carried.init.name)
        inside = {name for inner in statement.body for name in made(inner)}
        for inner in statement.body:
            found |= _needs(inner) - inside
    return found


def _is_in(statement: Statement, group: Sequence[Statement]) -> bool:
    return any(statement is member for member in group)


def _deferred(loop: Loop) -> bool:
    """Whether the body is loads, and products each of which adds to its own state."""
    state = {carried.value.name: carried.next.name for carried in loop.carried}
    loads = {s.out.name for s in loop.body if isinstance(s, Load)}
    local = {name for s in loop.body for name in made(s)}
    dots = [s for s in loop.body if isinstance(s, Dot)]
    if not dots or len(dots) != len(state) or len(dots) + len(loads) != len(loop.body):
        return False
    return all(
        dot.acc is not None
        and state.get(dot.acc.name) == dot.out.name
        and all(v.name in loads or v.name not in local for v in (dot.left, dot.right))
        for dot in dots
    )


def _second(loop: Loop) -> list[Statement]:
    """What the state needs that products of computed values add to, and nothing else does."""
    carried = {c.next.name: c.value.name for c in loop.carried}
    late = _late(loop.body)
    members = {s.out.name for s in late if s.out.name in carried}
    state = {carried[name] for name in members}
    if not state:
        return []
    second = [s for s in loop.body if _needs(s) & (state | members) or members & set(made(s))]
    users: dict[str, list[Statement]] = {}
    for statement in loop.body:
        for name in _needs(statement):
            users.setdefault(name, []).append(statement)
    for statement in loop.body:
        if isinstance(statement, Load):
            reading = users.get(statement.out.name, [])
            if reading and all(_is_in(user, second) for user in reading):
                second.append(statement)
    return [s for s in loop.body if _is_in(s, second)]


def _late(body: Iterable[Statement]) -> list[Dot]:
    """Products that need another product of the same step for an operand, not only to add to."""
    from_products: set[str] = set()
    late: list[Dot] = []
    for statement in body:
        if isinstance(statement, Dot):
            if {statement.left.name, statement.right.name} & from_products:
                late.append(statement)
            from_products.add(statement.out.name)
        elif _needs(statement) & from_products:
            from_products.update(made(statement))
    return late


def _reads(loop: Loop, first: Iterable[Statement], second: Iterable[Statement]) -> bool:
    """Whether the first stage needs what the second makes, or something is stored in the loop."""
    names = {name for statement in second for name in made(statement)}
    names |= {c.value.name for c in loop.carried if c.next.name in names}
    return any(_needs(s) & names for s in first) or any(isinstance(s, Store) for s in loop.body)
