"""From nodes to statements over tiles: one kernel, its loops opened as `gpu.scopes` says.

A node's value is asked for at some place among the loops and worked out in the outermost loop in
which all of its axes are known, so that what does not change inside a loop is hoisted out of it,
and what several readers ask for is worked out once. An axis that the schedule unrolls gives one
value for each of its tiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dataflow.index import Affine, affine
from dataflow.nodes import TURNS, Graph, Node
from dataflow.ops import contracted, reduce_row, row
from gpu.axes import product_sides
from gpu.names import identifier
from gpu.pads import ANY, FINITE, Pad, Pads, is_finite, map_pads, product_pads
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
    Publish,
    Reduce,
    Statement,
    Store,
    Tensor,
    Value,
)
from gpu.schedule import GpuScheduleError, KernelSchedule
from gpu.scopes import Loops, Nest, levels, roots_within

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


@dataclass
class Kernel:
    """What one kernel needs to be known while its statements are made."""

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

    # --- the kernel's shape -----------------------------------------------------------------

    def build(self, scope: Scope, targets: Sequence[Node], stores: Sequence[Store_]) -> None:
        """Add to `scope` all that `targets` and `stores` need, in passes over the loops inside."""
        wanted = [*(node.name for node in targets), *(store.node for store in stores)]
        inside = [
            self.graph.node(name)
            for name in roots_within(self.nest, wanted)
            if self.nest.outer(self.graph.node(name)) == scope.loops and self._missing(scope, name)
        ]
        stores_inside = [s for s in stores if self._path(s) != scope.loops]
        deeper = [n for n in targets if self.nest.outer(n) != scope.loops]
        level = levels(self.nest, scope.loops, wanted)
        groups: dict[tuple[int, str], tuple[list[Node], list[Store_]]] = {}
        for node in [*inside, *(n for n in deeper if n not in inside)]:
            axis = self.nest.inner(node)[len(scope.loops)]
            groups.setdefault((level[node.name], axis), ([], []))[0].append(node)
        for store in stores_inside:
            axis = self._path(store)[len(scope.loops)]
            groups.setdefault((level[store.node], axis), ([], []))[1].append(store)
        for (_, axis), (nodes, kept) in sorted(
            groups.items(), key=lambda item: (item[0][0], self.nest.order.index(item[0][1]))
        ):
            self._loop(scope, axis, nodes, kept)
        for store in stores:
            if self._path(store) == scope.loops:
                self._store(scope, store)

    def _path(self, store: Store_) -> Loops:
        return self.nest.loops_of(self.graph.node(store.node).axes)

    def _missing(self, scope: Scope, name: str) -> bool:
        return not any(name == key[0] for s in _chain(scope) for key in s.values)

    def _loop(
        self, scope: Scope, axis: str, nodes: Sequence[Node], stores: Sequence[Store_]
    ) -> None:
        """Open a loop over `axis` in `scope` that finishes `nodes` and runs `stores`."""
        body = Scope((*scope.loops, axis), scope)
        ending = [n for n in nodes if self.nest.outer(n) == scope.loops]
        further = [n for n in nodes if self.nest.outer(n) != scope.loops]
        lasts = [n for n in ending if n.op == "last"]
        sums = [n for n in ending if n.op != "last"]
        finished: dict[Key, Made] = {}
        asked = [self.graph.node(n.args[0]) for n in lasts]
        self.build(body, [*further, *_needing_loops(self, body, asked)], stores)
        for node in sums:
            for points in self.instances(node.axes):
                finished[key(node, points)] = self._accumulate(scope, body, node, points)
        for node in lasts:
            source = self.graph.node(node.args[0])
            for points in self.instances(node.axes):
                finished[key(node, points)] = self._last(scope, body, source, points)
        carried = self._close(body)
        loop = Loop(axis, tuple(body.statements), (*carried, *body.sums), stages=self.plan.stages)
        scope.statements.append(loop)
        scope.values.update(finished)

    def _close(self, body: Scope) -> list[Carried]:
        """Work out what each carried value holds after a step; more may turn up on the way."""
        carried: dict[Key, Carried] = {}
        while len(carried) < len(body.carried):
            for found, state in list(body.carried.items()):
                if found in carried:
                    continue
                points = {a: p for a, p in found[1] if a in state.source.axes}
                made = self.tile(body, self.value(body, state.source, points))
                made = self._spread(body, made, state.value.axes)
                carried[found] = Carried(state.value, state.init, self._held(body, made))
        for tensor, published in body.published.items():
            self._publish(body, tensor, published)
        if body.published:
            self.put(body, Barrier("barrier", body.loops[-1]))
        return list(carried.values())

    def _held(self, body: Scope, made: Value) -> Value:
        """`made`, or a copy where it is state itself, which a step's end overwrites."""
        if all(state.value.name != made.name for state in body.carried.values()):
            return made
        out = self.named(f"{made.name}_copy", made.axes, made.type)
        self.pads[out.name] = self.pads[made.name]
        self.put(body, Cast(out, made))
        return out

    def _accumulate(self, scope: Scope, body: Scope, node: Node, points: Points) -> Value:
        """A sum (or maximum) over the loop's steps: state that starts with the identity."""
        fn = node.fn if node.op == "reduce" else "sum"
        acc = Value(self.fresh(f"{node.name}_sum"), self.dims(node.axes))
        self.pads[acc.name] = dict.fromkeys(self.padded(acc.axes), FINITE)
        before = len(body.statements)
        if node.op == "einsum":
            part = self._einsum(body, node, points, acc)
        else:
            part = self._reduce(body, node, points)
        if not _accumulates(body.statements[before:], acc):
            joined = self.named(f"{node.name}_next", acc.axes)
            self.put(body, Map(joined, reduce_row(fn).combine, (acc, part)))
            part = joined
        body.sums.append(Carried(acc, reduce_row(fn).identity, part))
        return acc

    def _last(self, scope: Scope, body: Scope, source: Node, points: Points) -> Made:
        """What `source` holds at the loop's last step."""
        made = self.value(body, source, points)
        if not isinstance(made, Value) or not self._in(body, source):
            return made
        name = key(source, points)
        for found, carried in body.carried.items():
            if key(carried.source, dict(found[1])) == name:
                return carried.value
        state = Value(self.fresh(f"{source.name}_last"), made.axes)
        self.pads[state.name] = self.pads.get(made.name, {})
        body.sums.append(Carried(state, 0.0, self._held(body, made)))
        return state

    def _in(self, body: Scope, node: Node) -> bool:
        return body.loops[-1] in node.axes

    # --- values -----------------------------------------------------------------------------

    def value(self, scope: Scope, node: Node, points: Points) -> Made:
        """Return the value of `node`, worked out in the outermost loop that has its axes."""
        points = {axis: point for axis, point in points.items() if axis in node.axes}
        found = key(node, points)
        for each in _chain(scope):
            if found in each.values:
                return each.values[found]
        home = self._home(scope, node)
        made = self._make(home, node, points)
        home.values[found] = made
        return made

    def _home(self, scope: Scope, node: Node) -> Scope:
        """The outermost scope around `scope` in which all loops of the node's value are open."""
        if node.name in self.plan.reload:
            return scope
        needed = set(self.nest.outer(node))
        chain = list(_chain(scope))
        for each in reversed(chain):
            if needed <= set(each.loops):
                return each
        raise GpuScheduleError(
            f"{self.where}: {node.name} must be in memory before it is read outside its loop "
            f"{', '.join(sorted(needed - set(scope.loops)))}; let a kernel make it"
        )

    def _make(self, scope: Scope, node: Node, points: Points) -> Made:
        if node.name in self.memory or node.op == "input":
            forms = tuple(affine(axis) for axis in node.axes)
            return self._load(scope, node, self._tensor(node), forms, (), 0.0, points)
        if node.op == "const":
            return self._const(scope, node, points)
        if node.op == "map":
            return self._map(scope, node, points)
        if node.op == "mask":
            return self._mask(scope, node, points)
        if node.op == "einsum":
            return self._einsum(scope, node, points, None)
        if node.op == "reduce":
            return self._reduce(scope, node, points)
        if node.op == "read":
            return self._read(scope, node, points)
        if node.op == "earlier":
            return self._earlier(scope, node, points)
        return self._last_in_tile(scope, node, points)

    def _tensor(self, node: Node) -> Tensor:
        return self.memory[node.name]

    def _load(
        self,
        scope: Scope,
        node: Node,
        tensor: Tensor,
        forms: Sequence[Affine],
        guards: Iterable[Affine],
        fill: float,
        points: Points,
    ) -> Value:
        """A load of `tensor` at forms of the node's axes; `guards` come on top of its bounds."""
        at = self.at(points)
        index = tuple(form.substitute(at) for form in forms)
        axes = self.dims(tuple(a for a in node.axes if any(f.coefficient(a) for f in index)))
        checks = [
            *(g.substitute(at) for g in guards),
            *self.bounds_guards(index, tensor.shape),
            *(self.lane_guard(axis, points) for axis in self.padded(axes)),
        ]
        out = Value(self.fresh(node.name), axes, tensor.type)
        kept = tuple(dict.fromkeys(g for g in checks if self._lowest(g) < 0))
        self.pads[out.name] = dict.fromkeys(self.padded(axes), float(fill))
        self.put(scope, Load(out, tensor.name, index, fill, kept))
        return out

    def _const(self, scope: Scope, node: Node, points: Points) -> Made:
        if node.fn == "number":
            return float(node.fill)
        if node.fn in TURNS:
            return self._wave(scope, node, points, 1.0)
        only = {axis: affine(0) for axis in node.axes if self.axes[axis].fixed}
        form = node.index[0].substitute({**only, **self.at(points)})
        if not form.symbols():
            return float(form.constant)
        out = self.named(node.name, self.dims(form.symbols()))
        self.pads[out.name] = dict.fromkeys(self.padded(out.axes), FINITE)
        self.put(scope, Form(out, form))
        return out

    def _wave(self, scope: Scope, node: Node, points: Points, scale: float) -> Value:
        """A table of cosines or sines, made on the host and read from memory.

        Tables of the same numbers are one tensor, whatever their axes are called. Those that
        pointwise code reads are held in fp16 where products are of 16 bits: they lie in -1..1,
        where it has more digits than bf16.
        """
        pointwise = any(reader.op != "einsum" for reader in self.graph.consumers(node.name))
        narrow = self.operand_type in ("bf16", "fp8e4m3")
        type_ = "fp16" if pointwise and narrow else self.operand_type
        shape = self.graph.shape(node.axes)
        names = {axis: affine(f"axis_{i}") for i, axis in enumerate(node.axes)}
        forms = tuple(form.substitute(names) for form in node.index)
        numbers = (node.fn, forms, node.period, node.scale * scale, shape, type_)
        if numbers not in self.tables:
            name = node.name if scale == 1.0 else f"{node.name}.neg"
            name = name if name not in self.tensors else f"{name}.{len(self.tables)}"
            symmetric = _symmetric(node, shape)
            self.tables[numbers] = Tensor(name, "const", shape, type_, node.name, scale, symmetric)
        tensor = self.tables[numbers]
        self.tensors.setdefault(tensor.name, tensor)
        index = tuple(affine(axis) for axis in node.axes)
        lanes = tuple(self.axes[axis].tile for axis in node.axes)
        found = (f"table {tensor.name} {lanes}", ())
        if pointwise and not points and found in scope.values:
            held = self.tile(scope, scope.values[found])
            if len(held.axes) == len(self.dims(node.axes)):
                out = self.named(node.name, self._in_place(node, held), held.type)
                self.pads[out.name] = dict.fromkeys(self.padded(out.axes), 0.0)
                self.put(scope, Cast(out, held))
                return out
        made = self._load(scope, node, tensor, index, (), 0.0, points)
        if pointwise and not points:
            scope.values[found] = made
            self.table_axes[made.name] = node.axes
        return made

    def _in_place(self, node: Node, held: Value) -> tuple[str, ...]:
        """The axes of `node` in the places of the table that `held` was loaded as."""
        names = dict(zip(self.table_axes[held.name], node.axes, strict=True))
        return tuple(names[axis] for axis in held.axes)

    def _read(self, scope: Scope, node: Node, points: Points) -> Made:
        source, forms, guards, earlier = self._through(node)
        if source.op in ("input",) or source.name in self.memory:
            tensor = self._tensor(source)
            return self._load(scope, node, tensor, forms, guards, node.fill, points)
        if earlier:
            fetched = self._fetch(scope, node, source, forms, earlier, points)
            if fetched is not None:
                return fetched
        return self._renamed(scope, node, points)

    def _through(self, node: Node) -> tuple[Node, tuple[Affine, ...], list[Affine], str]:
        """Follow reads from `node` to what they read: it, the forms, guards, and an `earlier`."""
        forms = tuple(affine(axis) for axis in node.axes)
        at = node
        guards: list[Affine] = []
        earlier = ""
        while at.op in ("read", "earlier") and at.name not in self.memory:
            if at.op == "earlier":
                if at is node:
                    break
                earlier = at.axis
                at = self.graph.node(at.args[0])
                continue
            names = dict(zip(at.axes, forms, strict=True))
            forms = tuple(form.substitute(names) for form in at.index)
            at = self.graph.node(at.args[0])
            ends = self.graph.shape(at.axes)
            guards += [g for g in self.bounds_guards(forms, ends) if at.op == "read"]
        return at, forms, guards, earlier

    def _renamed(self, scope: Scope, node: Node, points: Points) -> Made:
        """A read of a tile worked out here: only its axes may have other names."""
        source = self.graph.node(node.args[0])
        names: dict[str, str] = {}
        for axis, form in zip(source.axes, node.index, strict=True):
            symbols = form.symbols()
            same = len(symbols) == 1 and form == affine(symbols[0])
            if not same or self.graph.extent(symbols[0]) != self.graph.extent(axis):
                raise self._unreadable(node, f"{axis} at {form}")
            if symbols[0] != axis and not (self._whole(axis) and self._whole(symbols[0])):
                raise self._unreadable(node, f"{axis} at {form}, spread over programs or steps")
            names[axis] = symbols[0]
        if len(set(names.values())) != len(names):
            raise self._unreadable(node, "one axis twice")
        back = {new: old for old, new in names.items()}
        made = self.value(scope, source, {back[a]: p for a, p in points.items() if a in back})
        if not isinstance(made, Value):
            return made
        renamed = Value(made.name, tuple(names[axis] for axis in made.axes), made.type)
        if renamed.axes == made.axes:
            return made
        out = self.named(node.name, renamed.axes, made.type)
        self.pads[out.name] = {names[a]: pad for a, pad in self.pads[made.name].items()}
        self.put(scope, Cast(out, made))
        return out

    def _unreadable(self, node: Node, what: str) -> GpuScheduleError:
        return GpuScheduleError(
            f"{self.where}: {node.name} must read whole tiles by name, got {what}; "
            f"let an earlier kernel make {node.args[0]}"
        )

    def _whole(self, axis: str) -> bool:
        plan = self.axes[axis]
        return plan.loop == plan.grid == plan.unroll == 1

    def _earlier(self, scope: Scope, node: Node, points: Points) -> Made:
        if not scope.loops or scope.loops[-1] != node.axis:
            raise GpuScheduleError(
                f"{self.where}.loop: {node.axis} must be the innermost loop of {node.name}, "
                f"got {', '.join(scope.loops)}"
            )
        source = self.graph.node(node.args[0])
        found = key(node, points)
        if found not in scope.carried:
            init: Operand = float(node.init) if not isinstance(node.init, str) else 0.0
            state = Value(self.fresh(node.name), self.dims(source.axes))
            if isinstance(node.init, str) and scope.parent is not None:
                made = self.value(scope.parent, self.graph.node(node.init), points)
                init = self._spread(scope.parent, self.tile(scope.parent, made), state.axes)
            scope.carried[found] = State(source, state, init)
            self.pads[state.name] = dict.fromkeys(self.padded(state.axes), FINITE)
        return scope.carried[found].value

    def _fetch(
        self,
        scope: Scope,
        node: Node,
        source: Node,
        forms: Sequence[Affine],
        axis: str,
        points: Points,
    ) -> Made | None:
        """A read of what all programs worked out a step before: through memory and a barrier."""
        spread = [a for a in source.axes if a != axis and self.axes[a].grid > 1]
        across = [
            a
            for a, form in zip(source.axes, forms, strict=True)
            if a in spread and form != affine(a)
        ]
        if not across:
            return None
        if any(step != axis for step in scope.loops[-1:]):
            raise self._unreadable(node, f"{', '.join(across)} outside the loop over {axis}")
        kept = tuple(a for a in source.axes if a != axis)
        shape = (2, *self.graph.shape(kept))
        exchange = Tensor(f"{source.name}.exchange", "exchange", shape, self.operand_type)
        barrier = Tensor("barrier", "barrier", (1,), "int32")
        self.tensors.setdefault(exchange.name, exchange)
        self.tensors.setdefault(barrier.name, barrier)
        at = self.at(points)
        index = tuple(
            f.substitute(at) for a, f in zip(source.axes, forms, strict=True) if a != axis
        )
        axes = self.dims(node.axes)
        out = self.named(node.name, axes, self.operand_type)
        self.pads[out.name] = dict.fromkeys(self.padded(axes), 0.0)
        guards = self.guards(index, shape[1:], points)
        self.put(scope, Fetch(out, exchange.name, axis, index, guards))
        scope.published.setdefault(exchange.name, Published(source, axis, kept))
        return out

    def _publish(self, scope: Scope, tensor: str, published: Published) -> None:
        """Hand a step's tiles to all programs."""
        shape = self.tensors[tensor].shape[1:]
        for points in self.instances(published.kept):
            made = self.tile(scope, self.value(scope, published.source, points))
            index = tuple(affine(a).substitute(self.at(points)) for a in published.kept)
            guards = self.guards(index, shape, points)
            self.put(scope, Publish(tensor, published.axis, index, made, guards))

    def _last_in_tile(self, scope: Scope, node: Node, points: Points) -> Made:
        """The last point of an axis that lies inside the tile."""
        source = self.graph.node(node.args[0])
        made = self.value(scope, source, points)
        if not isinstance(made, Value) or node.axis not in made.axes:
            return made
        kept = self.named(f"{node.name}_kept", made.axes)
        end = self.graph.extent(node.axis) - 1
        chosen = (affine(node.axis) - end, end - affine(node.axis))
        self.put(scope, Mask(kept, self.number(scope, made), chosen, 0.0))
        out = self.named(node.name, tuple(a for a in made.axes if a != node.axis))
        pads = self.pads[made.name]
        self.pads[out.name] = {a: pad for a, pad in pads.items() if a != node.axis}
        self.put(scope, Reduce(out, "sum", kept, (node.axis,)))
        return out

    # --- pointwise code ----------------------------------------------------------------------

    def _map(self, scope: Scope, node: Node, points: Points) -> Made:
        fused = self._added_product(scope, node, points)
        if fused is not None:
            return fused
        for name in node.args:
            self._argument(scope, name, points)
        # asked again, since working out a later one may have masked an earlier one's padding
        args = [self._argument(scope, name, points) for name in node.args]
        if node.fn == "where" and not isinstance(args[0], Value):
            return args[1] if args[0] != 0 else args[2]
        if node.fn == "identity":
            return args[0]
        if not any(isinstance(arg, Value) for arg in args):
            return float(row(node.fn).numpy(*args))
        tiles = [arg if not isinstance(arg, Value) else self.number(scope, arg) for arg in args]
        return self._mapped(scope, node.name, node.fn, tiles)

    def _mapped(self, scope: Scope, name: str, fn: str, args: Sequence[Operand]) -> Value:
        axes = self.dims({axis for arg in args if isinstance(arg, Value) for axis in arg.axes})
        types = {arg.type for arg in args if isinstance(arg, Value)}
        out = self.named(name, axes, types.pop() if len(types) == 1 else "fp32")
        known = [(a.axes, self.pads[a.name]) if isinstance(a, Value) else a for a in args]
        self.pads[out.name] = {
            axis: pad for axis, pad in map_pads(fn, known).items() if axis in axes
        }
        self.put(scope, Map(out, fn, tuple(args)))
        return out

    def _argument(self, scope: Scope, name: str, points: Points) -> Made:
        return self.value(scope, self.graph.node(name), points)

    def _added_product(self, scope: Scope, node: Node, points: Points) -> Value | None:
        """x + a b, and x - a w with a table w, as a product that adds to x."""
        if node.fn not in ("add", "sub"):
            return None
        tries = (1, 0) if node.fn == "add" else (1,)
        for place in tries:
            product = self.graph.node(node.args[place])
            other = self.graph.node(node.args[1 - place])
            if not self._alone(product) or set(product.axes) != set(other.axes):
                continue
            if node.fn == "sub" and not self._table(product):
                continue
            if self._home(scope, product) is not self._home(scope, node) or other is product:
                continue
            base = self.value(scope, other, points)
            if not isinstance(base, Value) or set(base.axes) != set(self.dims(product.axes)):
                continue
            sign = -1.0 if node.fn == "sub" else 1.0
            return self._einsum(scope, product, points, self.number(scope, base), sign)
        return None

    def _alone(self, node: Node) -> bool:
        """Whether `node` is a product, not yet finished, that one node reads."""
        readers = len(self.graph.consumers(node.name))
        stored = any(output.node == node.name for output in self.graph.outputs)
        product = product_sides(self.graph, node) is not None
        free = not self.nest.finishes(node) and node.name not in self.memory
        return product and free and readers == 1 and not stored

    def _table(self, node: Node) -> bool:
        return any(self._is_table(self.graph.node(name)) for name in node.args)

    @staticmethod
    def _is_table(node: Node) -> bool:
        return node.op == "const" and node.fn in TURNS

    def _mask(self, scope: Scope, node: Node, points: Points) -> Made:
        made = self._argument(scope, node.args[0], points)
        at = self.at(points)
        form = node.index[0].substitute(at)
        if self._lowest(form) >= 0:
            return made
        if not form.symbols():
            return float(node.fill)
        axes = self.dims({*form.symbols(), *(made.axes if isinstance(made, Value) else ())})
        tile = self._spread(scope, self.tile(scope, made), axes)
        out = self.named(node.name, axes)
        pads = self.pads[tile.name]
        self.pads[out.name] = {
            axis: pads.get(axis, FINITE)
            if pads.get(axis) == node.fill or form.coefficient(axis) == 0
            else (FINITE if is_finite(pads.get(axis, FINITE)) else ANY)
            for axis in self.padded(axes)
        }
        self.put(scope, Mask(out, self.number(scope, tile), (form,), node.fill))
        return out

    # --- sums ---------------------------------------------------------------------------------

    def _reduce(self, scope: Scope, node: Node, points: Points) -> Value:
        """The reduction over lanes and unrolled points; loops are the caller's."""
        lost = contracted(node, self.graph)
        combine = reduce_row(node.fn).combine
        total: Value | None = None
        for inner in self.instances(lost):
            source = self.graph.node(node.args[0])
            made = self.tile(scope, self.value(scope, source, {**points, **inner}))
            made = self.number(scope, made)
            made = self._spread(scope, made, self.dims((*made.axes, *lost)))
            asked = {**points, **inner}
            part = self._reduced(scope, node.name, node.fn, made, self.dims(lost), asked)
            total = (
                part if total is None else self._mapped(scope, node.name, combine, (total, part))
            )
        assert total is not None
        return self._spread(scope, total, self.dims(node.axes))

    def _reduced(
        self,
        scope: Scope,
        name: str,
        fn: str,
        made: Value,
        lost: tuple[str, ...],
        points: Points,
    ) -> Value:
        if not lost:
            return made
        identity = reduce_row(fn).identity
        made = self._clean(scope, made, lost, identity, points)
        out = self.named(name, tuple(axis for axis in made.axes if axis not in lost))
        self.pads[out.name] = {
            axis: FINITE if is_finite(pad) else ANY
            for axis, pad in self.pads[made.name].items()
            if axis in out.axes
        }
        self.put(scope, Reduce(out, fn, made, lost))
        return out

    def _clean(
        self, scope: Scope, made: Value, axes: Iterable[str], identity: float, points: Points
    ) -> Value:
        """`made` with `identity` on padded lanes of `axes`, masked only where it holds another."""
        pads = self.pads[made.name]
        dirty = [
            a
            for a in self.padded(axes)
            if a in made.axes
            and pads.get(a) != identity
            and self._lowest(self.lane_guard(a, points)) < 0
        ]
        if not dirty:
            return made
        out = self.named(f"{made.name}_in", made.axes, made.type)
        self.put(scope, Mask(out, made, tuple(self.lane_guard(a, points) for a in dirty), identity))
        cleaned = dict.fromkeys(dirty, identity)
        self.pads[out.name] = {**pads, **cleaned}
        for each in _chain(scope):
            for found, value in each.values.items():
                if value is made and each is scope:
                    each.values[found] = out
        return out

    def _einsum(
        self, scope: Scope, node: Node, points: Points, acc: Value | None, sign: float = 1.0
    ) -> Value:
        """A sum of products: on the tensor cores where it is one of two matrices."""
        each = [{**points, **inner} for inner in self.instances(contracted(node, self.graph))]
        sides = product_sides(self.graph, node)
        if sides is not None:
            batch, m, n, k = (self.dims(side) for side in sides)
            if m and n and k:
                total = acc
                for one in each:
                    total = self._dot(scope, node, one, total, sign, batch, m, n, k)
                assert total is not None
                return total
        return self._pointwise_sum(scope, node, each, acc, sign)

    def _pointwise_sum(
        self,
        scope: Scope,
        node: Node,
        each: Sequence[Points],
        acc: Value | None,
        sign: float,
    ) -> Value:
        """Terms are added up lane by lane over unrolled tiles, then over the lanes, once."""
        lost = self.dims(contracted(node, self.graph))
        total: Value | None = None
        for points in each:
            term = self.number(scope, self._term(scope, node, points, sign))
            term = self._spread(scope, term, self.dims((*term.axes, *lost)))
            term = self._clean(scope, term, lost, 0.0, points)
            total = (
                term
                if total is None
                else self._mapped(scope, f"{node.name}_terms", "add", (total, term))
            )
        assert total is not None
        cleared = dict.fromkeys(self.padded(lost), 0.0)
        self.pads[total.name] = {**self.pads[total.name], **cleared}
        part = self._reduced(scope, node.name, "sum", total, lost, each[-1])
        if acc is None:
            return self._spread(scope, part, self.dims(node.axes))
        return self._mapped(scope, node.name, "add", (acc, part))

    def _term(self, scope: Scope, node: Node, points: Points, sign: float) -> Value:
        """The product of all arguments at one point, lane by lane."""
        made: Made = 1.0 if sign > 0 else -1.0
        asked = [self._argument(scope, name, points) for name in node.args]
        narrow = self._narrow(scope, asked)
        for arg in asked:
            arg = arg if narrow or not isinstance(arg, Value) else self.number(scope, arg)
            if made == 1.0:
                made = arg
            elif not isinstance(made, Value) and not isinstance(arg, Value):
                made = made * arg
            else:
                made = self._mapped(scope, f"{node.name}_term", "mul", (made, arg))
        return self.tile(scope, made)

    def _narrow(self, scope: Scope, args: Sequence[Made]) -> bool:
        """Whether to multiply in 16 bits: two tiles as they lie in memory, one held over a loop.

        Widened, the held one would take twice the registers. The sum stays in fp32.
        """
        tiles = [arg for arg in args if isinstance(arg, Value)]
        held = any(not _defines(scope, tile) for tile in tiles)
        return (
            len(args) == len(tiles) == 2
            and held
            and all(
                tile.type == self.operand_type and tile.type in ("fp16", "bf16") for tile in tiles
            )
        )

    def _dot(
        self,
        scope: Scope,
        node: Node,
        points: Points,
        acc: Value | None,
        sign: float,
        batch: tuple[str, ...],
        m: tuple[str, ...],
        n: tuple[str, ...],
        k: tuple[str, ...],
    ) -> Value:
        sources = [self.graph.node(name) for name in node.args]
        first = self._is_table(sources[0])  # one side carries the sign, and one only
        left = self._operand(scope, sources[0], points, sign if first else 1.0)
        right = self._operand(scope, sources[1], points, 1.0 if first else sign)
        left = self._spread(scope, left, (*batch, *m, *k))
        right = self._spread(scope, right, (*batch, *k, *n))
        if any(
            self.pads[left.name].get(a) != 0.0 and self.pads[right.name].get(a) != 0.0
            for a in self.padded(k)
        ):
            right = self._clean(scope, right, k, 0.0, points)
        left = self._finite(scope, left, k, points)
        right = self._finite(scope, right, k, points)
        out = self.named(node.name, (*batch, *m, *n))
        self.pads[out.name] = product_pads(
            self.padded(out.axes), self.pads[left.name], self.pads[right.name]
        )
        if acc is not None:
            self.pads[out.name] = {
                a: FINITE if is_finite(p) and is_finite(self.pads[acc.name].get(a, FINITE)) else ANY
                for a, p in self.pads[out.name].items()
            }
        self.put(scope, Dot(out, left, right, acc, batch, m, n, k, self.dot_precision))
        return out

    def _operand(self, scope: Scope, source: Node, points: Points, sign: float) -> Value:
        """One side of a product in the operands' type; a table may carry the product's sign."""
        if sign < 0 and self._is_table(source):
            made: Made = self._signed_table(scope, source, points)
        else:
            made = self.value(scope, source, points)
        return self.cast(scope, self.tile(scope, made), self.operand_type)

    def _signed_table(self, scope: Scope, node: Node, points: Points) -> Value:
        home = self._home(scope, node)
        points = {axis: point for axis, point in points.items() if axis in node.axes}
        found = (f"-{node.name}", tuple(sorted(points.items())))
        if found not in home.values:
            home.values[found] = self._wave(home, node, points, -1.0)
        return self.tile(scope, home.values[found])

    def _finite(self, scope: Scope, made: Value, k: tuple[str, ...], points: Points) -> Value:
        """A product's other side must be finite where one side is 0."""
        pads = self.pads[made.name]
        if all(is_finite(pads.get(axis, FINITE)) for axis in self.padded(k)):
            return made
        return self._clean(scope, made, k, 0.0, points)

    # --- stores -------------------------------------------------------------------------------

    def _store(self, scope: Scope, store: Store_) -> None:
        node = self.graph.node(store.node)
        for points in self.instances(node.axes):
            at = self.at(points)
            made = self.tile(scope, self.value(scope, node, points))
            made = self._spread(scope, made, self.dims(node.axes))
            index = tuple(form.substitute(at) for form in store.index)
            tensor = self.tensors[store.tensor]
            guards = self.guards(index, tensor.shape, points)
            made = self.cast(scope, made, tensor.type)
            self.put(scope, Store(store.tensor, index, made, guards))

    # --- small parts --------------------------------------------------------------------------

    def put(self, scope: Scope, statement: Statement) -> None:
        """Add a statement."""
        scope.statements.append(statement)

    def dims(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Those of `axes` that a tile has a dimension for, in the graph's order."""
        wanted = set(axes)
        return tuple(a for a in self.axes if a in wanted and self.axes[a].tile > 1)

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
        home = next((s for s in _chain(scope) if _defines(s, made)), scope)
        found = (id(home), made.name, type_)
        if found not in self.casts:
            out = self.named(f"{made.name}_{type_}", made.axes, type_)
            self.pads[out.name] = self.pads[made.name]
            self.put(home, Cast(out, made))
            self.casts[found] = out
        return self.casts[found]

    def _spread(self, scope: Scope, made: Value, axes: tuple[str, ...]) -> Value:
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
        return tuple(dict.fromkeys(g for g in checks if self._lowest(g) < 0))

    def _lowest(self, form: Affine) -> int:
        """The least value of a form over all coordinates, padded ones included."""
        extents = {axis: self.axes[axis].reach for axis in form.symbols()}
        return form.bounds(extents)[0]


@dataclass(frozen=True)
class Store_:
    """A value to be put in memory: the node, the tensor, and where each point goes."""

    node: str
    tensor: str
    index: tuple[Affine, ...]


def key(node: Node, points: Points) -> Key:
    """The name of one instance of a node's value."""
    return node.name, tuple(sorted(points.items()))


def _symmetric(node: Node, shape: tuple[int, ...]) -> bool:
    """Whether a table of turns (a x + b) (c y + d) over x, y equals its transpose: a d = b c."""
    if len(node.axes) != 2 or len(node.index) != 2 or shape[0] != shape[1]:
        return False
    first, second = node.index
    if first.symbols() != node.axes[:1]:
        first, second = second, first
    if (first.symbols(), second.symbols()) != (node.axes[:1], node.axes[1:]):
        return False
    (_, a), (_, c) = first.terms[0], second.terms[0]
    return a * second.constant == c * first.constant


def index_axes(index: Iterable[Affine]) -> tuple[str, ...]:
    """Axes that appear in forms, each once."""
    return tuple(dict.fromkeys(axis for form in index for axis in form.symbols()))


def _chain(scope: Scope) -> Iterable[Scope]:
    at: Scope | None = scope
    while at is not None:
        yield at
        at = at.parent


def _defines(scope: Scope, value: Value) -> bool:
    return any(getattr(s, "out", None) == value for s in scope.statements)


def _accumulates(statements: Sequence[Statement], acc: Value) -> bool:
    return any(isinstance(s, Dot) and s.acc == acc for s in statements) or any(
        isinstance(s, Map) and acc in s.args for s in statements
    )


def _needing_loops(kernel: Kernel, body: Scope, nodes: Sequence[Node]) -> list[Node]:
    return [n for n in nodes if len(kernel.nest.inner(n)) > len(body.loops)]
