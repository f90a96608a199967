"""Lowering: a Graph and a GpuSchedule become a Plan, generically.

Each kernel of the schedule works out the nodes that it makes, from tensors in memory down to
stores: `axes` gives every axis its programs, steps and lanes; `scopes` says which loops there are
and what each finishes; `tiles` writes the statements; `bounds` shortens loops where a mask leaves
nothing to do; `orders` chooses the order of every tile's dimensions; `ahead` puts loads first
and sums side by side in steps that wait for each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from dataflow.errors import did_you_mean
from dataflow.index import affine
from dataflow.nodes import Graph, live
from gpu.lowering.ahead import ahead
from gpu.lowering.axes import plan_axes, power_of_two, product_sides
from gpu.lowering.bounds import bounded
from gpu.lowering.draft import Scope, Store_
from gpu.lowering.joint import Places, joint, placed
from gpu.lowering.names import identifier
from gpu.lowering.orders import ordered
from gpu.lowering.parts import may_part, parted
from gpu.lowering.scopes import Nest, cone
from gpu.lowering.stacks import stacked
from gpu.lowering.tiles import Kernel as TileKernel
from gpu.plan import (
    LARGEST_TILE,
    MEMORY_TYPE,
    AxisPlan,
    Barrier,
    Fetch,
    Kernel,
    Load,
    Plan,
    Publish,
    Statement,
    Store,
    Tensor,
    Value,
    statements_of,
)
from gpu.schedule import GpuSchedule, GpuScheduleError, KernelSchedule

LINEAR = ("add", "sub", "mul")
"""Pointwise operations that keep a value's relative error, beside that of what it is added to."""
OUTPUT_TYPE = {**MEMORY_TYPE, "fp8": "bf16"}


def lower(graph: Graph, schedule: GpuSchedule) -> Plan:
    """Return the Plan of `graph` under `schedule`.

    Raises GpuScheduleError with the place of what does not fit: an axis, a loop order, a value
    that a kernel cannot work out and that no earlier kernel makes.
    """
    try:
        return _lowered(live(graph), schedule)
    except GpuScheduleError as error:
        faults = [schedule.placed(fault) for fault in error.faults]
        raise GpuScheduleError(faults) from error


def _lowered(graph: Graph, schedule: GpuSchedule) -> Plan:
    faults = _faults(graph, schedule)
    if faults:
        raise GpuScheduleError(faults)
    memory_type = MEMORY_TYPE[schedule.precision]
    tensors: dict[str, Tensor] = {}
    memory: dict[str, Tensor] = {}
    places: dict[str, tuple[str, int]] = {}
    for node in graph.inputs:
        tensor = Tensor(node.name, "input", graph.shape(node.axes), memory_type, node.name)
        tensors[node.name] = memory[node.name] = tensor
    for output in graph.outputs:
        name = _output_name(output.name, tensors)
        tensors[name] = Tensor(
            name, "output", graph.shape(output.axes), OUTPUT_TYPE[schedule.precision], output.name
        )
    kernels: list[Kernel] = []
    for place, plan in enumerate(schedule.kernels):
        last = place == len(schedule.kernels) - 1
        stores, made = _stores(graph, plan, tensors, last, schedule.precision)
        whole, own = joint(list(made.values()))
        tensors.update((tensor.name, tensor) for tensor in whole)
        places.update(own)
        where = f"kernels.{place}"
        kernels.append(_kernel(graph, schedule, plan, stores, tensors, memory, places, where))
        memory.update(made)
    kernels = [replace(k, name=_kernel_name(graph, k, i, kernels)) for i, k in enumerate(kernels)]
    used = {name for kernel in kernels for name in kernel.args}
    kept = {n: t for n, t in tensors.items() if n in used or t.kind in ("input", "output")}
    return Plan(graph.name, schedule.precision, kept, tuple(kernels))


def _output_name(name: str, tensors: Mapping[str, Tensor]) -> str:
    return name if name not in tensors else f"{name}.out"


