"""Judges a kernel's numbers against float64, by an error budget that is measured, not guessed.

Where PyTorch has the kernel, the budget is twice the error of eager PyTorch in the same precision
on the same inputs, plus one rounding of the output type; for an FFT convolution in bf16, which
eager PyTorch does not have, a relative root mean square error of 1e-2. Everything else is held to
the bound of `dataflow.check`, which follows from the number types alone. Inputs are of unit
variance, rounded to the type in memory first; outputs start as NaN, so that a point that no
program writes fails.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dataflow.check import check as derived_check
from dataflow.check import unit_roundoff
from dataflow.reference import draw_inputs, evaluate
from dataflow.request import Request
from gpu.peers import Peer, eager, precision_of_products
from gpu.run import Compiled, RunResult, compile, device_name, rounded_inputs, torch_type, versions
from gpu.schedule import GpuSchedule

EAGER_FACTOR = 2.0
FFT_BF16_RELATIVE = 1e-2
UNIT = {"fp32": "fp32", "tf32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
PRODUCT_TYPE = {"fp32": "fp32", "tf32": "tf32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8_e4m3"}


@dataclass(frozen=True)
class Verdict:
    """One output: its root mean square error, the budget, and where the budget comes from.

    size: root mean square of the reference. decisive: whether zeros would have failed.
    """

    output: str
    rms_error: float
    max_abs_error: float
    budget: float
    rule: str
    size: float
    passed: bool
    decisive: bool


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
    drawn = {
        name: array * _weight(request, name)
        for name, array in draw_inputs(compiled.graph, seed).items()
    }
    inputs = rounded_inputs(compiled, drawn)
    outputs = _outputs(compiled, inputs)
    peer = eager(request)
    exact = evaluate(request.plain, inputs)
    theirs = _eager_outputs(request, peer, compiled, inputs, precision) if peer else None
    if request.kernel == "fft_conv" and precision in ("bf16", "fp16") and theirs is None:
        verdicts = [
            _verdict(n, outputs[n], exact[n], FFT_BF16_RELATIVE * _rms(exact[n]), "relative 1e-2")
            for n in exact
        ]
    elif theirs is not None:
        verdicts = [
            _verdict(n, outputs[n], exact[n], _budget(theirs, exact[n], precision), "2 x eager")
            for n in exact
        ]
    else:
        verdicts = _derived(request, compiled, inputs, outputs, exact, precision)
    result = RunResult(
        outputs, where, device_name(where), versions(), compiled.plan, compiled.source
    )
    return Checked(tuple(verdicts), result, inputs)


def _weight(request: Request, name: str) -> float:
    """Weights of a recurrent cell are scaled as PyTorch draws them, so that gates do not clip."""
    cell = request.kernel in ("lstm", "gru") and name in ("w", "u", "b", "b_u")
    return 1 / math.sqrt(request.sizes["h"]) if cell else 1.0


def _outputs(compiled: Compiled, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    import torch

    tensors = {name: torch.as_tensor(array) for name, array in inputs.items()}
    made = compiled(**{t.name: tensors[t.name] for t in compiled.plan.inputs})
    outputs = made if isinstance(made, tuple) else (made,)
    return {
        t.node: output.to(torch.float64).cpu().numpy()
        for t, output in zip(compiled.plan.outputs, outputs, strict=True)
    }


def _eager_outputs(
    request: Request,
    peer: Peer,
    compiled: Compiled,
    inputs: Mapping[str, np.ndarray],
    precision: str,
) -> np.ndarray | None:
    """What eager PyTorch gives in the same precision, None where it does not take it."""
    import torch

    if precision == "fp8" or (request.kernel == "fft_conv" and precision == "bf16"):
        return None
    type_ = torch_type(UNIT[precision])
    given = {n: torch.as_tensor(a).to(compiled.device, type_) for n, a in inputs.items()}
    try:
        with precision_of_products(precision):
            made = peer.call(given)
    except RuntimeError:  # half precision transforms exist on GPUs, at powers of two
        return None
    return made.to(torch.float64).cpu().numpy()


def _budget(theirs: np.ndarray, exact: np.ndarray, precision: str) -> float:
    rounding = unit_roundoff(UNIT[precision]) * _rms(exact)
    return EAGER_FACTOR * _rms(theirs - exact) + rounding


def _verdict(name: str, ours: np.ndarray, exact: np.ndarray, budget: float, rule: str) -> Verdict:
    error, size = _rms(ours - exact), _rms(exact)
    largest = float(np.max(np.abs(ours - exact))) if ours.size else 0.0
    passed = bool(np.all(np.isfinite(ours))) and error <= budget
    return Verdict(name, error, largest, budget, rule, size, passed, budget < size)


def _derived(
    request: Request,
    compiled: Compiled,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, np.ndarray],
    exact: Mapping[str, np.ndarray],
    precision: str,
) -> list[Verdict]:
    data_type = PRODUCT_TYPE[precision]
    if data_type == "tf32":
        data_type = "fp16"  # ten bits of mantissa both
    made = derived_check(compiled.graph, inputs, outputs, data_type, "fp32", request.plain)
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
