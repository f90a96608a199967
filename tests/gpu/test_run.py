"""Compiled graphs as callables: shapes, types, errors, torch.compile and CUDA graphs."""

import numpy as np
import pytest
import torch

from dataflow.kernels import build
from dataflow.reference import InputError
from gpu.module import GpuError, load
from gpu.run import compile, run

ON_GPU = torch.cuda.is_available()


def gemm(where: str):
    """A small product as a callable."""
    return compile(build("gemm", {"i": 5, "j": 7, "k": 9}), precision="fp32", where=where)


def test_call_takes_tensors_in_order_or_by_name(where: str) -> None:
    made = gemm(where)
    a, b = torch.randn(5, 9, device=made.device), torch.randn(9, 7, device=made.device)
    torch.testing.assert_close(made(a, b), a @ b)
    torch.testing.assert_close(made(b=b, a=a), a @ b)


def test_call_reports_every_wrong_input_at_once(where: str) -> None:
    made = gemm(where)
    with pytest.raises(GpuError) as raised:
        made(torch.zeros(5, 8), c=torch.zeros(1))
    assert raised.value.faults == (
        "gemm: input must be known, got 'c'; known: a, b",
        "gemm: a must have shape (5, 9), got (5, 8)",
        "gemm: input b must be given, got none",
    )


def test_run_says_where_it_ran(where: str) -> None:
    graph = build("softmax", {"rows": 3, "n": 5})
    made = run(graph, {"x": np.zeros((3, 5))}, precision="fp32", where=where)
    np.testing.assert_allclose(made.outputs["y"], np.full((3, 5), 0.2), rtol=1e-6)
    assert made.where == where
    assert made.device
    assert made.versions["torch"] == torch.__version__


def test_run_refuses_arrays_that_do_not_fit(where: str) -> None:
    with pytest.raises(InputError):
        run(build("softmax", {"rows": 3, "n": 5}), {"x": np.zeros((3, 6))}, where=where)


@pytest.mark.skipif(ON_GPU, reason="there is a GPU")
def test_missing_gpu_is_an_error_and_never_the_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(GpuError, match="TRITON_INTERPRET: must not be set"):
        gemm("gpu")
    from triton import knobs

    monkeypatch.setattr(knobs.runtime, "interpret", False)
    with pytest.raises(GpuError, match="gpu: must be a CUDA device that torch sees, got none"):
        gemm("gpu")
    with pytest.raises(GpuError, match="TRITON_INTERPRET: must be 1 before triton is loaded"):
        gemm("interpreter")


def test_unknown_place_is_an_error() -> None:
    with pytest.raises(GpuError, match="where: must be one of gpu, interpreter, got 'tpu'"):
        gemm("tpu")


def test_torch_compile_takes_the_operator_whole(where: str) -> None:
    made = gemm(where)
    a, b = torch.randn(5, 9, device=made.device), torch.randn(9, 7, device=made.device)

    def relu_of_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(made(a, b))

    backend = "inductor" if ON_GPU else "aot_eager"
    compiled = torch.compile(relu_of_product, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(a, b), torch.relu(a @ b))


def test_operator_passes_the_checks_of_torch(where: str) -> None:
    made = gemm(where)
    a, b = torch.randn(5, 9, device=made.device), torch.randn(9, 7, device=made.device)
    made(a, b)
    operator = torch.ops.tileloom.launch.default
    tests = ("test_schema", "test_faketensor")
    assert set(torch.library.opcheck(operator, (made.key, [a, b]), test_utils=tests).values()) == {
        "SUCCESS"
    }


@pytest.mark.gpu
@pytest.mark.skipif(not ON_GPU, reason="CUDA graphs need a CUDA device")
def test_cuda_graph_replays_on_new_inputs() -> None:
    made = gemm("gpu")
    a, b = torch.randn(5, 9, device="cuda"), torch.randn(9, 7, device="cuda")
    made(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = made(a, b)
    a.copy_(torch.randn(5, 9))
    graph.replay()
    torch.testing.assert_close(output, a @ b)


def test_source_lies_in_a_file_named_by_its_hash() -> None:
    text = '"""Nothing."""\n\nFOUND = 3\n'
    made = load(text)
    assert made.FOUND == 3
    assert made.__file__ is not None
    with open(made.__file__) as file:
        assert file.read() == text
