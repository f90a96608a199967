"""What a run in which nothing can move says."""

from __future__ import annotations


class DeadlockError(RuntimeError):
    """Nothing can move and units have firings left."""
