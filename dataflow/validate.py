"""Published cycle counts beside ours: reads the list of cases and compares.

A list is a CSV file with a header. Columns: `case` (a name), `kernel`, `sizes` (`i=128 j=128`),
`tile`, `unroll`, `vector` (settings alike, or `-`), `reference_cycles`, and where they are known
`reference_pcus` and `reference_pmus`; further columns are not read. docs/validation.md says what
the columns mean.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from dataflow.errors import FaultsError, did_you_mean
from dataflow.kernels import KERNELS
from dataflow.schedule import MOST

COLUMNS = ("case", "kernel", "sizes", "tile", "unroll", "vector", "reference_cycles")
UNITS = ("reference_pcus", "reference_pmus")
"""Columns that may be left out, or be empty: virtual compute and memory units."""
MAX_BYTES = 2**20


class CaseError(FaultsError):
    """A list of cases with faults; each has its file, line and column name."""


@dataclass(frozen=True)
class Case:
    """One row: a kernel, how it was scheduled, and its published cycles.

    `vector` maps an axis, or a loop of the kernel and `axis` as "loop:axis", to its lanes.
    """

    name: str
    kernel: str
    sizes: Mapping[str, int]
    tile: Mapping[str, int]
    unroll: Mapping[str, int]
    vector: Mapping[str, int]
    reference_cycles: int
    where: str
    reference_pcus: int | None = None
    reference_pmus: int | None = None


@dataclass(frozen=True)
class Measured:
    """What a mapping took of its machine: cycles, compute units (PCU) and memory units (PMU)."""

    cycles: int
    pcus: int
    pmus: int


@dataclass(frozen=True)
class Comparison:
    """A case beside what ours took; `error` is cycles / reference - 1.

    The published units are None where the list does not give them.
    """

    case: str
    reference_cycles: int
    cycles: int
    pcus: int | None = None
    pmus: int | None = None
    reference_pcus: int | None = None
    reference_pmus: int | None = None

    @classmethod
    def of(cls, case: Case, ours: Measured) -> Comparison:
        """Return the case beside what its mapping took."""
        published = (case.reference_pcus, case.reference_pmus)
        return cls(case.name, case.reference_cycles, ours.cycles, ours.pcus, ours.pmus, *published)

    @property
    def error(self) -> float:
        """The relative error with its sign."""
        return self.cycles / self.reference_cycles - 1


def published() -> Path:
    """Return the list that comes with the package: the 20 x 20 machine's published counts."""
    return Path(str(files("dataflow") / "published" / "tungsten.csv"))


def read_cases(path: Path) -> tuple[Case, ...]:
    """Return the cases of a CSV file; CaseError with every fault, each with row and column."""
    text = _read_text(path)
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        reader.fieldnames = header = [name.strip() for name in reader.fieldnames or ()]
        faults = _header_faults(f"{path}:1", header)
        if faults:
            raise CaseError(faults)
        cases: list[Case] = []
        for row in reader:
            cases += _case(row, f"{path}:{reader.line_num}", faults)
    except csv.Error as error:
        line = max(reader.line_num, 1)  # the reader counts a line once it has ended
        raise CaseError(f"{path}:{line}: it must be CSV, got: {error}") from error
    names = [case.name for case in cases]
    for case in cases:
        if names.count(case.name) > 1:
            faults.append(f"{case.where}: case must be a name of its own, got {case.name!r} twice")
    if not (cases or faults):
        faults.append(f"{path}:2: there must be at least one case, got none")
    if faults:
        raise CaseError(faults)
    return tuple(cases)


