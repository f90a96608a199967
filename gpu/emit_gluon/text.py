"""The text of a warp group: a kernel's statements over its share of the rows, in registers.

The loop is printed as its stages ask (`gpu.emit_gluon.stages`): in order, a stage of each step
beside another of the step before, or with a step's products in flight while the next step's are
issued.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpu.emit_gluon.layout import Layout
from gpu.emit_gluon.stages import early
from gpu.emit_gluon.statements import Statements
from gpu.emit_gluon.tiles import Pass, step_name
from gpu.emit_triton.emit import Text
from gpu.emit_triton.words import number
from gpu.plan import Dot, Load, Loop, Statement, Value
from gpu.uses import made, operands


class Consumer(Statements):
    """The lines of one warp group (or of all warps, where nothing is loaded by others)."""

    def body_lines(self) -> list[str]:
        """All lines of the group's function, after its first."""
        begin(self, self.layout)
        for statement in early_outside(self.kernel.body):
            if isinstance(statement, Loop):
                self._main(statement)
            else:
                self.statement(statement)
        self.flush()
        end(self, self.layout)
        if self.stored:
            self.put("tma.store_wait(0)")
        return [*self.lane_lines, *self.lines]

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
                self._pass(step_name(loop.axis), cut.first, free)
                self._carry(loop, cut.first)
                self.depth -= 1
        self.run = None

    def limits(self, loop: Loop) -> str:
        """The text of the loop's end, defined before it where it is not a literal."""
        steps = self.axes[loop.axis].loop
        stop = self._bound(loop.stop, steps)
        if not stop.isdigit():
            self.put(f"{step_name(loop.axis)}_stop = {stop}")
            stop = f"{step_name(loop.axis)}_stop"
        return stop

    def _parts(self, loop: Loop, start: str, stop: str) -> list[tuple[str, str, tuple[str, ...]]]:
        """The steps before `free_until`, where masks are left out, and those after."""
        if loop.free_until is None:
            return [(start, stop, ())]
        steps = self.axes[loop.axis].loop
        free = self._bound(loop.free_until, steps)
        if free == str(steps):
            return [(start, stop, loop.free)]
        name = f"{step_name(loop.axis)}_free"
        self.put(f"{name} = gl.maximum(gl.minimum({free}, {stop}), {start})")
        return [(start, name, loop.free), (name, stop, ())]

    def _for(self, loop: Loop, start: str, stop: str) -> None:
        self.put(f"for {step_name(loop.axis)} in range({start}, {stop}):")
        self.depth += 1

    def _begin(self, step: str, part: Iterable[Statement], free: tuple[str, ...]) -> Pass:
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
            count += sum(1 for s in statements if isinstance(s, Load) and self.in_registers(s))
            if names & {s.out.name for s in statements if isinstance(s, Load)}:
                readers[ring.name] = count
        self.run = Pass(step, readers, free)
        return self.run

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
        step = step_name(loop.axis)
        dots = [s for s in loop.body if isinstance(s, Dot)]
        self._for(loop, "0", stop)
        self._begin(step, loop.body, ())
        for statement in loop.body:
            self.statement(statement)
        self.flights.clear()
        outs = ", ".join(dot.out.name for dot in dots)
        into = ", ".join(dot.acc.name for dot in dots if dot.acc is not None)
        self.put(f"{into} = warpgroup_mma_wait(num_outstanding={len(dots)}, deps=[{outs}])")
        count, depth = self.layout.count_of(step), ring.depth
        before = f"{ring.name}_empty.index(({count} + {depth - 1}) % {depth})"
        self.put(f"mbarrier.arrive({before}, count=1, pred={step} > 0)")
        self.depth -= 1
        self.put(f"{into} = warpgroup_mma_wait(num_outstanding=0, deps=[{into}])")
        if self.layout.persistent:
            last = f"{self.layout.count_of(stop)} + {depth - 1}"
            self.put(f"mbarrier.arrive({ring.name}_empty.index(({last}) % {depth}), count=1)")

    def _overlapped(self, loop: Loop, stop: str) -> None:
        """The first stage of each step beside the second stage of the step before."""
        first, second = self.layout.stages.first, self.layout.stages.second
        step = step_name(loop.axis)
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


def begin(text: Text, layout: Layout) -> None:
    """Where a program is: its number on each axis of the grid, for one tile or tile after tile.

    `done` counts the steps of the tiles before: rings go on where they were.
    """
    if layout.persistent:
        text.put("done = 0")
        text.put(
            f"for tile in range(gl.program_id(0), {layout.kernel.programs}, gl.num_programs(0)):"
        )
        text.depth += 1
        text.program = "tile"
    text._programs()
    _longest_first(text, layout)


def end(text: Text, layout: Layout) -> None:
    """The end of a tile, where more of them follow."""
    if layout.persistent:
        assert layout.loop is not None
        text.put(f"done += {text.axes[layout.loop.axis].loop}")
        text.depth -= 1


def _longest_first(text: Text, layout: Layout) -> None:
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
