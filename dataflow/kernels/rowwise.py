"""Softmax, layer norm and RMS norm of each row of x[rows, n]."""

from __future__ import annotations

from dataflow.graph import Builder, Graph, Node
from dataflow.kernels.kernel import Kernel, Options, Sizes

EPSILON = 1e-5  # PyTorch's default for both norms' denominators


def build_softmax(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of x[rows, n] -> y like x: exp(x - max) / sum exp(x - max)."""
    g = Builder("softmax", rows=sizes["rows"], n=sizes["n"])
    x = g.input("x", "rows n")
    r = g.reduce("max", x, over="n", name="r")
    e = g.map("exp", g.map("sub", x, r, name="x.shifted"), name="e")
    g.output("y", g.map("div", e, g.reduce("sum", e, over="n", name="l"), name="y"))
    return g.build()


def build_layer_norm(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of x[rows, n], gain[n], bias[n] -> y like x.

    y = gain (x - mean) / sqrt(variance + 1e-5) + bias, variance as the mean of squares.
    """
    g = Builder("layer_norm", rows=sizes["rows"], n=sizes["n"])
    x, gain, bias = g.input("x", "rows n"), g.input("gain", "n"), g.input("bias", "n")
    centred = g.map("sub", x, _mean(g, x, "mean"), name="x.centred")
    variance = _mean(g, g.map("square", centred, name="x.square"), "variance")
    scaled = _scale(g, centred, variance, gain)
    g.output("y", g.map("add", scaled, bias, name="y"))
    return g.build()


def build_rms_norm(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of x[rows, n], gain[n] -> y = gain x / sqrt(mean(x^2) + 1e-5)."""
    g = Builder("rms_norm", rows=sizes["rows"], n=sizes["n"])
    x, gain = g.input("x", "rows n"), g.input("gain", "n")
    power = _mean(g, g.map("square", x, name="x.square"), "power")
    g.output("y", _scale(g, x, power, gain))
    return g.build()


def _mean(g: Builder, x: Node, name: str) -> Node:
    total = g.reduce("sum", x, over="n", name=f"{name}.sum")
    return g.map("mul", total, 1 / g.extent("n"), name=name)


def _scale(g: Builder, x: Node, power: Node, gain: Node) -> Node:
    inverse = g.map("rsqrt", g.map("add", power, EPSILON), name="inverse")
    return g.map("mul", g.map("mul", x, inverse), gain, name="x.scaled")


_SIZES = {"rows": 256, "n": 256}
SOFTMAX = Kernel(
    name="softmax",
    summary="y = exp(x - max) / sum, a row",
    sizes=_SIZES,
    options={"block": 64},
    rewrite_options={"online_softmax": ("block",)},
    build=build_softmax,
)
LAYER_NORM = Kernel(
    name="layer_norm",
    summary="y = gain (x - mean) / sqrt(variance + 1e-5) + bias, a row",
    sizes=_SIZES,
    build=build_layer_norm,
)
RMS_NORM = Kernel(
    name="rms_norm",
    summary="y = gain x / sqrt(mean(x^2) + 1e-5), a row",
    sizes=_SIZES,
    build=build_rms_norm,
)
