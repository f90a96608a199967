"""Names of a user's graph that mean something in the generated text."""

import pytest

from dataflow.graph import Builder, Graph
from dataflow.reference import draw_inputs, evaluate
from gpu.defaults.schedule import default_schedule
from gpu.lowering.lower import lower
from gpu.run import run
from gpu.schedule import GpuScheduleError


def named(graph: str, tensor: str, inner: str, output: str) -> Graph:
    g = Builder(graph, n=8, i=5)
    g.output(output, g.map("exp", g.map("neg", g.input(tensor, "n i"), name=inner), name="e"))
    return g.build()


@pytest.mark.parametrize(
    "names",
    [
        ("def", "lambda", "tl", "for"),
        ("triton", "tl", "float", "program"),
        ("y", "x", "x_ptr", "n_lane"),
    ],
    ids=lambda names: " ".join(names),
)
def test_names_of_the_text_may_be_names_of_the_graph(names, where: str) -> None:
    graph = named(*names)
    inputs = draw_inputs(graph, 1)
    made = run(graph, inputs, precision="fp32", where=where).outputs[names[3]]
    assert abs(made - evaluate(graph, inputs)[names[3]]).max() < 1e-5


def test_tensors_alike_in_the_text_are_refused() -> None:
    g = Builder("alike", n=8)
    g.output("y", g.map("add", g.input("a.b", "n"), g.input("a_b", "n")))
    graph = g.build()
    with pytest.raises(GpuScheduleError, match=r"got a\.b and a_b"):
        lower(graph, default_schedule(graph))
