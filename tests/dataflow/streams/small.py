"""Short forms for tests of streams."""

from __future__ import annotations

from dataflow import kernels
from dataflow.graph import Builder, Graph
from dataflow.schedule import Schedule
from dataflow.streams import Edge, StreamGraph, stream


def gemm(i: int = 8, j: int = 6, k: int = 10) -> Graph:
    """c[i, j] = sum over k of a[i, k] b[k, j]."""
    return kernels.build("gemm", {"i": i, "j": j, "k": k})


def softmax(rows: int = 3, n: int = 5) -> Graph:
    """Plain softmax: row maximum, difference, exponential, sum, quotient."""
    return kernels.build("softmax", {"rows": rows, "n": n})


def running_sum(t: int = 4, h: int = 6) -> Graph:
    """y[t, h] = y[t - 1, h] + x[t, h]."""
    g = Builder("running_sum", t=t, h=h)
    x = g.input("x", "t h")
    before = g.recur("y.before", "t h", axis="t")
    y = g.map("add", before, x, name="y")
    g.close(before, y)
    g.output("y", y)
    return g.build()


def chain(length: int, n: int = 6) -> Graph:
    """x[n] through `length` maps, m0, m1 and so on."""
    g = Builder("chain", n=n)
    value = g.input("x", "n")
    for i in range(length):
        value = g.map("tanh", value, name=f"m{i}")
    g.output("y", value)
    return g.build()


def streams(graph: Graph, text: str = "{}", lanes: int = 4) -> StreamGraph:
    """The StreamGraph under a schedule in YAML."""
    return stream(graph, Schedule.from_yaml(text), lanes)


def edge(made: StreamGraph, name: str) -> Edge:
    """The one channel of that name."""
    (found,) = (edge for edge in made.edges if edge.name == name)
    return found
