"""Chooses the order of every tile's dimensions, and which side of a product is the left one.

A product of matrices wants its left operand as (m, k), its right one as (k, n), and gives (m, n);
everything pointwise wants its arguments in one order. Values that pointwise code or a loop's state
ties together share one order; the search moves one such class at a time until no move pays. Where
orders still differ, a Permute is put in. What it prefers, dearest first: no permuting of computed
tiles, no computed right operands (they pass through shared memory), at least 64 rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpu.plan import (
    AxisPlan,
    Barrier,
    Carried,
    Cast,
    Dot,
    Fetch,
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
    Tensor,
    Unstack,
    Value,
    statements_of,
)
from gpu.uses import operands

Order = tuple[str, ...]

PERMUTE = 4.0
"""Cost of permuting a computed tile, an element: it passes through shared memory and back."""
PERMUTE_LOADED = 0.3
"""Cost of a loaded tile in another order: the product reads shared memory either way."""
COMPUTED_RIGHT = 2.0
"""Cost of a computed right operand, an element: only the left one may come from registers."""
FEW_ROWS = 1.0
"""Cost of a product with fewer than 64 rows, an element of the result (no warp-group product)."""
ROWS = 64
FILLED = 1.0
"""Cost of a row that a product with fewer than 16 lacks, an element: the left operand's tile in
registers has 16 rows (mma.sync m16n8k16), the right one's 8 columns."""
LEAST_ROWS = 16


def ordered(
    body: tuple[Statement, ...], axes: Mapping[str, AxisPlan], tensors: Mapping[str, Tensor]
) -> tuple[Statement, ...]:
    """Return `body` with the dimensions of all tiles in order and the Permutes that this takes."""
    flat = list(statements_of(body))
    search = _Search(flat, axes)
    search.run()
    symmetric = {name for name, tensor in tensors.items() if tensor.symmetric}
    return _Rewrite(search, symmetric).body(body)


@dataclass(frozen=True)
class Sides:
    """A product with its operands in place: groups of axes in the order of the dimensions."""

    left: Value
    right: Value
    batch: Order
    m: Order
    n: Order
    k: Order
    cost: float


