"""Cross-compilation: kernels compiled for a card that need not be there, and what they take of it.

The report reads the compiler's own figures: registers and spills from the machine code's resource
table, shared memory from Triton, the matrix instructions from the PTX.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataflow.nodes import Graph
from gpu.blocks import Argument
from gpu.emitters import Launch, Printed, printed, shared_layout
from gpu.lowering.lower import lower
from gpu.module import GpuError, load
from gpu.plan import ITEM_BYTES, Plan
from gpu.schedule import GpuSchedule

POINTER = {
    "fp32": "*fp32",
    "fp16": "*fp16",
    "bf16": "*bf16",
    "fp8e4m3": "*fp8e4nv",
    "fp8e5m2": "*fp8e5",
    "int32": "*i32",
}
SHARED_LIMIT_BYTES = {80: 163 * 1024, 90: 227 * 1024}
"""Shared memory that one program may have, CUDA C++ programming guide, compute capabilities."""


@dataclass(frozen=True)
class Resources:
    """What one kernel takes of a core, a program: registers a thread, spilled and shared bytes.

    matrix: which matrix instructions its PTX holds ("wgmma", "mma").
    """

    kernel: str
    registers: int
    spill_bytes: int
    shared_bytes: int
    warps: int
    matrix: tuple[str, ...]
    ptx: str


def resources(graph: Graph, schedule: GpuSchedule, capability: int = 90) -> list[Resources]:
    """Compile every kernel of `graph` under `schedule`; see `compile_plan`."""
    plan = lower(graph, schedule)
    return compile_plan(plan, printed(plan, schedule.emitter), capability)


def faults(found: Resources, capability: int = 90) -> list[str]:
    """What keeps a kernel from running well on the card: spills, too much shared memory."""
    made = []
    if found.spill_bytes:
        made.append(
            f"{found.kernel}: registers must suffice, got {found.spill_bytes} spilled bytes"
        )
    limit = SHARED_LIMIT_BYTES[capability]
    if found.shared_bytes > limit:
        made.append(
            f"{found.kernel}: shared memory must be at most {limit} bytes, got {found.shared_bytes}"
        )
    return made


def compile_plan(plan: Plan, made: Printed, capability: int = 90) -> list[Resources]:
    """Compile every kernel of `plan`, printed as `made`, for capability 9.0 (90) or 8.0 (80).

    Raises GpuError with the compiler's message, where Gluon's text is to run on another card than
    Hopper's, or where Triton runs as an interpreter in this process.
    """
    from triton import knobs

    if knobs.runtime.interpret:
        raise GpuError("TRITON_INTERPRET: must not be set where kernels are to be compiled")
    if made.emitter == "gluon" and capability != 90:
        raise GpuError(f"emitter: must be triton for sm_{capability}, got gluon")
    module = load(made.text)
    return [
        _compiled(plan, one, getattr(module, one.kernel.name), made.emitter, capability)
        for one in made.launches
    ]


def _compiled(plan: Plan, one: Launch, function: Any, emitter: str, capability: int) -> Resources:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.experimental.gluon._runtime import GluonASTSource

    kernel, arguments = one.kernel, one.arguments
    signature = {a.name: _signature(plan, a, emitter) for a in arguments}
    attrs = {(i,): [["tt.divisibility", 16]] for i, a in enumerate(arguments) if a.block is None}
    kind: Any = ASTSource if emitter == "triton" else GluonASTSource
    made = kind(function, signature=signature, constexprs={}, attrs=attrs)
    options = dict(one.options)
    try:
        binary = triton.compile(made, target=GPUTarget("cuda", capability, 32), options=options)
    except Exception as error:
        raise GpuError(
            f"kernel {kernel.name}: must compile for sm_{capability}: {error}"
        ) from error
    registers, spill = _usage(binary.asm["cubin"])
    ptx = str(binary.asm["ptx"])
    matrix = tuple(
        name
        for name, pattern in (("wgmma", r"\bwgmma\.mma_async"), ("mma", r"\bmma\.sync"))
        if re.search(pattern, ptx)
    )
    shared = int(binary.metadata.shared)
    warps = int(binary.metadata.num_warps)
    return Resources(kernel.name, registers, spill, shared, warps, matrix, ptx)


def _signature(plan: Plan, argument: Argument, emitter: str) -> str:
    tensor = plan.tensors[argument.tensor]
    type_ = POINTER[tensor.type]
    if argument.block is None:
        return type_
    block = f"{type_[1:]}[{', '.join(map(str, argument.block))}]"
    if emitter == "triton":
        return f"tensordesc<{block}>"
    return f"tensordesc<{block},{shared_layout(argument, 8 * ITEM_BYTES[tensor.type])!r}>"


def _usage(cubin: bytes) -> tuple[int, int]:
    """Registers a thread and bytes of local memory (spills) a thread."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(tool), "-res-usage", file.name]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    registers = re.search(r"REG:(\d+)", text)
    stack = re.search(r"STACK:(\d+)", text)
    local = re.search(r"LOCAL:(\d+)", text)
    if registers is None:
        raise GpuError(f"cuobjdump: must report registers, got {text[:200]!r}")
    spilled = sum(int(found.group(1)) for found in (stack, local) if found is not None)
    return int(registers.group(1)), spilled
