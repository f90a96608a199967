"""What one kernel makes for the products of the next, in one tensor."""

import pytest

from dataflow.request import read_settings, request
from gpu.lowering.joint import joint
from gpu.lowering.lower import lower
from gpu.measure.check import check
from gpu.plan import Load, Loop, Tensor
from gpu.schedule import GpuSchedule


def tensor(name: str, shape: tuple[int, ...], type_: str = "bf16") -> Tensor:
    return Tensor(name, "scratch", shape, type_, name)


def test_joint_holds_tensors_of_one_shape_and_16_bit_type() -> None:
    a, b, c = tensor("a", (4, 8)), tensor("b", (8, 4)), tensor("c", (4, 8))
    whole, places = joint([a, b, c])
    assert [(t.name, t.shape) for t in whole] == [("a.joint", (2, 4, 8))]
    assert places == {"a": ("a.joint", 0), "c": ("a.joint", 1)}
    assert joint([tensor("a", (4,), "fp32"), tensor("b", (4,), "fp32")]) == ([], {})


SETTINGS = "batch=4 channels=2 n=1024 causal=true gated=true order=3 first_radix=8"


def staged(precision: str) -> GpuSchedule:
    """A transform of 2048 points: its first digit, the 16 x 16 of the others and back, the first.

    The first digit has 4 frequencies and 4 points, written out; the filter's is worked out by the
    second kernel.
    """
    grid = ["channels", "batch"]
    kernels = [
        {"makes": ["u1.t.r", "u1.t.i"], "tile": {"n2": 8}, "grid": ["n2", *grid]},
        {
            "makes": ["y2.t.r", "y2.t.i"],
            "grid": ["k1", *grid],
            "loop": ["batch"],
            "chunk": {"batch": 4},
            "unroll": ["n1"],
            "stack": True,
        },
        {"makes": ["y"], "tile": {"m2": 8}, "grid": ["m2", *grid], "unroll": ["m1", "k1"]},
    ]
    kernels[0]["unroll"] = ["k1", "n1"]
    return GpuSchedule.model_validate({"precision": precision, "kernels": kernels})


def test_parts_of_a_complex_value_between_kernels_are_loaded_as_one_block() -> None:
    graph = request("fft_conv", read_settings([SETTINGS])).graph
    plan = lower(graph, staged("bf16"))
    (loop,) = (s for s in plan.kernels[1].body if isinstance(s, Loop))
    (load,) = (s for s in loop.body if isinstance(s, Load))
    assert plan.tensors[load.tensor].shape == (2, 4, 2, 4, 16, 16)
    assert plan.tensors[load.tensor].type == "bf16"
    assert load.out.axes[0] == "part"


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_values_of_a_transform_in_stages_are_within_budget(precision: str, where: str) -> None:
    asked = request("fft_conv", read_settings([SETTINGS]))
    assert check(asked, precision, where, staged(precision)).passed
