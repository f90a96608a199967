"""Mistakes in a GPU schedule: each with its file, line, column and path."""

from pathlib import Path

import pytest

from dataflow.graph import Builder, Graph
from dataflow.kernels import build
from gpu.lowering.lower import lower
from gpu.schedule import GpuSchedule, GpuScheduleError
from hwspecs import SpecError

GEMM = build("gemm", {"i": 70, "j": 131, "k": 67})


def faults(tmp_path: Path, text: str, graph: Graph = GEMM) -> list[str]:
    file = tmp_path / "s.yaml"
    file.write_text(text)
    with pytest.raises((GpuScheduleError, SpecError)) as caught:
        lower(graph, GpuSchedule.from_yaml(file))
    return str(caught.value).replace(f"{file}:", "").splitlines()


def test_names_that_are_not_there_have_their_place(tmp_path) -> None:
    text = "kernels:\n  - makes: [a]\n    reload: [nope]\n"
    assert faults(tmp_path, text) == [
        "2:12: kernels.0.makes: must name nodes or outputs of gemm, got 'a'; known: c",
        "3:13: kernels.0.reload: must name nodes of gemm, got 'nope'; known: a, b, c",
    ]


def test_what_two_kernels_make_is_a_fault(tmp_path) -> None:
    (fault,) = faults(tmp_path, "kernels:\n  - makes: [c]\n  - makes: [c]\n")
    assert fault == "3:12: kernels.1.makes: must not make c again, got it after kernels.0"


def test_a_tile_that_no_gpu_takes_is_a_fault(tmp_path) -> None:
    text = "kernels:\n  - tile: {i: 1048576, j: 1024}\n    grid: [i, j]\n"
    (fault,) = faults(tmp_path, text)
    assert fault.startswith("2:11: kernels.0.tile: tiles must be at most 1048576 elements, got ")


def test_a_sum_over_two_loops_is_a_fault(tmp_path) -> None:
    g = Builder("total", a=64, b=64)
    g.output("y", g.reduce("sum", g.input("x", "a b"), over="a b", name="total"))
    text = "kernels:\n  - tile: {a: 8, b: 8}\n    loop: [a, b]\n"
    (fault,) = faults(tmp_path, text, g.build())
    assert fault == (
        "3:11: kernels.0.loop: total must be summed up over one loop, got a, b; "
        "leave the others whole in the tile"
    )


def test_a_faulty_kernel_is_no_missing_kernel(tmp_path) -> None:
    (key, warps) = faults(tmp_path, "kernels:\n  - gird: [i]\n    warps: 3\n")
    assert "did you mean grid?" in key
    assert warps == "3:12: kernels[0].warps must be one of 1, 2, 4, 8, 12, 16, 32, got 3"


def test_axes_of_a_sum_over_points_one_by_one_are_not_padded_for_tensor_cores() -> None:
    graph = build("gemm", {"i": 4, "j": 64, "k": 3})
    kernel = {"makes": ["c"], "unroll": ["i"], "tile": {"i": 1}}
    plan = lower(graph, GpuSchedule.model_validate({"kernels": [kernel]}))
    assert plan.kernels[0].axes["k"].tile == 4  # the next power of two
    plan = lower(graph, GpuSchedule.model_validate({"kernels": [{"makes": ["c"]}]}))
    assert plan.kernels[0].axes["k"].tile == 16
