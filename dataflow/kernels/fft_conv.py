"""Long convolution: y[m] = sum_n u[n] k[m - n], circular or causal, per channel, gated or not.

The plain form is the direct sum, a product with the Toeplitz matrix of the filter; the rewrite
`monarch` makes it a chain of small Fourier products (FlashFFTConv, arXiv 2311.05908).
"""

from __future__ import annotations

from dataflow.graph import Builder, Graph
from dataflow.kernels.kernel import Kernel, Options, Sizes


def build(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of u[batch, channels, n], k[channels, n] -> y like u.

    With `gated`, y = w * conv(u * g), with g and w like u. The sum runs over axis n; the result
    lies on axis m, of the same extent.
    """
    n = sizes["n"]
    g = Builder("fft_conv", batch=sizes["batch"], channels=sizes["channels"], n=n, m=n)
    u, k = g.input("u", "batch channels n"), g.input("k", "channels n")
    if options["gated"]:
        u = g.map("mul", u, g.input("g", "batch channels n"), name="u.gated")
    rows = g.read(k, "channels m n", ["channels", "m - n"], name="k.rows")
    if not options["causal"]:  # m - n wraps around at the ends
        wrapped = g.read(k, "channels m n", ["channels", f"m - n + {n}"], name="k.wrapped")
        rows = g.map("add", rows, wrapped, name="k.circulant")
    y = g.einsum("batch channels n, channels m n -> batch channels m", u, rows, name="y")
    if options["gated"]:
        w = g.read(
            g.input("w", "batch channels n"),
            "batch channels m",
            ["batch", "channels", "m"],
            name="w.rows",
        )
        y = g.map("mul", y, w, name="y.gated")
    g.output("y", y, "batch channels n", ["batch", "channels", "m"])
    return g.build()


FFT_CONV = Kernel(
    name="fft_conv",
    summary="y = irfft(rfft(u) rfft(k)) per channel; circular or causal; gated: w conv(u g)",
    sizes={"batch": 16, "channels": 4, "n": 1024},
    options={
        "causal": False,
        "gated": False,
        "order": 2,
        "pair": False,
        "first_radix": 0,
        "gauss": False,
    },
    choices={"order": (2, 3)},
    rewrites=("monarch",),
    rewrite_options={"monarch": ("order", "pair", "first_radix", "gauss")},
    build=build,
)
