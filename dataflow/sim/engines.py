"""`simulate`: a Program, run by one of the two engines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dataflow.errors import did_you_mean
from dataflow.program import Program
from dataflow.sim import simpy_engine
from dataflow.sim.interrupt import Progress
from dataflow.sim.result import EngineError, Interrupted, Result
from dataflow.sim.untimed import Untimed, why_timed

ENGINES = ("auto", "simpy", "fast")
WORTH_COMPILING = 3_000_000
"""Firings from which on the fast engine is taken: some three seconds of the SimPy engine, again and
again, where compiling takes some twenty seconds once."""


def simulate(
    program: Program,
    inputs: Mapping[str, Any] | None = None,
    *,
    values: bool = True,
    engine: str = "auto",
    progress: Progress | None = None,
    max_cycles: int | None = None,
    why: bool = False,
) -> Result:
    """Run `program` and return its cycles, account and outputs.

    inputs: arrays by name of input node; None, or values=False, runs the timing alone.
    engine: "simpy" works out times and values together; "fast" works out times, many times faster
        and equal to the cycle, then values, equal to the bit. "auto" takes "fast" for long runs
        that it can do, and "simpy" for all others. `Result.engine` says which ran.
    progress: called now and then with firings done, firings in all, and the cycle reached.
    max_cycles: firings at this cycle or later do not happen; the result is then not complete.
    why: note the cause of every firing, some 30 bytes each, for `Result.chain`; "simpy" only.

    Raises ProgramError where units and channels do not fit together, DeadlockError where nothing
    can move, Interrupted (with what had run) on a KeyboardInterrupt, and EngineError where the
    engine asked for cannot do this run.
    """
    with_values = values and inputs is not None
    chosen = engine_for(program, engine, values=with_values, max_cycles=max_cycles, why=why)
    if chosen == "simpy":
        return simpy_engine.run(program, inputs if with_values else None, progress, max_cycles, why)
    try:
        from dataflow.sim import fast_engine  # Numba takes a while to load
    except ImportError as error:
        raise EngineError(
            f"simulate: engine must be simpy where Numba cannot be loaded, got {engine!r}"
            f" ({error}); install numba or pass engine='simpy'"
        ) from error
    untimed = Untimed(program, inputs) if with_values and inputs is not None else None
    result = fast_engine.run(program, progress, max_cycles)
    return result if untimed is None else _with_values(result, untimed, progress)


def engine_for(
    program: Program, engine: str, *, values: bool, max_cycles: int | None, why: bool
) -> str:
    """Return which engine `simulate` takes, "simpy" or "fast".

    Raises EngineError where `engine` is unknown or cannot do the run.
    """
    if engine not in ENGINES:
        known = ", ".join(ENGINES)
        hint = did_you_mean(engine, ENGINES)
        raise EngineError(f"simulate: engine must be one of {known}, got {engine!r}; {hint}")
    if engine == "simpy":
        return engine
    reason, hint = "", ""
    if why:
        reason, hint = "the chain of causes is wanted", "leave why out for times only"
    elif values and max_cycles is not None:
        reason, hint = "values of a run cut short are wanted", "pass values=False for times only"
    elif values and (because := why_timed(program)):
        reason, hint = f"values depend on times ({because})", "pass values=False for times only"
    if engine == "fast" and reason:
        raise EngineError(f"simulate: engine must be simpy where {reason}, got 'fast'; {hint}")
    long = sum(unit.firings for unit in program.units) >= WORTH_COMPILING
    return "fast" if engine == "fast" or (long and not reason) else "simpy"


def _with_values(result: Result, untimed: Untimed, progress: Progress | None) -> Result:
    """The result with its outputs; Interrupted, without them, on a KeyboardInterrupt."""
    started = time.perf_counter()
    try:
        outputs = untimed.run(progress, result.cycles)
    except KeyboardInterrupt:
        raise Interrupted(result) from None
    seconds = result.wall_seconds + time.perf_counter() - started
    return replace(result, outputs=outputs, wall_seconds=seconds)
