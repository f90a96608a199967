"""LSTM and GRU layers over a sequence, in the equations and weight layout of PyTorch and cuDNN.

The plain form is the one that BLAS libraries run: all gates stacked on one axis g, one product
with the input and one with the previous hidden state, the gates then cut out of the sum. The
rewrite `fused_cell` cuts the weights instead, so that one loop over hidden units forms all gates
of a unit and its pointwise code (SpatialRNN, arXiv 1909.13654).
"""

from __future__ import annotations

from dataflow.graph import Builder, Graph, Node
from dataflow.kernels.kernel import Kernel, Options, Sizes


def build_lstm(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of x[batch, t, e], w[g, e], u[g, k], b[g] -> y[batch, t, h].

    g stacks the input, forget, cell and output gates, h rows each; k is the h of the step
    before; both states start at 0. b is the sum of the two biases that PyTorch keeps.
        c = sigmoid(f) c' + sigmoid(i) tanh(g); y = sigmoid(o) tanh(c)
    """
    g, before = _layer("lstm", sizes, gates=4)
    from_input, from_state = _products(g, before)
    stacked = g.map("add", g.map("add", from_input, from_state), g.input("b", "g"), name="gates")
    parts = [_gate(g, stacked, i, name, sizes["h"]) for i, name in enumerate("ifgo")]
    enter, forget, out = (
        g.map("sigmoid", parts[i], name=f"{name}.open")
        for i, name in ((0, "i"), (1, "f"), (3, "o"))
    )
    cell = g.map("tanh", parts[2], name="g.cell")
    c_before = g.recur("c.before", "batch t h", axis="t")
    kept = g.map("mul", forget, c_before, name="c.kept")
    c = g.map("add", kept, g.map("mul", enter, cell, name="c.entered"), name="c")
    g.close(c_before, c)
    y = g.map("mul", out, g.map("tanh", c, name="c.tanh"), name="y")
    g.close(before, y)
    g.output("y", y)
    return g.build()


def build_gru(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of x[batch, t, e], w[g, e], u[g, k], b[g], b_u[g] -> y[batch, t, h].

    g stacks the reset, update and new gates, h rows each; k is the h of the step before, which
    starts at 0. The reset gate scales the state's product after its bias is added:
        n = tanh(w_n x + b_n + r (u_n y' + b_u_n)); y = n + z (y' - n)
    """
    g, before = _layer("gru", sizes, gates=3)
    from_input, from_state = _products(g, before)
    from_input = g.map("add", from_input, g.input("b", "g"), name="gates.x")
    from_state = g.map("add", from_state, g.input("b_u", "g"), name="gates.y")
    x_r, x_z, x_n = (_gate(g, from_input, i, f"x.{s}", sizes["h"]) for i, s in enumerate("rzn"))
    y_r, y_z, y_n = (_gate(g, from_state, i, f"y.{s}", sizes["h"]) for i, s in enumerate("rzn"))
    r = g.map("sigmoid", g.map("add", x_r, y_r, name="r.sum"), name="r")
    z = g.map("sigmoid", g.map("add", x_z, y_z, name="z.sum"), name="z")
    state = g.map("mul", r, y_n, name="n.state")
    new = g.map("tanh", g.map("add", x_n, state, name="n.sum"), name="n")
    kept = g.map("mul", z, g.map("sub", before, new, name="y.change"), name="y.kept")
    y = g.map("add", new, kept, name="y")
    g.close(before, y)
    g.output("y", y)
    return g.build()


def _layer(name: str, sizes: Sizes, gates: int) -> tuple[Builder, Node]:
    """Return a builder with a layer's axes, and its hidden state at the step before."""
    g = Builder(name, batch=sizes["batch"], t=sizes["t"], h=sizes["h"], e=sizes["e"])
    g.axis("k", sizes["h"])
    g.axis("g", gates * sizes["h"])
    return g, g.recur("y.before", "batch t h", axis="t")


def _products(g: Builder, before: Node) -> tuple[Node, Node]:
    """Return the stacked gates' products with the input and with the state."""
    x, w, u = g.input("x", "batch t e"), g.input("w", "g e"), g.input("u", "g k")
    state = g.read(before, "batch t k", ["batch", "t", "k"], name="y.state")
    return (
        g.einsum("batch t e, g e -> batch t g", x, w, name="wx"),
        g.einsum("batch t k, g k -> batch t g", state, u, name="uy"),
    )


def _gate(g: Builder, stacked: Node, i: int, name: str, h: int) -> Node:
    return g.read(stacked, "batch t h", ["batch", "t", f"h + {i * h}"], name=name)


LSTM = Kernel(
    name="lstm",
    summary="LSTM layer over t steps, both states starting at 0",
    sizes={"batch": 1, "t": 8, "h": 128, "e": 128},
    follows={"e": "h"},
    rewrites=("fused_cell",),
    build=build_lstm,
)
GRU = Kernel(
    name="gru",
    summary="GRU layer over t steps, its state starting at 0",
    sizes={"batch": 1, "t": 8, "h": 128, "e": 128},
    follows={"e": "h"},
    rewrites=("fused_cell",),
    build=build_gru,
)
