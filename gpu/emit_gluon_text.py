"""The text of a warp group: a kernel's statements over its share of the rows, in registers.

Tiles of two dimensions lie in the layout of a product's result with as many columns; tiles of one
dimension in a slice of it, all those along an axis in the same. Tiles that only go to shared memory
lie in rows instead, as memory has them. Where two layouts meet a conversion is printed; between
slices of results with other widths it moves nothing.

Products are asynchronous: issued when their operands are there, waited for before the first use of
their result, the ring's tiles given back right after the wait that retires their last reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from dataflow.index import Affine
from gpu.emit_gluon_layout import Held, Layout, Ring, Tile, buffer
from gpu.emit_gluon_stages import early, made
from gpu.emit_triton import FUNCTIONS as TRITON_FUNCTIONS
from gpu.emit_triton import LOG2_E, REDUCTIONS, Text, number, pointer
from gpu.module import GpuError
from gpu.orders import operands
from gpu.plan import (
    Cast,
    Dot,
    Form,
    Load,
    Loop,
    Map,
    Mask,
    Operand,
    Permute,
    Reduce,
    Statement,
    Store,
    Value,
)

TYPES = {
    "fp32": "gl.float32",
    "fp16": "gl.float16",
    "bf16": "gl.bfloat16",
    "fp8e4m3": "gl.float8e4nv",
    "fp8e5m2": "gl.float8e5",
    "int32": "gl.int32",
}
FUNCTIONS = {
    **{name: text.replace("tl.", "gl.") for name, text in TRITON_FUNCTIONS.items()},
    "sigmoid": "1.0 / (1.0 + gl.exp(-{0}))",
    "tanh": "2.0 / (1.0 + gl.exp(-2.0 * {0})) - 1.0",
}
"""Gluon's text for each row of `dataflow.ops.MAPS`; it has no sigmoid of its own."""
VECTOR_BYTES = 16
"""Bytes that a thread loads at once."""


@dataclass
class _Flight:
    """A product that was issued and not waited for; `keeps`: register operands that it reads."""

    name: str
    run: _Pass | None
    rings: tuple[str, ...]
    keeps: tuple[str, ...]


@dataclass
class _Pass:
    """One run through (a part of) the loop's body, at one step.

    step: text of the step. waited: rings whose tiles are known to be full. readers: reads of each
    ring that are still to come. free: masks that hold everywhere.
    """

    step: str
    readers: dict[str, int]
    free: tuple[str, ...] = ()
    waited: set[str] = field(default_factory=set)