def _kernel_name(graph: Graph, kernel: Kernel, place: int, kernels: Iterable[Kernel]) -> str:
    many = len(list(kernels)) > 1
    return identifier(f"{graph.name}_{place}_{kernel.name}" if many else graph.name)


def _faults(graph: Graph, schedule: GpuSchedule) -> list[str]:
    faults = [
        f"output {output.name}: must be stored without a merge on a GPU, got {output.merge!r}"
        for output in graph.outputs
        if output.merge
    ]
    inputs = {node.name for node in graph.inputs}
    outputs = [output.name for output in graph.outputs]
    faults += _alike(graph.name, [*inputs, *outputs])
    known = [*(name for name in graph.by_name if name not in inputs), *outputs]
    made: dict[str, int] = {}
    for place, plan in enumerate(schedule.kernels):
        where = f"kernels.{place}"
        for field, allowed in (("makes", known), ("reload", list(graph.by_name))):
            for name in getattr(plan, field):
                if name not in allowed:
                    hint = did_you_mean(name, dict.fromkeys(allowed))
                    rule = "nodes or outputs" if field == "makes" else "nodes"
                    faults.append(
                        f"{where}.{field}: must name {rule} of {graph.name}, got {name!r}; {hint}"
                    )
        for name in plan.makes:
            if made.setdefault(name, place) != place:
                faults.append(
                    f"{where}.makes: must not make {name} again, got it after kernels.{made[name]}"
                )
        if not plan.makes and place < len(schedule.kernels) - 1:
            faults.append(f"{where}.makes: must name what the kernel makes, got nothing")
    return faults


def _alike(graph: str, names: Iterable[str]) -> list[str]:
    """Tensors whose parameters would have one name."""
    found: dict[str, str] = {}
    faults = []
    for name in sorted(set(names)):
        other = found.setdefault(name.replace(".", "_"), name)
        if other != name:
            faults.append(
                f"graph {graph}: tensors must differ in more than . and _, got {other} and {name}"
            )
    return faults


def _stores(
    graph: Graph,
    plan: KernelSchedule,
    tensors: dict[str, Tensor],
    last: bool,
    precision: str,
) -> tuple[list[Store_], dict[str, Tensor]]:
    """The stores of a kernel, and the nodes that are in memory once it has run."""
    outputs = {output.name: output for output in graph.outputs}
    stores: list[Store_] = []
    made: dict[str, Tensor] = {}
    wanted = list(plan.makes)
    if last:
        wanted += [name for name in outputs if not _is_stored(name, tensors, wanted)]
    for name in dict.fromkeys(wanted):
        if name in outputs:
            output = outputs[name]
            stores.append(Store_(output.node, _tensor_of(name, tensors), output.index))
            tensors[f"stored {name}"] = Tensor("", "mark", (), "")
            continue
        node = graph.node(name)
        type_ = _made_type(graph, name, precision)
        scratch = Tensor(f"{name}.made", "scratch", graph.shape(node.axes), type_, name)
        tensors[scratch.name] = made[name] = scratch
        stores.append(Store_(name, scratch.name, tuple(affine(axis) for axis in node.axes)))
    if last:
        for name in [name for name, tensor in tensors.items() if tensor.kind == "mark"]:
            del tensors[name]
    return stores, made


def _made_type(graph: Graph, name: str, precision: str) -> str:
    """The type in memory of a value between kernels: fp32, or that of products.

    The latter where only products read it, or multiples and sums of it that only products read:
    each rounds once more at most, by the same relative error.
    """
    return MEMORY_TYPE[precision] if _feeds_products(graph, name) else "fp32"


def _feeds_products(graph: Graph, name: str) -> bool:
    readers = [node for node in graph.nodes if name in node.args]
    return bool(readers) and all(
        product_sides(graph, node) is not None
        or (node.op == "map" and node.fn in LINEAR and _feeds_products(graph, node.name))
        for node in readers
    )


def _is_stored(name: str, tensors: Mapping[str, Tensor], wanted: Iterable[str]) -> bool:
    return f"stored {name}" in tensors or name in wanted


