"""What a user would run instead: the best library calls for each family, in eager PyTorch.

A peer is a function of the inputs by name. The first of a family is its *eager* form, in the
plan's own precision: the error budget is measured against it. The others are faster libraries.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dataflow.request import Request

Inputs = Mapping[str, Any]


@dataclass(frozen=True)
class Peer:
    """A library's way to do the same: `call(inputs)` on torch tensors.

    type: that of its inputs where it is not the plan's. They are converted before the call, so that
    the library is not charged for it.
    """

    name: str
    call: Callable[[Inputs], Any]
    type: str = ""


def eager(request: Request) -> Peer | None:
    """Return the plain PyTorch form of a kernel, in the type of its inputs; None where none is."""
    if request.kernel == "attention":
        return Peer("sdpa-math", lambda t: _sdpa(request, t, "MATH"))
    found = peers(request)
    return found[0] if found else None


def peers(request: Request) -> list[Peer]:
    """Return the library calls for a kernel of the library, none for a user's own."""
    make = _FAMILIES.get(request.kernel)
    return make(request) if make is not None else []


def _gemm(request: Request) -> list[Peer]:
    import torch

    options = request.options

    def call(t: Inputs) -> Any:
        made = t["a"] @ t["b"]
        if options.get("bias"):
            made = made + t["bias"]
        kind = options.get("activation", "none")
        if kind == "gelu-tanh":
            return torch.nn.functional.gelu(made, approximate="tanh")
        return made if kind == "none" else getattr(torch, kind)(made)

    return [Peer("cublas", call)]


def _attention(request: Request) -> list[Peer]:
    found = [
        Peer("cudnn", lambda t: _sdpa(request, t, "CUDNN_ATTENTION")),
        Peer("flash-attention-2", lambda t: _sdpa(request, t, "FLASH_ATTENTION")),
    ]
    if not request.options.get("kv_heads"):
        found.append(Peer("flex-attention", _flex(request)))
    return found


def _sdpa(request: Request, t: Inputs, backend: str) -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = t["q"], t["k"], t["v"]
    causal = bool(request.options.get("causal"))
    mask = None
    if causal and q.shape[-2] != k.shape[-2]:
        import torch

        size = (q.shape[-2], k.shape[-2])
        mask = torch.ones(size, dtype=torch.bool, device=q.device).tril(size[1] - size[0])
        causal = False
    grouped = {"enable_gqa": True} if k.shape[1] != q.shape[1] else {}
    with sdpa_kernel(getattr(SDPBackend, backend)):
        return scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, **grouped)


def _flex(request: Request) -> Callable[[Inputs], Any]:
    made: dict[str, Any] = {}

    def call(t: Inputs) -> Any:
        import torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        if not made:
            made["call"] = torch.compile(flex_attention)
            if request.options.get("causal"):
                n, m = t["q"].shape[-2], t["k"].shape[-2]
                made["mask"] = create_block_mask(
                    lambda b, h, i, j: i + (m - n) >= j, None, None, n, m, device=t["q"].device
                )
        return made["call"](t["q"], t["k"], t["v"], block_mask=made.get("mask"))

    return call


def _fft_conv(request: Request) -> list[Peer]:
    import torch

    options = request.options

    def call(t: Inputs) -> Any:
        n = t["u"].shape[-1]
        length = 2 * n if options.get("causal") else n
        u = t["u"] * t["g"] if options.get("gated") else t["u"]
        spectrum = torch.fft.rfft(u, n=length) * torch.fft.rfft(t["k"], n=length)
        y = torch.fft.irfft(spectrum, n=length)[..., :n]
        return y * t["w"] if options.get("gated") else y

    found = [Peer("cufft-fp32", call, "fp32")]
    n = request.sizes.get("n", 1)
    if n & (n - 1) == 0:  # cuFFT takes half precision at powers of two only
        found.append(Peer("cufft-fp16", call, "fp16"))
    return found


