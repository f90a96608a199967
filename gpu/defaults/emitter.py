"""Which emitter prints a graph where nobody says, with its default schedule: `auto`.

Gluon where a kernel's loop multiplies tiles that it loads, in two-byte types, on Hopper: its loader
warp keeps a ring of tiles full and its warp groups' products run beside pointwise code. Timed on an
H200 (benchmarks/h200.csv beside h200_triton.csv) products and attention are 2 to 40 % faster so,
but for short causal attention of heads of 64, up to 7 % slower. Triton for all else: rows and
transforms without such a loop, products by tables, recurrent cells, and what Gluon's emitter does
not print.
"""

from __future__ import annotations

from dataflow.nodes import Graph, live
from gpu.defaults.cuts import product_or_row
from gpu.defaults.schedule import default_schedule
from gpu.emit_gluon.schedule import gluon_schedule
from gpu.module import GpuError
from gpu.schedule import GpuSchedule

TWO_BYTES = ("bf16", "fp16")


def auto_schedule(graph: Graph, precision: str = "bf16", card: str = "h200") -> GpuSchedule:
    """Return the default schedule of `graph`, for the emitter that is the faster one.

    card: a key of `gpu.defaults.schedule.CARDS`.
    """
    schedule = default_schedule(graph, precision, card)
    if card != "h200" or precision not in TWO_BYTES or not _is_a_loop_of_products(graph, schedule):
        return schedule
    try:
        return gluon_schedule(graph, precision)
    except GpuError:
        return schedule


def _is_a_loop_of_products(graph: Graph, schedule: GpuSchedule) -> bool:
    """Whether the last kernel walks over what its products load, and stacks none of them."""
    (*_, last) = schedule.kernels
    products = any(product_or_row(live(graph), node) for node in live(graph).nodes)
    return products and bool(last.loop) and not last.chunk and not last.stack
