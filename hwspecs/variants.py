"""Machines that differ from one in a single resource: what a little more of each might bring.

Each variant says which numbers of the machine's file differ, as a file would have them, so that the
same change can be made by hand. A count grows by one; a size, a depth or a width by a power of two
doubles; a latency loses a cycle; off-chip memory's pins, or the clock, are a tenth faster. A faster
clock leaves latencies that the file has in cycles what they are, and off-chip memory its bytes and
its own timing a second: fewer bytes a cycle, more cycles a burst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pydantic import ValidationError

from hwspecs.machine import Machine
from hwspecs.spec import Spec, key, written

FASTER = Fraction(11, 10)
"""Off-chip memory's pins, or the clock, times as fast as they were."""


@dataclass(frozen=True)
class Change:
    """One number of a machine's file: its path, and its text before and after."""

    path: str
    before: str
    after: str


@dataclass(frozen=True)
class Variant:
    """A machine with a little more of one resource."""

    name: str
    changes: tuple[Change, ...]
    machine: Machine


def variants(machine: Machine) -> tuple[Variant, ...]:
    """Return the machine with a little more of each resource that its file has.

    Left out is what the rules of machine files forbid, as a scratchpad's banks that do not divide
    its bytes.
    """
    found = []
    for name, made in _made(machine):
        try:
            # A default may be what no file could give, as an overhead of no cycles.
            checked = Machine.model_validate(made.model_dump(exclude_unset=True))
        except ValidationError:
            continue
        changes = (*_grid_changes(machine, checked), *_changes(machine, checked, ""))
        if changes:
            found.append(Variant(name, changes, checked))
    return tuple(found)


def _made(machine: Machine) -> Iterator[tuple[str, Machine]]:
    """Every variant by name, not yet checked."""
    for kind in ("compute", "memory"):
        grown = _with_one_more(machine, kind)
        if grown is not None:
            yield f"one more {kind} unit", grown
    yield "twice the lanes of a compute unit", _with_twice_the_lanes(machine)
    for path, name, grow in _GROWTHS:
        value = _get(machine, path)
        if isinstance(value, int) and grow(value) >= 1:
            yield name, _set(machine, path, grow(value))
    chip = machine.off_chip.faster(float(FASTER))
    if chip.dram is None:
        rates = ("peak_bytes_per_s", "read_bytes_per_s", "write_bytes_per_s")
        chip = chip.model_copy(update={rate: float(round(getattr(chip, rate))) for rate in rates})
    yield "10 % more off-chip bandwidth", machine.model_copy(update={"off_chip": chip})
    clock_hz = round(Fraction(machine.clock_hz) * FASTER)
    yield "10 % faster clock", machine.model_copy(update={"clock_hz": clock_hz})


def _one_more(value: int) -> int:
    return value + 1


def _double(value: int) -> int:
    return 2 * value


def _one_less(value: int) -> int:
    return value - 1


