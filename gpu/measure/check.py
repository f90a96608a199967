"""Judges a kernel's numbers against float64, by an error budget that is measured, not guessed.

Where PyTorch has the kernel, the budget is twice the error of eager PyTorch in the same precision
on the same inputs, plus one rounding of the output type; for an FFT convolution in bf16, which
eager PyTorch does not have, and in fp16 where it overflows, a relative root mean square error of
1e-2. Everything else is held to the bound of `dataflow.check`, which follows from the number types
alone. Inputs are of unit variance, rounded to the type in memory first; outputs start as NaN, so
that a point that no program writes fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dataflow.check import check as derived_check
from dataflow.check import unit_roundoff
from dataflow.reference import draw_inputs, evaluate
from dataflow.request import Request
from gpu.measure.exact import (
    EAGER_FACTOR,
    FFT_RELATIVE,
    UNIT,
    Verdict,
    draw,
    eager_output,
    has_relative_rule,
    judge,
    reference_work,
)
from gpu.measure.peers import eager, input_scale
from gpu.module import GpuError
from gpu.run import Compiled, RunResult, compile, result_of, rounded_inputs, torch_type
from gpu.schedule import GpuSchedule

# fp16 and tf32 both keep ten bits of the mantissa
PRODUCT_TYPE = {"fp32": "fp32", "tf32": "fp16", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8_e4m3"}
LARGEST_WORK = 2e9
"""Operations beyond which the NumPy reference would take minutes."""


@dataclass(frozen=True)
class Checked:
    """The verdicts of one run, and the run itself."""

    verdicts: tuple[Verdict, ...]
    result: RunResult
    inputs: Mapping[str, np.ndarray]

    @property
    def passed(self) -> bool:
        """Whether every output is within its budget and could have failed."""
        return all(v.passed and v.decisive for v in self.verdicts)


def check(
    request: Request,
    precision: str = "bf16",
    where: str = "gpu",
    schedule: GpuSchedule | None = None,
    seed: int = 0,
) -> Checked:
    """Run a kernel on random inputs and judge every output.

    Raises GpuError, GpuScheduleError or CheckError where it cannot run or be judged.
    """
    compiled = compile(request.graph, schedule, precision, where)
    if reference_work(request) > LARGEST_WORK:
        return _at_size(request, compiled, precision, seed)
    drawn = {
        name: array * input_scale(request, name)
        for name, array in draw_inputs(compiled.graph, seed).items()
    }
    inputs = rounded_inputs(compiled, drawn)
    outputs = _outputs(compiled, inputs)
    exact = evaluate(request.plain, inputs)
    budget = _budget(request, compiled, inputs, exact, precision)
    if budget is None:
        verdicts = _derived(request, compiled, inputs, outputs, exact, precision)
    else:
        verdicts = [_verdict(name, outputs[name], exact[name], *budget) for name in exact]
    return Checked(tuple(verdicts), result_of(compiled, outputs), inputs)


def _at_size(request: Request, compiled: Compiled, precision: str, seed: int) -> Checked:
    """Judge on the device itself; outputs are left out of the result, since they are large."""
    verdict = judge(request, compiled, draw(request, compiled, seed), precision)
    if verdict is None:
        raise GpuError(
            f"{request.kernel}: sizes must be smaller to be checked, got some "
            f"{reference_work(request):.1g} operations in the float64 reference; at such sizes "
            f"only kernels that PyTorch has are checked"
        )
    return Checked((verdict,), result_of(compiled, {}), {})


def _outputs(compiled: Compiled, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    import torch

    given = [
        torch.as_tensor(inputs[t.name]).to(compiled.device, torch_type(t.type))
        for t in compiled.plan.inputs
    ]
    made = compiled.launch(given, poison=True)
    return {
        t.node: output.to(torch.float64).cpu().numpy()
        for t, output in zip(compiled.plan.outputs, made, strict=True)
    }


def _budget(
    request: Request,
    compiled: Compiled,
    inputs: Mapping[str, np.ndarray],
    exact: Mapping[str, np.ndarray],
    precision: str,
) -> tuple[float, str] | None:
    """The largest rms error and its rule, None where neither eager PyTorch nor a rule says it."""
    import torch

    if eager(request) is None or len(exact) != 1:
        return None
    (right,) = exact.values()
    given = {n: torch.as_tensor(a).to(compiled.device) for n, a in inputs.items()}
    theirs = eager_output(request, given, precision)
    if theirs is not None:
        apart = _rms(theirs.cpu().numpy() - right)
        rounding = unit_roundoff(UNIT[precision]) * _rms(right)
        return EAGER_FACTOR * apart + rounding, "2 x eager"
    if has_relative_rule(request, precision):
        return FFT_RELATIVE * _rms(right), "relative 1e-2"
    return None


def _verdict(name: str, ours: np.ndarray, exact: np.ndarray, budget: float, rule: str) -> Verdict:
    error, size = _rms(ours - exact), _rms(exact)
    largest = float(np.max(np.abs(ours - exact))) if ours.size else 0.0
    return Verdict(name, error, largest, budget, rule, size, error <= budget, budget < size)


def _derived(
    request: Request,
    compiled: Compiled,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, np.ndarray],
    exact: Mapping[str, np.ndarray],
    precision: str,
) -> list[Verdict]:
    type_ = PRODUCT_TYPE[precision]
    made = derived_check(compiled.graph, inputs, outputs, type_, "fp32", request.plain)
    return [
        Verdict(
            judged.name,
            judged.rms_error,
            judged.max_abs_error,
            judged.rms_bound,
            "number types",
            judged.size,
            judged.passed and bool(np.all(np.isfinite(outputs[judged.name]))),
            judged.decisive,
        )
        for judged in made.outputs
    ]


def _rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array)))) if array.size else 0.0