class _Search:
    """The classes of values that share an order, and the order of each."""

    def __init__(self, flat: Sequence[Statement], axes: Mapping[str, AxisPlan]):
        self.flat = flat
        self.axes = axes
        self.parent: dict[str, str] = {}
        self.sets: dict[str, frozenset[str]] = {}
        self.loaded: set[str] = set()
        for statement in flat:
            self._add(statement)
        self.order: dict[str, Order] = {}
        for name, wanted in self.sets.items():
            self.order.setdefault(self.root(name), tuple(a for a in axes if a in wanted))
        self.touching: dict[str, list[Statement]] = {}
        self.roots: dict[int, tuple[str, ...]] = {}
        self.costs: dict[tuple[int, tuple[Order, ...]], float] = {}
        for statement in flat:
            names = {v.name for v in self._values(statement) if len(v.axes) > 1}
            self.roots[id(statement)] = tuple(sorted({self.root(name) for name in names}))
            for root in self.roots[id(statement)]:
                self.touching.setdefault(root, []).append(statement)

    def run(self) -> None:
        """Move one class at a time to its cheapest order, until no move pays."""
        movable = [root for root in self.order if len(self.order[root]) > 1]
        for _ in range(8):
            moved = False
            for root in movable:
                moved = self._move((root,)) or moved
            for pair in itertools.combinations(movable, 2):
                near = {id(s) for s in self.touching.get(pair[0], ())}
                if any(id(s) in near for s in self.touching.get(pair[1], ())):
                    moved = self._move(pair) or moved
            if not moved:
                return

    def _move(self, roots: tuple[str, ...]) -> bool:
        """Give one or two classes their cheapest orders, the others as they are."""
        now = tuple(self.order[root] for root in roots)
        choices = [list(itertools.permutations(order)) for order in now]
        alone = [
            self._costs_alone(root, roots, each) for root, each in zip(roots, choices, strict=True)
        ]
        shared = [s for s in self.touching.get(roots[0], ()) if self._touches_all(s, roots)]
        best, least = now, math.inf
        for choice in (now, *itertools.product(*choices)):
            cost = sum(costs[order] for costs, order in zip(alone, choice, strict=True))
            if cost < least - 1e-9:
                self.order.update(zip(roots, choice, strict=True))
                cost += sum(self.cost(statement) for statement in shared)
                if cost < least - 1e-9:
                    best, least = choice, cost
        self.order.update(zip(roots, best, strict=True))
        return best != now

    def _costs_alone(
        self, root: str, roots: tuple[str, ...], choices: Iterable[Order]
    ) -> dict[Order, float]:
        """For each order of `root`, what the statements cost that not all of `roots` touch."""
        now = self.order[root]
        own = [s for s in self.touching.get(root, ()) if not self._touches_all(s, roots)]
        costs = {}
        for order in choices:
            self.order[root] = order
            costs[order] = sum(self.cost(statement) for statement in own)
        self.order[root] = now
        return costs

    def _touches_all(self, statement: Statement, roots: tuple[str, ...]) -> bool:
        return set(roots) <= set(self.roots[id(statement)])

    def root(self, name: str) -> str:
        """The class of a value."""
        while self.parent.get(name, name) != name:
            name = self.parent[name]
        return name

    def of(self, value: Value) -> Order:
        """The order of a value's dimensions."""
        return self.order[self.root(value.name)] if len(value.axes) > 1 else value.axes

    def size(self, value: Value) -> int:
        """Elements of a tile."""
        return self.points(value.axes)

    def points(self, axes: Iterable[str]) -> int:
        """Lanes of several axes together."""
        return math.prod(self.axes[axis].tile for axis in axes)

    def cost(self, statement: Statement) -> float:
        """What the orders as they are cost at one statement: few of them, asked for many times."""
        orders = tuple(self.order[root] for root in self.roots[id(statement)])
        found = (id(statement), orders)
        if found not in self.costs:
            self.costs[found] = self._cost(statement)
        return self.costs[found]

    def _cost(self, statement: Statement) -> float:
        if isinstance(statement, Dot):
            return self.sides(statement).cost
        if isinstance(statement, Map):
            wanted = self.of(statement.out)
            return sum(
                PERMUTE * self.size(arg)
                for arg in statement.args
                if isinstance(arg, Value) and not _within(self.of(arg), wanted)
            )
        if isinstance(statement, Reduce):
            rest = tuple(a for a in self.of(statement.arg) if a not in statement.axes)
            return 0.0 if rest == self.of(statement.out) else PERMUTE * self.size(statement.out)
        if isinstance(statement, Cast) and _renames(statement):
            natural = _renamed(statement, self.of(statement.arg))
            return 0.0 if natural == self.of(statement.out) else PERMUTE * self.size(statement.out)
        return 0.0

    def sides(self, dot: Dot) -> Sides:
        """The cheaper of the two ways to place a product's operands."""
        plain = self._placed(dot, dot.left, dot.right, dot.m, dot.n)
        turned = self._placed(dot, dot.right, dot.left, dot.n, dot.m)
        return turned if turned.cost < plain.cost else plain

    def _placed(self, dot: Dot, left: Value, right: Value, m: Order, n: Order) -> Sides:
        out = self.of(dot.out)
        batch, rows, columns = _split(out, (dot.batch, m, n)) or (dot.batch, m, n)
        cost = 0.0 if out == (*batch, *rows, *columns) else PERMUTE * self.size(dot.out)
        k = next(
            (
                groups[place]
                for value, sets, place in (
                    (left, (batch, rows, dot.k), 2),
                    (right, (batch, dot.k, columns), 1),
                )
                if (groups := _split(self.of(value), sets)) is not None
            ),
            dot.k,
        )
        for value, order in ((left, (*batch, *rows, *k)), (right, (*batch, *k, *columns))):
            if self.of(value) != order:
                loaded = value.name in self.loaded
                cost += self.size(value) * (PERMUTE_LOADED if loaded else PERMUTE)
        if right.name not in self.loaded:
            cost += COMPUTED_RIGHT * self.size(right)
        if self.points(rows) < ROWS:
            cost += FEW_ROWS * self.size(dot.out)
        missing = max(0, LEAST_ROWS - self.points(rows))
        cost += FILLED * missing * self.points((*batch, *k))
        return Sides(left, right, batch, rows, columns, k, cost)

    def _add(self, statement: Statement) -> None:
        for value in self._values(statement):
            if len(value.axes) > 1:
                self.sets.setdefault(value.name, frozenset(value.axes))
        if isinstance(statement, Load | Fetch | Form):
            self.loaded.add(statement.out.name)
        if isinstance(statement, Loop):
            for carried in statement.carried:
                self._join(carried.value, carried.next)
                if isinstance(carried.init, Value):
                    self._join(carried.value, carried.init)
            return
        out = getattr(statement, "out", None)
        if out is None:
            return
        if isinstance(statement, Cast) and statement.arg.name in self.loaded:
            self.loaded.add(out.name)
        if isinstance(statement, Map | Mask | Cast):
            for arg in operands(statement):
                if isinstance(arg, Value):
                    self._join(out, arg)
        if isinstance(statement, Dot) and statement.acc is not None:
            self._join(out, statement.acc)

    def _join(self, a: Value, b: Value) -> None:
        if len(a.axes) > 1 and set(a.axes) == set(b.axes):
            self.parent[self.root(b.name)] = self.root(a.name)

    @staticmethod
    def _values(statement: Statement) -> list[Value]:
        found = [value for value in operands(statement) if isinstance(value, Value)]
        out = getattr(statement, "out", None)
        if out is not None:
            found.append(out)
        if isinstance(statement, Loop):
            for carried in statement.carried:
                found += [carried.value, carried.next]
                found += [carried.init] if isinstance(carried.init, Value) else []
        return found


