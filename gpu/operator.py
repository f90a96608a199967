"""Compiled plans as one custom operator of torch, so that torch.compile and CUDA graphs take them.

The operator is `tileloom::launch(key, inputs)`. The key is a hash of the generated source and its
sizes, the same in every process, so that what torch.compile caches stays valid; the plan of a key
is kept for the life of the process, since graphs that torch has compiled may call it at any time.
"""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

from gpu.plan import Plan


class Launchable(Protocol):
    """What the operator needs of a compiled plan (`gpu.run.Compiled`)."""

    source: str
    plan: Plan
    where: str

    def launch(self, inputs: list[Any]) -> list[Any]:
        """Run on tensors that fit, and return the outputs."""
        ...

    def blank(self) -> list[Any]:
        """Outputs of the right types and shapes."""
        ...


_compiled: dict[str, Launchable] = {}
_operators: list[Any] = []


def register(compiled: Launchable) -> str:
    """Make `compiled` known to the operator, and return its key."""
    text = "\n".join([compiled.source, repr(compiled.plan.tensors), compiled.where])
    key = hashlib.sha256(text.encode()).hexdigest()[:24]
    _compiled[key] = compiled
    if not _operators:  # here and not at the first call, which torch.compile may be tracing
        _operators.append(_define())
    return key


def launch(key: str, inputs: list[Any]) -> list[Any]:
    """Run the plan of `key` on tensors that fit, through torch's dispatcher."""
    return _operators[0](key, inputs)


def _define() -> Any:
    import torch

    def run(key: str, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return _compiled[key].launch(inputs)

    def shapes(key: str, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return _compiled[key].blank()

    run.__annotations__ = {
        "key": str,
        "inputs": list[torch.Tensor],
        "return": list[torch.Tensor],
    }
    made = torch.library.custom_op("tileloom::launch", run, mutates_args=())
    made.register_fake(shapes)
    return made
