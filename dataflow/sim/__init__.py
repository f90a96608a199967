"""The simulator: `simulate` a Program, get a Result."""

from dataflow.sim.account import Account
from dataflow.sim.deadlock import DeadlockError
from dataflow.sim.result import Interrupted, OffChip, Result
from dataflow.sim.simpy_engine import simulate
from dataflow.sim.timing_graph import ProgramError

__all__ = [
    "Account",
    "DeadlockError",
    "Interrupted",
    "OffChip",
    "ProgramError",
    "Result",
    "simulate",
]