def _tensor_of(output: str, tensors: Mapping[str, Tensor]) -> str:
    return next(t.name for t in tensors.values() if t.kind == "output" and t.node == output)


def _kernel(
    graph: Graph,
    schedule: GpuSchedule,
    plan: KernelSchedule,
    stores: list[Store_],
    tensors: dict[str, Tensor],
    memory: Mapping[str, Tensor],
    places: Places,
    where: str,
) -> Kernel:
    graph = _in_parts(graph, plan, where)
    nodes = cone(graph, [store.node for store in stores], memory)
    worked = [node for node in nodes if node.name not in memory]
    axes = plan_axes(graph, worked or nodes, plan, where, schedule.precision)
    order = tuple(axis for axis in plan.loop if axis in axes)
    nest = Nest(graph, order, frozenset(memory), where)
    nest.check(worked)
    operand = MEMORY_TYPE[schedule.precision]
    tile_kernel = TileKernel(
        graph, plan, axes, nest, memory, operand, schedule.precision, tensors, where
    )
    top = Scope(())
    tile_kernel.build(top, (), stores)
    body = bounded(graph, axes, placed(tuple(top.statements), places))
    _check_sizes(body, axes, where)
    body = ahead(ordered(body, axes, tensors), axes, plan.warps)
    if plan.stack:
        body, axes = stacked(graph, body, axes, tensors)
    grid = tuple(axis for axis in plan.grid if axis in axes and axes[axis].grid > 1)
    exchanged = any(isinstance(statement, Fetch) for statement in statements_of(body))
    group = next(iter(plan.group.items()), None)
    return Kernel(
        stores[0].node,
        _arguments(body),
        axes,
        grid,
        body,
        plan.warps,
        plan.stages,
        group if group is not None and group[0] in grid else None,
        exchanged,
        plan.descriptors,
    )


def _in_parts(graph: Graph, plan: KernelSchedule, where: str) -> Graph:
    """`graph` with the axes cut that the kernel sums in parts."""
    faults = []
    for axis, count in plan.parts.items():
        place = f"{where}.parts.{axis}"
        if axis not in graph.axes:
            hint = did_you_mean(axis, graph.axes)
            faults.append(f"{place}: axis must be one of the graph, got {axis!r}; {hint}")
        elif graph.extent(axis) % count or count != power_of_two(count):
            faults.append(
                f"{place}: parts must be a power of two that divides the axis's "
                f"{graph.extent(axis)} points, got {count}"
            )
        elif not may_part(graph, axis):
            faults.append(f"{place}: axis must be one that only sums of products read, got another")
    if faults:
        raise GpuScheduleError(faults)
    return parted(graph, {axis: count for axis, count in plan.parts.items() if count > 1})


def _check_sizes(body: tuple[Statement, ...], axes: Mapping[str, AxisPlan], where: str) -> None:
    """Raise GpuScheduleError for the largest tile that no GPU takes."""
    made = [getattr(statement, "out", None) for statement in statements_of(body)]
    sizes = {
        value.name: math.prod(axes[axis].tile for axis in value.axes)
        for value in made
        if isinstance(value, Value)
    }
    name = max(sizes, key=lambda each: sizes[each], default="")
    if sizes.get(name, 0) > LARGEST_TILE:
        raise GpuScheduleError(
            f"{where}.tile: tiles must be at most {LARGEST_TILE} elements, "
            f"got {sizes[name]} for {name}; choose smaller tiles, or walk an axis in a loop"
        )


def _arguments(body: tuple[Statement, ...]) -> tuple[str, ...]:
    """Tensors that the statements touch, in order of first use, what is stored last."""
    read: dict[str, None] = {}
    written: dict[str, None] = {}
    for statement in statements_of(body):
        if isinstance(statement, Load | Fetch):
            read[statement.tensor] = None
        elif isinstance(statement, Store):
            written[statement.tensor] = None
        elif isinstance(statement, Publish | Barrier):
            read[statement.tensor] = None
    return tuple(dict.fromkeys((*read, *written)))