def _header_faults(where: str, header: list[str]) -> list[str]:
    if not any(header):
        return [f"{where}: it must name the columns {', '.join(COLUMNS)}, got an empty line"]
    faults = [
        f"{where}: column {name} must be given, got none; {did_you_mean(name, header)}"
        for name in COLUMNS
        if name not in header
    ]
    for name in dict.fromkeys(name for name in header if name in (*COLUMNS, *UNITS)):
        if header.count(name) > 1:
            faults.append(f"{where}: column {name} must be given once, got {header.count(name)}")
    return faults


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise CaseError(f"{path}: it must be at most {MAX_BYTES} bytes, got more")
        return raw.decode("utf-8-sig")
    except OSError as error:
        raise CaseError(f"{path}: it must be readable, got: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CaseError(f"{path}: it must be UTF-8 text, got byte at {error.start}") from error


def _case(row: Mapping[str | None, Any], where: str, faults: list[str]) -> list[Case]:
    """Return the case of a row, or none after adding what is wrong with it to `faults`."""
    before = len(faults)
    if None in row or any(row[name] is None for name in COLUMNS):
        count = sum(value is not None for key, value in row.items() if key is not None)
        extra = len(row.get(None) or ())
        rule = f"must be {sum(key is not None for key in row)}"
        faults.append(f"{where}: columns {rule}, got {count + extra}")
        return []
    cell = {name: str(row[name]).strip() for name in COLUMNS}
    if not cell["case"]:
        faults.append(f"{where}: case must be a name, got ''")
    if cell["kernel"] not in KERNELS:
        hint = did_you_mean(cell["kernel"], KERNELS)
        faults.append(f"{where}: kernel must be of the library, got {cell['kernel']!r}; {hint}")
    counts = {
        column: _counts(cell[column], f"{where}: {column}", faults)
        for column in ("sizes", "tile", "unroll", "vector")
    }
    cycles = cell["reference_cycles"]
    if not _is_count(cycles):
        faults.append(f"{where}: reference_cycles must be a whole number >= 1, got {cycles!r}")
    pcus, pmus = (_units(row, name, where, faults) for name in UNITS)
    if len(faults) > before:
        return []
    return [
        Case(
            cell["case"],
            cell["kernel"],
            **counts,
            reference_cycles=int(cycles),
            where=where,
            reference_pcus=pcus,
            reference_pmus=pmus,
        )
    ]


def _units(row: Mapping[str | None, Any], name: str, where: str, faults: list[str]) -> int | None:
    """Return how many units a row gives, None where it gives none."""
    text = str(row.get(name) or "").strip()
    if text in ("", "-"):
        return None
    if text != "0" and not _is_count(text):
        faults.append(f"{where}: {name} must be a whole number >= 0, or empty, got {text!r}")
        return None
    return int(text)


def _counts(text: str, where: str, faults: list[str]) -> dict[str, int]:
    """Return what `i=64 j=64` means; a word that ends with a colon goes before what follows it.

    `compute:j=16 load:1` means {"compute:j": 16, "load": 1}.
    """
    found: dict[str, int] = {}
    for part in text.split() if text != "-" else []:
        name, mark, count = part.partition("=") if "=" in part else part.partition(":")
        if not (name and mark and _is_count(count)):
            faults.append(f"{where} must hold name=count, count >= 1, got {part!r}")
        elif int(count) > MOST:
            faults.append(f"{where} must hold counts of at most {MOST}, got {part!r}")
        elif name in found:
            faults.append(f"{where} must name {name} once, got it twice")
        else:
            found[name] = int(count)
    return found


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16 and int(text) >= 1


def mean_abs_error(rows: Sequence[Comparison]) -> float:
    """Return the mean of the errors without their signs."""
    return float(np.mean([abs(row.error) for row in rows]))


def worst_abs_error(rows: Sequence[Comparison]) -> float:
    """Return the largest error without its sign."""
    return max(abs(row.error) for row in rows)


def rank_correlation(rows: Sequence[Comparison]) -> float | None:
    """Return Spearman's rank correlation of our cycles with the published ones.

    Equal values share the mean of their ranks. None where it has no meaning: fewer than two cases,
    or all equal on one side.
    """
    ours = _ranks([row.cycles for row in rows])
    theirs = _ranks([row.reference_cycles for row in rows])
    a, b = ours - ours.mean(), theirs - theirs.mean()
    scale = math.sqrt(float((a @ a) * (b @ b)))
    return float(a @ b) / scale if scale else None


def units_apart(counts: Iterable[tuple[int | None, int | None]]) -> list[int]:
    """Return by how much (ours, published) counts of units differ, where both are known.

    >>> units_apart([(5, 4), (3, None), (2, 2)])
    [1, 0]
    """
    known = ((ours, theirs) for ours, theirs in counts if ours is not None and theirs is not None)
    return [ours - theirs for ours, theirs in known]


def _ranks(values: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
    array = np.asarray(values)
    below = (array[:, None] > array[None, :]).sum(axis=1)
    equal = (array[:, None] == array[None, :]).sum(axis=1)
    return below + (equal - 1) / 2.0


def as_json(rows: Sequence[Comparison]) -> dict[str, Any]:
    """Return the JSON object that `tileloom validate --json` prints."""
    return {
        "cases": [
            {
                "case": row.case,
                "reference_cycles": row.reference_cycles,
                "cycles": row.cycles,
                "error": row.error,
                "reference_pcus": row.reference_pcus,
                "pcus": row.pcus,
                "reference_pmus": row.reference_pmus,
                "pmus": row.pmus,
            }
            for row in rows
        ],
        "mean_abs_error": mean_abs_error(rows),
        "worst_abs_error": worst_abs_error(rows),
        "rank_correlation": rank_correlation(rows),
    }
