"""The same tests run on a GPU where there is one, and in Triton's interpreter elsewhere.

Triton chooses between interpreter and compiler when it is loaded, for the whole process. Tests that
compile run `tileloom gpu` in a process of its own (`compiler_environment`).
"""

import os
import tempfile
from pathlib import Path

import pytest
import torch

WHERE = "gpu" if torch.cuda.is_available() else "interpreter"
if WHERE == "interpreter":
    os.environ["TRITON_INTERPRET"] = "1"
os.environ.setdefault("TILELOOM_CACHE", str(Path(tempfile.gettempdir()) / "tileloom-tests"))


@pytest.fixture
def where() -> str:
    """Where kernels run here: gpu or interpreter."""
    return WHERE


@pytest.fixture
def compiler_environment() -> dict[str, str]:
    """The environment of a process in which Triton compiles."""
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
