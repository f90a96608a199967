"""Prints a Plan as Triton text: portable, for the interpreter and for sm_80 and up.

    source(plan)            the module's text, one @triton.jit function a kernel
    arguments(plan, kernel) what each parameter of the function is

Every size is a literal of the text. A form of the axes is printed as a part that is one number for
the whole program (its place in the grid, the loops' steps) and a part over the lanes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from dataflow.index import Affine
from gpu.blocks import arguments
from gpu.emit_triton.accesses import Accesses
from gpu.emit_triton.held import Widen, held_narrow
from gpu.emit_triton.words import (
    DOT_PRECISION,
    FUNCTIONS,
    LOG2_E,
    REDUCTIONS,
    TYPES,
    combine,
    lane_of,
    number,
    program_of,
    step_of,
    subscript,
)
from gpu.lowering.ahead import alike
from gpu.plan import (
    Barrier,
    Bound,
    Cast,
    Dot,
    Fetch,
    Form,
    Kernel,
    Load,
    Loop,
    Map,
    Mask,
    Operand,
    Permute,
    Plan,
    Publish,
    Reduce,
    Stack,
    Statement,
    Store,
    Unstack,
    Value,
)
from gpu.uses import operands

HEAD = '''"""Generated from the graph {name} at {precision}: change the graph or the schedule."""

import triton
import triton.language as tl
'''

HELPERS = {
    "_nearest_tf32": """@triton.jit
def _nearest_tf32(x):
    bits = (x.to(tl.uint32, bitcast=True) + 0x1000) & 0xFFFFE000
    return bits.to(tl.float32, bitcast=True)
""",
    "_tanh": """@triton.jit
def _tanh(x):
    z = x * x
    tail = ((-5.70498872745e-3 * z + 2.06390887954e-2) * z - 5.37397155531e-2) * z
    near = x + x * z * ((tail + 1.33314422036e-1) * z - 3.33332819422e-1)
    far = 1.0 - 2.0 / (tl.exp(2.0 * tl.abs(x)) + 1.0)
    return tl.where(tl.abs(x) < 0.625, near, tl.where(x < 0, -far, far))
""",
    "_nearest_bf16": """@triton.jit
def _nearest_bf16(x):
    bits = x.to(tl.uint32, bitcast=True)
    bits = bits + 0x7FFF + ((bits >> 16) & 1)
    return (bits & 0xFFFF0000).to(tl.float32, bitcast=True).to(tl.bfloat16)
""",
    "_anew": """@triton.jit
def _anew(x):
    move: tl.constexpr = "mov.b32 $0, $1;"
    return tl.inline_asm_elementwise(move, "=r,r", [x], dtype=x.dtype, is_pure=False, pack=2)
""",
}
"""Functions that the text defines where it uses them.

