"""Shortens loops by the masks inside them: steps that are wholly masked, steps that need no mask.

A mask keeps a value where an affine form of the axes is >= 0. In a loop whose steps move the form
down, the form is >= 0 on all lanes for the first steps, so that those need no mask, and < 0 on
all lanes for the last ones. The last ones are left out where they change nothing: that is proven
by running the body on a tile that holds only the fill value (a maximum keeps its state, an
exponential of a fill far below any score is 0, a sum of zeros keeps its state).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from dataflow.index import Affine, affine
from dataflow.nodes import Graph
from gpu.plan import (
    AxisPlan,
    Barrier,
    Bound,
    Cast,
    Dot,
    Form,
    Load,
    Loop,
    Map,
    Mask,
    Operand,
    Permute,
    Publish,
    Reduce,
    Statement,
    Store,
    Value,
)

FAR_BELOW = -1e29
"""A fill at most this far down is below any value of a kernel, so that exp(fill - x) is 0."""


def bounded(
    graph: Graph, axes: Mapping[str, AxisPlan], body: tuple[Statement, ...]
) -> tuple[Statement, ...]:
    """Return `body` with the bounds of every loop that its masks allow to shorten."""
    return tuple(_bounded(axes, s) if isinstance(s, Loop) else s for s in body)


def _bounded(axes: Mapping[str, AxisPlan], loop: Loop) -> Loop:
    body = tuple(_bounded(axes, s) if isinstance(s, Loop) else s for s in loop.body)
    loop = replace(loop, body=body)
    masks = [s for s in body if isinstance(s, Mask) and _falls(axes, s, loop.axis)]
    if not masks:
        return loop
    free = [(s, _bound(axes, s.forms[0], loop.axis, least=True)) for s in masks]
    bounds = {bound for _, bound in free if bound is not None}
    if len(bounds) == 1:
        names = tuple(s.out.name for s, bound in free if bound is not None)
        loop = replace(loop, free=names, free_until=bounds.pop())
    for mask in masks:
        stop = _bound(axes, mask.forms[0], loop.axis, least=False)
        if stop is not None and _seen_first(axes, mask, loop) and _idle(loop, mask):
            return replace(loop, stop=stop)
    return loop


def _falls(axes: Mapping[str, AxisPlan], mask: Mask, axis: str) -> bool:
    inner = [a for a in mask.forms[0].symbols() if axes[a].loop > 1 and a != axis]
    return len(mask.forms) == 1 and mask.forms[0].coefficient(axis) < 0 and not inner


def _bound(axes: Mapping[str, AxisPlan], form: Affine, axis: str, least: bool) -> Bound | None:
    """Steps for which the form's least (or greatest) value over the lanes is still >= 0."""
    pick = min if least else max
    constant = form.constant
    programs = Affine()
    for name, coefficient in form.terms:
        plan = axes[name]
        constant += pick(0, coefficient * (plan.tile - 1))
        if plan.grid > 1:
            if name == axis:
                return None
            programs = programs + coefficient * affine(name)
    step = -form.coefficient(axis) * axes[axis].stride
    return Bound(programs + constant, step)


def _seen_first(axes: Mapping[str, AxisPlan], mask: Mask, loop: Loop) -> bool:
    """Whether every row keeps some lane at the first step: its state is then a true value."""
    kept = {a for carried in loop.carried for a in carried.value.axes}
    form, total = mask.forms[0], mask.forms[0].constant
    for name, coefficient in form.terms:
        plan = axes[name]
        if name == loop.axis:
            total += max(0, coefficient * (plan.tile - 1))
        elif name in mask.out.axes and name not in kept:
            total += max(0, coefficient * (min(plan.tile, plan.extent) - 1))
        else:
            total += min(0, coefficient * (plan.extent - 1))
    return total >= 0


Known = float | str
"""What a value is at a wholly masked step: a number, "same NAME" of a state, "far below", or ""."""


def _idle(loop: Loop, mask: Mask) -> bool:
    """Whether a step in which `mask` holds nowhere leaves all state as it was."""
    known: dict[str, Known] = {c.value.name: f"same {c.value.name}" for c in loop.carried}
    inits = {f"same {c.value.name}": c.init for c in loop.carried}
    for statement in loop.body:
        if isinstance(statement, Store | Publish | Barrier | Loop):
            return False
        out = getattr(statement, "out", None)
        if out is None:
            return False
        known[out.name] = mask.fill if statement is mask else _known(statement, known, inits)
    return all(known.get(c.next.name) == f"same {c.value.name}" for c in loop.carried)


def _known(statement: Statement, known: Mapping[str, Known], inits: Mapping[str, Operand]) -> Known:
    def of(operand: Operand | None) -> Known:
        if operand is None:
            return 0.0
        return known.get(operand.name, "") if isinstance(operand, Value) else operand

    if isinstance(statement, Cast | Permute):
        return of(statement.arg)
    if isinstance(statement, Mask | Load | Form):
        return ""
    if isinstance(statement, Reduce):
        arg = of(statement.arg)
        if statement.fn == "sum":
            return 0.0 if arg == 0.0 else ""
        return arg if isinstance(arg, float) else ""
    if isinstance(statement, Dot):
        nothing = of(statement.left) == 0.0 or of(statement.right) == 0.0
        return of(statement.acc) if nothing else ""
    if not isinstance(statement, Map):
        return ""
    return _pointwise(statement.fn, [of(arg) for arg in statement.args], inits)


def _pointwise(fn: str, args: list[Known], inits: Mapping[str, Operand]) -> Known:
    if fn in ("spread", "identity"):
        return args[0]
    if fn in ("exp", "exp2"):
        if args[0] == "far below":
            return 0.0
        return 1.0 if args[0] == 0.0 else ""
    if len(args) != 2:
        return ""
    a, b = args
    if fn == "max":
        for state, other in ((a, b), (b, a)):
            init = inits.get(state) if isinstance(state, str) else None
            if isinstance(init, float) and isinstance(other, float) and init >= other:
                return state
    if fn == "sub":
        if a == b and isinstance(a, str) and a.startswith("same "):
            return 0.0
        state = isinstance(b, str) and b.startswith("same ")
        if isinstance(a, float) and a <= FAR_BELOW and math.isfinite(a) and state:
            return "far below"
    if fn == "mul":
        if 0.0 in (a, b):
            return 0.0
        return b if a == 1.0 else a if b == 1.0 else ""
    if fn == "add":
        return b if a == 0.0 else a if b == 0.0 else ""
    return ""
