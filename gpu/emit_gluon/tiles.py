"""Tiles of a warp group: the layout each lies in, coordinates, masks, addresses of its lanes.

Tiles of two dimensions lie in the layout of a product's result with as many columns; tiles of one
dimension in a slice of it, all those along an axis in the same. Tiles that only go to shared memory
lie in rows instead, as memory has them. Where two layouts meet a conversion is printed; between
slices of results with other widths it moves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dataflow.index import Affine
from gpu.blocks import pointer
from gpu.emit_gluon.layout import Layout
from gpu.emit_triton.emit import Text
from gpu.plan import Cast, Dot, Loop, Map, Mask, Permute, Reduce, Value
from gpu.uses import made, operands

TYPES = {
    "fp32": "gl.float32",
    "fp16": "gl.float16",
    "bf16": "gl.bfloat16",
    "fp8e4m3": "gl.float8e4nv",
    "fp8e5m2": "gl.float8e5",
    "int32": "gl.int32",
}
VECTOR_BYTES = 16
"""Bytes that a thread loads at once."""


@dataclass
class Pass:
    """One run through (a part of) the loop's body, at one step.

    step: text of the step. waited: rings whose tiles are known to be full. readers: reads of each
    ring that are still to come. free: masks that hold everywhere.
    """

    step: str
    readers: dict[str, int]
    free: tuple[str, ...] = ()
    waited: set[str] = field(default_factory=set)


class Tiles(Text):
    """Text in which every tile has a layout; `target`: that of the tile whose lanes are printed."""

    def __init__(self, layout: Layout):
        super().__init__(layout.plan, layout.kernel, False)
        self.layout = layout
        self.tile_lanes = layout.lanes
        self.target = ""
        self.homes: dict[str, str] = {}
        self.lane_names: dict[tuple[str, str], str] = {}
        self.lane_lines: list[str] = []
        self.globals: dict[str, str] = {}
        self.run: Pass | None = None
        self.leading = self._leading()
        self.memory_bound = self._memory_bound()

    # --- layouts ------------------------------------------------------------------------------

    def _leading(self) -> dict[str, int]:
        """Columns of the first tile that each axis leads: its statistics lie in a slice of it."""
        found: dict[str, int] = {}
        for statement in self.kernel.statements():
            out = getattr(statement, "out", None)
            if isinstance(statement, Dot) and isinstance(out, Value):
                found.setdefault(out.axes[0], self.tile_lanes[out.axes[1]])
        return found

    def _memory_bound(self) -> set[str]:
        """Tiles of two dimensions that no product's result ever meets: they lie in rows."""
        derived: set[str] = set()
        for statement in self.kernel.statements():
            names = {v.name for v in operands(statement) if isinstance(v, Value)}
            if isinstance(statement, Dot) or names & derived:
                derived.update(made(statement))
            if isinstance(statement, Loop):
                derived.update(c.value.name for c in statement.carried)
        meeting = set(derived)
        statements = list(self.kernel.statements())
        before = -1
        while before != len(meeting):
            before = len(meeting)
            for statement in statements:
                values = [v for v in operands(statement) if isinstance(v, Value)]
                out = getattr(statement, "out", None)
                tied = isinstance(statement, Map | Cast | Mask | Permute)
                if tied and isinstance(out, Value) and out.name in meeting:
                    meeting.update(v.name for v in values if len(v.axes) == 2)
                if isinstance(statement, Reduce):
                    meeting.add(statement.arg.name)
        names = {v.name for s in statements for v in [getattr(s, "out", None)] if v is not None}
        return names - meeting

    def product_layout(self, columns: int) -> str:
        """The layout of a result with so many columns."""
        width = min(256, max(8, columns))
        name = f"RESULT_{width}"
        warps = self.layout.warps
        self.globals[name] = (
            f"gl.constexpr(gl.NVMMADistributedLayout([3, 0], [{warps}, 1], [16, {width}, 16]))"
        )
        return name

    def rows_layout(self, shape: tuple[int, int], type_: str, order: tuple[int, int]) -> str:
        """Rows as memory has them: 16 bytes a thread along the faster dimension."""
        item = {"fp32": 4, "int32": 4, "fp16": 2, "bf16": 2}.get(type_, 1)
        fast = shape[order[0]]
        each = max(1, min(VECTOR_BYTES // item, fast))
        across = min(32, max(1, fast // each))
        size, threads, warps = [1, 1], [32 // across, 32 // across], [1, 1]
        size[order[0]], threads[order[0]] = each, across
        warps[order[1]] = self.layout.warps
        name = f"ROWS_{'x'.join(map(str, shape))}_{item * 8}{'T' if order == (0, 1) else ''}"
        self.globals[name] = (
            f"gl.constexpr(gl.BlockedLayout({size}, {threads}, {warps}, {list(order)}))"
        )
        return name

    def home(self, value: Value) -> str:
        """The layout that a value lies in."""
        if not value.axes:
            return ""
        if value.name in self.homes:
            return self.homes[value.name]
        return self.layout_of(value.axes)

    def layout_of(self, axes: Sequence[str]) -> str:
        """The layout of a tile over `axes` that meets products."""
        if len(axes) == 2:
            return self.product_layout(self.tile_lanes[axes[1]])
        if axes[0] in self.leading:
            return f"gl.SliceLayout(1, {self.product_layout(self.leading[axes[0]])})"
        return f"gl.SliceLayout(0, {self.product_layout(self.tile_lanes[axes[0]])})"

    def in_layout(self, value: Value, layout: str) -> str:
        """A value in a layout."""
        if not value.axes or self.home(value) == layout:
            return value.name
        return f"gl.convert_layout({value.name}, {layout})"

    # --- overridden: forms with lanes of a layout ------------------------------------------------

    def put(self, text: str) -> None:
        super().put(re.sub(r"\btl\.", "gl.", text))

    def coordinate(self, axis: str) -> tuple[str, str]:
        base, lane = super().coordinate(axis)
        if self.run is not None and self.layout.loop is not None and axis == self.layout.loop.axis:
            base = "" if self.run.step == "0" else base.replace(step_name(axis), self.run.step)
        return base, lane

    def parts(self, form: Affine, axes: tuple[str, ...]) -> tuple[str, str]:
        """The program's part of a form and the lanes' part, in the layout `target`."""
        lanes: list[tuple[int, str]] = []
        for axis, coefficient in form.terms:
            if self.tile_lanes[axis] > 1 and axis in axes:
                lanes.append((coefficient, self.lane(axis, axes)))
        first = self.first(form) if form.terms or form.constant else ""
        return ("" if first == "0" else first), added(lanes)

    def lane(self, axis: str, axes: tuple[str, ...]) -> str:
        """The lanes of an axis, as a tile over `axes` in the layout `target`."""
        name = self.lane_of(axis, axes)
        if len(axes) == 1:
            return name
        return f"{name}[:, None]" if axes.index(axis) == 0 else f"{name}[None, :]"

    def lane_of(self, axis: str, axes: tuple[str, ...]) -> str:
        """The lanes of an axis, for a tile over `axes` in the layout `target`."""
        layout = self.target
        if len(axes) == 2:
            layout = f"gl.SliceLayout({1 - axes.index(axis)}, {self.target})"
        name = self.lane_names.get((axis, layout))
        if name is None:
            base = f"{axis.replace('.', '_')}_lane"
            taken = sum(1 for known, _ in self.lane_names if known == axis)
            name = base if not taken else f"{base}_{taken + 1}"
            self.lane_names[axis, layout] = name
            text = f"gl.arange(0, {self.tile_lanes[axis]}, {layout})"
            if axis == self.layout.split:
                text = f"group * {self.tile_lanes[axis]} + {text}"
            self.lane_lines.append(f"    {name} = {text}")
        return name

    def condition(self, forms: Sequence[Affine], axes: tuple[str, ...]) -> str:
        """Where every form is >= 0, rows compared with columns: few numbers a thread."""
        checks = []
        for form in forms:
            columns = form.coefficient(axes[1]) if len(axes) == 2 else 0
            if not columns or not form.coefficient(axes[0]) or self.tile_lanes[axes[1]] == 1:
                checks.append(super().condition([form], axes))
                continue
            scalar = self.first(form)
            rows = [(form.coefficient(axes[0]), self.lane_of(axes[0], axes))]
            rows += [(1, f"({scalar})")] if scalar != "0" else []
            right = added([(-columns, self.lane_of(axes[1], axes))])
            checks.append(f"(({added(rows)})[:, None] >= ({right})[None, :])")
        return " & ".join(checks)

    def flat(self, axes: tuple[str, ...]) -> str:
        return ""  # a mask may be one number for all lanes

    def shape(self, axes: Sequence[str]) -> str:
        sizes = [str(self.tile_lanes[axis]) for axis in axes]
        return f"[{', '.join(sizes)}]"

    def full(self, axes: Sequence[str], value: str, type_: str, layout: str) -> str:
        """A tile of one number."""
        return f"gl.full({self.shape(axes)}, {value}, {TYPES[type_]}, {layout})"

    def tile_address(self, tensor: str, index: Sequence[Affine], axes: tuple[str, ...]) -> str:
        """A pointer, or a tile of pointers, into a row-major tensor."""
        shape = self.tensors[tensor].shape
        offset, stride = Affine(), 1
        for form, size in reversed(list(zip(index, shape, strict=True))):
            offset = offset + form * stride
            stride *= size
        scalar, lanes = self.parts(offset, axes)
        if scalar and stride >= 2**31 and not scalar.isdigit():
            scalar = self.wide(offset)
        parts = [pointer(tensor), *(f"({text})" for text in (scalar, lanes) if text)]
        if any(not offset.coefficient(axis) for axis in axes):
            parts.append(self.full(axes, "0", "int32", self.target))
        return " + ".join(parts)

    def box_start(self, forms: Iterable[Affine], axes: Sequence[str], group: str | None) -> str:
        """Coordinates of a box's first point; `group`: whose share of the rows it is."""
        texts = []
        for form in forms:
            text = self.first(form)
            split = self.layout.split
            if group is not None and split is not None and form.coefficient(split):
                rows = self.tile_lanes[split]
                text = f"{text} + {group} * {rows}" if text != "0" else f"{group} * {rows}"
            texts.append(text)
        return f"[{', '.join(texts)}]"


def step_name(axis: str) -> str:
    return f"{axis.replace('.', '_')}_step"


def added(terms: Sequence[tuple[int, str]]) -> str:
    text = ""
    for coefficient, name in terms:
        size = abs(coefficient)
        body = name if size == 1 else f"{name} * {size}"
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {body}" if text else (f"-{body}" if coefficient < 0 else body)
    return text
