"""Names of variables and functions in generated text, clear of those that the emitters write."""

from __future__ import annotations

import keyword

RESERVED = frozenset(keyword.kwlist) | {
    "tl",
    "triton",
    "gl",
    "gluon",
    "float",
    "program",
    "inside",
    "first",
    "members",
    "group",
    "tile",
    "done",
    "copy_in",
    "copy_out",
    "fence_async_shared",
    "mbarrier",
    "tma",
    "warpgroup_mma",
    "warpgroup_mma_wait",
}
"""Words of Python, modules of the generated texts, and variables that the emitters write."""
ENDINGS = (
    *("_lane", "_program", "_step", "_step_stop", "_step_free", "_ptr"),
    *("_ring", "_full", "_empty", "_held", "_left", "_group"),
)
"""How the emitters name what belongs to an axis, a tensor or a value."""


def identifier(name: str) -> str:
    """Return a variable's or function's name for a name of a graph.

    >>> [identifier(name) for name in ("y.state", "lambda", "x_ptr", "_tanh")]
    ['y_state', 'lambda_value', 'x_ptr_value', '_tanh_value']
    """
    plain = name.replace(".", "_")
    taken = plain in RESERVED or plain.endswith(ENDINGS) or plain.startswith("_")
    return f"{plain}_value" if taken else plain
