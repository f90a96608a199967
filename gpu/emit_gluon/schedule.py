"""The default GPU schedule, changed so that Gluon's warp groups and shared memory suit it.

Two warp groups share one ring where the default has one group: they read each tile once. Rings are
as deep as the schedule says, down to two steps, and no deeper than shared memory allows.
"""

from __future__ import annotations

from collections.abc import Iterator

from dataflow.nodes import Graph
from gpu.defaults.schedule import default_schedule
from gpu.defaults.stacks import without_stacks
from gpu.emit_gluon.layout import GROUP_ROWS, GROUP_WARPS, laid_out, shared_bytes
from gpu.lowering.lower import lower
from gpu.module import GpuError
from gpu.schedule import GpuSchedule, KernelSchedule

SHARED_BYTES = 227 * 1024 - 1024
"""Shared memory of one program (CUDA C++ programming guide), less 1 KiB for barriers."""
LEAST_STAGES = 2


def gluon_schedule(graph: Graph, precision: str = "bf16") -> GpuSchedule:
    """Return the default schedule of `graph` for the Gluon emitter.

    Raises GpuError where the emitter cannot print it, with what is in the way.
    """
    start = without_stacks(default_schedule(graph, precision))
    start = start.model_copy(update={"emitter": "gluon"})
    faults: list[str] = []
    for schedule in _candidates(start):
        try:
            plan = lower(graph, schedule)
            sizes = [shared_bytes(laid_out(plan, kernel)) for kernel in plan.kernels]
        except GpuError as error:
            faults = faults or list(error.faults)
            continue
        if max(sizes) <= SHARED_BYTES:
            return schedule
        faults = faults or [
            f"{graph.name} in Gluon: shared memory must be at most {SHARED_BYTES} bytes, "
            f"got {max(sizes)}"
        ]
    raise GpuError(faults)


def _candidates(start: GpuSchedule) -> Iterator[GpuSchedule]:
    """Two warp groups before one, deep rings before shallow ones."""
    last = start.kernels[-1]
    for kernel in (*_doubled(last), last, *_raised(last)):
        for stages in range(max(LEAST_STAGES, last.stages), LEAST_STAGES - 1, -1):
            changed = kernel.model_copy(update={"stages": stages})
            yield start.model_copy(update={"kernels": (*start.kernels[:-1], changed)})


def _doubled(kernel: KernelSchedule) -> list[KernelSchedule]:
    """The rows of one warp group, or of less than one, made those of two."""
    rows = [
        axis for axis, tile in kernel.tile.items() if tile <= GROUP_ROWS and axis in kernel.grid
    ]
    if kernel.warps != GROUP_WARPS or len(rows) != 1 or len(kernel.tile) != 1:
        return []
    change = {"tile": {**kernel.tile, rows[0]: 2 * GROUP_ROWS}, "warps": 2 * GROUP_WARPS}
    return [kernel.model_copy(update=change)]


def _raised(kernel: KernelSchedule) -> list[KernelSchedule]:
    """Sides too short for a warp group, as small sizes have them, made long enough for one."""
    short = [axis for axis in kernel.grid if 1 < kernel.tile.get(axis, 1) < GROUP_ROWS]
    if not short:
        return []
    tile = {**kernel.tile, **dict.fromkeys(short, GROUP_ROWS)}
    return [kernel.model_copy(update={"tile": tile, "warps": GROUP_WARPS})]
