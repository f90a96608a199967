"""Gluon text: its values on a machine of NumPy, what the compiler says of it, what is refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from dataflow.reference import constant
from dataflow.request import read_settings, request
from gpu import check as checking
from gpu.default_schedule import default_schedule
from gpu.emit_gluon import arguments, source
from gpu.lower import lower
from gpu.plan import Plan, Tensor
from gpu.schedule import GpuSchedule
from tests.gpu.gluon_machine import BFLOAT16, FLOAT16, FLOAT32, Descriptor, Pointer, run_program

GOLDEN = Path(__file__).parents[1] / "golden" / "gpu"
DTYPES = {"bf16": BFLOAT16, "fp16": FLOAT16, "fp32": FLOAT32}
GEMM = "i=256 j=256 k=200"
CASES = {
    "gemm": (GEMM, {"tile": {"i": 128, "j": 128, "k": 64}, "loop": ["k"], "warps": 8, "stages": 3}),
    "gemm_one_group": (
        GEMM,
        {"tile": {"i": 64, "j": 128, "k": 64}, "loop": ["k"], "warps": 4, "stages": 2},
    ),
    "gemm_odd": (
        "i=200 j=136 k=96 bias=true activation=relu",
        {"tile": {"i": 128, "j": 64, "k": 32}, "loop": ["k"], "warps": 8, "stages": 2},
    ),
    "attention": ("heads=2 n=128 m=320 d=64 block=64", {"tile": {"n": 128}, "warps": 8}),
    "attention_causal": (
        "heads=2 n=320 d=32 causal=true block=32",
        {"tile": {"n": 64}, "warps": 4, "stages": 2},
    ),
    "attention_groups": (
        "heads=4 n=192 d=16 kv_heads=2 causal=true block=16",
        {"tile": {"n": 128}, "warps": 8, "stages": 3},
    ),
    "fft_conv": ("batch=4 channels=2 n=4096 pair=true", {"warps": 4, "stages": 2}),
    "fft_conv_gated": (
        "batch=2 channels=1 n=2048 causal=true gated=true",
        {"warps": 4, "stages": 2},
    ),
}


def planned(case: str, precision: str = "bf16", **changes: object) -> tuple[object, Plan]:
    """The request of a case, and its plan under the default schedule changed as the case says."""
    kernel = next(k for k in ("attention", "fft_conv", "gemm") if case.startswith(k))
    settings, change = CASES[case]
    asked = request(kernel, read_settings([settings]))
    schedule = default_schedule(asked.graph, precision).as_data()
    schedule["kernels"][-1].update({**change, **changes})
    return asked, lower(asked.graph, GpuSchedule.model_validate(schedule))


class OnNumpy:
    """A plan as `gpu.check` runs it, its Gluon text on the machine of NumPy."""

    where = "interpreter"
    device = torch.device("cpu")

    def __init__(self, graph: object, plan: Plan):
        self.graph, self.plan, self.source = graph, plan, source(plan)

    def launch(self, inputs: list[torch.Tensor], poison: bool = False) -> list[torch.Tensor]:
        memory = {tensor.name: self._memory(tensor) for tensor in self.plan.tensors.values()}
        for tensor, given in zip(self.plan.inputs, inputs, strict=True):
            memory[tensor.name][...] = given.to(torch.float64).numpy()
        for kernel in self.plan.kernels:
            given = []
            for argument in arguments(self.plan, kernel):
                tensor = self.plan.tensors[argument.tensor]
                array, dtype = memory[tensor.name], DTYPES[tensor.type]
                if argument.block is None:
                    given.append(Pointer(array.reshape(-1), dtype))
                else:
                    view = array.reshape(argument.view_shape)
                    given.append(Descriptor(view, dtype, argument.block))
            for program in range(kernel.programs):
                run_program(self.source, kernel.name, given, program)
        return [torch.as_tensor(memory[t.name].astype(np.float64)) for t in self.plan.outputs]

    def _memory(self, tensor: Tensor) -> np.ndarray:
        type_ = DTYPES[tensor.type]
        if tensor.kind != "const":
            return np.full(tensor.shape, np.nan, type_.numpy)
        node = self.graph.node(tensor.node)
        points = {
            axis: np.arange(self.graph.extent(axis)).reshape(
                [-1 if a == axis else 1 for a in node.axes]
            )
            for axis in node.axes
        }
        values = np.broadcast_to(constant(node, points) * tensor.scale, tensor.shape)
        held = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[tensor.type]
        return torch.as_tensor(np.array(values)).to(held).float().numpy().astype(type_.numpy)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("case", CASES)
def test_values_are_within_budget(
    case: str, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, plan = planned(case, precision)
    made = OnNumpy(asked.graph, plan)
    monkeypatch.setattr(checking, "compile", lambda *args: made)
    checked = checking.check(asked, precision, "interpreter")
    assert checked.passed, checked.verdicts