def _cell(request: Request) -> list[Peer]:
    cells: dict[Any, Any] = {}

    def call(t: Inputs) -> Any:
        import torch

        kind = t["x"].dtype
        if kind not in cells:
            cells[kind] = _module(request.kernel, t)
        with torch.no_grad():
            return cells[kind](t["x"])[0]

    return [Peer("cudnn", call)]


def _module(kernel: str, t: Inputs) -> Any:
    """torch.nn's LSTM or GRU with the weights of `t`."""
    import torch

    h, e = t["u"].shape[1], t["w"].shape[1]
    kind: Any = torch.nn.LSTM if kernel == "lstm" else torch.nn.GRU
    cell = kind(e, h, batch_first=True).to(t["x"].device, t["x"].dtype)
    with torch.no_grad():
        cell.weight_ih_l0.copy_(t["w"])
        cell.weight_hh_l0.copy_(t["u"])
        cell.bias_ih_l0.copy_(t["b"])
        cell.bias_hh_l0.copy_(t["b_u"] if kernel == "gru" else torch.zeros_like(t["b"]))
    cell.flatten_parameters()
    return cell


def _rowwise(request: Request) -> list[Peer]:
    import torch
    from torch.nn import functional

    def plain(t: Inputs) -> Any:
        x = t["x"]
        if request.kernel == "softmax":
            return torch.softmax(x, -1)
        if request.kernel == "layer_norm":
            return functional.layer_norm(x, x.shape[-1:], t["gain"], t["bias"], 1e-5)
        return functional.rms_norm(x, x.shape[-1:], t["gain"], 1e-5)

    made: dict[str, Any] = {}

    def compiled(t: Inputs) -> Any:
        if not made:
            made["call"] = torch.compile(plain)
        return made["call"](t)

    return [Peer("torch", plain), Peer("torch.compile", compiled)]


_FAMILIES: dict[str, Callable[[Request], list[Peer]]] = {
    "gemm": _gemm,
    "attention": _attention,
    "fft_conv": _fft_conv,
    "lstm": _cell,
    "gru": _cell,
    "softmax": _rowwise,
    "layer_norm": _rowwise,
    "rms_norm": _rowwise,
}


@contextlib.contextmanager
def precision_of_products(precision: str) -> Iterator[None]:
    """Have torch multiply fp32 matrices as `precision` says while the block runs."""
    import torch

    places: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [place.allow_tf32 for place in places]
    for place in places:
        place.allow_tf32 = precision == "tf32"
    try:
        yield
    finally:
        for place, was in zip(places, before, strict=True):
            place.allow_tf32 = was


def flops(request: Request) -> float:
    """Operations that the work takes by its customary count (0: bound by memory).

    Attention 4 B H N M d, half where causal; LSTM 16 H^2 and GRU 12 H^2 a step and sequence.
    """
    s, o = request.sizes, request.options
    if request.kernel == "gemm":
        return 2.0 * s["i"] * s["j"] * s["k"]
    if request.kernel == "attention":
        full = 4.0 * s["batch"] * s["heads"] * s["n"] * s["m"] * s["d"]
        return full / 2 if o.get("causal") else full
    if request.kernel in ("lstm", "gru"):
        gates = 8 if request.kernel == "lstm" else 6
        return gates * s["h"] * (s["h"] + s["e"]) * s["t"] * s["batch"] * 1.0
    return 0.0


def input_scale(request: Request, name: str) -> float:
    """Standard deviation of an input: 1, and that of PyTorch's own draw for a cell's weights.

    torch.nn.LSTM draws weights evenly from -1/sqrt(h) to 1/sqrt(h): with ones, gates would clip.
    """
    if request.kernel in ("lstm", "gru") and name in ("w", "u", "b", "b_u"):
        return 1 / math.sqrt(3 * request.sizes["h"])
    return 1.0


def free_axes(request: Request) -> tuple[str, ...]:
    """Axes whose points a library call works out apart from each other, so that it can be cut."""
    if request.kernel == "attention":
        return ("batch",) if request.options.get("kv_heads") else ("batch", "heads")
    return {"gemm": ("i",), "fft_conv": ("batch",), "lstm": ("batch",), "gru": ("batch",)}.get(
        request.kernel, ("rows",)
    )
