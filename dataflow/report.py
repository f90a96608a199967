"""What a run comes to: one plain record of its figures.

`dataflow.explain` says what each figure means, `dataflow.render` prints them, and
`dataflow.report_json` makes JSON of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from dataflow.chain import Chain
from dataflow.check import Check
from dataflow.program import Channel, Program, Scratchpad

MODEL_VERSION = "2"
"""Version of the rules of time; CHANGELOG.md says by how much each change moved modelled time."""

STALLS = ("waiting", "blocked", "bank", "network", "off_chip", "done")
"""Where a unit's cycles go that are not busy, in the order in which they are printed."""


class UnitAccount(Protocol):
    """What the report reads of a unit's account (`dataflow.sim.account`)."""

    @property
    def busy(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def blocked(self) -> int: ...
    @property
    def bank(self) -> int: ...
    @property
    def network(self) -> int: ...
    @property
    def off_chip(self) -> int: ...
    @property
    def done(self) -> int: ...
    @property
    def firings(self) -> int: ...


class BankCounts(Protocol):
    """What the report reads of the banks of one memory channel (`dataflow.sim.result`)."""

    @property
    def row_hits(self) -> int: ...
    @property
    def row_misses(self) -> int: ...
    @property
    def row_conflicts(self) -> int: ...
    @property
    def refreshes(self) -> int: ...
    @property
    def refresh_cycles(self) -> int: ...


class OffChipTraffic(Protocol):
    """What the report reads of the off-chip totals (`dataflow.sim.result`)."""

    @property
    def read_bytes(self) -> int: ...
    @property
    def write_bytes(self) -> int: ...
    @property
    def useful_bytes(self) -> int: ...
    @property
    def requests(self) -> int: ...
    @property
    def channels(self) -> Sequence[BankCounts]: ...


class RunResult(Protocol):
    """What the report reads of a simulation's result (`dataflow.sim.result`)."""

    @property
    def cycles(self) -> int: ...
    @property
    def accounts(self) -> Mapping[str, UnitAccount]: ...
    @property
    def channel_peaks(self) -> Mapping[str, int]: ...
    @property
    def off_chip(self) -> OffChipTraffic: ...
    @property
    def firings(self) -> int: ...
    @property
    def wall_seconds(self) -> float: ...
    @property
    def complete(self) -> bool: ...
    @property
    def chain(self) -> Chain | None: ...


class BoundParts(Protocol):
    """What the report reads of a bound (`mapping.bounds`)."""

    @property
    def cycles(self) -> int: ...
    @property
    def by(self) -> str: ...
    @property
    def parts(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class UnitRow:
    """One unit's cycles; their sum is the run's."""

    name: str
    kind: str
    cells: int
    firings: int
    busy: int
    stalls: Mapping[str, int]


@dataclass(frozen=True)
class BufferRow:
    """Channels or scratchpads between two nodes: where data waits, how much fits, and why.

    Copies of an unrolled node have one each: `depth` and `peak` are of the fullest of the `copies`,
    `bytes` of all of them together. `peak` counts a scratchpad's whole tiles, and is None for one
    without a tile to hand over: a running state, or the store of a deep FIFO, which has a row of
    its own. `ordinary` ones are FIFOs no deeper than the machine's own.
    """

    name: str
    place: str
    copies: int
    depth: int
    peak: int | None
    bytes: int | None
    because: str
    ordinary: bool = False


@dataclass(frozen=True)
class BankRow:
    """What the banks of one memory channel did; `bytes` are those of all its bursts."""

    row_hits: int
    row_misses: int
    row_conflicts: int
    refreshes: int
    refresh_cycles: int
    bytes: int

    @property
    def bursts(self) -> int:
        """Bursts moved."""
        return self.row_hits + self.row_misses + self.row_conflicts


@dataclass(frozen=True)
class Report:
    """The figures of one run. Cycles are of the machine's clock; bytes are off-chip bursts."""

    kernel: str
    sizes: Mapping[str, int]
    options: Mapping[str, Any]
    rewrites: Sequence[str]
    machine: str
    machine_hash: str
    clock_hz: float
    engine: str
    complete: bool
    cycles: int
    bound: BoundParts
    mapping_bound: BoundParts
    compute_cells: int
    compute_units: int
    memory_cells: int
    memory_units: int
    generators: int
    generators_there: int
    units: Sequence[UnitRow]
    buffers: Sequence[BufferRow]
    read_bytes: int
    written_bytes: int
    useful_bytes: int
    peak_bytes_per_s: float
    firings: int
    wall_seconds: float
    check: Check | None
    unchecked_because: str = ""
    banks: Sequence[BankRow] = ()
    chain: Chain | None = None
    untraced_because: str = ""
    mapping_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """The run's time on the machine."""
        return self.cycles / self.clock_hz

    @property
    def distance(self) -> float:
        """Cycles as a multiple of the bound."""
        return self.cycles / self.bound.cycles if self.bound.cycles else math.inf

    @property
    def utilisation(self) -> float:
        """Share of the machine's compute-unit cycles in which one was busy."""
        busy = sum(unit.busy * unit.cells for unit in self.units if unit.kind == "compute")
        return busy / (self.compute_units * self.cycles) if self.cycles else 0.0

    @property
    def bytes_per_s(self) -> float:
        """Off-chip bytes moved, both ways, a second."""
        return (self.read_bytes + self.written_bytes) / self.seconds if self.cycles else 0.0

    @property
    def banks_bytes_per_s(self) -> tuple[float, ...]:
        """Bytes that each memory channel moved a second, where its banks are described."""
        return tuple(row.bytes / self.seconds if self.cycles else 0.0 for row in self.banks)

    def stalls(self, kinds: Iterable[str] | None = None) -> dict[str, int]:
        """Unit-cycles lost by class, summed over the units of `kinds` (all of them by default)."""
        chosen = [u for u in self.units if kinds is None or u.kind in kinds]
        return {name: sum(unit.stalls[name] for unit in chosen) for name in STALLS}


def unit_rows(program: Program, result: RunResult) -> tuple[UnitRow, ...]:
    """Return the account of every unit, in the program's order."""
    rows = []
    for unit in program.units:
        account = result.accounts[unit.name]
        stalls = {name: getattr(account, name) for name in STALLS}
        rows.append(
            UnitRow(unit.name, unit.kind, unit.cells, account.firings, account.busy, stalls)
        )
    return tuple(rows)


def buffer_rows(
    program: Program, peaks: Mapping[str, int], reasons: Mapping[str, str]
) -> tuple[BufferRow, ...]:
    """Return the buffers of a program: scratchpads, then FIFOs, the deepest first.

    `peaks` holds the high-water marks of channels by name, `reasons` why a channel between two
    nodes is as deep as it is, by `edge_name`. A FIFO at a scratchpad's own ports is part of it.
    """
    pads: dict[str, list[Scratchpad]] = {}
    fifos: dict[str, list[Channel]] = {}
    for pad in program.scratchpads:
        pads.setdefault(edge_name(pad.name), []).append(pad)
    for channel in program.channels:
        if channel.kind == "data":
            fifos.setdefault(edge_name(channel.name), []).append(channel)
    rows = [_pad_row(name, group, reasons, program, peaks) for name, group in pads.items()]
    rows += [_fifo_row(name, group, peaks, reasons, program) for name, group in fifos.items()]
    return tuple(sorted(rows, key=lambda row: (row.place == "fifo", -row.depth, row.name)))


def _pad_row(
    name: str,
    pads: Sequence[Scratchpad],
    reasons: Mapping[str, str],
    program: Program,
    peaks: Mapping[str, int],
) -> BufferRow:
    depth = max(pad.depth for pad in pads)
    usual = "filled once and kept" if depth == 1 else "one tile fills while another is read"
    size = sum(pad.bytes for pad in pads)
    ends = {(writer, reader) for pad in pads for writer in pad.writers for reader in pad.readers}
    whole = [
        peaks.get(channel.name, 0)
        for channel in program.channels
        if channel.kind == "tile" and (channel.writer, channel.reader) in ends
    ]
    peak = max(whole, default=None)
    return BufferRow(name, "scratchpad", len(pads), depth, peak, size, reasons.get(name) or usual)


def _fifo_row(
    name: str,
    channels: Sequence[Channel],
    peaks: Mapping[str, int],
    reasons: Mapping[str, str],
    program: Program,
) -> BufferRow:
    depth = max(channel.capacity for channel in channels)
    peak = max(peaks.get(channel.name, 0) for channel in channels)
    standard = program.machine.compute.fifo_depth_beats
    usual = "the depth of the machine's FIFOs" if depth == standard else "its beats in flight"
    because = reasons.get(name) or usual
    ordinary = depth <= standard
    return BufferRow(name, "fifo", len(channels), depth, peak, None, because, ordinary)


def edge_name(name: str) -> str:
    """Return the nodes that a channel or scratchpad joins, without copies and value.

    >>> edge_name("c.part@i0,k1 -> c@j1: s")
    'c.part -> c'
    """
    ends = name.partition(": ")[0].split(" -> ")
    return " -> ".join(end.partition("@")[0] for end in ends)


def report(
    program: Program,
    result: RunResult,
    bound: BoundParts,
    mapping_bound: BoundParts,
    *,
    kernel: str,
    sizes: Mapping[str, int],
    options: Mapping[str, Any],
    rewrites: Sequence[str],
    engine: str,
    check: Check | None,
    unchecked_because: str = "",
    untraced_because: str = "",
    mapping_seconds: float = 0.0,
    reasons: Mapping[str, str] | None = None,
) -> Report:
    """Gather the figures of a run of `program` that gave `result`.

    mapping_seconds: what laying the program out took on this computer.
    """
    machine = program.machine
    traffic = result.off_chip
    burst_bytes = machine.off_chip.burst_bytes
    return Report(
        kernel=kernel,
        sizes=dict(sizes),
        options=dict(options),
        rewrites=tuple(rewrites),
        machine=machine.name,
        machine_hash=machine.content_hash,
        clock_hz=machine.clock_hz,
        engine=engine,
        complete=result.complete,
        cycles=result.cycles,
        bound=bound,
        mapping_bound=mapping_bound,
        compute_cells=sum(unit.cells for unit in program.units if unit.kind == "compute"),
        compute_units=machine.grid.compute_units,
        memory_cells=sum(pad.cells for pad in program.scratchpads),
        memory_units=machine.grid.memory_units,
        generators=sum(unit.kind in ("load", "store") for unit in program.units),
        generators_there=machine.generators.count,
        units=unit_rows(program, result),
        buffers=buffer_rows(program, result.channel_peaks, reasons or {}),
        read_bytes=traffic.read_bytes,
        written_bytes=traffic.write_bytes,
        useful_bytes=traffic.useful_bytes,
        peak_bytes_per_s=machine.off_chip.channels * machine.off_chip.peak_bytes_per_s,
        firings=result.firings,
        wall_seconds=result.wall_seconds,
        check=check,
        unchecked_because=unchecked_because,
        banks=tuple(_bank_row(counts, burst_bytes) for counts in traffic.channels),
        chain=result.chain,
        untraced_because=untraced_because,
        mapping_seconds=mapping_seconds,
    )


def _bank_row(counts: BankCounts, burst_bytes: int) -> BankRow:
    row = BankRow(
        counts.row_hits,
        counts.row_misses,
        counts.row_conflicts,
        counts.refreshes,
        counts.refresh_cycles,
        bytes=0,
    )
    return replace(row, bytes=row.bursts * burst_bytes)
