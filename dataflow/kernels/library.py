"""The library of kernels, and `build`, which turns a name and settings into a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dataflow.errors import did_you_mean
from dataflow.graph import Graph
from dataflow.kernels.attention import ATTENTION
from dataflow.kernels.fft_conv import FFT_CONV
from dataflow.kernels.gemm import GEMM
from dataflow.kernels.kernel import Kernel, KernelError, Options
from dataflow.kernels.recurrent import GRU, LSTM
from dataflow.kernels.rowwise import LAYER_NORM, RMS_NORM, SOFTMAX
from dataflow.kernels.small import SMALL
from dataflow.rewrites import REWRITES, apply

KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (GEMM, SOFTMAX, LAYER_NORM, RMS_NORM, ATTENTION, FFT_CONV, LSTM, GRU, *SMALL)
}


def kernel(name: str) -> Kernel:
    """Return the family called `name`; KernelError with the nearest name where none is."""
    if name not in KERNELS:
        hint = did_you_mean(name, KERNELS)
        raise KernelError(f"kernel: name must be one of the library, got {name!r}; {hint}")
    return KERNELS[name]


def build(
    name: str,
    sizes: Mapping[str, int] | None = None,
    options: Mapping[str, Any] | None = None,
    rewrites: Iterable[str] | None = None,
) -> Graph:
    """Return the graph of a kernel at `sizes` and `options`, its rewrites applied.

    What is not given takes the kernel's default; `rewrites=()` means the plain form. Raises
    KernelError, all faults at once, on names and values that the kernel does not take.
    """
    family = kernel(name)
    given_sizes, given_options = dict(sizes or {}), dict(options or {})
    chosen = family.rewrites if rewrites is None else tuple(rewrites)
    faults = [
        *_size_faults(family, given_sizes),
        *_option_faults(family, given_options),
        *_rewrite_faults(family, chosen),
    ]
    if not faults:
        for axis, leader in family.follows.items():
            if axis not in given_sizes and leader in given_sizes:
                given_sizes[axis] = given_sizes[leader]
        given_sizes = {**family.sizes, **given_sizes}
        given_options = {**family.options, **given_options}
        faults = [f"kernel {name}: {fault}" for fault in family.rules(given_sizes, given_options)]
    if faults:
        raise KernelError(faults)
    graph = family.build(given_sizes, given_options)
    for rewrite in chosen:
        graph = apply(graph, rewrite, **_options_of(family, rewrite, given_options))
    return graph


def settings(name: str, texts: Mapping[str, str]) -> tuple[dict[str, int], dict[str, Any]]:
    """Return the sizes and options of a kernel that texts such as n=4096 causal=true mean.

    Raises KernelError that lists every unknown name and every text that does not fit.
    """
    family = kernel(name)
    sizes: dict[str, int] = {}
    options: dict[str, Any] = {}
    faults: list[str] = []
    for key, text in texts.items():
        where = f"kernel {name}: {key}"
        if key in family.sizes:
            if not _is_whole(text) or int(text) < 1:
                faults.append(f"{where} must be a whole number >= 1, got {text!r}")
            else:
                sizes[key] = int(text)
        elif key in family.options:
            value = _option_value(family.options[key], text)
            if value is None:
                faults.append(f"{where} must be {_rule(family, key)}, got {text!r}")
            else:
                options[key] = value
        else:
            hint = did_you_mean(key, [*family.sizes, *family.options])
            faults.append(f"kernel {name}: size or option must be known, got {key!r}; {hint}")
    faults += _option_faults(family, options)
    if faults:
        raise KernelError(faults)
    return sizes, options


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19


def _option_value(default: Any, text: str) -> Any:
    """Return the value that `text` means for an option, None where it means none."""
    if isinstance(default, bool):
        return {"true": True, "false": False}.get(text.lower())
    if isinstance(default, int):
        return int(text) if _is_whole(text) else None
    return text


def _rule(family: Kernel, option: str) -> str:
    default = family.options[option]
    if option in family.choices:
        return f"one of {', '.join(str(choice) for choice in family.choices[option])}"
    if isinstance(default, bool):
        return "true or false"
    return "a whole number >= 0" if default == 0 else "a whole number >= 1"


def _size_faults(family: Kernel, sizes: Mapping[str, Any]) -> list[str]:
    faults = []
    for axis, extent in sizes.items():
        where = f"kernel {family.name}"
        if axis not in family.sizes:
            hint = did_you_mean(axis, family.sizes)
            faults.append(f"{where}: size must be of a known axis, got {axis!r}; {hint}")
        elif isinstance(extent, bool) or not isinstance(extent, int) or extent < 1:
            faults.append(f"{where}: {axis} must be a whole number >= 1, got {extent!r}")
    return faults


def _option_faults(family: Kernel, options: Options) -> list[str]:
    faults = []
    for option, value in options.items():
        where = f"kernel {family.name}"
        if option not in family.options:
            hint = did_you_mean(option, family.options)
            faults.append(f"{where}: option must be known, got {option!r}; {hint}")
        elif not _fits(family, option, value):
            hint = ""
            if isinstance(value, str) and option in family.choices:
                hint = f"; {did_you_mean(value, [str(c) for c in family.choices[option]])}"
            faults.append(f"{where}: {option} must be {_rule(family, option)}, got {value!r}{hint}")
    return faults


def _fits(family: Kernel, option: str, value: Any) -> bool:
    default = family.options[option]
    if type(value) is not type(default):
        return False
    if option in family.choices:
        return value in family.choices[option]
    return isinstance(default, bool) or value >= (0 if default == 0 else 1)


def _rewrite_faults(family: Kernel, rewrites: Iterable[str]) -> list[str]:
    return [
        f"kernel {family.name}: rewrite must be known, got {name!r}; {did_you_mean(name, REWRITES)}"
        for name in rewrites
        if name not in REWRITES
    ]


def _options_of(family: Kernel, rewrite: str, options: Options) -> dict[str, Any]:
    return {option: options[option] for option in family.rewrite_options.get(rewrite, ())}
