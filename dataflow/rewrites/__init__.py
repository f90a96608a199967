"""Algebra on graphs: each rewrite takes a graph to one with the same inputs, outputs and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dataflow.errors import did_you_mean
from dataflow.graph import Graph
from dataflow.rewrites.draft import RewriteError
from dataflow.rewrites.fused_cell import fused_cell
from dataflow.rewrites.monarch import monarch
from dataflow.rewrites.online_softmax import online_softmax
from dataflow.rewrites.pull import pull

__all__ = ["REWRITES", "RewriteError", "apply", "fused_cell", "monarch", "online_softmax", "pull"]

REWRITES: Mapping[str, Callable[..., Graph]] = {
    "online_softmax": online_softmax,
    "monarch": monarch,
    "fused_cell": fused_cell,
    "pull": pull,
}


def apply(graph: Graph, name: str, **options: Any) -> Graph:
    """Return `graph` after the rewrite called `name`.

    Raises RewriteError where there is no such rewrite, or where its side condition fails.
    """
    if name not in REWRITES:
        hint = did_you_mean(name, REWRITES)
        raise RewriteError(f"rewrite: name must be one of the rewrites, got {name!r}; {hint}")
    return REWRITES[name](graph, **options)
