"""What a spatial machine is: a grid of compute and memory units, a network, off-chip memory.

Attributes are plain numbers in base units, which end their names: `clock_hz`, `capacity_bytes`,
`latency_cycles`. In a file the key lacks that ending and the value carries its unit
(`latency: 6 cycles`). From Python give either the attribute name with a number or the key with
a text. All types are frozen; `machine.model_copy(update={...})` makes a variant (unchecked).
"""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, ValidatorFunctionWrapHandler, field_validator

from hwspecs.dram import Dram, by_name, resolve
from hwspecs.errors import GIVEN, RuleError
from hwspecs.network import Network
from hwspecs.spec import (
    Beats,
    Bytes,
    BytesPerSecond,
    Count,
    Cycles,
    Hertz,
    Name,
    Side,
    Spec,
    Stages,
    Text,
    Width,
    power_of_two,
)

DataType = Literal["fp32", "bf16", "fp16", "fp8_e4m3"]
Dataflow = Literal["weight", "input", "output"]
Banking = Literal["padded", "strided", "blocked", "duplicated"]
DATA_BYTES: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8_e4m3": 1}

PatternRow = Annotated[str, Field(strict=True, pattern=r"^[CM]{1,512}$")]


class Grid(Spec):
    """Where compute and memory units stand: a small pattern repeated over rows and columns."""

    rows: Side
    columns: Side
    pattern: Annotated[tuple[PatternRow, ...], Field(min_length=1, max_length=512)] = ("CM", "MC")
    """Rows of letters, C compute and M memory, repeating in both directions from the top left;
    [CM, MC] is a checkerboard with compute where row + column is even."""
    compute_units: Count = Field(default_factory=lambda data: _count(data, "C"))
    """Compute units, where fewer than the pattern has; the last sites then stay empty."""
    memory_units: Count = Field(default_factory=lambda data: _count(data, "M"))
    """Memory units, where fewer than the pattern has; the last sites then stay empty."""

    @field_validator("pattern", mode="after")
    @classmethod
    def _check_pattern(cls, pattern: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        if len({len(row) for row in pattern}) > 1:
            raise RuleError("rows of equal length")
        rows, columns = info.data.get("rows"), info.data.get("columns")
        if rows is None or columns is None:
            return pattern
        if len(pattern) > rows or len(pattern[0]) > columns:
            raise RuleError(f"no larger than the grid, {rows} rows of {columns}")
        for letter, kind in (("C", "compute"), ("M", "memory")):
            if not _sites(rows, columns, pattern, letter):
                raise RuleError(f"a pattern with {kind} units ({letter})")
        return pattern

    @field_validator("compute_units", "memory_units", mode="after")
    @classmethod
    def _check_units(cls, units_wanted: int, info: ValidationInfo) -> int:
        if not {"rows", "columns", "pattern"} <= info.data.keys():
            return units_wanted
        most = _count(info.data, "C" if info.field_name == "compute_units" else "M")
        if units_wanted > most:
            raise RuleError(f"at most the pattern's {most}", "enlarge the grid or the pattern")
        return units_wanted

    def sites(self, kind: Literal["compute", "memory"]) -> tuple[tuple[int, int], ...]:
        """(row, column) of every unit of `kind`, in row-major order.

        Raises ValueError for another kind.
        """
        if kind not in ("compute", "memory"):
            raise ValueError(f"Grid.sites: kind must be compute or memory, got {kind!r}")
        letter, count = ("C", self.compute_units) if kind == "compute" else ("M", self.memory_units)
        return _sites(self.rows, self.columns, self.pattern, letter)[:count]


@lru_cache(maxsize=32)
def _sites(
    rows: int, columns: int, pattern: tuple[str, ...], letter: str
) -> tuple[tuple[int, int], ...]:
    height, width = len(pattern), len(pattern[0])
    return tuple(
        (row, column)
        for row in range(rows)
        for column in range(columns)
        if pattern[row % height][column % width] == letter
    )


def _count(data: dict[str, Any], letter: str) -> int:
    if not {"rows", "columns", "pattern"} <= data.keys():
        return 1  # A fault is reported already; this only lets the other fields be checked.
    return len(_sites(data["rows"], data["columns"], data["pattern"], letter))


class Operation(Spec):
    """What one operation costs in a compute unit where it is not one stage at full rate."""

    stages: Count = 1
    """Pipeline stages that it takes."""
    ii_cycles: Cycles = 1
    """Initiation interval: cycles between two firings of a unit that runs it."""


class Systolic(Spec):
    """The systolic mode of a compute unit: an array of multiply-accumulate cells.

    `mapping/systolic.py` has the rule of time of each dataflow.
    """

    rows: Width
    columns: Width
    units: Count | None = None
    """Compute units that have the mode, the first of the grid; all where not given."""
    dataflow: Dataflow
    """Which operand stays in the cells unless a schedule says otherwise: the second (weight) or the
    first (input) of an einsum, or its result (output)."""
    folds: Literal["serial", "overlapped"] = "serial"
    """serial: a fold begins once the one before has left the array. overlapped: cells have a second
    register, so that a fold follows as soon as its operands and the one before allow."""
    overhead_cycles: Cycles = 0
    """Cycles of control between serial folds, beyond fill, stream and drain; none if not given."""

    @field_validator("overhead_cycles", mode="after")
    @classmethod
    def _check_overhead(cls, overhead: int, info: ValidationInfo) -> int:
        if info.data.get("folds") == "overlapped":
            raise RuleError("left out where folds are overlapped", "it stands between serial folds")
        return overhead


class Compute(Spec):
    """A compute unit: `lanes` wide, `stages` deep, one operation a stage and lane each cycle."""

    lanes: Width
    stages: Width
    packing: Width = 1
    """Multiplications of the stored data type that one lane does at once."""
    registers: Count
    """Registers a stage and lane."""
    vector_in: Count
    vector_out: Count
    scalar_in: Count
    scalar_out: Count
    fifo_depth_beats: Beats
    """Depth of each input FIFO; beats in flight count towards it."""
    latency_cycles: Cycles
    """Cycles from firing to result, however many stages and lanes are used."""
    reduction_stages: Stages = Field(
        default_factory=lambda data: int(data.get("lanes", 1)).bit_length() - 1
    )
    """Stages that a reduction over all lanes takes; log2(lanes) where not given."""
    accumulate_latency_cycles: Cycles = 1
    """Cycles between two touches of one accumulator register inside the unit."""
    operations: Annotated[dict[Name, Operation], Field(max_length=256)] = Field(
        default_factory=dict
    )
    """Operations that take more than one stage or cannot start every cycle."""
    systolic: Systolic | None = None
    """The systolic mode that units have beside the SIMD one, if any."""

    @field_validator("lanes", mode="after")
    @classmethod
    def _check_lanes(cls, lanes: int) -> int:
        return power_of_two(lanes)

    @field_validator("operations", mode="after")
    @classmethod
    def _check_operations(
        cls, operations: dict[str, Operation], info: ValidationInfo
    ) -> dict[str, Operation]:
        stages = info.data.get("stages")
        long = [name for name, row in operations.items() if stages and row.stages > stages]
        if long:
            raise RuleError(f"operations of at most the unit's {stages} stages", f"see {long[0]}")
        return operations

    @field_validator("systolic", mode="after")
    @classmethod
    def _check_systolic(cls, systolic: Systolic | None, info: ValidationInfo) -> Systolic | None:
        lanes = info.data.get("lanes")
        if systolic and lanes and max(systolic.rows, systolic.columns) > lanes:
            side = max(systolic.rows, systolic.columns)
            rule = f"an array of at most {lanes} rows and columns, the lanes that feed it"
            raise RuleError(rule, f"give the unit {1 << (side - 1).bit_length()} lanes")
        return systolic

    def operation(self, name: str) -> Operation:
        """Stages and II of the operation `name`: the machine's own row, or one stage, II 1."""
        return self.operations.get(name, Operation())


class Memory(Spec):
    """A memory unit: a banked scratchpad."""

    capacity_bytes: Bytes
    banks: Count
    banking: Banking | None = None
    """How tiles lie in the banks unless a schedule says otherwise; padded if not given.
    `mapping/banks.py` says what each costs."""
    vector_in: Count
    """Beats a cycle that it can take in."""
    vector_out: Count
    """Beats a cycle that it can put out."""
    fifo_depth_beats: Beats
    write_to_token_cycles: Cycles
    """From the last write of a tile to the token that lets its reader start."""
    read_cycles: Cycles

    @field_validator("banks", mode="after")
    @classmethod
    def _check_banks(cls, banks: int, info: ValidationInfo) -> int:
        power_of_two(banks)
        if info.data.get("capacity_bytes", 0) % banks:
            raise RuleError(f"a divisor of the capacity, {info.data['capacity_bytes']} B")
        return banks


class Generators(Spec):
    """Address generators, which stream between the grid and off-chip memory."""

    count: Count
    latency_cycles: Cycles
    outstanding_requests: Count
    """Requests that each generator may have in flight."""
    outstanding_writes: Count | None = None
    """Bursts that a store may have in flight, as many as `outstanding_requests` if not given: a
    write needs no place for its data to come back to."""

    def in_flight(self, writes: bool) -> int:
        """Bursts that a load, or a store, may have in flight."""
        return (writes and self.outstanding_writes) or self.outstanding_requests


def _given_or_drams() -> Any:
    """A field that may be left out where the memory's dram says it."""
    return Field(default_factory=lambda: None, validate_default=True)


class OffChip(Spec):
    """Off-chip memory; rates are those of one channel.

    Without `dram` each channel moves bursts at the effective rates, whatever their addresses; with
    it banks, rows and refresh decide, and the four numbers that follow from it are left out.
    """

    standard: Text
    """What it is, such as DDR3-1600."""
    channels: Count
    dram: Dram | None = Field(default=None, json_schema_extra=by_name)
    """Banks, rows and timing, or the name of a preset; all bursts cost the same without."""
    peak_bytes_per_s: BytesPerSecond = _given_or_drams()
    """Rate of the pins; bounds use this one."""
    read_bytes_per_s: BytesPerSecond = _given_or_drams()
    """Rate that reads reach; with a dram only an estimate for mappings."""
    write_bytes_per_s: BytesPerSecond = _given_or_drams()
    """Rate that writes reach; with a dram only an estimate for mappings."""
    latency_cycles: Cycles
    """From a burst's last byte at the pins to the data, or acknowledgement, at its generator."""
    burst_bytes: Bytes = _given_or_drams()
    interleave_bytes: Bytes
    """Consecutive bytes on one channel before the next channel follows."""
    capacity_bytes: Bytes

    @field_validator("dram", mode="before")
    @classmethod
    def _fill_dram(cls, value: Any) -> Any:
        return resolve(value)

    @field_validator(
        "peak_bytes_per_s", "read_bytes_per_s", "write_bytes_per_s", "burst_bytes", mode="wrap"
    )
    @classmethod
    def _take_from_dram(
        cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> Any:
        dram = info.data.get("dram")
        drams = getattr(dram, str(info.field_name), 1)  # a faulty dram has a fault of its own
        if value is None and "dram" in info.data and dram is None:
            raise RuleError(GIVEN)
        if value is None:
            return drams
        given = handler(value)
        if dram is not None and given != drams:
            raise RuleError("left out where a dram is given", f"the dram makes it {drams:g}")
        return given

    @field_validator("read_bytes_per_s", "write_bytes_per_s", mode="after")
    @classmethod
    def _check_rate(cls, rate: float, info: ValidationInfo) -> float:
        peak = info.data.get("peak_bytes_per_s")
        if peak is not None and rate > peak:
            raise RuleError(f"at most the peak rate, {peak / 1e9:g} GB/s")
        return rate

    @field_validator("burst_bytes", "interleave_bytes", mode="after")
    @classmethod
    def _check_block(cls, block: int, info: ValidationInfo) -> int:
        burst = info.data.get("burst_bytes", 1)
        power_of_two(block)
        if block < burst:
            raise RuleError(f"at least one burst, {burst} B")
        return block

    def faster(self, factor: float) -> OffChip:
        """Return the memory with pins `factor` times as fast; rows open and close as before."""
        rates = ("peak_bytes_per_s", "read_bytes_per_s", "write_bytes_per_s")
        if self.dram is None:
            return self.model_copy(update={name: getattr(self, name) * factor for name in rates})
        dram = self.dram.faster(factor)
        update = {name: getattr(dram, name) for name in rates}
        return self.model_copy(update={"dram": dram, **update})


class Machine(Spec):
    """A spatial accelerator; every number the simulator and the mapper use is in here."""

    name: Name
    summary: Text
    family: Literal["spatial"]
    clock_hz: Hertz
    word_bytes: Annotated[Bytes, Field(le=64)]
    """Bytes of one lane's word."""
    data_type: DataType
    """Type of stored words and operands."""
    accumulate_type: DataType
    """Type that sums are kept in."""
    grid: Grid
    compute: Compute
    memory: Memory
    network: Network
    generators: Generators
    off_chip: OffChip

    @field_validator("word_bytes", mode="after")
    @classmethod
    def _check_word(cls, word: int) -> int:
        return power_of_two(word)

    @field_validator("data_type", mode="after")
    @classmethod
    def _check_data_type(cls, data_type: str, info: ValidationInfo) -> str:
        word = info.data.get("word_bytes")
        if word is not None and DATA_BYTES[data_type] > word:
            raise RuleError(f"a type that fits a word of {word} B")
        return data_type

    @field_validator("accumulate_type", mode="after")
    @classmethod
    def _check_accumulate_type(cls, accumulate_type: str, info: ValidationInfo) -> str:
        data_type = info.data.get("data_type")
        if data_type is not None and DATA_BYTES[accumulate_type] < DATA_BYTES[data_type]:
            raise RuleError(f"a type at least as wide as the data type, {data_type}")
        return accumulate_type

    @field_validator("memory", mode="after")
    @classmethod
    def _check_bank_count(cls, memory: Memory, info: ValidationInfo) -> Memory:
        # Lanes of one beat then need meet no bank twice.
        compute = info.data.get("compute")
        if compute is not None and memory.banks < compute.lanes:
            lanes = compute.lanes
            raise RuleError(
                f"scratchpads of at least {lanes} banks, one a lane", f"see {lanes} lanes"
            )
        return memory

    @field_validator("compute", mode="after")
    @classmethod
    def _check_packing(cls, compute: Compute, info: ValidationInfo) -> Compute:
        word, data_type = info.data.get("word_bytes"), info.data.get("data_type")
        if word is None or data_type is None:
            return compute
        if compute.packing * DATA_BYTES[data_type] > word:
            most = word // DATA_BYTES[data_type]
            rule = f"a unit whose packing is at most {most} ({data_type} in a word of {word} B)"
            raise RuleError(rule, f"packing is {compute.packing}")
        return compute

    @field_validator("compute", mode="after")
    @classmethod
    def _check_arrays(cls, compute: Compute, info: ValidationInfo) -> Compute:
        grid = info.data.get("grid")
        wanted = compute.systolic.units if compute.systolic else None
        if grid is not None and wanted and wanted > grid.compute_units:
            rule = f"a systolic mode in at most the grid's {grid.compute_units} compute units"
            raise RuleError(rule, f"units is {wanted}")
        return compute

    @property
    def arrays(self) -> int:
        """Compute units that have the systolic mode."""
        systolic = self.compute.systolic
        if systolic is None:
            return 0
        return systolic.units or self.grid.compute_units

    @property
    def peak_ops_per_cycle(self) -> int:
        """Operations a cycle with every stage of every lane busy (packing not counted)."""
        return self.grid.compute_units * self.compute.lanes * self.compute.stages

    @property
    def off_chip_peak_bytes_per_cycle(self) -> float:
        """Bytes a cycle over all off-chip channels at their peak rate."""
        return self.off_chip.channels * self.off_chip.peak_bytes_per_s / self.clock_hz

    def off_chip_access_cycles(self, writes: bool) -> int:
        """Cycles that pass at least from a request at the memory to its data or acknowledgement."""
        chip, dram = self.off_chip, self.off_chip.dram
        if dram is None:
            return chip.latency_cycles
        pins = (dram.cwl_ps if writes else dram.cl_ps) + dram.burst_ps
        return chip.latency_cycles + math.floor(pins * Fraction(self.clock_hz) / 10**12)

    @property
    def content_hash(self) -> str:
        """12 hex digits that change with any value but not with comments, layout or units' form."""
        content = self.model_dump(mode="json", exclude_none=True)
        canonical = json.dumps(content, sort_keys=True, allow_nan=False)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    def __hash__(self) -> int:
        return hash(self.content_hash)
