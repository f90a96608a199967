"""Kernels by name: each a graph over named axes, at any sizes."""

from dataflow.kernels.kernel import Kernel, KernelError
from dataflow.kernels.library import KERNELS, build, kernel, settings

__all__ = ["KERNELS", "Kernel", "KernelError", "build", "kernel", "settings"]
