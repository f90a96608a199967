"""Generated text as a Python module, and the cache folder that holds it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path
from types import ModuleType

from dataflow.errors import FaultsError


class GpuError(FaultsError):
    """The GPU path cannot do what is asked: something is missing, or a kernel does not compile."""


def cache_folder() -> Path:
    """Where generated sources and tuned schedules are kept: TILELOOM_CACHE, or the user's cache."""
    base = os.environ.get("TILELOOM_CACHE")
    if base:
        return Path(base)
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "tileloom"


def load(text: str) -> ModuleType:
    """Return the module of a generated text; it lies in a file, as Triton reads its source.

    Raises GpuError where triton is not installed.
    """
    # said, as the default changes: a product and a sum become one instruction in every version
    os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise GpuError("triton: must be installed to run kernels (pip install triton)") from error
    name = f"kernel_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path = cache_folder() / "sources" / f"{name}.py"
    if not path.exists() or path.read_text() != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        spare = path.with_suffix(f".{os.getpid()}.tmp")
        spare.write_text(text)
        os.replace(spare, path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
