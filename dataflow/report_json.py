"""The JSON form of reports, of chains of causes and of checks of values."""

from __future__ import annotations

import math
from typing import Any

from dataflow.chain import Chain
from dataflow.check import Check
from dataflow.report import MODEL_VERSION, Report, UnitRow


def as_json(report: Report) -> dict[str, Any]:
    """Return a report as the JSON object that `tileloom simulate --json` prints."""
    return {
        "kernel": report.kernel,
        "sizes": dict(report.sizes),
        "options": dict(report.options),
        "rewrites": list(report.rewrites),
        "machine": report.machine,
        "machine_hash": report.machine_hash,
        "model_version": MODEL_VERSION,
        "engine": report.engine,
        "complete": report.complete,
        "cycles": report.cycles,
        "seconds": report.seconds,
        "bound_cycles": report.bound.cycles,
        "bound_by": report.bound.by,
        "bound_parts": dict(report.bound.parts),
        "distance": finite(report.distance),
        "mapping_bound_cycles": report.mapping_bound.cycles,
        "mapping_bound_by": report.mapping_bound.by,
        "utilisation": report.utilisation,
        "compute_units": {"used": report.compute_cells, "of": report.compute_units},
        "memory_units": {"used": report.memory_cells, "of": report.memory_units},
        "generators": {"used": report.generators, "of": report.generators_there},
        "stalls": {**report.stalls(), "units": {u.name: dict(u.stalls) for u in report.units}},
        "units": [_unit_json(unit) for unit in report.units],
        "off_chip_bytes": {
            "read": report.read_bytes,
            "written": report.written_bytes,
            "useful": report.useful_bytes,
        },
        "banks": [
            {**vars(row), "bytes_per_s": rate}
            for row, rate in zip(report.banks, report.banks_bytes_per_s, strict=True)
        ],
        "critical": critical_json(report.chain, report.untraced_because),
        "values": values_json(report.check, report.unchecked_because),
        "buffers": [vars(buffer) for buffer in report.buffers],
        "firings": report.firings,
        "wall_seconds": report.wall_seconds,
        "mapping_seconds": report.mapping_seconds,
    }


def critical_json(chain: Chain | None, because: str = "") -> dict[str, Any]:
    """Return the resource that the chain of causes names, and all that the chain was spent on."""
    if chain is None:
        return {"traced": False, "because": because}
    name, parts = chain.critical()
    cycles = sum(part.cycles for part in parts)
    return {
        "traced": True,
        "resource": name,
        "cycles": cycles,
        "share": cycles / chain.cycles if chain.cycles else 0.0,
        "parts": [vars(part) for part in chain.parts()],
    }


def links_json(chain: Chain, count: int) -> list[dict[str, Any]]:
    """Return the last `count` links of a chain, in order of time."""
    return [{**vars(link), "cycles": link.cycles} for link in chain.last(count)]


def _unit_json(unit: UnitRow) -> dict[str, Any]:
    return {
        "unit": unit.name,
        "kind": unit.kind,
        "cells": unit.cells,
        "firings": unit.firings,
        "busy": unit.busy,
        **unit.stalls,
    }


def values_json(check: Check | None, unchecked_because: str = "") -> dict[str, Any]:
    """Return the verdict on the values; errors that are not finite are null."""
    if check is None:
        return {"checked": False, "because": unchecked_because}
    worst = check.worst
    undecided = {} if check.decisive else {"because": check.undecided_because}
    return {
        "checked": check.decisive,
        **undecided,
        "passed": check.passed,
        "max_abs_error": finite(worst.max_abs_error),
        "error_bound": finite(worst.bound),
        "reference": check.reference,
        "outputs": {
            output.name: {
                "max_abs_error": finite(output.max_abs_error),
                "error_bound": finite(output.bound),
                "rms_error": finite(output.rms_error),
                "rms_error_bound": finite(output.rms_bound),
                "rms": finite(output.size),
                "decisive": output.decisive,
                "passed": output.passed,
            }
            for output in check.outputs
        },
    }


def finite(number: float) -> float | None:
    """Return a number that JSON can hold, None for infinities and NaN."""
    return number if math.isfinite(number) else None
