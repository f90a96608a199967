"""Times our kernels beside the best library calls, in one run on one GPU.

Every call is timed by events, the L2 cache flushed before each, on inputs of unit variance; the
figure is the median of many. The physical bound of a case is the larger of its operations at the
matrix rate and of its least bytes at the copy bandwidth, both measured in the same run. Each
case is judged against float64 before it is timed.
"""

from __future__ import annotations

import csv
import datetime
import math
import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from dataflow.errors import FaultsError
from dataflow.request import Request, read_settings, request
from gpu.measure.exact import Verdict, draw, judge
from gpu.measure.known import known_schedule
from gpu.measure.peers import Peer, flops, peers
from gpu.run import Compiled, compile, device_name, torch_type, versions
from gpu.schedule import PRECISIONS, GpuSchedule

NEEDED = ("case", "kernel", "settings", "precision")
FLUSH_BYTES = 256 * 2**20  # several times the L2 cache of any card of today
LEAST_RUNS, MOST_RUNS, BUDGET_MS = 11, 101, 150.0
HEAD_START_CYCLES = 600_000
"""The GPU waits so long (0.3 ms at 2 GHz) before a call that is timed without its launch: the CPU
is then ahead of it by that much."""


class BenchError(FaultsError):
    """A file of cases that cannot be read; each fault has its line."""


@dataclass(frozen=True)
class Case:
    """One line of a file of cases: a kernel at its settings and a precision."""

    case: str
    kernel: str
    settings: str
    precision: str
    rewrite: str = ""

    def request(self) -> Request:
        """The graph and what it was made from."""
        rewrites = [name for name in self.rewrite.split(" ") if name]
        return request(self.kernel, read_settings([self.settings]), rewrites)


@dataclass(frozen=True)
class Timing:
    """Median and spread (10th to 90th of a hundred runs) of one call, in milliseconds.

    gpu_milliseconds: median of the same without the CPU's part, see HEAD_START_CYCLES.
    """

    milliseconds: float
    low: float
    high: float
    gpu_milliseconds: float


@dataclass(frozen=True)
class Ceilings:
    """What the card reached in this run: copy (read and written bytes) and bf16 products."""

    copy_bytes_per_s: float
    matrix_flops_per_s: float


@dataclass(frozen=True)
class Row:
    """One call of one case, as it stands in the file of results.

    emitter: that printed our text. milliseconds: as a user calls it, launches included;
    gpu_milliseconds: without what the CPU takes, of which rates and the share of the bound
    follow. ratio, gpu_ratio: of each, this call's time over ours. error, budget: of our values,
    see `gpu.measure.check`; a case whose error is not within its budget has no time.
    predicted_ms: by the simulator. remark: why a figure is missing.
    """

    case: str
    call: str
    precision: str
    emitter: str = ""
    milliseconds: float = math.nan
    low: float = math.nan
    high: float = math.nan
    gpu_milliseconds: float = math.nan
    tflops: float = math.nan
    gb_per_s: float = math.nan
    of_bound: float = math.nan
    ratio: float = math.nan
    gpu_ratio: float = math.nan
    error: float = math.nan
    budget: float = math.nan
    predicted_ms: float = math.nan
    remark: str = ""


def read_cases(path: Path) -> list[Case]:
    """Read a CSV file with columns case, kernel, settings, precision and perhaps rewrite.

    Raises BenchError with every fault and its line.
    """
    if not path.is_file():
        raise BenchError(f"{path}: file of cases must exist, got none")
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in NEEDED if name not in (reader.fieldnames or ())]
        if missing:
            raise BenchError(
                f"{path}:1: columns must include {', '.join(NEEDED)}, "
                f"got none called {', '.join(missing)}"
            )
        rows = [(f"{path}:{reader.line_num}", row) for row in reader]
    faults = [fault for where, row in rows for fault in _faults(where, row)]
    if faults:
        raise BenchError(faults)
    return [
        Case(r["case"], r["kernel"], r["settings"], r["precision"], r.get("rewrite") or "")
        for _, r in rows
    ]


def _faults(where: str, row: dict[str, str | None]) -> list[str]:
    made = [f"{where}: {n} must be given, got nothing" for n in ("case", "kernel") if not row[n]]
    if row["precision"] not in PRECISIONS:
        known = ", ".join(PRECISIONS)
        made.append(f"{where}: precision must be one of {known}, got {row['precision']!r}")
    return made


def ceilings() -> Ceilings:
    """Measure the copy bandwidth and the rate of bf16 products of this card, now."""
    import torch

    source = torch.randn(2**30, device="cuda", dtype=torch.float32)
    target = torch.empty_like(source)
    copied = time(lambda: target.copy_(source)).gpu_milliseconds
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = time(lambda: a @ b).gpu_milliseconds
    moved = 2 * source.numel() * source.element_size()
    return Ceilings(moved / copied * 1e3, 2 * 8192**3 / product * 1e3)


def time(call: Callable[[], Any]) -> Timing:
    """Return the time of `call` on the GPU, the L2 cache flushed before each run."""
    import torch

    flush = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    first = _many(call, flush, 1, 0)[0]
    runs = int(min(MOST_RUNS, max(LEAST_RUNS, BUDGET_MS / max(first, 1e-3))))
    times = sorted(_many(call, flush, runs, 0))
    tenth = len(times) // 10
    queued = statistics.median(_many(call, flush, runs, HEAD_START_CYCLES))
    return Timing(statistics.median(times), times[tenth], times[-1 - tenth], queued)


