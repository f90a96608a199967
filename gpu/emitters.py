"""A plan as text, by the emitter that its schedule names, and how its kernels are launched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpu.blocks import Argument
from gpu.emit_gluon import emit as emit_gluon
from gpu.emit_triton import emit as emit_triton
from gpu.lowering.axes import THREE_GROUPS
from gpu.module import GpuError
from gpu.plan import Kernel, Plan


@dataclass(frozen=True)
class Launch:
    """One kernel of the text: its parameters, and the options of its launch.

    resident: programs a core that work on all tiles by turns; 0 where each tile has its program.
    """

    kernel: Kernel
    arguments: tuple[Argument, ...]
    options: Mapping[str, int]
    resident: int = 0

    def programs(self, cores: int) -> int:
        """Programs to launch on a card of so many cores."""
        tiles = self.kernel.programs
        return min(tiles, self.resident * cores) if self.resident else tiles


@dataclass(frozen=True)
class Printed:
    """The text of a module, and its kernels in the order in which they run."""

    emitter: str
    text: str
    launches: tuple[Launch, ...]


def printed(plan: Plan, emitter: str = "triton", interpreted: bool = False) -> Printed:
    """Return the text of `plan`. Raises GpuError where Gluon cannot print it or be interpreted."""
    if emitter == "triton":
        faults = [
            f"kernel {k.name}: warps must be a power of two in Triton, got {k.warps}; "
            "Gluon's text has three warp groups"
            for k in plan.kernels
            if k.warps == THREE_GROUPS
        ]
        if faults:
            raise GpuError(faults)
        text = emit_triton.source(plan, interpreted)
        launches = [
            Launch(
                k, emit_triton.arguments(plan, k), {"num_warps": k.warps, "num_stages": k.stages}
            )
            for k in plan.kernels
        ]
        return Printed(emitter, text, tuple(launches))
    if interpreted:
        raise GpuError("emitter: must be triton in the interpreter, got gluon; Gluon has none")
    text = emit_gluon.source(plan)
    launches = [
        Launch(
            k,
            emit_gluon.arguments(plan, k),
            emit_gluon.options(plan, k),
            emit_gluon.resident(plan, k),
        )
        for k in plan.kernels
    ]
    return Printed(emitter, text, tuple(launches))


def passed(tensor: Any, argument: Argument, emitter: str) -> Any:
    """A kernel's argument: the tensor, or a descriptor of blocks for the copy engine."""
    if argument.block is None:
        return tensor
    block = list(argument.block)
    if emitter == "triton":
        from triton.tools.tensor_descriptor import TensorDescriptor

        return TensorDescriptor.from_tensor(tensor.view(argument.view_shape), block)
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as Boxes

    seen = tensor.view(argument.view_shape)
    return Boxes.from_tensor(seen, block, shared_layout(argument, 8 * tensor.element_size()))


def shared_layout(argument: Argument, bits: int) -> Any:
    """The layout in shared memory of a descriptor's block, as the text has it."""
    from triton.experimental.gluon.language import NVMMASharedLayout

    assert argument.block is not None
    type_ = {32: "fp32", 16: "bf16"}.get(bits, "fp8e4m3")
    width = emit_gluon.swizzle(argument.block, type_)
    return NVMMASharedLayout(width, bits, rank=len(argument.block))
