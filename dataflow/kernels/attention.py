"""Attention: o = softmax(q k^T / sqrt(d)) v for each head, full, causal or grouped-query.

The plain form holds whole rows of scores; the rewrite `online_softmax` makes it one pass over
the keys (FlashAttention, arXiv 2205.14135).
"""

from __future__ import annotations

import math

from dataflow.graph import Builder, Graph
from dataflow.index import affine
from dataflow.kernels.kernel import Kernel, Options, Sizes

# Below any score, finite so that no difference of two of them is inf - inf, and a value whose
# exponential next to any true score is exactly 0.
MASKED = -1e30


def build(sizes: Sizes, options: Options) -> Graph:
    """Return the graph of q[batch, heads, n, d], k and v[batch, heads, m, d] -> o like q.

    With `kv_heads`, k and v have that many heads, each read by heads / kv_heads heads of q.
    With `causal`, the queries are the last n of the m positions: query n sees the keys up to
    n + (m - n extents).
    """
    kv_heads = options["kv_heads"]
    g = Builder("attention", **{axis: sizes[axis] for axis in ("batch", "heads", "n", "m", "d")})
    q = g.input("q", "batch heads n d")
    if kv_heads:
        group = sizes["heads"] // kv_heads
        g.axis("kv_heads", kv_heads)
        g.axis("group", group)
        head, shared = "kv_heads group", "kv_heads"
        place = f"{group}*kv_heads + group"
        q = g.read(q, f"batch {head} n d", ["batch", place, "n", "d"], name="q.grouped")
    else:
        head = shared = place = "heads"
    k, v = g.input("k", f"batch {shared} m d"), g.input("v", f"batch {shared} m d")
    scaled = g.map("mul", q, 1 / math.sqrt(sizes["d"]), name="q.scaled")
    s = g.einsum(f"batch {head} n d, batch {shared} m d -> batch {head} n m", scaled, k, name="s")
    if options["causal"]:
        seen = affine("n") + (sizes["m"] - sizes["n"]) - "m"
        s = g.mask(s, seen, fill=MASKED, name="s.masked")
    r = g.reduce("max", s, over="m", name="r")
    e = g.map("exp", g.map("sub", s, r, name="s.shifted"), name="e")
    p = g.map("div", e, g.reduce("sum", e, over="m", name="l"), name="p")
    o = g.einsum(f"batch {head} n m, batch {shared} m d -> batch {head} n d", p, v, name="o")
    g.output("o", o, "batch heads n d", ["batch", place, "n", "d"])
    return g.build()


def rules(sizes: Sizes, options: Options) -> list[str]:
    """Return what is wrong with a combination of sizes and options."""
    faults = []
    if options["causal"] and sizes["m"] < sizes["n"]:
        faults.append(
            f"m must be >= n where causal (queries are the last n positions), "
            f"got m={sizes['m']} n={sizes['n']}"
        )
    if options["kv_heads"] and sizes["heads"] % options["kv_heads"]:
        faults.append(
            f"kv_heads must divide heads, got kv_heads={options['kv_heads']} heads={sizes['heads']}"
        )
    return faults


ATTENTION = Kernel(
    name="attention",
    summary="o = softmax(q k^T / sqrt d) v; causal; grouped-query heads",
    sizes={"batch": 1, "heads": 2, "n": 256, "m": 256, "d": 64},
    follows={"m": "n"},
    options={"causal": False, "kv_heads": 0, "block": 64},
    rewrites=("online_softmax",),
    rewrite_options={"online_softmax": ("block",)},
    rules=rules,
    build=build,
)
