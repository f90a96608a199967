"""A family of kernels: its sizes, options and default rewrites, and the graph they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dataflow.errors import FaultsError
from dataflow.graph import Graph

Sizes = Mapping[str, int]
Options = Mapping[str, Any]


class KernelError(FaultsError):
    """Sizes, options or names that no kernel of the library has."""


@dataclass(frozen=True)
class Kernel:
    """One family. `build(sizes, options)` returns its plain graph, before any rewrite.

    sizes: default extent of each axis; follows: axes that take another's size unless given.
    options: default of each option, a bool, a whole number or one of `choices`.
    rewrites: those applied by default, in order; rewrite_options: for each rewrite that takes
        any, the kernel's options that are handed to it.
    rules: for sizes and options in range, the faults of their combination.
    """

    name: str
    summary: str
    sizes: Sizes
    build: Callable[[Sizes, Options], Graph]
    options: Options = field(default_factory=dict)
    choices: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    follows: Mapping[str, str] = field(default_factory=dict)
    rewrites: tuple[str, ...] = ()
    rewrite_options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rules: Callable[[Sizes, Options], list[str]] = lambda sizes, options: []
