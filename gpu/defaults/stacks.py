"""Chains of products by tables on a card with a copy engine: stacked, loads some steps ahead.

A program that walks a batch through a chain of Fourier products waits for each product before the
next. Stacked products (`gpu.lowering.stacks`) are half as many, and loads that are under way some
steps before they are needed hide where they come from. How many steps is a matter of shared memory,
which the programs of a core divide: a gated convolution of 4096 points took 0.67 ms on an H200 with
two programs and loads two steps ahead, 0.82 ms with one and the same loads, 0.74 ms with two and
loads one step ahead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from dataflow.nodes import Graph
from gpu.lowering.lower import lower
from gpu.plan import ITEM_BYTES, Dot, Kernel, Load, Loop, Permute, Plan, Store, Value
from gpu.schedule import GpuSchedule, KernelSchedule

CORE_SHARED_BYTES = 228 * 1024
"""Shared memory of a Hopper core; each program takes 1 KiB more than it asks for (CUDA programming
guide, compute capabilities)."""
CORE_WARPS = 8
"""Warps of a chain's programs on a core: with some 250 registers a thread no more have room."""
LEAST_ROWS = 64
"""Rows of a product of a Hopper warp group (PTX ISA, wgmma); fewer are taken from registers."""
CHOICES: tuple[tuple[int, bool | Literal["loads"]], ...] = (
    (3, True),
    (3, "loads"),
    (2, True),
    (2, "loads"),
)
"""Stages, and what the copy engine moves, the fastest that fits first: it stores from shared memory
that it keeps for that, threads store from registers."""


def with_stacks(graph: Graph, schedule: GpuSchedule) -> GpuSchedule:
    """Return `schedule`, for a card with a copy engine, with its chains stacked where that fits.

    Only for operands of 16 bits; others fill shared memory with tables alone.
    """
    if schedule.precision not in ("bf16", "fp16"):
        return schedule
    for place, kernel in enumerate(schedule.kernels):
        if not set(kernel.loop) & set(kernel.grid):  # no axis is walked with tables held over it
            continue
        for changed in _stacked(kernel):
            kernels = (*schedule.kernels[:place], changed, *schedule.kernels[place + 1 :])
            made = schedule.model_copy(update={"kernels": kernels})
            plan = lower(graph, made)
            used = stacked_bytes(plan, plan.kernels[place])
            if used == 0:
                break
            if used <= CORE_SHARED_BYTES * kernel.warps // CORE_WARPS - 1024:
                schedule = made
                break
    return schedule


def without_stacks(schedule: GpuSchedule) -> GpuSchedule:
    """Return `schedule` as it was before `with_stacks`."""
    plain = {"stack": False, "stages": 1, "descriptors": False}
    kernels = tuple(k.model_copy(update=plain) if k.stack else k for k in schedule.kernels)
    return schedule.model_copy(update={"kernels": kernels})


def _stacked(kernel: KernelSchedule) -> Iterator[KernelSchedule]:
    for stages, moved in CHOICES:
        yield kernel.model_copy(update={"stack": True, "stages": stages, "descriptors": moved})


def stacked_bytes(plan: Plan, kernel: Kernel) -> int:
    """Shared memory that Triton uses for a kernel's loop with stacked tables, in bytes.

    0 where there are none, or fewer rows than tensor cores take from shared memory at once.

    Tables; of each load one tile a stage, one less where threads take it out of shared memory
    before it is multiplied; the largest right operand that is computed, since tensor cores read
    those from shared memory; the largest tile that the copy engine stores. With what Triton 3.6
    says for Hopper at 256 to 8192 points this is equal but for barriers, some bytes each.
    """
    inside = [s for loop in kernel.body if isinstance(loop, Loop) for s in loop.body]
    dots = [s for s in inside if isinstance(s, Dot)]
    loads = {s.out.name: s for s in kernel.statements() if isinstance(s, Load)}
    turned = {s.out.name: s.arg for s in kernel.statements() if isinstance(s, Permute)}
    sides = [[_source(value, turned) for value in (s.left, s.right)] for s in dots]
    used = {value.name: value for side in sides for value in side}
    tables = [used[n] for n in used if n in loads and plan.tensors[loads[n].tensor].blocks]
    if not tables or any(_lanes(kernel, dot.m) < LEAST_ROWS for dot in dots):
        return 0
    total = sum(_bytes(kernel, value) for value in tables)
    for statement in inside:
        if isinstance(statement, Load):
            steps = kernel.stages - (statement.out.name not in used)
            total += steps * _bytes(kernel, statement.out)
    computed = [right for _, right in sides if right.name not in loads]
    total += max((_bytes(kernel, value) for value in computed), default=0)
    stores = [s.arg for s in inside if isinstance(s, Store) and kernel.descriptors is True]
    return total + max((_bytes(kernel, value) for value in stores), default=0)


def _source(value: Value, turned: Mapping[str, Value]) -> Value:
    while value.name in turned:
        value = turned[value.name]
    return value


def _bytes(kernel: Kernel, value: Value) -> int:
    return _lanes(kernel, value.axes) * ITEM_BYTES[value.type]


def _lanes(kernel: Kernel, axes: Iterable[str]) -> int:
    return math.prod(kernel.axes[axis].tile for axis in axes)
