"""Judges real sizes on the GPU, where the NumPy reference would take hours.

The reference is the library's own call in float64 on the same inputs (`tests/gpu` holds it to the
NumPy reference at small sizes). Both it and the eager call whose error sets the budget run over
one slice of the free axes at a time, so that scores of long sequences fit in memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dataflow.check import unit_roundoff
from dataflow.request import Request
from gpu.measure.peers import eager, free_axes, input_scale, precision_of_products
from gpu.run import Compiled, torch_type

EAGER_FACTOR = 2.0
FFT_RELATIVE = 1e-2
SLICE_ELEMENTS = 2**29
"""Largest intermediate of the float64 reference: 4 GiB."""
UNIT = {"fp32": "fp32", "tf32": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
"""The type in which eager PyTorch works, and whose rounding the output has."""

WITH_PRODUCTS = ("gemm", "attention", "lstm", "gru")


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


def draw(request: Request, compiled: Compiled, seed: int = 0) -> dict[str, Any]:
    """Return random tensors of unit variance on the plan's device, in the plan's types."""
    import torch

    generator = torch.Generator(device=compiled.device).manual_seed(seed)
    return {
        t.name: (
            torch.randn(t.shape, device=compiled.device, generator=generator)
            * input_scale(request, t.name)
        ).to(torch_type(t.type))
        for t in compiled.plan.inputs
    }


def judge(
    request: Request, compiled: Compiled, inputs: Mapping[str, Any], precision: str
) -> Verdict | None:
    """Judge the only output of a kernel that PyTorch has; None where PyTorch has none.

    inputs: tensors as `draw` gives them.
    """
    peer = eager(request)
    if peer is None or len(compiled.plan.outputs) != 1:
        return None
    ours = compiled.launch([inputs[t.name] for t in compiled.plan.inputs], poison=True)[0]
    sums = _Sums()
    relative = False
    for place, given in _slices(request, compiled, inputs):
        exact = peer.call({n: t.double() for n, t in given.items()})
        theirs = None if relative else eager_output(request, given, precision)
        relative = relative or theirs is None
        if relative and not has_relative_rule(request, precision):
            return None
        sums.add(ours[place].double(), exact, theirs)
    return sums.verdict(compiled.plan.outputs[0].node, precision, relative)


def has_relative_rule(request: Request, precision: str) -> bool:
    """Whether a kernel is held to a relative error where eager PyTorch does not have it."""
    return request.kernel == "fft_conv" and precision in ("bf16", "fp16")


def eager_output(request: Request, given: Mapping[str, Any], precision: str) -> Any | None:
    """What eager PyTorch gives in a precision, None where it does not have it.

    It has neither fp8 nor transforms in bf16 or tf32, and its transforms in fp16 leave the type's
    range from 512 points on: no error of theirs is a budget. On a CPU, and at sizes that tensor
    cores do not take, products asked for in tf32 come out in fp32: nothing to judge tf32 by.
    """
    import torch

    peer = eager(request)
    if peer is None or precision == "fp8":
        return None
    if request.kernel == "fft_conv" and precision in ("bf16", "tf32"):
        return None
    type_ = torch_type(UNIT[precision])
    typed = {n: t.to(type_) for n, t in given.items()}
    try:
        with precision_of_products(precision):
            made = peer.call(typed)
    except RuntimeError as error:  # half precision transforms: on GPUs, at powers of two
        if "cuFFT" in str(error) or "Unsupported dtype" in str(error):
            return None
        raise
    if precision == "tf32" and request.kernel in WITH_PRODUCTS:
        with precision_of_products("fp32"):
            if torch.equal(made, peer.call(typed)):
                return None
    return made.double() if bool(torch.isfinite(made).all()) else None


def _slices(
    request: Request, compiled: Compiled, inputs: Mapping[str, Any]
) -> Iterator[tuple[tuple[slice, ...], dict[str, Any]]]:
    """Places in the output, and the inputs that it takes to work them out."""
    graph = compiled.graph
    cut = [axis for axis in free_axes(request) if axis in graph.outputs[0].axes]
    largest = _largest(request)
    width = {}
    for axis in cut:
        extent = graph.extent(axis)
        width[axis] = max(1, extent // -(-largest // SLICE_ELEMENTS))
        largest = largest * width[axis] // extent
    starts = [range(0, graph.extent(axis), width[axis]) for axis in cut]
    for begin in itertools.product(*starts):
        at = {
            axis: slice(start, start + width[axis]) for axis, start in zip(cut, begin, strict=True)
        }
        given = {
            node.name: inputs[node.name][tuple(at.get(axis, slice(None)) for axis in node.axes)]
            for node in graph.inputs
        }
        yield tuple(at.get(axis, slice(None)) for axis in graph.outputs[0].axes), given


def reference_work(request: Request) -> float:
    """Operations that the NumPy reference of the plain graph takes, about."""
    graph = request.plain
    total = 0.0
    for node in graph.nodes:
        axes = set(node.axes)
        if node.op in ("einsum", "reduce"):
            axes |= {axis for name in node.args for axis in graph.node(name).axes}
        total += 2.0 * math.prod(graph.extent(axis) for axis in axes)
    return total


def _largest(request: Request) -> int:
    """Elements of the largest array that the library call makes."""
    s = request.sizes
    if request.kernel == "attention":
        return 2 * s["batch"] * s["heads"] * s["n"] * s["m"]
    if request.kernel == "fft_conv":
        return 8 * s["batch"] * s["channels"] * s["n"]
    return max(math.prod(request.graph.shape(node.axes)) for node in request.plain.inputs)


class _Sums:
    """Sums of squares over all slices."""

    def __init__(self) -> None:
        self.points = 0
        self.error = self.theirs = self.size = self.largest = 0.0

    def add(self, ours: Any, exact: Any, theirs: Any | None) -> None:
        """Take one slice in; NaN in `ours` stays in the sums."""
        apart = ours - exact
        self.points += exact.numel()
        self.error += float(apart.square().sum())
        self.size += float(exact.square().sum())
        self.largest = max(self.largest, float(apart.abs().max()))
        if theirs is not None:
            self.theirs += float((theirs - exact).square().sum())

    def verdict(self, output: str, precision: str, relative: bool) -> Verdict:
        """The judgement over all slices."""
        error, size = (math.sqrt(v / self.points) for v in (self.error, self.size))
        if relative:
            budget, rule = FFT_RELATIVE * size, "relative 1e-2"
        else:
            rounding = unit_roundoff(UNIT[precision]) * size
            budget = EAGER_FACTOR * math.sqrt(self.theirs / self.points) + rounding
            rule = "2 x eager"
        within = error <= budget  # False for NaN
        return Verdict(output, error, self.largest, budget, rule, size, within, budget < size)
