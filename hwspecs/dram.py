"""The timing of DRAM: banks with rows, bursts and the times a standard puts between commands.

All numbers are those of one channel of `OffChip` (a DIMM's 64 bits, or a pseudo-channel of HBM).
Names are the standard's own (JESD79-3 for DDR3, JESD79-4 for DDR4, JESD235 for HBM2, JESD238 for
HBM3), times are whole picoseconds, so that nothing is rounded on the way to a machine's clock.
`dataflow/sim/dram.py` says how they are used.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from hwspecs.errors import RuleError
from hwspecs.located_yaml import read
from hwspecs.spec import Bytes, Picoseconds, Spec, Width, power_of_two
from hwspecs.validate import did_you_mean

PRESETS = Path(__file__).parent / "presets" / "dram.yaml"

Part = Literal["group", "column", "bank"]


def _partial(schema: dict[str, Any]) -> None:
    """In a file a preset's name may stand for all that is not given beside it."""
    schema.pop("required", None)
    schema["properties"] = {"preset": {"enum": list(presets())}, **schema["properties"]}


def by_name(schema: dict[str, Any]) -> None:
    """Let a preset's name stand for a whole Dram in the schema of a field."""
    schema["anyOf"].insert(1, {"type": "string", "enum": list(presets())})


class Dram(Spec):
    """One channel's banks and bus, and the least times between its commands."""

    model_config = ConfigDict(json_schema_extra=_partial)

    width_bytes: Bytes
    """Bytes of one transfer over the data pins."""
    burst_length: Width
    """Transfers of one burst."""
    bank_groups: Width
    banks: Width
    """Banks of one group."""
    row_bytes: Bytes
    """Bytes of an open row."""
    map: tuple[Part, ...] = ("group", "column", "bank")
    """Which part of a burst's number within its channel counts fastest, which next, which last;
    what lies above them is the row."""
    tck_ps: Picoseconds
    """The clock of commands."""
    clock_transfers: Width = 2
    """Transfers a clock over the data pins; two at double data rate."""
    cl_ps: Picoseconds
    """From a read to its first data."""
    cwl_ps: Picoseconds
    """From a write to its first data."""
    trcd_ps: Picoseconds
    """From opening a row to its first read or write."""
    trp_ps: Picoseconds
    """From closing a row to opening another."""
    tras_ps: Picoseconds
    """From opening a row to closing it."""
    trc_ps: Picoseconds
    """Between two openings in one bank."""
    tccd_s_ps: Picoseconds
    """Between reads or writes of different bank groups."""
    tccd_l_ps: Picoseconds
    """The same in one bank group."""
    trrd_s_ps: Picoseconds
    """Between openings in different bank groups."""
    trrd_l_ps: Picoseconds
    """The same in one bank group."""
    tfaw_ps: Picoseconds
    """The window that holds at most four openings."""
    trtp_ps: Picoseconds
    """From a read to closing its row."""
    twr_ps: Picoseconds
    """From a write's last data to closing its row."""
    twtr_s_ps: Picoseconds
    """From a write's last data to a read of another bank group."""
    twtr_l_ps: Picoseconds
    """The same in one bank group."""
    trfc_ps: Picoseconds
    """How long a refresh of all banks takes."""
    trefi_ps: Picoseconds
    """Between two refreshes."""

    @field_validator(
        "width_bytes", "burst_length", "bank_groups", "banks", "clock_transfers", mode="after"
    )
    @classmethod
    def _check_power(cls, value: int) -> int:
        return power_of_two(value)

    @field_validator("row_bytes", mode="after")
    @classmethod
    def _check_row(cls, row_bytes: int, info: ValidationInfo) -> int:
        burst = info.data.get("width_bytes", 1) * info.data.get("burst_length", 1)
        if row_bytes < burst:
            raise RuleError(f"at least one burst, {burst} B")
        return power_of_two(row_bytes)

    @field_validator("map", mode="after")
    @classmethod
    def _check_map(cls, map: tuple[Part, ...]) -> tuple[Part, ...]:
        if sorted(map) != ["bank", "column", "group"]:
            raise RuleError("group, column and bank, each once")
        return map

    @field_validator("tccd_s_ps", mode="after")
    @classmethod
    def _check_bus(cls, tccd_s: int, info: ValidationInfo) -> int:
        # The bus would hold two bursts at once, and carry more than its pins can.
        if {"tck_ps", "burst_length", "clock_transfers"} <= info.data.keys():
            burst = info.data["tck_ps"] * info.data["burst_length"]
            if tccd_s * info.data["clock_transfers"] < burst:
                burst_ns = burst / info.data["clock_transfers"] / 1000
                raise RuleError(f"at least a burst's time on the bus, {burst_ns:g} ns")
        return tccd_s

    @field_validator(
        "tccd_l_ps", "trrd_l_ps", "twtr_l_ps", "tras_ps", "trc_ps", "trefi_ps", mode="after"
    )
    @classmethod
    def _check_longer(cls, time: int, info: ValidationInfo) -> int:
        name = str(info.field_name)
        others = {"tras_ps": "trcd_ps", "trc_ps": "tras_ps", "trefi_ps": "trfc_ps"}
        shorter = others.get(name, name.replace("_l_", "_s_"))
        least = info.data.get(shorter, 0)
        # Rows must be closed before a refresh, and one opened after it.
        least += info.data.get("trc_ps", 0) if name == "trefi_ps" else 0
        if time < least:
            what = shorter.removesuffix("_ps") + (" and trc together" if name == "trefi_ps" else "")
            raise RuleError(f"at least {what}, {least / 1000:g} ns")
        return time

    @property
    def burst_bytes(self) -> int:
        """Bytes of one burst."""
        return self.width_bytes * self.burst_length

    @property
    def burst_ps(self) -> Fraction:
        """Time of one burst on the data pins."""
        return Fraction(self.burst_length * self.tck_ps, self.clock_transfers)

    @property
    def peak_bytes_per_s(self) -> float:
        """Rate of the pins."""
        return self.width_bytes * self.clock_transfers * 1e12 / self.tck_ps

    @property
    def read_bytes_per_s(self) -> float:
        """Rate of a stream that finds every row open but for refreshes: an estimate."""
        return self.peak_bytes_per_s * (self.trefi_ps - self.trfc_ps) / self.trefi_ps

    @property
    def write_bytes_per_s(self) -> float:
        """The same as for reads."""
        return self.read_bytes_per_s

    def faster(self, factor: float) -> Dram:
        """Return the same banks behind pins `factor` times as fast, to a picosecond."""
        tck = max(1, round(self.tck_ps / factor))
        times = {"tck_ps": tck}
        for name in ("tccd_s_ps", "tccd_l_ps"):
            times[name] = -(-getattr(self, name) * tck // self.tck_ps)  # as many clocks as before
        return self.model_copy(update=times)

    @property
    def columns(self) -> int:
        """Bursts of a row."""
        return self.row_bytes // self.burst_bytes


class _Presets(BaseModel):
    """The file of presets."""

    model_config = ConfigDict(extra="forbid")

    presets: Annotated[dict[str, dict[str, Any]], Field(max_length=64)]


@lru_cache(maxsize=1)
def presets() -> dict[str, dict[str, Any]]:
    """Return the presets of the package by name, as their file has them."""
    return _Presets.model_validate(read(PRESETS, "presets").content).presets


def resolve(value: Any) -> Any:
    """Return what a file or caller gives for a Dram with a preset's numbers filled in.

    A text is a preset's name; a mapping may name one under `preset`, beside what differs.
    Raises RuleError where there is no such preset.
    """
    if isinstance(value, str):
        return preset(value)
    if isinstance(value, dict) and "preset" in value:
        own = {key: given for key, given in value.items() if key != "preset"}
        base = preset(value["preset"])
        return {key: given for key, given in base.items() if key not in own} | own
    return value


def preset(name: object) -> dict[str, Any]:
    """Return the numbers of a preset; RuleError where there is none of that name."""
    known = presets()
    if not isinstance(name, str) or name not in known:
        raise RuleError(
            f"a mapping of its timing, or a preset: {', '.join(known)}", did_you_mean(name, known)
        )
    return known[name]
