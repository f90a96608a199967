"""Runs a Plan: on a GPU, or in Triton's interpreter on the CPU. Which one is always said.

    run(graph, inputs, where="gpu")       NumPy in, NumPy out, with what ran where
    compiled = compile(graph)             a callable on torch tensors that live on the GPU

Nothing falls back: where the GPU or Triton is missing, the error says so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dataflow.errors import did_you_mean
from dataflow.nodes import Graph, Output, live
from dataflow.reference import check_inputs
from gpu.defaults.emitter import auto_schedule
from gpu.emitters import passed, printed
from gpu.lowering.lower import lower
from gpu.module import GpuError, load
from gpu.operator import launch as launch_operator
from gpu.operator import register
from gpu.plan import Kernel, Plan, Tensor
from gpu.schedule import GpuSchedule
from gpu.tables import numbers

PLACES = ("gpu", "interpreter")
HOPPER = 9
"""Major compute capability of cards with what Gluon's text is for."""


@dataclass(frozen=True)
class RunResult:
    """Outputs by name (float64 arrays of what the GPU's types hold), and what ran where."""

    outputs: Mapping[str, np.ndarray]
    where: str
    device: str
    versions: Mapping[str, str]
    emitter: str
    plan: Plan
    source: str


class Compiled:
    """A graph as a callable on torch tensors: inputs in the graph's order, or by name.

    Returns one tensor, or a tuple where the graph has several outputs. Shapes are those of the
    graph's axes; inputs are converted to the plan's types. It is a custom operator of torch, so
    that torch.compile and CUDA graphs take it as it is.
    """

    def __init__(self, graph: Graph, schedule: GpuSchedule, where: str = "gpu"):
        _prepare(where)
        import torch

        self.graph = live(graph)
        self.schedule = schedule
        self.where = where
        self.device = torch.device("cuda" if where == "gpu" else "cpu")
        self.plan = lower(graph, schedule)
        made = printed(self.plan, schedule.emitter, interpreted=where == "interpreter")
        self.source = made.text
        self._module = load(self.source)
        self._fixed = {
            tensor.name: torch.as_tensor(np.array(numbers(self.graph, tensor))).to(
                self.device, torch_type(tensor.type)
            )
            for tensor in self.plan.tensors.values()
            if tensor.kind == "const"
        }
        self._launches = [(getattr(self._module, one.kernel.name), one) for one in made.launches]
        if where == "interpreter":
            _none_waits(one.kernel for one in made.launches)
        self._zeroed = _zeroed(self.graph, self.plan)
        self._cores = 0 if where != "gpu" else cores(self.device)
        self.key = register(self)

    def __call__(self, *tensors: Any, **named: Any) -> Any:
        """Run on tensors; GpuError where their number, names or shapes do not fit."""
        given = self._given(tensors, named)
        outputs = launch_operator(self.key, given)
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def launch(self, inputs: Sequence[Any], poison: bool = False) -> list[Any]:
        """Run all kernels on tensors of the plan's types and shapes, in the graph's order.

        poison: fill outputs and what lies between kernels with NaN first, so that a point which
        no program writes shows.
        """
        memory = dict(self._fixed)
        memory.update(zip((t.name for t in self.plan.inputs), inputs, strict=True))
        for tensor in self.plan.tensors.values():
            if tensor.name not in memory:
                memory[tensor.name] = self._memory(tensor, poison)
        emitter = self.schedule.emitter
        for function, one in self._launches:
            options: dict[str, Any] = dict(one.options)
            if one.kernel.cooperative:
                options["launch_cooperative_grid"] = True
            given = (passed(memory[place.tensor], place, emitter) for place in one.arguments)
            function[(one.programs(self._cores),)](*given, **options)
        return [memory[tensor.name] for tensor in self.plan.outputs]

    def blank(self) -> list[Any]:
        """Outputs of the right types and shapes that nothing was written to."""
        return [self._memory(tensor, False) for tensor in self.plan.outputs]

    def _memory(self, tensor: Tensor, poison: bool) -> Any:
        import torch

        type_ = torch_type(tensor.type)
        if tensor.kind == "barrier" or tensor.name in self._zeroed:
            return torch.zeros(tensor.shape, dtype=type_, device=self.device)
        if poison and type_.is_floating_point:
            whole = torch.full(tensor.shape, float("nan"), device=self.device)
            return whole.to(type_)
        return torch.empty(tensor.shape, dtype=type_, device=self.device)

    def _given(self, tensors: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        wanted = self.plan.inputs
        by_name = dict(zip((t.name for t in wanted), tensors, strict=False))
        faults = []
        if len(tensors) > len(wanted):
            faults.append(f"{self.graph.name}: must get {len(wanted)} inputs, got {len(tensors)}")
        for name in named:
            if name not in [t.name for t in wanted]:
                hint = did_you_mean(name, [t.name for t in wanted])
                faults.append(f"{self.graph.name}: input must be known, got {name!r}; {hint}")
        by_name.update(named)
        for tensor in wanted:
            if tensor.name not in by_name:
                faults.append(f"{self.graph.name}: input {tensor.name} must be given, got none")
            elif tuple(by_name[tensor.name].shape) != tensor.shape:
                shape = tuple(by_name[tensor.name].shape)
                faults.append(
                    f"{self.graph.name}: {tensor.name} must have shape {tensor.shape}, got {shape}"
                )
        if faults:
            raise GpuError(faults)
        return [by_name[t.name].to(self.device, torch_type(t.type)).contiguous() for t in wanted]


def compile(
    graph: Graph,
    schedule: GpuSchedule | None = None,
    precision: str = "bf16",
    where: str = "gpu",
) -> Compiled:
    """Return `graph` as a callable on torch tensors.

    schedule: None takes the default one of the faster emitter, at `precision`. where: "gpu" or
    "interpreter" (the same kernels on the CPU, slowly). Raises GpuScheduleError where the
    schedule does not fit, GpuError where torch, triton or the GPU is missing.
    """
    if schedule is None:
        _prepare(where)
        schedule = auto_schedule(graph, precision, card_at_hand(where))
    return Compiled(graph, schedule, where)


def card_at_hand(where: str = "gpu") -> str:
    """The card among those that default schedules know which is nearest to where kernels run."""
    if where != "gpu":
        return "interpreter"
    import torch

    if not torch.cuda.is_available():  # for text, and for compiling without a card
        return "h200"
    return "h200" if torch.cuda.get_device_capability(0)[0] == HOPPER else "a100"


def run(
    graph: Graph,
    inputs: Mapping[str, Any],
    schedule: GpuSchedule | None = None,
    precision: str = "bf16",
    where: str = "gpu",
) -> RunResult:
    """Run `graph` once on NumPy arrays (or torch tensors) by name.

    Raises InputError where the arrays do not fit, and what `compile` raises.
    """
    check_inputs(graph, inputs)
    compiled = compile(graph, schedule, precision, where)
    import torch

    tensors = {name: torch.as_tensor(np.asarray(array)) for name, array in inputs.items()}
    made = compiled(**{t.name: tensors[t.name] for t in compiled.plan.inputs})
    outputs = made if isinstance(made, tuple) else (made,)
    arrays = {
        tensor.node: output.to(torch.float64).cpu().numpy()
        for tensor, output in zip(compiled.plan.outputs, outputs, strict=True)
    }
    return result_of(compiled, arrays)


def result_of(compiled: Compiled, outputs: Mapping[str, np.ndarray]) -> RunResult:
    """Outputs with what made them, and where."""
    where, emitter = compiled.where, compiled.schedule.emitter
    return RunResult(
        outputs, where, device_name(where), versions(), emitter, compiled.plan, compiled.source
    )


def rounded_inputs(compiled: Compiled, inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return inputs as the plan's types hold them, in float64: what a reference must start from."""
    import torch

    return {
        t.name: torch.as_tensor(np.asarray(inputs[t.name]))
        .to(torch_type(t.type))
        .to(torch.float64)
        .numpy()
        for t in compiled.plan.inputs
    }


def device_name(where: str) -> str:
    """The card's name, or what stands in for it."""
    if where != "gpu":
        return "Triton interpreter on the CPU"
    import torch

    return torch.cuda.get_device_name(0)


def cores(device: Any) -> int:
    """Cores (streaming multiprocessors) of a card."""
    import torch

    return torch.cuda.get_device_properties(device).multi_processor_count


def versions() -> dict[str, str]:
    """Versions of what runs the kernels."""
    import torch
    import triton

    found = {"torch": torch.__version__, "triton": triton.__version__}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    return found


def torch_type(type_: str) -> Any:
    """The torch type of a memory type."""
    import torch

    return {
        "fp32": torch.float32,
        "fp16": torch.float16,
        "bf16": torch.bfloat16,
        "fp8e4m3": torch.float8_e4m3fn,
        "fp8e5m2": torch.float8_e5m2,
        "int32": torch.int32,
    }[type_]


def require_gpu() -> None:
    """Raise GpuError unless kernels can be compiled and run on a GPU here."""
    _prepare("gpu")


def _prepare(where: str) -> None:
    """Have Triton, as an interpreter or as a compiler; the choice holds for the whole process."""
    if where not in PLACES:
        raise GpuError(f"where: must be one of {', '.join(PLACES)}, got {where!r}")
    try:
        import torch
    except ImportError as error:
        raise GpuError("torch: must be installed to run kernels (pip install torch)") from error
    if where == "interpreter" and "triton.language" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"
    try:
        from triton import knobs
    except ImportError as error:
        raise GpuError("triton: must be installed to run kernels (pip install triton)") from error
    interpreting = bool(knobs.runtime.interpret)
    if where == "interpreter" and not interpreting:
        raise GpuError(
            "TRITON_INTERPRET: must be 1 before triton is loaded to run in the interpreter; "
            "this process has loaded it as a compiler"
        )
    if interpreting:
        _mend_interpreter()
    if where == "gpu" and interpreting:
        raise GpuError("TRITON_INTERPRET: must not be set to run on the GPU")
    if where == "gpu" and not torch.cuda.is_available():
        raise GpuError(
            "gpu: must be a CUDA device that torch sees, got none; "
            "the interpreter runs the same kernels on the CPU"
        )


def _none_waits(kernels: Iterable[Kernel]) -> None:
    """Raise GpuError where programs wait for each other: interpreted, one runs after another."""
    faults = [
        f"kernel {kernel.name}: must have one program in the interpreter, where none can wait for "
        f"another, got {kernel.programs}; widen the tiles of {', '.join(kernel.grid)}"
        for kernel in kernels
        if kernel.cooperative and kernel.programs > 1
    ]
    if faults:
        raise GpuError(faults)


def _mend_interpreter() -> None:
    """Have tensors as loop bounds, which numpy 2.4 took from the interpreter of Triton 3.6.

    It makes an int of an array of one number and one dimension; later Tritons squeeze it first.
    """
    from triton.runtime import interpreter

    patch: Any = interpreter._patch_lang_tensor
    if getattr(patch, "mended", False):
        return

    def mended(tensor: Any, scope: Any) -> Any:
        made = patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))
        return made

    mended.mended = True  # type: ignore[attr-defined]
    interpreter._patch_lang_tensor = mended


def _zeroed(graph: Graph, plan: Plan) -> frozenset[str]:
    """Outputs with points that no store may reach: those hold 0."""
    return frozenset(
        tensor.name
        for output, tensor in zip(graph.outputs, plan.outputs, strict=True)
        if not _covered(graph, output)
    )


def _covered(graph: Graph, output: Output) -> bool:
    """Whether every point of an output is surely stored: each dimension by axes of its own."""
    symbols = [axis for form in output.index for axis in form.symbols()]
    if len(set(symbols)) != len(symbols):
        return False
    for form, size in zip(output.index, graph.shape(output.axes), strict=True):
        places = np.ix_(*(np.arange(graph.extent(axis)) for axis in form.symbols()))
        values = np.ravel(form.evaluate(dict(zip(form.symbols(), places, strict=True))))
        if len(np.unique(values[(values >= 0) & (values < size)])) < size:
            return False
    return True
