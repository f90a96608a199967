"""What comes from memory: loads, tables, reads under other names, the step before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dataflow.index import Affine, affine
from dataflow.nodes import TURNS, Node
from gpu.lowering.draft import Draft, Made, Points, Published, Scope, State, key
from gpu.lowering.pads import FINITE
from gpu.plan import Cast, Fetch, Form, Load, Mask, Operand, Publish, Reduce, Tensor, Value
from gpu.schedule import GpuScheduleError


@dataclass
class Reads(Draft):
    """A draft that can read tensors, tables and what a recurrence left."""

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
        kept = tuple(dict.fromkeys(g for g in checks if self.lowest(g) < 0))
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
                init = self.spread(scope.parent, self.tile(scope.parent, made), state.axes)
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
