"""What every part of the making of statements needs: scopes, names, casts, padding, guards.

A `Scope` is one body of statements; a `Draft` is a kernel whose scopes are being filled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dataflow.index import Affine, affine
from dataflow.nodes import TURNS, Graph, Node
from gpu.lowering.axes import product_sides
from gpu.lowering.names import identifier
from gpu.lowering.pads import ANY, FINITE, Pad, Pads, map_pads
from gpu.lowering.scopes import Loops, Nest
from gpu.plan import AxisPlan, Carried, Cast, Form, Map, Mask, Operand, Statement, Tensor, Value
from gpu.schedule import GpuScheduleError, KernelSchedule

Points = Mapping[str, int]
"""Which tile of each unrolled axis a value is worked out for."""

Made = Value | float
Key = tuple[str, tuple[tuple[str, int], ...]]


@dataclass(frozen=True)
class Published:
    """A value that the steps of loop `axis` hand to all programs; `kept`: its other axes."""

    source: Node
    axis: str
    kept: tuple[str, ...]


@dataclass(frozen=True)
class State:
    """State of a loop for one `earlier` node: `value` holds `init`, then `source` a step back."""

    source: Node
    value: Value
    init: Operand


@dataclass
class Scope:
    """One body of statements: of the kernel, or of a loop inside `parent`."""

    loops: Loops
    parent: Scope | None = None
    statements: list[Statement] = field(default_factory=list)
    values: dict[Key, Made] = field(default_factory=dict)
    carried: dict[Key, State] = field(default_factory=dict)
    sums: list[Carried] = field(default_factory=list)
    published: dict[str, Published] = field(default_factory=dict)


@dataclass(frozen=True)
class Store_:
    """A value to be put in memory: the node, the tensor, and where each point goes."""

    node: str
    tensor: str
    index: tuple[Affine, ...]


@dataclass
class Draft:
    """The statements of one kernel while they are made, and what every part of that needs."""

    graph: Graph
    plan: KernelSchedule
    axes: Mapping[str, AxisPlan]
    nest: Nest
    memory: Mapping[str, Tensor]
    operand_type: str
    dot_precision: str
    tensors: dict[str, Tensor]
    where: str
    pads: dict[str, Pads] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    casts: dict[tuple[int, str, str], Value] = field(default_factory=dict)
    tables: dict[tuple, Tensor] = field(default_factory=dict)
    table_axes: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def value(self, scope: Scope, node: Node, points: Points) -> Made:
        """Return the value of `node`, worked out in the outermost loop that has its axes."""
        raise NotImplementedError

    def put(self, scope: Scope, statement: Statement) -> None:
        """Add a statement."""
        scope.statements.append(statement)

    def dims(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Those of `axes` that a tile has a dimension for, in the graph's order."""
        wanted = set(axes)
        return tuple(a for a in self.axes if a in wanted and self.axes[a].tile > 1)

    def sides(self, node: Node) -> tuple[tuple[str, ...], ...] | None:
        """The (batch, m, n, k) of a product of two matrices, of as many lanes as tiles have."""
        lanes = {axis for axis, plan in self.axes.items() if plan.tile > 1}
        return product_sides(self.graph, node, lanes)

    def padded(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Those of `axes` on which some lane lies past the extent."""
        return tuple(a for a in axes if self.axes[a].tile > 1 and self.axes[a].padded)

    def instances(self, axes: Iterable[str]) -> list[dict[str, int]]:
        """Every choice of a point for each unrolled axis among `axes`."""
        unrolled = [axis for axis in axes if self.axes[axis].unroll > 1]
        ranges = [[(axis, i) for i in range(self.axes[axis].unroll)] for axis in unrolled]
        return [dict(choice) for choice in itertools.product(*ranges)]

    def fresh(self, name: str) -> str:
        """A variable's name that nothing else in the kernel has."""
        plain = identifier(name)
        self.taken[plain] = self.taken.get(plain, 0) + 1
        count = self.taken[plain]
        return plain if count == 1 else self.fresh(f"{plain}_{count}")

    def named(self, name: str, axes: tuple[str, ...], type_: str = "fp32") -> Value:
        """A new value, its padding unknown."""
        out = Value(self.fresh(name), axes, type_)
        self.pads[out.name] = dict.fromkeys(self.padded(axes), ANY)
        return out

    def tile(self, scope: Scope, made: Made) -> Value:
        """`made` as a tile: a number becomes one without dimensions."""
        if isinstance(made, Value):
            return made
        out = self.named("number", ())
        self.put(scope, Form(out, Affine((), 0)) if made == 0 else Map(out, "identity", (made,)))
        return out

    def number(self, scope: Scope, made: Value) -> Value:
        """`made` as fp32, in which everything but products is worked out."""
        return self.cast(scope, made, "fp32")

    def cast(self, scope: Scope, made: Value, type_: str) -> Value:
        """`made` in another type; asked again, the same cast."""
        if made.type == type_:
            return made
        home = next((s for s in chain(scope) if defines(s, made)), scope)
        found = (id(home), made.name, type_)
        if found not in self.casts:
            out = self.named(f"{made.name}_{type_}", made.axes, type_)
            self.pads[out.name] = self.pads[made.name]
            self.put(home, Cast(out, made))
            self.casts[found] = out
        return self.casts[found]

    def spread(self, scope: Scope, made: Value, axes: tuple[str, ...]) -> Value:
        """`made` with all dimensions of `axes`, those that it lacks repeated."""
        if set(made.axes) >= set(axes):
            return made
        order = self.dims({*made.axes, *axes})
        out = self.named(made.name, order, made.type)
        pads: dict[str, Pad] = dict.fromkeys(self.padded(order), FINITE)
        self.pads[out.name] = {**pads, **self.pads[made.name]}
        self.put(scope, Map(out, "spread", (made,)))
        return out

    def at(self, points: Points) -> dict[str, Affine]:
        """What stands for each unrolled axis at its point, over its coordinate at point 0."""
        return {
            axis: affine(point)
            if self.axes[axis].fixed
            else affine(axis) + point * self.axes[axis].tile
            for axis, point in points.items()
        }

    def lane_guard(self, axis: str, points: Points) -> Affine:
        """A form that is negative on padded lanes of `axis`."""
        return (affine(self.graph.extent(axis) - 1) - axis).substitute(self.at(points))

    def bounds_guards(self, index: Sequence[Affine], shape: Sequence[int]) -> list[Affine]:
        """Forms that are negative where a coordinate leaves its dimension."""
        guards = []
        for form, size in zip(index, shape, strict=True):
            guards += [form, affine(size - 1) - form]
        return guards

    def guards(
        self, index: Sequence[Affine], shape: Sequence[int], points: Points
    ) -> tuple[Affine, ...]:
        """All guards of an access that can fail."""
        lanes = [
            self.lane_guard(axis, points) for axis in index_axes(index) if self.axes[axis].padded
        ]
        checks = [*self.bounds_guards(index, shape), *lanes]
        return tuple(dict.fromkeys(g for g in checks if self.lowest(g) < 0))

    def lowest(self, form: Affine) -> int:
        """The least value of a form over all coordinates, padded ones included."""
        extents = {axis: self.axes[axis].reach for axis in form.symbols()}
        return form.bounds(extents)[0]

    def mapped(self, scope: Scope, name: str, fn: str, args: Sequence[Operand]) -> Value:
        axes = self.dims({axis for arg in args if isinstance(arg, Value) for axis in arg.axes})
        types = {arg.type for arg in args if isinstance(arg, Value)}
        out = self.named(name, axes, types.pop() if len(types) == 1 else "fp32")
        known = [(a.axes, self.pads[a.name]) if isinstance(a, Value) else a for a in args]
        self.pads[out.name] = {
            axis: pad for axis, pad in map_pads(fn, known).items() if axis in axes
        }
        self.put(scope, Map(out, fn, tuple(args)))
        return out

    def clean(
        self, scope: Scope, made: Value, axes: Iterable[str], identity: float, points: Points
    ) -> Value:
        """`made` with `identity` on padded lanes of `axes`, masked only where it holds another."""
        pads = self.pads[made.name]
        dirty = [
            a
            for a in self.padded(axes)
            if a in made.axes
            and pads.get(a) != identity
            and self.lowest(self.lane_guard(a, points)) < 0
        ]
        if not dirty:
            return made
        out = self.named(f"{made.name}_in", made.axes, made.type)
        self.put(scope, Mask(out, made, tuple(self.lane_guard(a, points) for a in dirty), identity))
        cleaned = dict.fromkeys(dirty, identity)
        self.pads[out.name] = {**pads, **cleaned}
        for each in chain(scope):
            for found, value in each.values.items():
                if value is made and each is scope:
                    each.values[found] = out
        return out

    def argument(self, scope: Scope, name: str, points: Points) -> Made:
        return self.value(scope, self.graph.node(name), points)

    @staticmethod
    def is_table(node: Node) -> bool:
        return node.op == "const" and node.fn in TURNS

    def home(self, scope: Scope, node: Node) -> Scope:
        """The outermost scope around `scope` in which all loops of the node's value are open."""
        if node.name in self.plan.reload:
            return scope
        needed = set(self.nest.outer(node))
        around = list(chain(scope))
        for each in reversed(around):
            if needed <= set(each.loops):
                return each
        raise GpuScheduleError(
            f"{self.where}: {node.name} must be in memory before it is read outside its loop "
            f"{', '.join(sorted(needed - set(scope.loops)))}; let a kernel make it"
        )


def key(node: Node, points: Points) -> Key:
    """The name of one instance of a node's value."""
    return node.name, tuple(sorted(points.items()))


def index_axes(index: Iterable[Affine]) -> tuple[str, ...]:
    """Axes that appear in forms, each once."""
    return tuple(dict.fromkeys(axis for form in index for axis in form.symbols()))


def chain(scope: Scope) -> Iterable[Scope]:
    """`scope` and those around it, from the inside."""
    at: Scope | None = scope
    while at is not None:
        yield at
        at = at.parent


def defines(scope: Scope, value: Value) -> bool:
    """Whether a statement of `scope` itself works `value` out."""
    return any(getattr(s, "out", None) == value for s in scope.statements)
