"""Triton's words for types, operations and names."""

from __future__ import annotations

import math
from collections.abc import Sequence

TYPES = {
    "fp32": "tl.float32",
    "fp16": "tl.float16",
    "bf16": "tl.bfloat16",
    "fp8e4m3": "tl.float8e4nv",
    "fp8e5m2": "tl.float8e5",
    "int32": "tl.int32",
}

LOG2_E = 1 / math.log(2)

FUNCTIONS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "max": "tl.maximum({0}, {1})",
    "min": "tl.minimum({0}, {1})",
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "exp": "tl.exp({0})",
    "exp2": "tl.exp2({0})",
    "log": "tl.log({0})",
    "log2": "tl.log2({0})",
    "tanh": "2.0 * tl.sigmoid(2.0 * {0}) - 1.0",
    "sigmoid": "tl.sigmoid({0})",
    "erf": "tl.erf({0})",
    "cos": "tl.cos({0})",
    "sin": "tl.sin({0})",
    "relu": "tl.maximum({0}, 0.0)",
    "sqrt": "tl.sqrt({0})",
    "rsqrt": "tl.rsqrt({0})",
    "reciprocal": "1.0 / {0}",
    "square": "{0} * {0}",
    "lt": "({0} < {1}).to(tl.float32)",
    "le": "({0} <= {1}).to(tl.float32)",
    "gt": "({0} > {1}).to(tl.float32)",
    "ge": "({0} >= {1}).to(tl.float32)",
    "eq": "({0} == {1}).to(tl.float32)",
    "logical_and": "(({0} != 0) & ({1} != 0)).to(tl.float32)",
    "where": "tl.where({0} != 0, {1}, {2})",
    "identity": "{0}",
}
"""Triton's text for each row of `dataflow.ops.MAPS`."""

REDUCTIONS = {"sum": "tl.sum", "max": "tl.max", "min": "tl.min"}
DOT_PRECISION = {"fp32": ', input_precision="ieee"', "tf32": ', input_precision="tf32"'}


def combine(fn: str, count: int) -> str:
    """A function that reduces `count` tiles at once: two numbers of each become one.

    >>> print(combine("max", 2))
    @triton.jit
    def _max_2(a0, a1, b0, b1):
        return tl.maximum(a0, b0), tl.maximum(a1, b1)
    <BLANKLINE>
    """
    pairs = [(f"a{i}", f"b{i}") for i in range(count)]
    names = ", ".join([a for a, _ in pairs] + [b for _, b in pairs])
    results = ", ".join(FUNCTIONS["add" if fn == "sum" else fn].format(*pair) for pair in pairs)
    return f"@triton.jit\ndef _{fn}_{count}({names}):\n    return {results}\n"


def number(value: float) -> str:
    """A literal."""
    if math.isinf(value):
        return f'float("{"-" if value < 0 else ""}inf")'
    return repr(float(value))


def total(terms: Sequence[tuple[int, str]]) -> str:
    """The sum of whole multiples of names, as text."""
    text = ""
    for coefficient, name in terms:
        size = abs(coefficient)
        body = str(size) if not name else name if size == 1 else f"{name} * {size}"
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {body}" if text else (f"-{body}" if coefficient < 0 else body)
    return text


def subscript(axes: tuple[str, ...], wanted: tuple[str, ...]) -> str:
    """The subscript that gives a tile over `axes` a dimension for each of `wanted`."""
    if axes == wanted or not axes:
        return ""
    return f"[{', '.join(':' if axis in axes else 'None' for axis in wanted)}]"


def program_of(axis: str) -> str:
    """The variable of a program's place in the grid along an axis."""
    return f"{axis.replace('.', '_')}_program"


def step_of(axis: str) -> str:
    """The variable of a loop's count."""
    return f"{axis.replace('.', '_')}_step"


def lane_of(axis: str) -> str:
    """The variable of the lanes of an axis."""
    return f"{axis.replace('.', '_')}_lane"
