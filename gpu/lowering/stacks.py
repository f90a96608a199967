"""Products by tables that share their operands, as one product of stacked matrices.

A complex product with a Fourier matrix C + i S is four real ones, two sums of two:

    re = a C - b S, im = a S + b C        or        [re im] = [a b] [ C S]
                                                                    [-S C]

On tensor cores the right form is one product, twice as deep and twice as wide: issued once and
waited for once, where the left one is four that follow each other. What is stacked may be the
operands (two values, one result), the results (one value, two results), or both, and the tables
may stand on either side. The stacked table is one more constant; those of the same numbers, or of
the transposed ones, are one tile (`gpu.lowering.stacked_tables`).

Operands that are loads of one tensor, a fixed number of points apart, become one load; results that
are stored that way become one store. This runs when all dimensions are in order
(`gpu.lowering.orders`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from dataflow.index import Affine
from dataflow.nodes import Graph
from gpu.lowering.stacked_tables import Tables
from gpu.plan import (
    AxisPlan,
    Cast,
    Dot,
    Form,
    Load,
    Loop,
    Map,
    Mask,
    Permute,
    Reduce,
    Stack,
    Statement,
    Store,
    Tensor,
    Unstack,
    Value,
    statements_of,
)
from gpu.uses import operands

PART = "part"
"""The axis of what is stacked, unless the graph has one of that name."""

MAKING = (Load, Form, Map, Mask, Dot, Reduce, Permute, Stack, Cast)
"""Statements that do nothing but make their result."""
Access = tuple[tuple[Affine, ...], tuple[Affine, ...]]
"""Index and guards of a load or store."""


def stacked(
    graph: Graph,
    body: tuple[Statement, ...],
    axes: Mapping[str, AxisPlan],
    tensors: dict[str, Tensor],
) -> tuple[tuple[Statement, ...], Mapping[str, AxisPlan]]:
    """Return `body` with products stacked, and its axes with those that this adds.

    Stacked tables are added to `tensors`, and their loads stand first.
    """
    part = PART
    while part in axes:
        part += "_"
    held = {**axes, part: AxisPlan(part, 2, 2)}
    tables = Tables(graph, part, held, tensors, list(statements_of(body)))
    made = _products(body, part, tables)
    if not tables.statements:
        return body, axes
    return _live((*tables.statements, *_accesses(made, part))), held


# --- products ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sum:
    """Products that add up to a result: of each value by its table, from the first to the last."""

    dots: tuple[Dot, ...]
    values: tuple[Value, ...]
    tables: tuple[Value, ...]
    table_left: bool

    @property
    def out(self) -> Value:
        """The result."""
        return self.dots[-1].out

    @property
    def kind(self) -> tuple:
        """What sums that may be stacked have in common."""
        last = self.dots[-1]
        names = tuple(sorted(value.name for value in self.values))
        return self.table_left, names, last.m, last.n, last.k, last.precision

    def table_of(self, value: Value) -> Value:
        """The table by which a value is multiplied."""
        return self.tables[[each.name for each in self.values].index(value.name)]


def _products(body: Sequence[Statement], part: str, tables: Tables) -> list[Statement]:
    """Groups of sums as one product each, in the place of the first of them that ends."""
    plain = [
        replace(s, body=tuple(_products(s.body, part, tables))) if isinstance(s, Loop) else s
        for s in body
    ]
    groups: dict[tuple, list[_Sum]] = {}
    for found in _sums(plain, tables):
        groups.setdefault(found.kind, []).append(found)
    ending: dict[int, list[Statement]] = {}
    gone: set[int] = set()
    for sums in groups.values():
        count = len(sums), len(sums[0].values)
        if max(count) == 2:  # two parts, since sides of tiles are powers of two
            ending[id(sums[0].dots[-1])] = _product(sums, part, tables)
            gone |= {id(dot) for each in sums for dot in each.dots}
    made: list[Statement] = []
    for statement in plain:
        made += ending.get(id(statement), [])
        if id(statement) not in gone:
            made.append(statement)
    return made


def _sums(body: Sequence[Statement], tables: Tables) -> list[_Sum]:
    """Sums of products by tables that start from nothing, in the order in which they end."""
    uses = _uses(tables.flat)
    dots = {s.out.name: s for s in body if isinstance(s, Dot)}
    inner = {s.acc.name for s in dots.values() if s.acc is not None and uses[s.acc.name] == 1}
    found = (_sum(dot, dots, inner, tables) for dot in dots.values() if dot.out.name not in inner)
    return [each for each in found if each is not None]


def _sum(last: Dot, dots: Mapping[str, Dot], inner: set[str], tables: Tables) -> _Sum | None:
    chain = [last]
    while (acc := chain[0].acc) is not None:
        if acc.name not in dots or acc.name not in inner:
            return None
        chain.insert(0, dots[acc.name])
    left = tables.block(last.left) is not None
    by = tuple(dot.left if left else dot.right for dot in chain)
    values = tuple(dot.right if left else dot.left for dot in chain)
    single = not last.batch and len(last.k) == len(last.m if left else last.n) == 1
    known = all(tables.block(table) is not None for table in by)
    if not single or not known or len({value.name for value in values}) < len(values):
        return None
    return _Sum(tuple(chain), values, by, left)


def _product(sums: Sequence[_Sum], part: str, tables: Tables) -> list[Statement]:
    """The statements of one stacked product."""
    sums = _diagonal(sums, tables)
    first = sums[0]
    last, values = first.dots[-1], first.values
    k, own = last.k, last.m if first.table_left else last.n
    before: list[Statement] = []
    after: list[Statement] = []
    value, out = values[0], first.out
    if len(values) == 2:
        value = _with(part, values[0], k[0])
        before = [Stack(value, (values[0], values[1]), part)]
        k = (part, *k)
    if len(sums) == 2:
        out = _with(part, first.out, own[0])
        after = [Unstack((first.out, sums[1].out), out, part)]
        own = (part, *own)
    grid = [[each.table_of(value) for value in values] for each in sums]
    if first.table_left:
        table = tables.tile(grid, own, k)
        dot = Dot(out, table, value, None, (), own, last.n, k, last.precision)
    else:
        table = tables.tile([list(row) for row in zip(*grid, strict=True)], k, own)
        dot = Dot(out, value, table, None, (), last.m, own, k, last.precision)
    return [*before, dot, *after]


def _diagonal(sums: Sequence[_Sum], tables: Tables) -> Sequence[_Sum]:
    """Two sums of two in the order that has the same table twice on the diagonal, if one has."""
    first, last, values = sums[0], sums[-1], sums[0].values
    across = tables.block(first.table_of(values[-1])) == tables.block(last.table_of(values[0]))
    return sums[::-1] if across else sums


def _with(part: str, value: Value, before: str) -> Value:
    """A value of two parts: their axis stands before another one."""
    at = value.axes.index(before)
    return Value(f"{value.name}_both", (*value.axes[:at], part, *value.axes[at:]), value.type)


# --- loads and stores ----------------------------------------------------------------------------


def _accesses(body: Sequence[Statement], part: str) -> list[Statement]:
    """Two loads that are stacked as one, two stores of what is unstacked as one."""
    plain = [
        replace(s, body=tuple(_accesses(s.body, part))) if isinstance(s, Loop) else s for s in body
    ]
    return _stored(_loaded(plain, part), part)


def _loaded(body: list[Statement], part: str) -> list[Statement]:
    loads = {s.out.name: s for s in body if isinstance(s, Load)}
    made: list[Statement] = []
    for statement in body:
        if isinstance(statement, Stack):
            a, b = (loads.get(value.name) for value in statement.args)
            if a is not None and b is not None and a.out.axes == b.out.axes and a.fill == b.fill:
                found = _joined(a, b, part)
                if found is not None:
                    statement = Load(statement.out, a.tensor, found[0], a.fill, found[1])
        made.append(statement)
    return made


def _stored(body: list[Statement], part: str) -> list[Statement]:
    made = list(body)
    for statement in body:
        if not isinstance(statement, Unstack):
            continue
        ways = [_way_out(made, value) for value in statement.outs]
        (a, *_), (b, *_) = (way[::-1] or [None] for way in ways)
        if not isinstance(a, Store) or not isinstance(b, Store) or len(ways[0]) != len(ways[1]):
            continue
        found = _joined(a, b, part)
        if found is None:
            continue
        arg = statement.arg
        whole: list[Statement] = []
        if a.arg.type != arg.type:
            arg = Value(f"{arg.name}_{a.arg.type}", arg.axes, a.arg.type)
            whole.append(Cast(arg, statement.arg))
        whole.append(Store(a.tensor, found[0], arg, found[1]))
        gone = {id(s) for way in ways for s in way} - {id(b)}
        made = [each for s in made if id(s) not in gone for each in (whole if s is b else [s])]
    return made


def _way_out(body: Sequence[Statement], value: Value) -> list[Statement]:
    """The casts and the store through which alone a value goes; empty where it goes elsewhere."""
    way: list[Statement] = []
    while True:
        readers = [s for s in body if any(v.name == value.name for v in _read(s))]
        if len(readers) != 1:
            return []
        way.append(readers[0])
        if isinstance(readers[0], Store):
            return way
        if not isinstance(readers[0], Cast) or readers[0].out.axes != value.axes:
            return []
        value = readers[0].out


def _joined(a: Load | Store, b: Load | Store, part: str) -> Access | None:
    """Index and guards of two accesses as one over the axis of parts, None where there is none."""
    if a.tensor != b.tensor or len(a.guards) != len(b.guards):
        return None
    pairs = [*zip(a.index, b.index, strict=True), *zip(a.guards, b.guards, strict=True)]
    if any((second - first).terms for first, second in pairs):
        return None
    forms = [first + (second - first).constant * Affine(((part, 1),)) for first, second in pairs]
    return tuple(forms[: len(a.index)]), tuple(forms[len(a.index) :])


# --- what is read --------------------------------------------------------------------------------


def _read(statement: Statement) -> Iterable[Value]:
    yield from (value for value in operands(statement) if isinstance(value, Value))
    if isinstance(statement, Loop):
        for carried in statement.carried:
            yield from (v for v in (carried.init, carried.next) if isinstance(v, Value))


def _uses(flat: Iterable[Statement]) -> Counter[str]:
    return Counter(value.name for statement in flat for value in _read(statement))


def _live(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """Statements without those whose results nothing reads any more."""
    while True:
        uses = _uses(statements_of(body))
        kept = _kept(body, uses)
        if kept == tuple(body):
            return kept
        body = kept


def _kept(body: Iterable[Statement], uses: Counter[str]) -> tuple[Statement, ...]:
    made: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop):
            statement = replace(statement, body=_kept(statement.body, uses))
        elif _unread(statement, uses):
            continue
        made.append(statement)
    return tuple(made)


def _unread(statement: Statement, uses: Counter[str]) -> bool:
    """Whether all that a statement does is make what nothing reads."""
    if isinstance(statement, Unstack):
        return not any(uses[out.name] for out in statement.outs)
    return isinstance(statement, MAKING) and not uses[statement.out.name]
