"""Pointwise code and masks as statements over tiles; sums around products become accumulators."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.nodes import Node
from dataflow.ops import row
from gpu.lowering.draft import Made, Points, Scope
from gpu.lowering.pads import ANY, FINITE, is_finite
from gpu.lowering.sums import Sums
from gpu.plan import Mask, Value


@dataclass
class Maps(Sums):
    """A draft that can do pointwise code."""

    def _map(self, scope: Scope, node: Node, points: Points) -> Made:
        fused = self._added_product(scope, node, points)
        if fused is not None:
            return fused
        for name in node.args:
            self.argument(scope, name, points)
        # asked again, since working out a later one may have masked an earlier one's padding
        args = [self.argument(scope, name, points) for name in node.args]
        if node.fn == "where" and not isinstance(args[0], Value):
            return args[1] if args[0] != 0 else args[2]
        if node.fn == "identity":
            return args[0]
        if not any(isinstance(arg, Value) for arg in args):
            return float(row(node.fn).numpy(*args))
        tiles = [arg if not isinstance(arg, Value) else self.number(scope, arg) for arg in args]
        return self.mapped(scope, node.name, node.fn, tiles)

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
            if self.home(scope, product) is not self.home(scope, node) or other is product:
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
        product = self.sides(node) is not None
        free = not self.nest.finishes(node) and node.name not in self.memory
        return product and free and readers == 1 and not stored

    def _table(self, node: Node) -> bool:
        return any(self.is_table(self.graph.node(name)) for name in node.args)

    def _mask(self, scope: Scope, node: Node, points: Points) -> Made:
        made = self.argument(scope, node.args[0], points)
        at = self.at(points)
        form = node.index[0].substitute(at)
        if self.lowest(form) >= 0:
            return made
        if not form.symbols():
            return float(node.fill)
        axes = self.dims({*form.symbols(), *(made.axes if isinstance(made, Value) else ())})
        tile = self.spread(scope, self.tile(scope, made), axes)
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
