"""Searches schedules for the card at hand, and keeps what it found in readable files.

`gpu.measure.known` keeps the best schedule. `trials/CARD/KEY.yaml` in the cache has every trial,
written as the search goes, so that one that was stopped goes on where it was. Candidates start at
the default schedule and move to neighbours of the best one so far: tiles halved and doubled, other
warps, stages and groups. Those that spill registers or ask for more shared memory than the card has
are dropped by the compiler, before any run; those whose values are wrong are dropped by the check.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dataflow.errors import FaultsError
from dataflow.request import Request
from gpu.defaults.schedule import default_schedule
from gpu.defaults.stacks import without_stacks
from gpu.measure.known import card_name, entries_of, graph_key, keep
from gpu.module import GpuError, cache_folder
from gpu.schedule import GpuSchedule, KernelSchedule
from hwspecs import write

WARPS, MOST_STAGES = (4, 8, 16), 5
GROUPS = (4, 8, 16)

Time = Callable[[GpuSchedule], float]
"""Milliseconds of a schedule. Raises FaultsError where it does not compile, fit or pass."""


@dataclass(frozen=True)
class Trial:
    """A schedule and its time; infinite, with a remark, where it cannot be used."""

    schedule: GpuSchedule
    milliseconds: float
    remark: str = ""


def tune(request: Request, precision: str, trials: int) -> tuple[Trial, Path]:
    """Search on the GPU at hand, and return the best trial and the file that keeps it.

    Raises GpuError where there is no GPU, or where no schedule works.
    """
    from gpu.run import require_gpu

    require_gpu()
    graph = request.graph
    log = cache_folder() / "trials" / card_name() / f"{graph_key(graph, precision)}.yaml"
    best = search(default_schedule(graph, precision), _timer(request, precision), trials, log)
    if math.isinf(best.milliseconds):
        raise GpuError(f"{graph.name}: some schedule must work, got none; the trials: {log}")
    return best, keep(graph, best.schedule, best.milliseconds)


def search(start: GpuSchedule, time: Time, limit: int, log: Path | None = None) -> Trial:
    """Time up to `limit` schedules, and return the fastest.

    From the best so far to its fastest neighbour, until no neighbour is faster. log: the file of
    trials; those in it are not timed again.
    """
    done = _trials(log) if log is not None else {}
    best = _tried(start, time, done, log)
    moved = True
    while moved and len(done) < limit:
        moved = False
        for schedule in neighbours(best.schedule):
            if len(done) >= limit:
                break
            trial = _tried(schedule, time, done, log)
            if trial.milliseconds < best.milliseconds:
                best, moved = trial, True
    return best


def neighbours(schedule: GpuSchedule) -> Iterator[GpuSchedule]:
    """Yield schedules one step away: the other emitter, or one kernel with one field changed."""
    other = "triton" if schedule.emitter == "gluon" else "gluon"
    plain = without_stacks(schedule) if other == "gluon" else schedule
    yield plain.model_copy(update={"emitter": other})
    for place, plan in enumerate(schedule.kernels):
        for other in _moves(plan):
            kernels = (*schedule.kernels[:place], other, *schedule.kernels[place + 1 :])
            yield schedule.model_copy(update={"kernels": kernels})


def _moves(plan: KernelSchedule) -> Iterator[KernelSchedule]:
    for warps in WARPS:
        if warps != plan.warps:
            yield plan.model_copy(update={"warps": warps})
    for stages in (plan.stages - 1, plan.stages + 1):
        if 1 <= stages <= MOST_STAGES:
            yield plan.model_copy(update={"stages": stages})
    for moved in (False, True, "loads"):
        if plan.stack and moved != plan.descriptors:
            yield plan.model_copy(update={"descriptors": moved})
    for axis, tile in plan.tile.items():
        for size in (tile // 2, tile * 2):
            if size >= 1:
                yield plan.model_copy(update={"tile": {**plan.tile, axis: size}})
    for axis, chunk in plan.chunk.items():
        for size in (chunk // 2, chunk * 2):
            if size >= 1:
                yield plan.model_copy(update={"chunk": {**plan.chunk, axis: size}})
    if len(plan.grid) > 1:
        for size in GROUPS:
            if plan.group.get(plan.grid[0]) != size:
                yield plan.model_copy(update={"group": {plan.grid[0]: size}})


def _timer(request: Request, precision: str) -> Time:
    from gpu.compile import faults, resources
    from gpu.measure.bench import time
    from gpu.measure.exact import draw, judge
    from gpu.run import compile

    def timed(schedule: GpuSchedule) -> float:
        wrong = [f for r in resources(request.graph, schedule) for f in faults(r)]
        if wrong:
            raise GpuError(wrong)
        compiled = compile(request.graph, schedule, precision)
        inputs = draw(request, compiled)
        verdict = judge(request, compiled, inputs, precision)
        if verdict is not None and not verdict.passed:
            raise GpuError(
                f"{verdict.output}: rms error must be at most {verdict.budget:.3g}, "
                f"got {verdict.rms_error:.3g}"
            )
        ordered = [inputs[tensor.name] for tensor in compiled.plan.inputs]
        return time(lambda: compiled.launch(ordered)).gpu_milliseconds

    return timed


def _tried(schedule: GpuSchedule, time: Time, done: dict[str, Trial], log: Path | None) -> Trial:
    name = hashlib.sha256(schedule.to_yaml().encode()).hexdigest()[:12]
    if name not in done:
        try:
            done[name] = Trial(schedule, time(schedule))
        except FaultsError as error:
            done[name] = Trial(schedule, math.inf, str(error).splitlines()[0][:300])
        if log is not None:
            _write_trials(log, done)
    return done[name]


def _trials(log: Path) -> dict[str, Trial]:
    return {
        name: Trial(
            GpuSchedule.model_validate(entry["schedule"]),
            float(entry.get("milliseconds", math.inf)),
            entry.get("remark", ""),
        )
        for name, entry in entries_of(log).items()
    }


def _write_trials(log: Path, done: dict[str, Trial]) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    entries = {}
    for name, trial in done.items():
        failed = math.isinf(trial.milliseconds)
        figure = {"remark": trial.remark} if failed else {"milliseconds": trial.milliseconds}
        entries[name] = {**figure, "schedule": trial.schedule.as_data()}
    log.write_text(write(entries))
