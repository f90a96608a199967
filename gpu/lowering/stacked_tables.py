"""Tables made of tables: which tile of a kernel holds their numbers, once for all uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from dataflow.index import Affine
from dataflow.nodes import Graph
from gpu.plan import AxisPlan, Block, Load, Permute, Statement, Tensor, Value
from gpu.tables import numbers


@dataclass
class Tables:
    """The stacked tables of a kernel: `statements` load them, `axes` and `tensors` grow by theirs.

    part: the axis of what is stacked. flat: all statements of the kernel before.
    """

    graph: Graph
    part: str
    axes: dict[str, AxisPlan]
    tensors: dict[str, Tensor]
    flat: list[Statement]
    statements: list[Load | Permute] = field(default_factory=list)
    held: dict[bytes, Value] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loads = {s.out.name: s for s in self.flat if isinstance(s, Load)}
        self.permuted = {s.out.name: s.arg for s in self.flat if isinstance(s, Permute)}

    def block(self, value: Value) -> Block | None:
        """The constant matrix that a tile is, None where it is none, or a part of one."""
        name = value.name
        while name in self.permuted:
            name = self.permuted[name].name
        load = self.loads.get(name)
        if load is None or len(value.axes) != 2:
            return None
        tensor = self.tensors[load.tensor]
        lanes = [form.symbols() for form in load.index]
        plain = sorted(lanes) == sorted((axis,) for axis in value.axes)
        whole = plain and all(
            form == Affine(((axis, 1),)) and self.axes[axis].tile == self.axes[axis].reach
            for form, (axis,) in zip(load.index, lanes, strict=True)
        )
        if tensor.kind != "const" or tensor.blocks or not whole or load.fill:
            return None
        rows, columns = (self.axes[axis].tile for axis in value.axes)
        turned = lanes[0][0] != value.axes[0]
        return Block(tensor.node, tensor.scale, turned, (rows, columns))

    def tile(
        self, grid: Sequence[Sequence[Value]], rows: tuple[str, ...], columns: tuple[str, ...]
    ) -> Value:
        """The tile of a matrix of tables, its sides named by the axes of a product's sides."""
        blocks = tuple(tuple(self._known(value) for value in row) for row in grid)
        axes = (self._side(rows), self._side(columns))
        like = grid[0][0]
        size = (self.axes[axes[0]].tile, self.axes[axes[1]].tile)
        tensor = Tensor(self._unused(like.name), "const", size, like.type, blocks=blocks)
        values = numbers(self.graph, tensor) + 0.0  # -0 is 0
        for turned in (False, True):
            held = self.held.get(_key(values.T if turned else values))
            if held is not None:
                return self._again(held, axes, turned)
        name = f"{rows[-1]}_{columns[-1]}_table_{len(self.held) + 1}".replace(".", "_")
        made = Value(name, axes, like.type)
        self.tensors[tensor.name] = tensor
        index = tuple(Affine(((axis, 1),)) for axis in axes)
        self.statements.append(Load(made, tensor.name, index))
        self.held[_key(values)] = made
        return made

    def _known(self, value: Value) -> Block:
        block = self.block(value)
        assert block is not None
        return block

    def _again(self, held: Value, axes: tuple[str, str], turned: bool) -> Value:
        """A tile that is there already, under the axes of its use, transposed if `turned`."""
        if not turned:
            return Value(held.name, axes, held.type)
        made = Value(f"{held.name}_turned", axes, held.type)
        if all(s.out.name != made.name for s in self.statements):
            self.statements.append(Permute(made, Value(held.name, axes[::-1], held.type)))
        return made

    def _side(self, side: tuple[str, ...]) -> str:
        """The axis along a side of a table: one of its own where the side is stacked."""
        if len(side) == 1:
            return side[0]
        name = f"{side[-1]}.{self.part}"
        size = 2 * self.axes[side[-1]].tile
        self.axes.setdefault(name, AxisPlan(name, size, size))
        return name

    def _unused(self, name: str) -> str:
        made = f"{name}.both".replace("_", ".")
        while made in self.tensors:
            made += "x"
        return made


def _key(values: np.ndarray) -> bytes:
    return str(values.shape).encode() + np.ascontiguousarray(values).tobytes()
