"""The value check: what rounding explains passes, what it does not explain fails."""

import numpy as np
import pytest

from dataflow.check import LIMIT_ELEMS, CheckError, check, perturbed, round_to, unit_roundoff
from dataflow.graph import Builder, Graph
from dataflow.kernels import KERNELS, build
from dataflow.reference import draw_inputs, evaluate

TYPES = ("fp32", "bf16", "fp16", "fp8_e4m3")


def _gemm(i: int = 24, j: int = 20, k: int = 40) -> Graph:
    g = Builder("gemm", i=i, j=j, k=k)
    g.output("c", g.einsum("i k, k j -> i j", g.input("a", "i k"), g.input("b", "k j")))
    return g.build()


def _softmax(rows: int = 6, n: int = 33) -> Graph:
    g = Builder("softmax", rows=rows, n=n)
    x = g.input("x", "rows n")
    p = g.map("exp", g.map("sub", x, g.reduce("max", x, over="n")), axes="rows n", name="p")
    g.output("y", g.map("div", p, g.reduce("sum", p, over="n")))
    return g.build()


def _running_tanh(t: int = 12, h: int = 16) -> Graph:
    g = Builder("running", t=t, h=h, k=h)
    x, w = g.input("x", "t h"), g.input("w", "h k")
    before = g.recur("before", "t h", axis="t")
    moved = g.read(before, "t k", ["t", "k"], name="moved")
    now = g.map("tanh", g.map("add", x, g.einsum("h k, t k -> t h", w, moved)), name="now")
    g.output("y", g.close(before, now))
    return g.build()


def _inputs(graph: Graph, data_type: str) -> dict[str, np.ndarray]:
    return {name: round_to(value, data_type) for name, value in draw_inputs(graph, 1).items()}


@pytest.mark.parametrize("data_type", TYPES)
def test_unit_roundoff_is_half_the_gap_above_one(data_type: str) -> None:
    bits = {"fp32": 24, "bf16": 8, "fp16": 11, "fp8_e4m3": 4}[data_type]
    assert unit_roundoff(data_type) == 2.0**-bits


@pytest.mark.parametrize("graph", [_gemm(), _softmax(), _running_tanh()], ids=lambda g: g.name)
def test_perturbed_at_the_centres_is_the_graph_itself(graph: Graph) -> None:
    noisy, spreads = perturbed(graph, "fp8_e4m3", "fp32")
    shapes = {name: graph.shape(noisy.node(name).axes) for name in spreads}
    centres = {name: np.full(shapes[name], centre) for name, (centre, _) in spreads.items()}
    inputs = draw_inputs(graph, 0)
    for name, value in evaluate(noisy, {**inputs, **centres}).items():
        np.testing.assert_allclose(value, evaluate(graph, inputs)[name], rtol=1e-12)


@pytest.mark.parametrize("data_type", TYPES)
def test_check_passes_a_gemm_with_rounded_results(data_type: str) -> None:
    graph = _gemm()
    inputs = _inputs(graph, data_type)
    outputs = {
        name: round_to(value, data_type)
        for name, value in evaluate(graph, inputs, np.float32).items()
    }
    assert check(graph, inputs, outputs, data_type, "fp32").passed


@pytest.mark.parametrize("graph", [_gemm(), _softmax(), _running_tanh()], ids=lambda g: g.name)
def test_check_passes_single_precision_arithmetic(graph: Graph) -> None:
    inputs = _inputs(graph, "fp32")
    result = check(graph, inputs, evaluate(graph, inputs, np.float32), "fp32", "fp32")
    assert result.passed
    # and not because the bound is slack
    assert all(o.bound < 1e-2 * o.size for o in result.outputs)


