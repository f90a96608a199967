"""The simulator: `simulate` a Program, get a Result."""

from dataflow.sim.account import Account
from dataflow.sim.deadlock import DeadlockError
from dataflow.sim.engines import engine_for, simulate
from dataflow.sim.result import EngineError, Interrupted, OffChip, Result
from dataflow.sim.timing_graph import ProgramError

__all__ = [
    "Account",
    "DeadlockError",
    "EngineError",
    "Interrupted",
    "OffChip",
    "ProgramError",
    "Result",
    "engine_for",
    "simulate",
]