_GROWTHS: tuple[tuple[str, str, Callable[[int], int]], ...] = (
    ("compute.stages", "one more stage of a compute unit", _one_more),
    ("compute.registers", "one more register a stage", _one_more),
    ("compute.vector_in", "one more vector input of a compute unit", _one_more),
    ("compute.vector_out", "one more vector output of a compute unit", _one_more),
    ("compute.scalar_in", "one more scalar input of a compute unit", _one_more),
    ("compute.scalar_out", "one more scalar output of a compute unit", _one_more),
    ("compute.fifo_depth_beats", "FIFOs of compute units twice as deep", _double),
    ("compute.latency_cycles", "compute units one cycle sooner", _one_less),
    ("compute.systolic.units", "one more systolic array", _one_more),
    ("memory.capacity_bytes", "scratchpads twice as large", _double),
    ("memory.banks", "twice the banks of a scratchpad", _double),
    ("memory.vector_in", "one more write port of a scratchpad", _one_more),
    ("memory.vector_out", "one more read port of a scratchpad", _one_more),
    ("memory.fifo_depth_beats", "FIFOs of memory units twice as deep", _double),
    ("network.channel_cycles", "channels one cycle sooner", _one_less),
    ("network.hop_cycles", "hops one cycle sooner", _one_less),
    ("network.vector_links", "one more vector link a direction", _one_more),
    ("network.scalar_links", "one more scalar link a direction", _one_more),
    ("network.packets.flit_bytes", "links of twice the width", _double),
    ("network.packets.virtual_channels", "one more virtual channel", _one_more),
    ("network.packets.buffer_flits", "buffers of routers twice as deep", _double),
    ("network.packets.router_cycles", "routers one cycle sooner", _one_less),
    ("generators.count", "one more address generator", _one_more),
    ("generators.latency_cycles", "address generators one cycle sooner", _one_less),
    ("generators.outstanding_requests", "twice the requests in flight", _double),
    ("generators.outstanding_writes", "twice the writes in flight", _double),
    ("off_chip.channels", "one more off-chip channel", _one_more),
    ("off_chip.latency_cycles", "off-chip memory one cycle sooner", _one_less),
)


def _with_one_more(machine: Machine, kind: str) -> Machine | None:
    """The machine with one more unit of a kind: at a site left empty, or in another row."""
    grid = machine.grid
    wanted = {"compute_units": grid.compute_units, "memory_units": grid.memory_units}
    wanted[f"{kind}_units"] += 1
    content = grid.model_dump() | wanted
    for rows in range(grid.rows, grid.rows + len(grid.pattern) + 1):
        try:
            grown = type(grid).model_validate(content | {"rows": rows})
        except ValidationError:
            continue
        return machine.model_copy(update={"grid": grown})
    return None


def _with_twice_the_lanes(machine: Machine) -> Machine:
    """Lanes need as many banks, and a sum over twice as many one stage more."""
    compute, memory = machine.compute, machine.memory
    lanes, stages = 2 * compute.lanes, compute.reduction_stages + 1
    wide = compute.model_copy(update={"lanes": lanes, "reduction_stages": stages})
    banked = memory.model_copy(update={"banks": max(memory.banks, lanes)})
    return machine.model_copy(update={"compute": wide, "memory": banked})


def _get(spec: Any, path: str) -> Any:
    """The value at a path of attributes; None where one on the way is not given."""
    for name in path.split("."):
        spec = getattr(spec, name, None)
    return spec


def _set(spec: Any, path: str, value: int) -> Any:
    """A copy with another value at a path of attributes."""
    head, _, rest = path.partition(".")
    made = _set(getattr(spec, head), rest, value) if rest else value
    return spec.model_copy(update={head: made})


def _grid_changes(old: Machine, new: Machine) -> Iterator[Change]:
    """What a larger grid takes: both counts too, as those of the pattern grow with it."""
    if old.grid != new.grid:
        for name in ("rows", "compute_units", "memory_units"):
            before, after = getattr(old.grid, name), getattr(new.grid, name)
            if before != after or name != "rows":
                yield Change(f"grid.{name}", str(before), str(after))


def _changes(old: Spec, new: Spec, prefix: str) -> Iterator[Change]:
    """What differs, but for what follows from other numbers and a file leaves out."""
    derived = _OF_DRAM if getattr(old, "dram", None) else ()
    for name in type(old).model_fields:
        before, after = getattr(old, name), getattr(new, name)
        if before == after or name in derived or name == "grid":
            continue
        path = f"{prefix}{key(name)}"
        if isinstance(before, Spec) and isinstance(after, Spec):
            yield from _changes(before, after, f"{path}.")
        else:
            yield Change(path, written(name, before), written(name, after))


_OF_DRAM = ("peak_bytes_per_s", "read_bytes_per_s", "write_bytes_per_s", "burst_bytes")
