"""Points of an output that no store reaches hold 0, and merges are refused."""

import numpy as np
import pytest

from dataflow.graph import Builder, Graph
from dataflow.reference import draw_inputs, evaluate
from gpu.defaults.schedule import default_schedule
from gpu.lowering.lower import lower
from gpu.run import run
from gpu.schedule import GpuScheduleError


def transposed(n: int, m: int) -> Graph:
    """x[n, m] stored at [m, n] of an output of the same shape."""
    g = Builder("transposed", n=n, m=m)
    x = g.input("x", "n m")
    g.output("y", x, axes="n m", index=["m", "n"])
    return g.build()


@pytest.mark.parametrize(("n", "m"), [(16, 8), (8, 16), (8, 8)])
def test_points_that_no_store_reaches_are_zero(n: int, m: int, where: str) -> None:
    graph = transposed(n, m)
    inputs = draw_inputs(graph, 1)
    made = run(graph, inputs, precision="fp32", where=where).outputs["y"]
    right = evaluate(graph, {"x": inputs["x"].astype(np.float32)})["y"]
    np.testing.assert_array_equal(made, right)


def test_a_merged_output_is_refused() -> None:
    g = Builder("histogram", n=8, m=4)
    x = g.input("x", "n m")
    g.output("y", x, axes="n", index=["n"], merge="add")
    graph = g.build()
    with pytest.raises(GpuScheduleError, match="without a merge on a GPU, got 'add'"):
        lower(graph, default_schedule(graph))