@pytest.mark.parametrize("data_type", TYPES)
@pytest.mark.parametrize("graph", [_gemm(), _softmax(), _running_tanh()], ids=lambda g: g.name)
def test_check_fails_an_all_zero_output(graph: Graph, data_type: str) -> None:
    inputs = _inputs(graph, data_type)
    outputs = {name: np.zeros_like(value) for name, value in evaluate(graph, inputs).items()}
    result = check(graph, inputs, outputs, data_type, "fp32")
    assert not (result.passed and result.decisive)


def test_check_says_where_rounding_alone_decides_the_output() -> None:
    graph = _running_tanh()
    inputs = _inputs(graph, "fp8_e4m3")
    assert not check(graph, inputs, evaluate(graph, inputs), "fp8_e4m3", "fp32").decisive


@pytest.mark.parametrize("name", ["attention", "fft_conv", "lstm", "gru"])
def test_check_is_decisive_for_the_library_in_bf16(name: str) -> None:
    graph = build(name)
    inputs = _inputs(graph, "bf16")
    zeros = {key: np.zeros_like(value) for key, value in evaluate(graph, inputs).items()}
    result = check(graph, inputs, zeros, "bf16", "fp32")
    assert result.decisive
    assert not result.passed


@pytest.mark.parametrize("data_type", TYPES)
def test_check_fails_a_tile_taken_from_the_wrong_buffer(data_type: str) -> None:
    graph = _gemm()
    inputs = _inputs(graph, data_type)
    outputs = evaluate(graph, inputs, np.float32)
    outputs["c"][0:8, 0:8] = outputs["c"][8:16, 0:8].copy()
    assert not check(graph, inputs, outputs, data_type, "fp32").passed


def test_check_fails_one_wrong_element() -> None:
    graph = _softmax()
    inputs = _inputs(graph, "fp32")
    outputs = evaluate(graph, inputs, np.float32)
    outputs["y"][3, 7] *= 1 + 1e-4
    assert not check(graph, inputs, outputs, "fp32", "fp32").passed


def test_check_fails_an_element_that_was_never_written() -> None:
    graph = _gemm()
    inputs = _inputs(graph, "fp32")
    outputs = evaluate(graph, inputs, np.float32)
    outputs["c"][3, 4] = np.nan
    result = check(graph, inputs, outputs, "fp32", "fp32")
    assert not result.passed
    assert result.worst.max_abs_error == np.inf


def test_check_accepts_what_is_nan_on_both_sides() -> None:
    graph = _gemm()
    inputs = _inputs(graph, "fp32")
    inputs["a"][2, 3] = np.nan
    outputs = evaluate(graph, inputs, np.float32)
    assert check(graph, inputs, outputs, "fp32", "fp32").passed


def test_check_asks_exactness_where_nothing_is_rounded() -> None:
    g = Builder("peak", n=8)
    g.output("y", g.reduce("max", g.input("x", "n"), over="n"))
    graph = g.build()
    inputs = _inputs(graph, "fp32")
    exact = evaluate(graph, inputs)
    assert check(graph, inputs, exact, "fp32", "fp32").passed
    assert not check(graph, inputs, {"y": exact["y"] * (1 + 1e-6)}, "fp32", "fp32").passed


def test_check_compares_with_the_plain_form_where_given() -> None:
    graph = _gemm()
    g = Builder.of(graph)
    other = Graph("gemm", g.build().axes, graph.nodes, graph.outputs)
    inputs = _inputs(graph, "fp32")
    outputs = evaluate(graph, inputs, np.float32)
    wrong = Builder("gemm", i=24, j=20, k=40)
    a, b = wrong.input("a", "i k"), wrong.input("b", "k j")
    wrong.output("c", wrong.map("neg", wrong.einsum("i k, k j -> i j", a, b)))
    assert check(graph, inputs, outputs, "fp32", "fp32", plain=other).passed
    verdict = check(graph, inputs, outputs, "fp32", "fp32", plain=wrong.build())
    assert not verdict.passed
    assert "plain form" in verdict.reference