class _Rewrite:
    """Writes the orders into the statements."""

    def __init__(self, search: _Search, symmetric: set[str]):
        self.search = search
        self.symmetric = symmetric
        self.count = 0

    def body(self, body: Iterable[Statement]) -> tuple[Statement, ...]:
        """All statements of a body, Permutes put in before their readers."""
        out: list[Statement] = []
        for statement in body:
            out += self._one(statement)
        return tuple(out)

    def value(self, value: Value) -> Value:
        """The value with its dimensions in order."""
        return replace(value, axes=self.search.of(value))

    def operand(self, operand: Operand) -> Operand:
        """The operand with its dimensions in order."""
        return self.value(operand) if isinstance(operand, Value) else operand

    def _one(self, statement: Statement) -> list[Statement]:
        if isinstance(statement, Loop):
            carried = tuple(
                Carried(self.value(c.value), self.operand(c.init), self.value(c.next))
                for c in statement.carried
            )
            return [replace(statement, body=self.body(statement.body), carried=carried)]
        if isinstance(statement, Dot):
            return self._dot(statement)
        if isinstance(statement, Map):
            before: list[Statement] = []
            out = self.value(statement.out)
            args = tuple(self._within(arg, out.axes, before) for arg in statement.args)
            return [*before, replace(statement, out=out, args=args)]
        if isinstance(statement, Reduce):
            arg, out = self.value(statement.arg), self.value(statement.out)
            rest = tuple(axis for axis in arg.axes if axis not in statement.axes)
            return self._turned(replace(statement, arg=arg, out=replace(out, axes=rest)), out)
        if isinstance(statement, Cast) and _renames(statement):
            arg, out = self.value(statement.arg), self.value(statement.out)
            natural = replace(out, axes=_renamed(statement, arg.axes))
            return self._turned(replace(statement, arg=arg, out=natural), out)
        if isinstance(statement, Mask | Cast | Permute):
            return [
                replace(statement, out=self.value(statement.out), arg=self.value(statement.arg))
            ]
        if isinstance(statement, Barrier | Unstack):
            return [statement]
        if isinstance(statement, Store | Publish):
            return [replace(statement, arg=self.value(statement.arg))]
        if isinstance(statement, Load):
            return [self._load(statement)]
        return [replace(statement, out=self.value(statement.out))]

    def _load(self, load: Load) -> Load:
        """A symmetric table is read along its rows, so that both orders are one load."""
        out = self.value(load.out)
        along_rows = not out.axes or load.index[-1].coefficient(out.axes[-1])
        if load.tensor not in self.symmetric or along_rows:
            return replace(load, out=out)
        return replace(load, out=out, index=load.index[::-1])

    def _dot(self, dot: Dot) -> list[Statement]:
        sides = self.search.sides(dot)
        before: list[Statement] = []
        left = self._as(sides.left, (*sides.batch, *sides.m, *sides.k), before)
        right = self._as(sides.right, (*sides.batch, *sides.k, *sides.n), before)
        out = self.value(dot.out)
        natural = (*sides.batch, *sides.m, *sides.n)
        acc = None if dot.acc is None else self._as(dot.acc, natural, before)
        made = Dot(
            replace(out, axes=natural),
            left,
            right,
            acc,
            sides.batch,
            sides.m,
            sides.n,
            sides.k,
            dot.precision,
        )
        return [*before, *self._turned(made, out)]

    def _turned(self, made: Dot | Reduce | Cast, out: Value) -> list[Statement]:
        """The statement, and a Permute where its natural order is not that of its result."""
        if made.out.axes == out.axes:
            return [made]
        self.count += 1
        natural = replace(made.out, name=f"{out.name}_t{self.count}")
        return [replace(made, out=natural), Permute(out, natural)]

    def _as(self, value: Value, order: Order, before: list[Statement]) -> Value:
        value = self.value(value)
        if value.axes == order:
            return value
        self.count += 1
        turned = replace(value, name=f"{value.name}_t{self.count}", axes=order)
        before.append(Permute(turned, value))
        return turned

    def _within(self, arg: Operand, order: Order, before: list[Statement]) -> Operand:
        if not isinstance(arg, Value):
            return arg
        arg = self.value(arg)
        if _within(arg.axes, order):
            return arg
        return self._as(arg, tuple(axis for axis in order if axis in arg.axes), before)


def _within(order: Order, wanted: Order) -> bool:
    """Whether `order` is `wanted` with some axes left out."""
    return tuple(axis for axis in wanted if axis in order) == order


def _split(order: Order, groups: Sequence[Order]) -> tuple[Order, ...] | None:
    """Cut `order` into parts that hold the axes of each group, None where they are not together."""
    parts, at = [], 0
    for group in groups:
        part = order[at : at + len(group)]
        if set(part) != set(group):
            return None
        parts.append(part)
        at += len(group)
    return tuple(parts) if at == len(order) else None


def _renames(cast: Cast) -> bool:
    return set(cast.out.axes) != set(cast.arg.axes)


def _renamed(cast: Cast, order: Order) -> Order:
    names = dict(zip(cast.arg.axes, cast.out.axes, strict=True))
    return tuple(names[axis] for axis in order)
