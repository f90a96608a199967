"""The judgement itself: what it must refuse, and that its two references agree."""

import math
from types import SimpleNamespace

import pytest
import torch

from dataflow.reference import evaluate
from dataflow.request import Request, read_settings, request
from gpu.measure import exact
from gpu.measure.check import check
from gpu.measure.exact import draw, judge, reference_work
from gpu.measure.peers import eager, peers
from gpu.run import Compiled, compile

SMALL = {
    "gemm": "i=9 j=7 k=5 bias=true activation=gelu-tanh",
    "softmax": "rows=3 n=17",
    "layer_norm": "rows=3 n=17",
    "rms_norm": "rows=3 n=17",
    "attention": "batch=2 heads=2 n=12 m=20 d=5 causal=true",
    "fft_conv": "batch=2 channels=2 n=24 causal=true gated=true",
    "lstm": "batch=2 t=3 h=5 e=4",
    "gru": "batch=2 t=3 h=5 e=4",
}


def small(kernel: str) -> Request:
    """The request of a kernel at its small sizes."""
    return request(kernel, read_settings([SMALL[kernel]]))


@pytest.mark.parametrize("kernel", SMALL)
def test_peer_in_float64_equals_the_reference(kernel: str, where: str) -> None:
    made = small(kernel)
    compiled = compile(made.graph, precision="fp32", where=where)
    inputs = {name: tensor.double().cpu() for name, tensor in draw(made, compiled).items()}
    peer = eager(made)
    assert peer is not None
    (right,) = evaluate(made.plain, {n: t.numpy() for n, t in inputs.items()}).values()
    apart = peer.call(inputs).numpy() - right
    assert abs(apart).max() < 1e-12 * abs(right).max()


@pytest.mark.parametrize("kernel", SMALL)
def test_judgement_over_slices_equals_that_of_the_whole(
    kernel: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = small(kernel)
    compiled = compile(made.graph, precision="fp32", where=where)
    inputs = draw(made, compiled)
    whole = judge(made, compiled, inputs, "fp32")
    monkeypatch.setattr("gpu.measure.exact.SLICE_ELEMENTS", 1)
    parts = judge(made, compiled, inputs, "fp32")
    assert whole is not None and parts is not None
    assert whole.passed and whole.decisive and parts.passed
    assert math.isclose(whole.rms_error, parts.rms_error, rel_tol=1e-6)
    assert math.isclose(whole.size, parts.size, rel_tol=1e-6)


@pytest.mark.parametrize("broken", [0.0, math.nan], ids=["zeros", "nan"])
def test_outputs_that_nothing_wrote_fail(
    broken: float, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch = Compiled.launch

    def gap(compiled: Compiled, inputs: list[torch.Tensor], poison: bool = False) -> list:
        outputs = launch(compiled, inputs, poison)
        return [
            output.index_fill(0, torch.zeros(1, dtype=torch.int64, device=output.device), broken)
            for output in outputs
        ]

    monkeypatch.setattr(Compiled, "launch", gap)
    made = request("softmax", {"rows": "3", "n": "17"})
    assert not check(made, "fp32", where).passed
    compiled = compile(made.graph, precision="fp32", where=where)
    verdict = judge(made, compiled, draw(made, compiled), "fp32")
    assert verdict is not None and not verdict.passed


def test_outputs_start_as_nan_when_judged(where: str) -> None:
    made = request("softmax", {"rows": "3", "n": "17"})
    compiled = compile(made.graph, precision="fp32", where=where)
    compiled._launches.clear()
    inputs = draw(made, compiled)
    (output,) = compiled.launch(list(inputs.values()), poison=True)
    assert bool(output.isnan().all())


def test_work_of_a_reference_is_counted_on_the_plain_graph() -> None:
    # a product's node counts 2 i j k; the inputs their own points, twice: 2 (i k + k j)
    made = request("gemm", {"i": "2", "j": "3", "k": "5"})
    assert reference_work(made) == 2 * (2 * 3 * 5) + 2 * (2 * 5 + 5 * 3)


def test_half_precision_transforms_are_a_peer_at_powers_of_two_only() -> None:
    assert [p.name for p in peers(request("fft_conv", {"n": "64"}))] == ["cufft-fp32", "cufft-fp16"]
    assert [p.name for p in peers(request("fft_conv", {"n": "96"}))] == ["cufft-fp32"]


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_errors_of_an_eager_run_that_overflows_are_no_budget(value, monkeypatch) -> None:
    peer = SimpleNamespace(call=lambda given: torch.tensor([1.0, value], dtype=torch.float16))
    monkeypatch.setattr(exact, "eager", lambda request: peer)
    assert exact.eager_output(small("fft_conv"), {}, "fp16") is None
