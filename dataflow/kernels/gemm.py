"""Matrix product c = activation(a b + bias)."""

from __future__ import annotations

import math

from dataflow.graph import Builder, Graph, Node
from dataflow.kernels.kernel import Kernel, Options, Sizes


def build(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of a[i, k], b[k, j] and (with `bias`) bias[j] -> c[i, j]."""
    g = Builder("gemm", i=sizes["i"], j=sizes["j"], k=sizes["k"])
    a, b = g.input("a", "i k"), g.input("b", "k j")
    c = g.einsum("i k, k j -> i j", a, b, name="c")
    if options["bias"]:
        c = g.map("add", c, g.input("bias", "j"), name="c.biased")
    g.output("c", _activate(g, c, options["activation"]))
    return g.build()


def _activate(g: Builder, x: Node, activation: str) -> Node:
    if activation == "none":
        return x
    if activation != "gelu-tanh":
        return g.map(activation, x, name="c.active")
    # 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), arXiv 1606.08415, section 2
    cube = g.map("mul", g.map("mul", g.map("square", x), x), 0.044715)
    inner = g.map("mul", g.map("add", x, cube), math.sqrt(2 / math.pi))
    gate = g.map("add", g.map("tanh", inner), 1.0)
    return g.map("mul", g.map("mul", x, 0.5), gate, name="c.active")


GEMM = Kernel(
    name="gemm",
    summary="c = activation(a b + bias)",
    sizes={"i": 256, "j": 256, "k": 256},
    options={"bias": False, "activation": "none"},
    choices={"activation": ("none", "relu", "gelu-tanh", "tanh", "sigmoid")},
    build=build,
)
