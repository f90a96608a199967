"""`tileloom gpu ...`: what its commands are lent, as `gpu` knows no simulator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from gpu.cli import Simulator

if TYPE_CHECKING:
    from dataflow.request import Request


def _simulated_values(
    made: Request, hw: str, inputs: Mapping[str, Any]
) -> tuple[dict[str, Any], int, float]:
    """The outputs, cycles and seconds of a simulated run on the inputs of a GPU run."""
    import hwspecs
    from dataflow.sim import simulate as run
    from mapping import map_graph

    machine = hwspecs.load(hw)
    result = run(map_graph(made.graph, machine).program, inputs)
    return dict(result.outputs), result.cycles, result.cycles / machine.clock_hz


def _predicted_seconds(hw: str, made: Request) -> float:
    """Seconds of a simulated run, its values left out."""
    import hwspecs
    from dataflow.sim import simulate as run
    from mapping import map_graph

    machine = hwspecs.load(hw)
    result = run(map_graph(made.graph, machine).program, None, values=False, engine="auto")
    return result.cycles / machine.clock_hz


def lend_simulator(context: typer.Context) -> None:
    """Give the commands of the group what simulates."""
    context.obj = Simulator(_simulated_values, _predicted_seconds)
