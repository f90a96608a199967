"""`simulate`: a Program, run by one of the two engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dataflow.errors import did_you_mean
from dataflow.program import Program
from dataflow.sim import simpy_engine
from dataflow.sim.interrupt import Progress
from dataflow.sim.result import EngineError, Result

ENGINES = ("auto", "simpy", "fast")
WORTH_COMPILING = 10_000_000
"""Firings from which on compiling the fast engine, some twenty seconds once, pays for itself."""


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
    engine: "simpy" works out times and values, "fast" times only, many times faster and equal to
        the cycle; "auto" takes "fast" for long runs of which only times are wanted, and "simpy"
        for all others. `Result.engine` says which ran.
    progress: called now and then with firings done, firings in all, and the cycle reached.
    max_cycles: firings at this cycle or later do not happen; the result is then not complete.
    why: note the cause of every firing, some 30 bytes each, for `Result.chain`; "simpy" only.

    Raises ProgramError where units and channels do not fit together, DeadlockError where nothing
    can move, Interrupted (with what had run) on a KeyboardInterrupt, and EngineError where the
    engine asked for cannot do this run.
    """
    with_values = values and inputs is not None
    if engine not in ENGINES:
        known = ", ".join(ENGINES)
        hint = did_you_mean(engine, ENGINES)
        raise EngineError(f"simulate: engine must be one of {known}, got {engine!r}; {hint}")
    if engine == "fast" and with_values:
        raise EngineError(
            "simulate: engine must be simpy where values are wanted, got 'fast';"
            " pass values=False for times only"
        )
    if engine == "fast" and why:
        raise EngineError(
            "simulate: engine must be simpy where the chain of causes is wanted, got 'fast';"
            " leave why out for times only"
        )
    long = sum(unit.firings for unit in program.units) >= WORTH_COMPILING
    if engine == "simpy" or with_values or why or (engine == "auto" and not long):
        return simpy_engine.run(program, inputs if with_values else None, progress, max_cycles, why)
    try:
        from dataflow.sim import fast_engine  # Numba takes a while to load
    except ImportError as error:
        raise EngineError(
            f"simulate: engine must be simpy where Numba cannot be loaded, got {engine!r}"
            f" ({error}); install numba or pass engine='simpy'"
        ) from error
    return fast_engine.run(program, progress, max_cycles)