def test_check_refuses_sizes_beyond_a_dense_evaluation() -> None:
    graph = _gemm(i=2**14, j=2**14, k=4)
    with pytest.raises(CheckError, match=f"at most {LIMIT_ELEMS} elements"):
        check(graph, {}, {}, "fp32", "fp32")


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", KERNELS)
def test_check_passes_every_kernel_in_single_precision(name: str, seed: int) -> None:
    sizes = {axis: min(extent, 40) for axis, extent in KERNELS[name].sizes.items()}
    graph, plain = build(name, sizes), build(name, sizes, None, ())
    inputs = {k: round_to(v, "fp32") for k, v in draw_inputs(graph, seed).items()}
    result = check(graph, inputs, evaluate(graph, inputs, np.float32), "fp32", "fp32", plain)
    assert result.passed, result.worst
    assert result.decisive


def _squared_and_back() -> Graph:
    g = Builder("there and back", n=8)
    x = g.input("x", "n")
    square = g.map("mul", x, x, name="square")
    g.output("y", g.map("mul", square, 0.25))
    return g.build()


@pytest.mark.parametrize(
    ("data_type", "factor", "largest"),
    [("fp8_e4m3", 100.0, "448"), ("fp16", 1000.0, "65504"), ("fp32", 1e38, "3.40282e+38")],
)
def test_check_does_not_decide_what_saturates(data_type, factor, largest) -> None:
    graph = _squared_and_back()
    inputs = {"x": round_to(np.array([1.0, 0, 0, 0, 0, 0, 1.0, 0]) * factor, data_type)}
    outputs = {"y": round_to(evaluate(graph, inputs)["y"], data_type) * 0.5}
    result = check(graph, inputs, outputs, data_type, "fp32")
    reason = f"2 values of node square are beyond the range of {data_type} ({largest})"
    assert result.undecided_because == reason
    assert not result.decisive
    assert not result.failed


def test_check_counts_no_infinity_that_was_given_as_beyond_range() -> None:
    graph = _gemm()
    inputs = _inputs(graph, "fp32")
    inputs["a"][2, 3] = np.inf
    outputs = evaluate(graph, inputs, np.float32)
    result = check(graph, inputs, outputs, "fp32", "fp32")
    assert result.beyond == ""
    assert result.passed


@pytest.mark.parametrize("data_type", TYPES)
def test_round_to_agrees_with_the_machines_arithmetic(data_type: str) -> None:
    from dataflow.sim.arithmetic import _rounded

    values = np.array([0.0, 1.1, -300.7, 449.0, -1e4, 65519.0, 7e4, 1e38, 1e39, np.inf, -np.inf])
    with np.errstate(over="ignore"):
        machine = _rounded(values, data_type)
    np.testing.assert_array_equal(round_to(values, data_type), machine)


@pytest.mark.parametrize(
    ("data_type", "factor"), [("fp32", 1e-40), ("fp32", 1e-44), ("bf16", 1e-39)]
)
def test_check_allows_roundings_of_subnormals(data_type: str, factor: float) -> None:
    graph = _gemm(i=4, j=4, k=4)
    inputs = _inputs(graph, data_type)
    inputs["a"] = round_to(inputs["a"] * factor, data_type)
    outputs = evaluate(graph, inputs, np.float32)
    stored = {name: round_to(value, data_type) for name, value in outputs.items()}
    result = check(graph, inputs, stored, data_type, "fp32")
    assert result.passed
    smallest = 2.0**-149 if data_type == "fp32" else 2.0**-133
    # k + 1 = 5 roundings, two of the smallest numbers each
    assert result.worst.bound >= 10 * smallest


def test_check_fails_zeros_in_place_of_small_numbers() -> None:
    graph = _gemm(i=4, j=4, k=4)
    inputs = _inputs(graph, "fp32")
    inputs["a"] = round_to(inputs["a"] * 1e-40, "fp32")
    assert check(graph, inputs, {"c": np.zeros((4, 4))}, "fp32", "fp32").failed
