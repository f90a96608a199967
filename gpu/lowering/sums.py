"""Reductions and sums of products as statements over tiles; matrices go to the tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dataflow.nodes import Node
from dataflow.ops import contracted, reduce_row
from gpu.lowering.draft import Made, Points, Scope, defines
from gpu.lowering.pads import ANY, FINITE, is_finite, product_pads
from gpu.lowering.reads import Reads
from gpu.plan import Dot, Reduce, Value


@dataclass
class Sums(Reads):
    """A draft that can reduce and multiply."""

    def _reduce(self, scope: Scope, node: Node, points: Points) -> Value:
        """The reduction over lanes and unrolled points; loops are the caller's."""
        lost = contracted(node, self.graph)
        combine = reduce_row(node.fn).combine
        total: Value | None = None
        for inner in self.instances(lost):
            source = self.graph.node(node.args[0])
            made = self.tile(scope, self.value(scope, source, {**points, **inner}))
            made = self.number(scope, made)
            made = self.spread(scope, made, self.dims((*made.axes, *lost)))
            asked = {**points, **inner}
            part = self._reduced(scope, node.name, node.fn, made, self.dims(lost), asked)
            total = part if total is None else self.mapped(scope, node.name, combine, (total, part))
        assert total is not None
        return self.spread(scope, total, self.dims(node.axes))

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
        made = self.clean(scope, made, lost, identity, points)
        out = self.named(name, tuple(axis for axis in made.axes if axis not in lost))
        self.pads[out.name] = {
            axis: FINITE if is_finite(pad) else ANY
            for axis, pad in self.pads[made.name].items()
            if axis in out.axes
        }
        self.put(scope, Reduce(out, fn, made, lost))
        return out

    def _einsum(
        self, scope: Scope, node: Node, points: Points, acc: Value | None, sign: float = 1.0
    ) -> Value:
        """A sum of products: on the tensor cores where it is one of two matrices."""
        each = [{**points, **inner} for inner in self.instances(contracted(node, self.graph))]
        sides = self.sides(node)
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
            term = self.spread(scope, term, self.dims((*term.axes, *lost)))
            term = self.clean(scope, term, lost, 0.0, points)
            total = (
                term
                if total is None
                else self.mapped(scope, f"{node.name}_terms", "add", (total, term))
            )
        assert total is not None
        cleared = dict.fromkeys(self.padded(lost), 0.0)
        self.pads[total.name] = {**self.pads[total.name], **cleared}
        part = self._reduced(scope, node.name, "sum", total, lost, each[-1])
        if acc is None:
            return self.spread(scope, part, self.dims(node.axes))
        return self.mapped(scope, node.name, "add", (acc, part))

    def _term(self, scope: Scope, node: Node, points: Points, sign: float) -> Value:
        """The product of all arguments at one point, lane by lane."""
        made: Made = 1.0 if sign > 0 else -1.0
        asked = [self.argument(scope, name, points) for name in node.args]
        narrow = self._narrow(scope, asked)
        for arg in asked:
            arg = arg if narrow or not isinstance(arg, Value) else self.number(scope, arg)
            if made == 1.0:
                made = arg
            elif not isinstance(made, Value) and not isinstance(arg, Value):
                made = made * arg
            else:
                made = self.mapped(scope, f"{node.name}_term", "mul", (made, arg))
        return self.tile(scope, made)

    def _narrow(self, scope: Scope, args: Sequence[Made]) -> bool:
        """Whether to multiply in 16 bits: two tiles as they lie in memory, one held over a loop.

        Widened, the held one would take twice the registers. The sum stays in fp32.
        """
        tiles = [arg for arg in args if isinstance(arg, Value)]
        held = any(not defines(scope, tile) for tile in tiles)
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
        first = self.is_table(sources[0])  # one side carries the sign, and one only
        left = self._operand(scope, sources[0], points, sign if first else 1.0)
        right = self._operand(scope, sources[1], points, 1.0 if first else sign)
        left = self.spread(scope, left, (*batch, *m, *k))
        right = self.spread(scope, right, (*batch, *k, *n))
        if any(
            self.pads[left.name].get(a) != 0.0 and self.pads[right.name].get(a) != 0.0
            for a in self.padded(k)
        ):
            right = self.clean(scope, right, k, 0.0, points)
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
        if sign < 0 and self.is_table(source):
            made: Made = self._signed_table(scope, source, points)
        else:
            made = self.value(scope, source, points)
        return self.cast(scope, self.tile(scope, made), self.operand_type)

    def _signed_table(self, scope: Scope, node: Node, points: Points) -> Value:
        home = self.home(scope, node)
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
        return self.clean(scope, made, k, 0.0, points)