_nearest_tf32 rounds what the matrix units would cut off, which halves a tf32 product's error.
_tanh keeps fp32's relative error near 0 (polynomial of Cephes' tanhf), where 2 sigmoid(2x) - 1
cancels; 16-bit types do without. _nearest_bf16: see `source`. _anew: see `gpu.emit_triton.held`.
"""


def source(plan: Plan, interpreted: bool = False) -> str:
    """Return the text of a module that holds all kernels of `plan`.

    interpreted: for Triton's interpreter, whose products multiply the bit patterns of bf16 numbers
    and whose casts to bf16 cut off instead of rounding (3.6 to 3.9). Operands of products are
    widened to fp32 first, in which bf16 products are exact, and casts round before they cut.
    """
    functions = [Text(plan, held_narrow(kernel), interpreted).function() for kernel in plan.kernels]
    helpers = [text for name, text in HELPERS.items() if any(f"{name}(" in f for f in functions)]
    together = {found for f in functions for found in re.findall(r"_(sum|max|min)_(\d+)\)", f)}
    helpers += [combine(fn, int(count)) for fn, count in sorted(together)]
    head = HEAD.format(name=plan.name, precision=plan.precision)
    return "\n\n".join([head, *helpers, *functions])


class Text(Accesses):
    """The lines of one kernel."""

    def __init__(self, plan: Plan, kernel: Kernel, interpreted: bool):
        super().__init__(plan, kernel)
        self.interpreted = interpreted
        self.exact = plan.precision in ("fp32", "tf32")
        self.defined = {s.out.name: s for s in kernel.statements() if isinstance(s, Map)}
        self.uses: dict[str, int] = {}
        for statement in kernel.statements():
            for operand in operands(statement):
                if isinstance(operand, Value):
                    self.uses[operand.name] = self.uses.get(operand.name, 0) + 1
            if isinstance(statement, Loop):
                for carried in statement.carried:
                    self.uses[carried.next.name] = self.uses.get(carried.next.name, 0) + 1

    def function(self) -> str:
        """The whole function."""
        names = ", ".join(argument.name for argument in arguments(self.plan, self.kernel))
        self._programs()
        self._lanes()
        self._body(self.kernel.body)
        return "\n".join(["@triton.jit", f"def {self.kernel.name}({names}):", *self.lines]) + "\n"

    # --- where a program is -------------------------------------------------------------------

    def _programs(self) -> None:
        kernel = self.kernel
        grid = list(kernel.grid)
        if not grid:
            return
        self.put(f"program = {self.program}")
        if kernel.group is not None and len(grid) > 1:
            grid = self._grouped(grid, *kernel.group)
        for place, axis in enumerate(grid):
            last = place == len(grid) - 1
            count = self.axes[axis].grid
            self.put(f"{program_of(axis)} = program{'' if last else f' % {count}'}")
            if not last:
                self.put(f"program = program // {count}")

    def _grouped(self, grid: list[str], axis: str, size: int) -> list[str]:
        """Programs of `axis` in groups of `size`, each with all of the next axis."""
        other = next(a for a in grid if a != axis)
        rows, columns = self.axes[axis].grid, self.axes[other].grid
        size = min(size, rows)
        self.put(f"inside = program % {rows * columns}")
        self.put(f"first = inside // {size * columns} * {size}")
        self.put(f"members = tl.minimum({rows} - first, {size})")
        self.put(f"inside = inside % {size * columns}")
        self.put(f"{program_of(axis)} = first + inside % members")
        self.put(f"{program_of(other)} = inside // members")
        rest = [a for a in grid if a not in (axis, other)]
        if rest:
            self.put(f"program = program // {rows * columns}")
        return rest

    def _lanes(self) -> None:
        for axis, plan in self.axes.items():
            if plan.tile > 1 and self._used(axis):
                self.put(f"{lane_of(axis)} = tl.arange(0, {plan.tile})")

    def _used(self, axis: str) -> bool:
        for statement in self.kernel.statements():
            forms: tuple[Affine, ...] = ()
            if isinstance(statement, Load | Store | Fetch | Publish):
                forms = (*statement.index, *statement.guards)
            elif isinstance(statement, Mask):
                forms = statement.forms
            elif isinstance(statement, Form):
                forms = (statement.form,)
            if any(form.coefficient(axis) for form in forms):
                return True
        return False

    # --- statements ---------------------------------------------------------------------------

    def _body(self, body: Sequence[Statement], free: tuple[str, ...] = ()) -> None:
        for statements in self._runs(body):
            statement = statements[0]
            if len(statements) > 1:
                self._reduce_together([s for s in statements if isinstance(s, Reduce)])
            elif isinstance(statement, Loop):
                self._loop(statement)
            elif isinstance(statement, Mask) and statement.out.name in free:
                self.put(f"{statement.out.name} = {statement.arg.name}")
            elif isinstance(statement, Map):
                if not self._inlined(statement):
                    self.put(f"{statement.out.name} = {self._map(statement)}")
            else:
                self._other(statement)

    def _runs(self, body: Sequence[Statement]) -> list[list[Statement]]:
        """Statements one by one, but sums that stand side by side and are alike together.

        Not for the interpreter, which reduces several tiles at once number by number.
        """
        runs: list[list[Statement]] = []
        for statement in body:
            last = runs[-1][0] if runs else None
            if isinstance(last, Reduce) and alike(statement, last) and not self.interpreted:
                runs[-1].append(statement)
            else:
                runs.append([statement])
        return runs

    def _other(self, statement: Statement) -> None:
        if isinstance(statement, Load):
            self.put(f"{statement.out.name} = {self.load(statement)}")
        elif isinstance(statement, Form):
            form, axes = statement.form, statement.out.axes
            text = " + ".join(part for part in (self.form(form, axes), self.flat(axes)) if part)
            self.put(f"{statement.out.name} = {self._as_float(f'({text})', form)}")
        elif isinstance(statement, Mask):
            axes = statement.out.axes
            spread = any(form.coefficient(axis) for form in statement.forms for axis in axes)
            held = self.condition(statement.forms, axes if spread else ())
            fill = number(statement.fill)
            self.put(f"{statement.out.name} = tl.where({held}, {statement.arg.name}, {fill})")
        elif isinstance(statement, Dot):
            self._dot(statement)
        elif isinstance(statement, Reduce):
            self._reduce(statement)
        elif isinstance(statement, Permute):
            order = [statement.arg.axes.index(axis) for axis in statement.out.axes]
            places = ", ".join(map(str, order))
            self.put(f"{statement.out.name} = tl.permute({statement.arg.name}, ({places}))")
        elif isinstance(statement, Stack):
            self._stack(statement)
        elif isinstance(statement, Unstack):
            self._unstack(statement)
        elif isinstance(statement, Cast):
            self._cast(statement)
        elif isinstance(statement, Store):
            self.store(statement)
        elif isinstance(statement, Publish):
            self.publish(statement)
        elif isinstance(statement, Barrier):
            self.barrier(statement)
        elif isinstance(statement, Fetch):
            self.fetch(statement)

    def _as_float(self, text: str, form: Affine) -> str:
        return f"{text}.to(tl.float32)" if form.symbols() else number(float(form.constant))

    def _loop(self, loop: Loop) -> None:
        steps = self.axes[loop.axis].loop
        for carried in loop.carried:
            value = carried.value
            if isinstance(carried.init, Value):
                self.put(f"{value.name} = {carried.init.name}")
            else:
                fill = number(carried.init)
                shape = self.shape(value.axes)
                text = f"tl.full({shape}, {fill}, {TYPES[value.type]})" if value.axes else fill
                self.put(f"{value.name} = {text}")
        stop = self._bound(loop.stop, steps)
        if loop.free_until is None:
            self._range(loop, "0", stop, ())
            return
        free = self._bound(loop.free_until, steps)
        if free == str(steps):
            self._range(loop, "0", stop, loop.free)
            return
        if stop != str(steps):
            self.put(f"{step_of(loop.axis)}_stop = {stop}")
            stop = f"{step_of(loop.axis)}_stop"
        self.put(f"{step_of(loop.axis)}_free = tl.minimum({free}, {stop})")
        self._range(loop, "0", f"{step_of(loop.axis)}_free", loop.free)
        self._range(loop, f"{step_of(loop.axis)}_free", stop, ())

    def _range(self, loop: Loop, start: str, stop: str, free: tuple[str, ...]) -> None:
        stages = f", num_stages={loop.stages}" if any(_loads(loop)) else ""
        self.put(f"for {step_of(loop.axis)} in tl.range({start}, {stop}{stages}):")
        self.depth += 1
        self._body(loop.body, free)
        for carried in loop.carried:
            if carried.value.name != carried.next.name:
                self.put(f"{carried.value.name} = {carried.next.name}")
        self.depth -= 1

    def _bound(self, bound: Bound | None, steps: int) -> str:
        if bound is None:
            return str(steps)
        if not bound.form.symbols():
            count = bound.form.constant // bound.step + bound.plus
            return str(max(0, min(steps, count)))
        form = self.first(bound.form)
        count = f"tl.where({form} < 0, 0, ({form}) // {bound.step} + {bound.plus})"
        return f"tl.minimum({count}, {steps})"

    def _cast(self, cast: Cast) -> None:
        text = cast.arg.name
        if self.interpreted and (cast.arg.type, cast.out.type) == ("fp32", "bf16"):
            text = f"_nearest_bf16({text})"
        elif cast.out.type != cast.arg.type:
            anew = isinstance(cast, Widen) and not self.interpreted
            text = f"{f'_anew({text})' if anew else text}.to({TYPES[cast.out.type]})"
        self.put(f"{cast.out.name} = {text}")

    def _dot(self, dot: Dot) -> None:
        left = self._matrix(dot.left, (dot.batch, dot.m, dot.k))
        right = self._matrix(dot.right, (dot.batch, dot.k, dot.n))
        if self.interpreted and dot.left.type == "bf16":
            left, right = f"{left}.to(tl.float32)", f"{right}.to(tl.float32)"
        if dot.precision == "tf32":
            left, right = f"_nearest_tf32({left})", f"_nearest_tf32({right})"
        acc = ""
        if dot.acc is not None:
            acc = f", {self._matrix(dot.acc, (dot.batch, dot.m, dot.n))}"
        text = f"tl.dot({left}, {right}{acc}{DOT_PRECISION.get(dot.precision, '')})"
        flat = [group for group in (dot.batch, dot.m, dot.n) if group]
        if any(len(group) > 1 for group in flat):
            text = f"tl.reshape({text}, {self.shape(dot.out.axes)})"
        self.put(f"{dot.out.name} = {text}")

    def _stack(self, stack: Stack) -> None:
        """Joined along a last dimension, which then goes where it belongs."""
        at = stack.out.axes.index(stack.axis)
        last = len(stack.out.axes) - 1
        places = [*range(at), last, *range(at, last)]
        a, b = stack.args
        text = f"tl.join({a.name}, {b.name})"
        self.put(f"{stack.out.name} = tl.permute({text}, ({', '.join(map(str, places))}))")

    def _unstack(self, unstack: Unstack) -> None:
        at = unstack.arg.axes.index(unstack.axis)
        places = [i for i in range(len(unstack.arg.axes)) if i != at] + [at]
        a, b = unstack.outs
        text = f"tl.permute({unstack.arg.name}, ({', '.join(map(str, places))}))"
        self.put(f"{a.name}, {b.name} = tl.split({text})")

    def _matrix(self, value: Value, groups: Sequence[tuple[str, ...]]) -> str:
        kept = [group for group in groups if group]
        if len(value.axes) == len(kept):
            return value.name
        sizes = [math.prod(self.axes[axis].tile for axis in group) for group in kept]
        return f"tl.reshape({value.name}, ({', '.join(map(str, sizes))}))"

    def _reduce(self, reduce: Reduce) -> None:
        text = reduce.arg.name
        axes = list(reduce.arg.axes)
        for axis in reduce.axes:
            text = f"{REDUCTIONS[reduce.fn]}({text}, {axes.index(axis)})"
            axes.remove(axis)
        self.put(f"{reduce.out.name} = {text}")

    def _reduce_together(self, sums: list[Reduce]) -> None:
        text = f"({', '.join(one.arg.name for one in sums)})"
        axes = list(sums[0].arg.axes)
        for axis in sums[0].axes:
            text = f"tl.reduce({text}, {axes.index(axis)}, _{sums[0].fn}_{len(sums)})"
            axes.remove(axis)
        self.put(f"{', '.join(one.out.name for one in sums)} = {text}")

    # --- pointwise code -----------------------------------------------------------------------

    def _inlined(self, statement: Map) -> bool:
        """A difference that only an exponential reads is printed inside it (see `_map`)."""
        if statement.fn != "sub" or self.uses.get(statement.out.name, 0) != 1:
            return False
        return any(
            isinstance(s, Map) and s.fn == "exp" and s.args[0] == statement.out
            for s in self.defined.values()
        )

    def _map(self, statement: Map) -> str:
        axes = statement.out.axes
        if statement.fn == "spread":
            arg = self.operand(statement.args[0], axes)
            return f"tl.broadcast_to({arg}, {self.shape(axes)})"
        if statement.fn == "exp" and isinstance(statement.args[0], Value):
            inner = self.defined.get(statement.args[0].name)
            if inner is not None and self._inlined(inner):
                # one multiply-add and one exp2 an element
                a, b = (self.operand(arg, axes) for arg in inner.args)
                return f"tl.exp2({a} * {LOG2_E!r} - {b} * {LOG2_E!r})"
        args = [self.operand(arg, axes) for arg in statement.args]
        if statement.fn == "tanh" and self.exact:
            return f"_tanh({args[0]})"
        return FUNCTIONS[statement.fn].format(*args)

    def operand(self, operand: Operand, axes: tuple[str, ...]) -> str:
        """An operand with a dimension for each of `axes`."""
        if not isinstance(operand, Value):
            return number(operand)
        return operand.name + subscript(operand.axes, axes)


def _loads(loop: Loop) -> list[bool]:
    return [isinstance(statement, Load) for statement in loop.body]
