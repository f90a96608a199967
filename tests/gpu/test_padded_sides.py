"""Sides of products with more lanes than points: one sequence on tensor cores."""

import numpy as np
import pytest

from dataflow import kernels
from dataflow.nodes import live
from dataflow.reference import evaluate
from gpu.defaults.schedule import default_schedule
from gpu.emit_triton.emit import source
from gpu.lowering.lower import lower
from gpu.module import GpuError
from gpu.run import compile, run
from gpu.schedule import GpuSchedule


def padded(kind: str, hidden: int, batch: int = 1, parts: dict | None = None) -> tuple:
    """A cell whose sequences lie in 8 lanes."""
    sizes = {"batch": batch, "t": 4, "h": hidden, "e": 24}
    graph = live(kernels.build(kind, sizes))
    data = default_schedule(graph, "fp16", "interpreter").as_data()
    data["kernels"][-1].update(
        tile={"batch": 8, "h": 16}, grid=["h", "batch"], unroll=[], parts=parts or {}, chunk={}
    )
    return graph, GpuSchedule.model_validate(data)


def test_a_padded_side_makes_products_of_matrices() -> None:
    graph, schedule = padded("gru", 32, parts={"k": 4})
    text = source(lower(graph, schedule)).split("def gru_1_y")[1]
    assert text.count("tl.dot(") == 3
    assert "batch_lane = tl.arange(0, 8)" in text


def test_programs_that_wait_for_each_other_are_refused_where_they_cannot() -> None:
    graph, schedule = padded("gru", 32, parts={"k": 4})
    with pytest.raises(GpuError, match=r"gru_1_y: must have one program in the interpreter.*got 2"):
        compile(graph, schedule, where="interpreter")


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("batch", [1, 3])
def test_padded_lanes_change_no_value(kind: str, batch: int) -> None:
    graph, schedule = padded(kind, 16, batch)
    rng = np.random.default_rng(1)
    inputs = {
        node.name: (rng.standard_normal(graph.shape(node.axes)) / 4).astype(np.float16)
        for node in graph.inputs
    }
    found = run(graph, inputs, schedule, where="interpreter").outputs
    wanted = evaluate(graph, inputs)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=3e-3)
        assert np.abs(value).max() > 0.1
