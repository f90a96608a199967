"""Long sums of products as partial sums side by side."""

import numpy as np
import pytest

from dataflow.nodes import Graph, live
from dataflow.reference import draw_inputs, evaluate
from dataflow.request import read_settings, request
from gpu.defaults.schedule import default_schedule
from gpu.lowering.lower import lower
from gpu.lowering.parts import may_part, parted
from gpu.plan import Dot, Fetch, Plan, Reduce
from gpu.run import run
from gpu.schedule import GpuSchedule, GpuScheduleError


def graph_of(kernel: str, settings: str) -> Graph:
    return live(request(kernel, read_settings([settings])).graph)


def recurrent(plan: Plan) -> list:
    return list(plan.kernels[-1].statements())


def sums(axis: str, count: int, **more: object) -> GpuSchedule:
    kernel = {"makes": [], "grid": [], "parts": {axis: count}, **more}
    return GpuSchedule.model_validate({"precision": "fp32", "kernels": [kernel]})


@pytest.mark.parametrize(
    ("kernel", "settings", "axis"),
    [
        ("gru", "batch=3 t=4 h=24 e=8", "k"),
        ("lstm", "batch=2 t=3 h=16", "k"),
        ("gemm", "i=5 j=7 k=48 bias=true", "k"),
    ],
)
@pytest.mark.parametrize("count", [2, 8])
def test_sums_in_parts_are_the_same_sums(kernel: str, settings: str, axis: str, count: int) -> None:
    graph = graph_of(kernel, settings)
    cut = parted(graph, {axis: count})
    inputs = draw_inputs(graph, 3)
    expected = evaluate(graph, inputs)
    for name, made in evaluate(cut, inputs).items():
        np.testing.assert_allclose(made, expected[name], rtol=1e-12, atol=1e-12)
    assert [cut.shape(node.axes) for node in cut.inputs] == [
        graph.shape(node.axes) for node in graph.inputs
    ]


@pytest.mark.parametrize(
    ("i", "j", "k", "count"), [(16, 8, 256, 8), (13, 21, 96, 2), (3, 5, 64, 4)]
)
def test_products_in_parts_have_the_values_of_the_whole(
    i: int, j: int, k: int, count: int, where: str
) -> None:
    graph = graph_of("gemm", f"i={i} j={j} k={k}")
    schedule = sums("k", count)
    products = [s for s in recurrent(lower(graph, schedule)) if isinstance(s, Dot)]
    assert [dot.batch for dot in products] == [("k.part",)]
    inputs = {name: a.astype(np.float32) for name, a in draw_inputs(graph, 5).items()}
    made = run(graph, inputs, schedule, where=where).outputs["c"]
    np.testing.assert_allclose(made, evaluate(graph, inputs)["c"], rtol=1e-5, atol=1e-4)


def test_cells_of_several_sequences_give_every_warp_its_part() -> None:
    graph = graph_of("gru", "batch=16 t=25 h=1024")
    schedule = default_schedule(graph, "fp16")
    assert schedule.kernels[-1].parts == {"k": schedule.kernels[-1].warps}
    statements = recurrent(lower(graph, schedule))
    dots = [s for s in statements if isinstance(s, Dot)]
    assert {dot.batch for dot in dots} == {("k.part",)}
    # weights are the right operand, whose least width is 8: the share of h of one of 128 programs
    assert {dot.n for dot in dots} == {("h",)}
    # three gates, each summed over the parts once however many steps the sum takes
    assert sum(isinstance(s, Reduce) and s.axes == ("k.part",) for s in statements) == 3
    assert len(dots) == 3 * sum(isinstance(s, Fetch) for s in statements)


@pytest.mark.parametrize("h", [17, 20, 100, 1000])
def test_parts_divide_the_sum(h: int) -> None:
    schedule = default_schedule(graph_of("lstm", f"batch=4 t=2 h={h}"), "fp16")
    (count,) = schedule.kernels[-1].parts.values() or (1,)
    assert h % count == 0
    assert h // count >= 16


def test_only_axes_that_products_alone_read_are_cut() -> None:
    graph = graph_of("attention", "n=64 m=64 d=16")
    assert not may_part(graph, "m.i" if "m.i" in graph.axes else "m")
    assert may_part(graph_of("gemm", "i=8 j=8 k=64"), "k")
    assert not may_part(graph_of("gemm", "i=8 j=8 k=64"), "i")


@pytest.mark.parametrize(
    ("axis", "count", "fault"),
    [
        ("q", 2, "kernels.0.parts.q: axis must be one of the graph, got 'q'"),
        ("k", 3, "parts must be a power of two that divides the axis's 64 points, got 3"),
        ("k", 128, "parts must be a power of two that divides the axis's 64 points, got 128"),
        ("i", 2, "kernels.0.parts.i: axis must be one that only sums of products read"),
    ],
)
def test_faults_of_parts_name_their_place(axis: str, count: int, fault: str) -> None:
    with pytest.raises(GpuScheduleError, match=fault.replace("[", r"\[")):
        lower(graph_of("gemm", "i=8 j=8 k=64"), sums(axis, count))