class Consumer(Text):
    """The lines of one warp group (or of all warps, where nothing is loaded by others)."""

    def __init__(self, layout: Layout):
        super().__init__(layout.plan, layout.kernel, False)
        self.layout = layout
        self.tile_lanes = layout.lanes
        self.target = ""
        self.homes: dict[str, str] = {}
        self.lane_names: dict[tuple[str, str], str] = {}
        self.lane_lines: list[str] = []
        self.globals: dict[str, str] = {}
        self.flights: list[_Flight] = []
        self.run: _Pass | None = None
        self.stored = False
        self.fresh: set[str] = set()
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
            base = "" if self.run.step == "0" else base.replace(_step(axis), self.run.step)
        return base, lane

    def parts(self, form: Affine, axes: tuple[str, ...]) -> tuple[str, str]:
        """The program's part of a form and the lanes' part, in the layout `target`."""
        lanes: list[tuple[int, str]] = []
        for axis, coefficient in form.terms:
            if self.tile_lanes[axis] > 1 and axis in axes:
                lanes.append((coefficient, self.lane(axis, axes)))
        first = self.first(form) if form.terms or form.constant else ""
        return ("" if first == "0" else first), _sum(lanes)

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
            right = _sum([(-columns, self.lane_of(axes[1], axes))])
            checks.append(f"(({_sum(rows)})[:, None] >= ({right})[None, :])")
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

    # --- the function ------------------------------------------------------------------------

    def body_lines(self) -> list[str]:
        """All lines of the group's function, after its first."""
        self._programs()
        longest_first(self, self.layout)
        start = list(self.lines)
        self.lines = []
        for statement in early_outside(self.kernel.body):
            if isinstance(statement, Loop):
                self._main(statement)
            else:
                self.statement(statement)
        self.flush()
        if self.stored:
            self.put("tma.store_wait(0)")
        return [*start, *self.lane_lines, *self.lines]

    # --- products in flight --------------------------------------------------------------------

    def need(self, names: Iterable[str]) -> None:
        """Wait for the products in flight among `names`."""
        wanted = set(names)
        last = max((i for i, f in enumerate(self.flights) if f.name in wanted), default=None)
        if last is not None:
            self._retire(last + 1)

    def flush(self, after: Sequence[str] = ()) -> None:
        """Wait for all products in flight, not before the tiles `after` are worked out."""
        if self.flights:
            self._retire(len(self.flights), after)

    def _retire(self, count: int, after: Sequence[str] = ()) -> None:
        gone, self.flights = self.flights[:count], self.flights[count:]
        alive = {flight.name for flight in self.flights}
        outs = [f.name for f in gone if f.name and f.name not in alive]
        outs = list(dict.fromkeys(outs))
        keeps = [name for f in gone for name in f.keeps]
        deps = ", ".join([*outs, *keeps, *after])
        names = ", ".join([*outs, *("_" for _ in keeps), *after])
        left = len(self.flights)
        self.put(f"{names} = warpgroup_mma_wait(num_outstanding={left}, deps=[{deps}])")
        for flight in gone:
            for ring in flight.rings:
                self._read_done(flight.run, ring)

    def _read_done(self, run: _Pass | None, ring: str) -> None:
        """Give a ring's tiles back after the last read of them in a pass."""
        if run is None or ring not in run.readers:
            return
        run.readers[ring] -= 1
        if run.readers[ring] == 0:
            self.put(f"mbarrier.arrive({ring}_empty.index({self.slot(run, ring)}), count=1)")

    def slot(self, run: _Pass, ring: str) -> str:
        """The text of the place in the ring at the step of a pass."""
        found = next(r for r in self.layout.rings if r.name == ring)
        if run.step.isdigit():
            return str(int(run.step) % found.depth)
        return f"{run.step} % {found.depth}"

    def full_tiles(self, ring: Ring) -> None:
        """Wait until the ring's tiles of the step at hand are there."""
        assert self.run is not None
        if ring.name not in self.run.waited:
            self.run.waited.add(ring.name)
            step = self.run.step
            turn = f"{step} // {ring.depth} & 1"
            if step.isdigit():
                turn = str(int(step) // ring.depth & 1)
            self.put(
                f"mbarrier.wait({ring.name}_full.index({self.slot(self.run, ring.name)}), {turn})"
            )

    def tile_text(self, ring: Ring, tile: Tile, axes: tuple[str, ...]) -> str:
        """A ring's tile as shared memory over `axes`."""
        assert self.run is not None
        place = self.slot(self.run, ring.name)
        if self.layout.count(tile) > 1:
            place = f"({place}) * {self.layout.groups} + group"
        text = f"{tile.name}_ring.index({place})"
        if len(tile.box.block) > 2:
            text += f".reshape([{tile.box.matrix[0]}, {tile.box.matrix[1]}])"
        return text if axes == tile.box.axes else f"{text}.permute((1, 0))"

    # --- the loop ---------------------------------------------------------------------------

    def _main(self, loop: Loop) -> None:
        self.flush()
        for carried in loop.carried:
            value = carried.value
            if isinstance(carried.init, Value):
                self.need([carried.init.name])
                self.put(f"{value.name} = {self.in_layout(carried.init, self.home(value))}")
            elif value.axes:
                fill = number(carried.init)
                self.put(
                    f"{value.name} = {self.full(value.axes, fill, value.type, self.home(value))}"
                )
            else:
                self.put(f"{value.name} = {number(carried.init)}")
        stop = self.limits(loop)
        cut = self.layout.stages
        if cut.deferred and self.layout.rings:
            self._summed(loop, stop)
        elif cut.second:
            self._overlapped(loop, stop)
        else:
            for start, end, free in self._parts(loop, "0", stop):
                self._for(loop, start, end)
                self._pass(_step(loop.axis), cut.first, free)
                self._carry(loop, cut.first)
                self.depth -= 1
        self.run = None

    def limits(self, loop: Loop) -> str:
        """The text of the loop's end, defined before it where it is not a literal."""
        steps = self.axes[loop.axis].loop
        stop = self._bound(loop.stop, steps)
        if not stop.isdigit():
            self.put(f"{_step(loop.axis)}_stop = {stop}")
            stop = f"{_step(loop.axis)}_stop"
        return stop

    def _parts(self, loop: Loop, start: str, stop: str) -> list[tuple[str, str, tuple[str, ...]]]:
        """The steps before `free_until`, where masks are left out, and those after."""
        if loop.free_until is None:
            return [(start, stop, ())]
        steps = self.axes[loop.axis].loop
        free = self._bound(loop.free_until, steps)
        if free == str(steps):
            return [(start, stop, loop.free)]
        name = f"{_step(loop.axis)}_free"
        self.put(f"{name} = gl.maximum(gl.minimum({free}, {stop}), {start})")
        return [(start, name, loop.free), (name, stop, ())]

    def _for(self, loop: Loop, start: str, stop: str) -> None:
        self.put(f"for {_step(loop.axis)} in range({start}, {stop}):")
        self.depth += 1

    def _begin(self, step: str, part: Iterable[Statement], free: tuple[str, ...]) -> _Pass:
        """A pass over `part` of the body at `step`."""
        readers: dict[str, int] = {}
        statements = list(part)
        for ring in self.layout.rings:
            names = {tile.name for tile in ring.tiles}
            count = sum(
                len({v.name for v in operands(s) if isinstance(v, Value)} & names)
                if isinstance(s, Dot)
                else 0
                for s in statements
            )
            count += sum(1 for s in statements if isinstance(s, Load) and self._in_registers(s))
            if names & {s.out.name for s in statements if isinstance(s, Load)}:
                readers[ring.name] = count
        self.run = _Pass(step, readers, free)
        return self.run

    def _in_registers(self, load: Load) -> bool:
        """Whether something besides products reads a ring's tile."""
        if self.layout.tile(load.out.name) is None:
            return False
        return any(
            load.out in operands(s) and not isinstance(s, Dot) for s in self.kernel.statements()
        )

    def _pass(self, step: str, part: Sequence[Statement], free: tuple[str, ...]) -> None:
        self._begin(step, part, free)
        for statement in part:
            self.statement(statement)
        self.flush()

    def _carry(self, loop: Loop, part: Iterable[Statement]) -> None:
        names = {name for statement in part for name in made(statement)}
        for carried in loop.carried:
            if carried.next.name in names and carried.value.name != carried.next.name:
                self.need([carried.next.name])
                text = self.in_layout(carried.next, self.home(carried.value))
                self.put(f"{carried.value.name} = {text}")

    def _summed(self, loop: Loop, stop: str) -> None:
        """Products of a step stay in flight while the next step's are issued."""
        (ring,) = self.layout.rings
        step = _step(loop.axis)
        dots = [s for s in loop.body if isinstance(s, Dot)]
        self._for(loop, "0", stop)
        self._begin(step, loop.body, ())
        for statement in loop.body:
            self.statement(statement)
        self.flights.clear()
        outs = ", ".join(dot.out.name for dot in dots)
        into = ", ".join(dot.acc.name for dot in dots if dot.acc is not None)
        self.put(f"{into} = warpgroup_mma_wait(num_outstanding={len(dots)}, deps=[{outs}])")
        before = f"{ring.name}_empty.index(({step} + {ring.depth - 1}) % {ring.depth})"
        self.put(f"mbarrier.arrive({before}, count=1, pred={step} > 0)")
        self.depth -= 1
        self.put(f"{into} = warpgroup_mma_wait(num_outstanding=0, deps=[{into}])")

    def _overlapped(self, loop: Loop, stop: str) -> None:
        """The first stage of each step beside the second stage of the step before."""
        first, second = self.layout.stages.first, self.layout.stages.second
        step = _step(loop.axis)
        self._pass("0", first, ())
        self._carry(loop, first)
        late = {name for s in second if isinstance(s, Dot) for name in made(s)}
        for start, end, free in self._parts(loop, "1", stop):
            self._for(loop, start, end)
            self._turn(loop, step, free, late)
            self.depth -= 1
        last = str(int(stop) - 1) if stop.isdigit() else f"({stop} - 1)"
        self._pass(last, second, ())
        self._carry(loop, second)

    def _turn(self, loop: Loop, step: str, free: tuple[str, ...], late: set[str]) -> None:
        first, second = self.layout.stages.first, self.layout.stages.second
        after = _depending(second, late)
        ahead = self._begin(step, first, free)
        behind = self._begin(f"({step} - 1)", second, free)
        for statement in second:
            if not isinstance(statement, Dot) and not _is_in(statement, after):
                self.statement(statement)
        self.run = ahead
        leading = [s for s in first if isinstance(s, Dot) and self._leads(s, first)]
        for statement in (*[s for s in first if isinstance(s, Load)], *leading):
            self.statement(statement)
        self.run = behind
        for statement in second:
            if isinstance(statement, Dot):
                self.statement(statement)
        self.run = ahead
        for statement in first:
            if not isinstance(statement, Load) and not _is_in(statement, leading):
                self.statement(statement)
        self.run = behind
        self.flush(self._crossing(first, second))
        for statement in after:
            self.statement(statement)
        self._carry(loop, (*first, *second))

    def _crossing(self, first: Sequence[Statement], second: Sequence[Statement]) -> list[str]:
        """Register operands that the first stage makes for products of the second."""
        local = {name for statement in first for name in made(statement)}
        lefts = [s.left.name for s in second if isinstance(s, Dot)]
        return [n for n in lefts if n in local and n not in self.layout.held]

    def _leads(self, dot: Dot, first: Sequence[Statement]) -> bool:
        local = {name for s in first if not isinstance(s, Load) for name in made(s)}
        values = (dot.left, dot.right, *(() if dot.acc is None else (dot.acc,)))
        return not any(value.name in local for value in values)

    # --- statements ----------------------------------------------------------------------------

    def statement(self, statement: Statement) -> None:
        """The lines of a statement, with the waits that it needs before."""
        if isinstance(statement, Dot):
            self.product(statement)
            self.fresh.clear()
            return
        values = [v for v in operands(statement) if isinstance(v, Value)]
        self.need(v.name for v in values)
        self._look_up(values)
        out = getattr(statement, "out", None)
        if isinstance(statement, Load):
            self._tile_load(statement)
        elif isinstance(statement, Store):
            self._tile_store(statement)
        elif isinstance(statement, Map):
            if self._inlined(statement):
                return
            self._homed(statement.out, statement.args)
            self.put(f"{statement.out.name} = {self._pointwise(statement)}")
        elif isinstance(statement, Cast):
            self._homed(statement.out, (statement.arg,))
            text = self.in_layout(statement.arg, self.home(statement.out))
            cast = statement.out.type != statement.arg.type
            text += f".to({TYPES[statement.out.type]})" if cast else ""
            self.put(f"{statement.out.name} = {text}")
        elif isinstance(statement, Mask):
            self._tile_mask(statement)
        elif isinstance(statement, Reduce):
            self._tile_reduce(statement)
        elif isinstance(statement, Permute):
            text = f"gl.permute({statement.arg.name}, [1, 0])"
            self.put(
                f"{statement.out.name} = gl.convert_layout({text}, {self.home(statement.out)})"
            )
        elif isinstance(statement, Form):
            self._tile_form(statement)
        else:
            raise GpuError(
                f"kernel {self.kernel.name} in Gluon: {type(statement).__name__.lower()} must be "
                "a statement that it can print"
            )
        if isinstance(out, Value):
            self._keep(out)

    def _look_up(self, values: Iterable[Value]) -> None:
        """Tables from shared memory, where pointwise code between two products needs them."""
        for value in values:
            held = self.layout.tables.get(value.name)
            if held is None or self.run is None or value.name in self.fresh:
                continue
            self.fresh.add(value.name)
            text = f"{self.own(held)}.load({self.home(value)})"
            text += f".to({TYPES[value.type]})" if value.type != held.type else ""
            self.put(f"{value.name} = {text}")

    def own(self, held: Held) -> str:
        """The group's own copy of a held tile."""
        return f"{buffer(held)}.index({'group' if self.layout.count(held) > 1 else 0})"

    def _homed(self, out: Value, args: Iterable[Operand]) -> None:
        """Tiles that only go to shared memory stay in the layout that they were loaded in."""
        if out.name in self.memory_bound and len(out.axes) == 2:
            homes = [self.homes.get(a.name) for a in args if isinstance(a, Value)]
            known = next((home for home in homes if home), None)
            if known:
                self.homes[out.name] = known

    def _keep(self, out: Value) -> None:
        """Put a tile into the shared memory that products read it from."""
        table = self.layout.tables.get(out.name)
        if table is not None and table.name == out.name and self.run is None:
            self.put(f"{self.own(table)}.store({out.name})")
        found = self.layout.held.get(out.name)
        if found is None or found[0].name != out.name:
            return
        self.put(f"{self.held_text(out)}.store({out.name})")
        self.put("fence_async_shared()")

    def held_text(self, value: Value) -> str:
        """The group's own copy of a held tile, with its dimensions as those of the value."""
        held, order = self.layout.held[value.name]
        text = self.own(held)
        return text if order == value.axes else f"{text}.permute((1, 0))"

    def product(self, dot: Dot) -> None:
        """Issue a product; its result is waited for where it is first used."""
        left, right = dot.left, dot.right
        self.need([left.name, right.name])
        flying = {f.name for f in self.flights}
        acc = dot.acc
        last_acc = acc is not None and acc.name in flying and self.uses[acc.name] == 1
        if acc is not None and not last_acc:
            self.need([acc.name])
        layout = self.layout_of(dot.out.axes)
        rings: list[str] = []
        keeps: tuple[str, ...] = ()
        texts = []
        for value, is_left in ((left, True), (right, False)):
            found = self.layout.tile(value.name)
            if found is not None:
                self.full_tiles(found[0])
                rings.append(found[0].name)
                texts.append(self.tile_text(*found, value.axes))
            elif value.name in self.layout.held:
                texts.append(self.held_text(value))
            else:
                assert is_left
                operand = f"{dot.out.name}_left"
                self.put(
                    f"{operand} = gl.convert_layout({value.name}, "
                    f"gl.DotOperandLayout(0, {layout}, 2))"
                )
                texts.append(operand)
                keeps = (operand,)
        if acc is None:
            texts.append(self.full(dot.out.axes, "0.0", "fp32", layout))
            use = ", use_acc=False"
        else:
            texts.append(acc.name)
            use = ""
        self.put(f"{dot.out.name} = warpgroup_mma({', '.join(texts)}{use}, is_async=True)")
        if last_acc:
            self.flights = [
                replace(f, name="") if acc is not None and f.name == acc.name else f
                for f in self.flights
            ]
        self.flights.append(_Flight(dot.out.name, self.run, tuple(rings), keeps))

    def _tile_load(self, load: Load) -> None:
        found = self.layout.tile(load.out.name)
        if found is not None:
            if self._in_registers(load):
                self.full_tiles(found[0])
                text = self.tile_text(*found, load.out.axes)
                self.put(f"{load.out.name} = {text}.load({self.home(load.out)})")
                self.put("gl.thread_barrier()")
                self._read_done(self.run, found[0].name)
            return
        held = self.layout.held.get(load.out.name)
        if held is not None and held[0].name != load.out.name and self._only_product(load.out):
            return
        if load.out.name in self.memory_bound and len(load.out.axes) == 2:
            last = [a for a in load.index[-1].symbols() if a in load.out.axes]
            fast = min(last, key=load.index[-1].coefficient, default=load.out.axes[1])
            order = (1, 0) if fast == load.out.axes[1] else (0, 1)
            shape = (self.tile_lanes[load.out.axes[0]], self.tile_lanes[load.out.axes[1]])
            self.homes[load.out.name] = self.rows_layout(shape, load.out.type, order)
        self.target = self.home(load.out)
        mask = ""
        if load.guards:
            inside = self.condition(load.guards, load.out.axes)
            mask = f", mask={inside}, other={number(load.fill)}"
        address = self.tile_address(load.tensor, load.index, load.out.axes)
        self.put(f"{load.out.name} = gl.load({address}{mask})")

    def _only_product(self, value: Value) -> bool:
        """Whether only products read a value."""
        readers = [s for s in self.kernel.statements() if value in operands(s)]
        return all(isinstance(s, Dot) for s in readers)

    def _tile_store(self, store: Store) -> None:
        found = self.layout.box(store)
        arg = store.arg
        if found is not None:
            box, name = found
            place = f"{name}.index({'group' if self.layout.groups > 1 else 0})"
            whole = place
            if len(box.block) > 2:
                whole += f".reshape([{box.matrix[0]}, {box.matrix[1]}])"
            whole += "" if arg.axes == box.axes else ".permute((1, 0))"
            if self.run is not None or self.stored:
                self.put("tma.store_wait(0)")
            self.put(f"{whole}.store({arg.name})")
            self.put("fence_async_shared()")
            group = "group" if self.layout.groups > 1 else None
            at = self.box_start(box.at, box.axes, group)
            self.put(f"copy_out({self.layout.descriptor(box)}, {at}, {place})")
            self.stored = True
            return
        self.target = self.home(arg)
        mask = f", mask={self.condition(store.guards, arg.axes)}" if store.guards else ""
        address = self.tile_address(store.tensor, store.index, arg.axes)
        self.put(f"gl.store({address}, {arg.name}{mask})")

    def _tile_mask(self, mask: Mask) -> None:
        if self.run is not None and mask.out.name in self.run.free:
            self.put(f"{mask.out.name} = {self.in_layout(mask.arg, self.home(mask.out))}")
            return
        self.target = self.home(mask.out)
        held = self.condition(mask.forms, mask.out.axes)
        arg = self.operand(mask.arg, mask.out.axes)
        self.put(f"{mask.out.name} = gl.where({held}, {arg}, {number(mask.fill)})")

    def _tile_reduce(self, reduce: Reduce) -> None:
        text, layout = reduce.arg.name, self.home(reduce.arg)
        axes = list(reduce.arg.axes)
        for axis in reduce.axes:
            place = axes.index(axis)
            text = f"{REDUCTIONS[reduce.fn].replace('tl.', 'gl.')}({text}, {place})"
            layout = f"gl.SliceLayout({place}, {layout})"
            axes.remove(axis)
        if axes and layout != self.home(reduce.out):
            text = f"gl.convert_layout({text}, {self.home(reduce.out)})"
        self.put(f"{reduce.out.name} = {text}")

    def _tile_form(self, form: Form) -> None:
        self.target = self.home(form.out)
        text = self.form(form.form, form.out.axes)
        if form.out.axes:
            text = f"({text} + {self.full(form.out.axes, '0', 'int32', self.target)})"
        if form.form.symbols():
            self.put(f"{form.out.name} = ({text}).to(gl.float32)")
        else:
            self.put(f"{form.out.name} = {text}")

    def _pointwise(self, statement: Map) -> str:
        axes = statement.out.axes
        self.target = self.home(statement.out)
        if statement.fn == "spread":
            zeros = self.full(axes, "0.0", statement.out.type, self.target)
            return f"{self.operand(statement.args[0], axes)} + {zeros}"
        if statement.fn == "exp" and isinstance(statement.args[0], Value):
            inner = self.defined.get(statement.args[0].name)
            if inner is not None and self._inlined(inner):
                self.need(v.name for v in inner.args if isinstance(v, Value))
                a, b = (self.operand(arg, axes) for arg in inner.args)
                return f"gl.exp2({a} * {LOG2_E!r} - {b} * {LOG2_E!r})"
        args = [self.operand(arg, axes) for arg in statement.args]
        return FUNCTIONS[statement.fn].format(*args)

    def operand(self, operand: Operand, axes: tuple[str, ...]) -> str:
        """An operand of a tile over `axes` in the layout `target`."""
        if not isinstance(operand, Value):
            return number(operand)
        if not operand.axes:
            return operand.name
        if len(operand.axes) == len(axes):
            return self.in_layout(operand, self.target)
        place = axes.index(operand.axes[0])
        text = self.in_layout(operand, f"gl.SliceLayout({1 - place}, {self.target})")
        return f"{text}[:, None]" if place == 0 else f"{text}[None, :]"


def longest_first(text: Text, layout: Layout) -> None:
    """Turn the order of an axis of the grid along which the loop grows.

    Programs start in the order of their numbers; the short ones come last and fill the gaps.
    """
    loop = layout.loop
    if loop is None or loop.stop is None:
        return
    for axis in layout.kernel.grid:
        count = layout.kernel.axes[axis].grid
        if loop.stop.form.coefficient(axis) > 0 and count > 1:
            name = f"{axis.replace('.', '_')}_program"
            text.put(f"{name} = {count - 1} - {name}")


def early_outside(body: Sequence[Statement]) -> tuple[Statement, ...]:
    """Statements outside the loop, each product as early as it can be, the loop where it was."""
    place = next((i for i, s in enumerate(body) if isinstance(s, Loop)), len(body))
    return (*early(body[:place]), *body[place : place + 1], *early(body[place + 1 :]))


def _depending(statements: Sequence[Statement], names: set[str]) -> list[Statement]:
    """Statements that need what the products `names` make, in order."""
    known, found = set(names), []
    for statement in statements:
        reads = {v.name for v in operands(statement) if isinstance(v, Value)}
        if not isinstance(statement, Dot) and reads & known:
            found.append(statement)
            known.update(made(statement))
    return found


def _is_in(statement: Statement, group: Sequence[Statement]) -> bool:
    return any(statement is member for member in group)


def _step(axis: str) -> str:
    return f"{axis.replace('.', '_')}_step"


def _sum(terms: Sequence[tuple[int, str]]) -> str:
    text = ""
    for coefficient, name in terms:
        size = abs(coefficient)
        body = name if size == 1 else f"{name} * {size}"
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {body}" if text else (f"-{body}" if coefficient < 0 else body)
    return text
