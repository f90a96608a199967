"""Six small families with published cycle counts (the Tungsten simulator, 4 May 2020).

Three make their data on chip from loop indices, so that nothing but the loops is timed.
"""

from __future__ import annotations

from dataflow.graph import Builder, Graph
from dataflow.kernels.kernel import Kernel, Options, Sizes


def build_sum_square(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of no inputs -> total = sum over n of n^2."""
    g = Builder("sum_square", n=sizes["n"])
    square = g.map("square", g.affine("n", "n", name="index"), name="square")
    g.output("total", g.reduce("sum", square, over="n", name="total"))
    return g.build()


def build_generated_dot_product(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of no inputs -> total = sum over n of a[n]^2, a[n] = n a tensor."""
    g = Builder("generated_dot_product", n=sizes["n"])
    a = g.map("identity", g.affine("n", "n", name="index"), name="a")
    g.output("total", g.reduce("sum", g.map("mul", a, a, name="square"), over="n", name="total"))
    return g.build()


def build_accumulate_buffer(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of no inputs -> acc[d] = sum over n of x[n, d], x[n, d] = n + d."""
    g = Builder("accumulate_buffer", n=sizes["n"], d=sizes["d"])
    x = g.map("identity", g.affine("n + d", "n d", name="index"), name="x")
    g.output("acc", g.reduce("sum", x, over="n", name="acc"))
    return g.build()


def build_dot_product(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of a[n], b[n] -> total = sum over n of a b."""
    g = Builder("dot_product", n=sizes["n"])
    a, b = g.input("a", "n"), g.input("b", "n")
    g.output("total", g.einsum("n, n ->", a, b, name="total"))
    return g.build()


def build_outer_product(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of a[i], b[j] -> c[i, j] = a b."""
    g = Builder("outer_product", i=sizes["i"], j=sizes["j"])
    g.output("c", g.map("mul", g.input("a", "i"), g.input("b", "j"), name="c"))
    return g.build()


def build_filter_sum(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of four columns [n] -> total = sum of price * discount of chosen rows.

    As in query 6 of TPC-H: -1 <= date < 1, -1 <= discount <= 1, quantity < 0.5, bounds that
    about a third of all rows of unit-normal columns keep.
    """
    g = Builder("filter_sum", n=sizes["n"])
    price, discount = g.input("price", "n"), g.input("discount", "n")
    quantity, date = g.input("quantity", "n"), g.input("date", "n")
    keep = g.map("ge", date, -1.0, name="date.from")
    for fn, column, bound, name in (
        ("lt", date, 1.0, "date.to"),
        ("ge", discount, -1.0, "discount.from"),
        ("le", discount, 1.0, "discount.to"),
        ("lt", quantity, 0.5, "quantity.to"),
    ):
        keep = g.map("logical_and", keep, g.map(fn, column, bound, name=name))
    sale = g.map("mul", price, discount, name="sale")
    chosen = g.map("where", keep, sale, 0.0, name="chosen")
    g.output("total", g.reduce("sum", chosen, over="n", name="total"))
    return g.build()


SMALL = (
    Kernel("sum_square", "total = sum n^2, n made on chip", {"n": 1024}, build_sum_square),
    Kernel(
        "generated_dot_product",
        "total = sum a^2, a[n] = n written to a tensor on chip",
        {"n": 1024},
        build_generated_dot_product,
    ),
    Kernel(
        "accumulate_buffer",
        "acc[d] = sum over n of x[n, d] = n + d",
        {"n": 100, "d": 1024},
        build_accumulate_buffer,
    ),
    Kernel("dot_product", "total = sum a b", {"n": 1024}, build_dot_product),
    Kernel("outer_product", "c[i, j] = a[i] b[j]", {"i": 256, "j": 256}, build_outer_product),
    Kernel(
        "filter_sum",
        "total = sum of price * discount where five comparisons hold (TPC-H query 6)",
        {"n": 1024},
        build_filter_sum,
    ),
)