def _many(call: Callable[[], Any], flush: Any, runs: int, head_start_cycles: int) -> list[float]:
    import torch

    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(runs)]
    for start, end in events:
        flush.zero_()
        if head_start_cycles:
            torch.cuda._sleep(head_start_cycles)
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]


def bench(
    cases: Iterable[Case],
    limits: Ceilings,
    schedule: Callable[[Request, str], GpuSchedule] | None = None,
    compare: bool = True,
    predict: Callable[[Request], float] | None = None,
) -> Iterator[Row]:
    """Yield the rows of every case: ours first, then those of its peers.

    schedule: of a request at a precision; by default the tuned one, or the default one of the
    faster emitter. predict: the simulator's seconds for a request. A case that cannot run gives
    a row that says why.
    """
    import torch

    choose = schedule or (lambda made, precision: known_schedule(made.graph, precision))
    for case in cases:
        made = case.request()
        emitter = ""
        predicted = predict(made) * 1e3 if predict is not None else math.nan
        try:
            chosen = choose(made, case.precision)
            emitter = chosen.emitter
            compiled = compile(made.graph, chosen, case.precision)
            inputs = draw(made, compiled)
            ours = _ours(case, made, compiled, inputs, limits)
        except Exception as error:  # whatever the compiler or the driver raises is the finding
            yield Row(case.case, "tileloom", case.precision, emitter, remark=_line(error))
            torch.cuda.empty_cache()
            continue
        yield replace(ours, predicted_ms=predicted)
        if compare:
            yield from _peers(case, made, compiled, inputs, limits, ours)
        torch.cuda.empty_cache()


def _ours(
    case: Case, made: Request, compiled: Compiled, inputs: dict[str, Any], limits: Ceilings
) -> Row:
    verdict = judge(made, compiled, inputs, case.precision)
    if verdict is not None and not (verdict.passed and verdict.decisive):
        return Row(
            case.case,
            "tileloom",
            case.precision,
            compiled.schedule.emitter,
            error=verdict.rms_error,
            budget=verdict.budget,
            remark="values beyond their budget",
        )
    ordered = [inputs[tensor.name] for tensor in compiled.plan.inputs]
    timing = time(lambda: compiled.launch(ordered))
    row = _row(case, "tileloom", timing, made, compiled, limits)
    row = replace(row, emitter=compiled.schedule.emitter)
    return replace(row, ratio=1.0, gpu_ratio=1.0, **_judged(verdict))


def _judged(verdict: Verdict | None) -> dict[str, float]:
    return {} if verdict is None else {"error": verdict.rms_error, "budget": verdict.budget}


def _peers(
    case: Case,
    made: Request,
    compiled: Compiled,
    inputs: dict[str, Any],
    limits: Ceilings,
    ours: Row,
) -> Iterator[Row]:
    for peer in peers(made):
        given = {name: _as(tensor, peer) for name, tensor in inputs.items()}
        try:
            timing = time(lambda p=peer, g=given: p.call(g))
        except Exception as error:  # the library does not take this case, and says why
            yield Row(case.case, peer.name, case.precision, remark=_line(error))
            continue
        row = _row(case, peer.name, timing, made, compiled, limits)
        yield replace(
            row,
            ratio=row.milliseconds / ours.milliseconds,
            gpu_ratio=row.gpu_milliseconds / ours.gpu_milliseconds,
        )


def _line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"[
        :200
    ]


def best_ratios(rows: Iterable[Row]) -> dict[str, Row]:
    """The row of the fastest library call of each case, by the GPU's own time."""
    found: dict[str, Row] = {}
    for row in rows:
        if row.call != "tileloom" and not math.isnan(row.gpu_ratio):
            best = found.get(row.case)
            if best is None or row.gpu_ratio < best.gpu_ratio:
                found[row.case] = row
    return found


def write_rows(path: Path, rows: Iterable[Row], limits: Ceilings) -> None:
    """Write results with the date, the card, the versions and the ceilings of the run."""
    found = {**versions(), "device": device_name("gpu")}
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    names = [field.name for field in fields(Row)]
    with path.open("w", newline="") as file:
        about = ", ".join(f"{name} {value}" for name, value in sorted(found.items()))
        file.write(f"# {today}, {about}\n")
        file.write(
            f"# measured in this run: copy {limits.copy_bytes_per_s / 1e12:.2f} TB/s, "
            f"bf16 products {limits.matrix_flops_per_s / 1e12:.0f} TFLOP/s\n"
        )
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow([_cell(getattr(row, name)) for name in names])


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.5g}"
    return value


def _as(tensor: Any, peer: Peer) -> Any:
    return tensor.to(torch_type(peer.type)) if peer.type else tensor


def least_bytes(compiled: Compiled) -> int:
    """Bytes of all inputs and outputs, each moved once."""
    tensors = [*compiled.plan.inputs, *compiled.plan.outputs]
    return sum(math.prod(t.shape) * torch_type(t.type).itemsize for t in tensors)


def _bound_s(made: Request, compiled: Compiled, limits: Ceilings) -> float:
    moving = least_bytes(compiled) / limits.copy_bytes_per_s
    return max(moving, flops(made) / limits.matrix_flops_per_s)


def _row(
    case: Case,
    call: str,
    timing: Timing,
    made: Request,
    compiled: Compiled,
    limits: Ceilings,
) -> Row:
    seconds = timing.gpu_milliseconds / 1e3
    rate = flops(made) / seconds / 1e12
    return Row(
        case.case,
        call,
        case.precision,
        "",
        timing.milliseconds,
        timing.low,
        timing.high,
        timing.gpu_milliseconds,
        rate if rate else math.nan,
        least_bytes(compiled) / seconds / 1e9,
        _bound_s(made, compiled, limits) / seconds,
    )
