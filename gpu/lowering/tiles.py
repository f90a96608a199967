"""From nodes to statements over tiles: one kernel, its loops opened as `gpu.lowering.scopes` says.

A node's value is asked for at some place among the loops and worked out in the outermost loop in
which all of its axes are known, so that what does not change inside a loop is hoisted out of it,
and what several readers ask for is worked out once. An axis that the schedule unrolls gives one
value for each of its tiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataflow.index import affine
from dataflow.nodes import Node
from dataflow.ops import reduce_row
from gpu.lowering.draft import Key, Made, Points, Scope, Store_, chain, key
from gpu.lowering.maps import Maps
from gpu.lowering.pads import FINITE
from gpu.lowering.scopes import Loops, levels, roots_within
from gpu.plan import Barrier, Carried, Cast, Dot, Loop, Map, Statement, Store, Value


@dataclass
class Kernel(Maps):
    """One kernel: what its loops hold and finish, and where each value is worked out."""

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
        return not any(name == key[0] for s in chain(scope) for key in s.values)

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
                made = self.spread(body, made, state.value.axes)
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

    def value(self, scope: Scope, node: Node, points: Points) -> Made:
        """Return the value of `node`, worked out in the outermost loop that has its axes."""
        points = {axis: point for axis, point in points.items() if axis in node.axes}
        found = key(node, points)
        for each in chain(scope):
            if found in each.values:
                return each.values[found]
        home = self.home(scope, node)
        made = self._make(home, node, points)
        home.values[found] = made
        return made

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

    def _store(self, scope: Scope, store: Store_) -> None:
        node = self.graph.node(store.node)
        for points in self.instances(node.axes):
            at = self.at(points)
            made = self.tile(scope, self.value(scope, node, points))
            made = self.spread(scope, made, self.dims(node.axes))
            index = tuple(form.substitute(at) for form in store.index)
            tensor = self.tensors[store.tensor]
            guards = self.guards(index, tensor.shape, points)
            made = self.cast(scope, made, tensor.type)
            self.put(scope, Store(store.tensor, index, made, guards))


def _accumulates(statements: Sequence[Statement], acc: Value) -> bool:
    return any(isinstance(s, Dot) and s.acc == acc for s in statements) or any(
        isinstance(s, Map) and acc in s.args for s in statements
    )


def _needing_loops(kernel: Kernel, body: Scope, nodes: Sequence[Node]) -> list[Node]:
    return [n for n in nodes if len(kernel.nest.inner(n)) > len(body.loops)]
