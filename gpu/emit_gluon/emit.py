"""Prints a Plan as Gluon text for Hopper: rings of shared memory, warp groups, products in flight.

    source(plan)            the module's text, one @gluon.jit kernel a kernel of the plan
    arguments(plan, kernel) what each parameter is: a pointer, or a descriptor of boxes
    options(plan, kernel)   what to launch it with
    resident(plan, kernel)  how many programs a core

A kernel with products in a loop over tiles that the copy engine can move becomes three kinds of
warps. One loader warp fills rings of tiles; `kernel.warps / 4` warp groups take them, each with its
share of the rows of every product, and store their share through shared memory and the copy engine.
Any other kernel is printed for all its warps alike. What cannot be printed is refused with
GpuError, naming kernel and statement.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gpu.blocks import Argument, pointer
from gpu.emit_gluon.boxes import swizzle
from gpu.emit_gluon.layout import Layout, Ring, buffer, laid_out, shared_bytes
from gpu.emit_gluon.text import Consumer, begin, end
from gpu.emit_gluon.tiles import TYPES
from gpu.emit_triton.emit import Text
from gpu.plan import Kernel, Load, Plan, Store

HEAD = '''"""Generated from the graph {name} at {precision}: change the graph or the schedule."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# Triton 3.6 has other names for these than later ones
copy_in = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
copy_out = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
'''
GROUP_REGISTERS = {1: 240, 2: 240, 3: 160}
"""Registers a thread of each warp group beside a loader, of the 65,536 of a core.

With a loader of 24 (its three idle warps count too) they fill a core's registers: for two groups
(2 * 240 + 24) * 128 = 64,512. Taken by setmaxnreg, which counts in eights (PTX ISA).
"""
LOADER_REGISTERS = 24
CORE_REGISTERS = 65536
THREADS = 128
"""Threads of a warp group; the loader's warp counts as one, for registers."""
SHARED_BYTES = 226 * 1024
"""Shared memory of a core that two programs may share: 228 KiB less 1 a program (CUDA guide)."""


def source(plan: Plan) -> str:
    """Return the text of a module that holds all kernels of `plan`.

    Raises GpuError with the first kernel's statements that cannot be printed.
    """
    globals_: dict[str, str] = {}
    functions: list[str] = []
    for kernel in plan.kernels:
        functions += _functions(laid_out(plan, kernel), globals_)
    names = "\n".join(f"{name} = {text}" for name, text in sorted(globals_.items()))
    return "\n\n".join([HEAD.format(name=plan.name, precision=plan.precision), names, *functions])


def arguments(plan: Plan, kernel: Kernel) -> tuple[Argument, ...]:
    """Return what each parameter of the kernel's function is, in order.

    A descriptor's memory layout is Gluon's default for its block and type.
    """
    return _arguments(laid_out(plan, kernel))


def options(plan: Plan, kernel: Kernel) -> dict[str, int]:
    """Return what the kernel is launched with.

    num_warps: of its first warp group; other partitions add theirs. maxnreg: of all its threads
    before they share registers out, so that two programs of one warp group fit a core.
    """
    layout = laid_out(plan, kernel)
    made = {"num_warps": layout.warps}
    if _two_fit(layout):
        made["maxnreg"] = CORE_REGISTERS // (2 * 2 * THREADS)
    return made


def resident(plan: Plan, kernel: Kernel) -> int:
    """Return how many programs a core share all tiles, 0 where each tile has its own."""
    layout = laid_out(plan, kernel)
    return 0 if not layout.persistent else 2 if _two_fit(layout) else 1


def _two_fit(layout: Layout) -> bool:
    """Whether a core has registers and shared memory for two programs with a loader."""
    return bool(layout.rings) and layout.groups == 1 and 2 * shared_bytes(layout) <= SHARED_BYTES


def _arguments(layout: Layout) -> tuple[Argument, ...]:
    found: list[Argument] = []
    for tensor in layout.kernel.args:
        for (name, view, block), parameter in layout.descriptors.items():
            if name == tensor:
                found.append(Argument(parameter, name, block, view))
        if any(s.tensor == tensor and not _boxed(layout, s) for s in _accesses(layout.kernel)):
            found.append(Argument(pointer(tensor), tensor))
    return tuple(found)


def _accesses(kernel: Kernel) -> Iterable[Load | Store]:
    return (s for s in kernel.statements() if isinstance(s, Load | Store))


def _boxed(layout: Layout, access: Load | Store) -> bool:
    if isinstance(access, Load):
        return layout.tile(access.out.name) is not None
    return layout.box(access) is not None


def _functions(layout: Layout, globals_: dict[str, str]) -> list[str]:
    consumer = Consumer(layout)
    lines = consumer.body_lines()
    globals_.update(consumer.globals)
    name = layout.kernel.name
    parameters = [argument.name for argument in _arguments(layout)]
    memory = _memory(layout, globals_)
    if not layout.rings:
        body = [*memory, *lines]
        return [_function(name, parameters, body)]
    known = [*parameters, *_names(memory)]
    group = ["group: gl.constexpr"] if layout.groups > 1 else []
    used = _used(lines, known)
    text = [_function(f"{name}_group", [*group, *used], lines)]
    loader = Loader(layout).body_lines()
    moved = _used(loader, known)
    text.append(_function(f"{name}_loader", moved, loader))
    parts = [
        f"        ({name}_group, ({_tuple([*([str(place)] if group else []), *used])})),"
        for place in range(layout.groups)
    ]
    parts.append(f"        ({name}_loader, ({_tuple(moved)})),")
    counts = [4] * (layout.groups - 1) + [1]
    registers = [_registers(layout.groups)] * (layout.groups - 1) + [LOADER_REGISTERS]
    launch = ["    gl.warp_specialize([", *parts, f"    ], {counts}, {registers})"]
    return [*text, _function(name, parameters, [*memory, *launch])]


def _registers(groups: int) -> int:
    return GROUP_REGISTERS.get(
        groups, max(24, (CORE_REGISTERS // THREADS - LOADER_REGISTERS) // groups & ~7)
    )


def _tuple(names: Sequence[str]) -> str:
    return ", ".join(names) + ("," if len(names) == 1 else "")


def _function(name: str, parameters: Sequence[str], lines: Sequence[str]) -> str:
    return "\n".join(["@gluon.jit", f"def {name}({', '.join(parameters)}):", *lines]) + "\n"


def _used(lines: Iterable[str], names: Iterable[str]) -> list[str]:
    words = set(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", "\n".join(lines)))
    return [name for name in names if name in words]


def _names(memory: Iterable[str]) -> list[str]:
    return [line.split(" = ")[0].strip() for line in memory if " = " in line]


def _memory(layout: Layout, globals_: dict[str, str]) -> list[str]:
    """Lines that allocate shared memory and set up barriers."""
    lines: list[str] = []

    def allocate(name: str, count: int, block: tuple[int, ...], type_: str) -> None:
        shape = ", ".join(map(str, (count, *block)))
        tile = _shared(block, type_, globals_)
        lines.append(f"    {name} = gl.allocate_shared_memory({TYPES[type_]}, [{shape}], {tile})")

    for ring in layout.rings:
        for tile in ring.tiles:
            count = ring.depth * layout.count(tile)
            allocate(f"{tile.name}_ring", count, tile.box.block, tile.box.type)
    for held in layout.buffers():
        allocate(buffer(held), layout.count(held), held.shape, held.type)
    for _, box, name in layout.stores:
        if name not in {buffer(held) for held in layout.buffers()}:
            allocate(name, layout.groups, box.block, box.type)
    for ring in layout.rings:
        lines += _barriers(ring, layout.groups)
    return lines


def _barriers(ring: Ring, groups: int) -> list[str]:
    shape = f"[{ring.depth}, 1]"
    lines = [
        f"    {ring.name}_{state} = "
        f"gl.allocate_shared_memory(gl.int64, {shape}, mbarrier.MBarrierLayout())"
        for state in ("full", "empty")
    ]
    lines.append(f"    for place in gl.static_range({ring.depth}):")
    lines.append(f"        mbarrier.init({ring.name}_full.index(place), count=1)")
    lines.append(f"        mbarrier.init({ring.name}_empty.index(place), count={groups})")
    return lines


def _shared(block: tuple[int, ...], type_: str, globals_: dict[str, str]) -> str:
    """The layout of a tile in shared memory: what the copy engine writes and products read."""
    width = swizzle(block, type_)
    bits = {"fp32": 32, "bf16": 16, "fp16": 16}.get(type_, 8)
    rank = f"_{len(block)}D" if len(block) > 2 else ""
    name = f"SWIZZLE_{width}_{bits}{rank}"
    globals_[name] = (
        f"gl.constexpr(gl.NVMMASharedLayout(swizzle_byte_width={width}, element_bitwidth={bits}, "
        f"rank={len(block)}))"
    )
    return name


class Loader(Text):
    """The lines of the warp that fills the rings."""

    def __init__(self, layout: Layout):
        super().__init__(layout.plan, layout.kernel, False)
        self.layout = layout

    def put(self, text: str) -> None:
        super().put(re.sub(r"\btl\.", "gl.", text))

    def body_lines(self) -> list[str]:
        """All lines of the loader's function, after its first."""
        loop = self.layout.loop
        assert loop is not None
        begin(self, self.layout)
        step = f"{loop.axis.replace('.', '_')}_step"
        self.put(f"for {step} in range(0, {self._bound(loop.stop, self.axes[loop.axis].loop)}):")
        self.depth += 1
        for ring in self.layout.rings:
            self._fill(ring, step)
        self.depth -= 1
        end(self, self.layout)
        return self.lines

    def _fill(self, ring: Ring, step: str) -> None:
        count = self.layout.count_of(step)
        groups, place = self.layout.groups, f"{count} % {ring.depth}"
        full = f"{ring.name}_full.index({place})"
        # a ring starts out empty: the first turn's wait is for a turn that never was
        turn = f"{count} // {ring.depth} & 1 ^ 1"
        self.put(f"mbarrier.wait({ring.name}_empty.index({place}), {turn})")
        self.put(f"mbarrier.expect({full}, {ring.bytes(groups)})")
        for tile in ring.tiles:
            parameter = self.layout.descriptor(tile.box)
            for group in range(self.layout.count(tile)):
                where = place
                if self.layout.count(tile) > 1:
                    where = f"({place}) * {groups} + {group}"
                at = self._start(tile.box.at, group)
                self.put(f"copy_in({parameter}, {at}, {full}, {tile.name}_ring.index({where}))")

    def _start(self, forms: Iterable, group: int) -> str:
        split = self.layout.split
        texts = []
        for form in forms:
            moved = form
            if split is not None and group and form.coefficient(split):
                moved = form + group * self.layout.lanes[split] * form.coefficient(split)
            texts.append(self.first(moved))
        return f"[{', '.join(texts)}]"
