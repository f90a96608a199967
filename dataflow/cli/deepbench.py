"""Runs DeepBench's recurrent layers; `dataflow/deepbench.py` says what is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataflow.deepbench import Layer, Served
    from dataflow.nodes import Graph
    from hwspecs import Machine

LONG_STEPS = 1500
"""Steps for which the schedule of a server is found, the longest of DeepBench: loading the weights
then weighs little beside the steps."""
SETTLED_STEPS = 150
"""Steps of the shorter run, or whole blocks of as many: the run after them repeats itself."""


def serve(layer: Layer, machine: Machine, engine: str) -> Served:
    """Return the layer beside ours: its steps with the weights on chip, and its whole run."""
    from dataflow.deepbench import Served
    from dataflow.sim import simulate
    from mapping import map_graph, program_bound
    from mapping.default_schedule import default_schedule

    schedule = default_schedule(_graph(layer, LONG_STEPS), machine)
    block = schedule.tile.get("t", 1)
    settled = block * -(-SETTLED_STEPS // block)
    cycles, busy = [], []
    for steps in (settled, 2 * settled):
        program = map_graph(_graph(layer, steps), machine, schedule).program
        cycles.append(simulate(program, None, values=False, engine=engine).cycles)
        busy.append(program_bound(program).parts)
    whole = map_graph(_graph(layer, layer.steps), machine)
    return Served(
        layer,
        step_cycles=(cycles[1] - cycles[0]) / settled,
        busy={name: (busy[1][name] - busy[0][name]) / settled for name in busy[0]},
        run_cycles=simulate(whole.program, None, values=False, engine=engine).cycles,
        run_bound_by=whole.bound.by,
        clock_hz=machine.clock_hz,
    )


def _graph(layer: Layer, steps: int) -> Graph:
    from dataflow.kernels import build

    return build(layer.cell, {"h": layer.hidden, "t": steps})
