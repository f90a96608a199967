"""The statements of a warp group, one method each: loads, stores, pointwise code, reductions."""

from __future__ import annotations

from collections.abc import Iterable

from gpu.emit_gluon.flights import Flights
from gpu.emit_gluon.layout import Layout, buffer
from gpu.emit_gluon.tiles import TYPES
from gpu.emit_triton.words import FUNCTIONS as TRITON_FUNCTIONS
from gpu.emit_triton.words import LOG2_E, REDUCTIONS, number
from gpu.module import GpuError
from gpu.plan import (
    Cast,
    Dot,
    Form,
    Load,
    Map,
    Mask,
    Operand,
    Permute,
    Reduce,
    Statement,
    Store,
    Value,
)
from gpu.uses import operands

FUNCTIONS = {
    **{name: text.replace("tl.", "gl.") for name, text in TRITON_FUNCTIONS.items()},
    "sigmoid": "1.0 / (1.0 + gl.exp(-{0}))",
    "tanh": "2.0 / (1.0 + gl.exp(-2.0 * {0})) - 1.0",
}
"""Gluon's text for each row of `dataflow.ops.MAPS`; it has no sigmoid of its own."""


class Statements(Flights):
    """Text of statements, with the waits that each needs before.

    stored: whether something has left through shared memory. fresh: tables that were just read.
    """

    def __init__(self, layout: Layout):
        super().__init__(layout)
        self.stored = False
        self.fresh: set[str] = set()

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
        if self.layout.persistent and buffer(found[0]) in {name for *_, name in self.layout.stores}:
            self.put("tma.store_wait(0)")  # of the tile before
        self.put(f"{self.held_text(out)}.store({out.name})")
        self.put("fence_async_shared()")

    def in_registers(self, load: Load) -> bool:
        """Whether something besides products reads a ring's tile."""
        if self.layout.tile(load.out.name) is None:
            return False
        return any(
            load.out in operands(s) and not isinstance(s, Dot) for s in self.kernel.statements()
        )

    def _tile_load(self, load: Load) -> None:
        found = self.layout.tile(load.out.name)
        if found is not None:
            if self.in_registers(load):
                self.full_tiles(found[0])
                text = self.tile_text(*found, load.out.axes)
                self.put(f"{load.out.name} = {text}.load({self.home(load.out)})")
                self.put("gl.thread_barrier()")
                self.read_done(self.run, found[0].name)
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
            if self.run is not None or self.stored or self.layout.persistent:
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
