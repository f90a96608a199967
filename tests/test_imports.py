"""The import rules of docs/architecture.md, read from the source."""

import ast
import subprocess
import sys
from pathlib import Path

import networkx
import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("hwspecs", "dataflow", "mapping", "gpu")
FACE = "dataflow.cli"
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}
# Third-party packages that one folder alone may import.
HOMES = {"yaml": "hwspecs", "simpy": "dataflow.sim", "torch": "gpu", "triton": "gpu"}


def _imported(name: str) -> set[str]:
    """Every module that a file imports, at its top or inside a function, written in full."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(FILES[name].read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: imports must be absolute"
            module = node.module or ""
            found |= {
                f"{module}.{a.name}" if f"{module}.{a.name}" in FILES else module
                for a in node.names
            }
            assert all(alias.name != "*" for alias in node.names), f"{name}: star import"
    return found


def _inside(module: str, folder: str) -> bool:
    return module == folder or module.startswith(folder + ".")


def _may_know(name: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The folders that a module may import, and exceptions inside them that it may not."""
    if _inside(name, "hwspecs"):
        return ("hwspecs",), ()
    if _inside(name, FACE):
        return PACKAGES, ()
    if _inside(name, "dataflow.sim"):
        return ("dataflow", "hwspecs"), (FACE,)
    if _inside(name, "dataflow"):
        return ("dataflow", "hwspecs"), (FACE, "dataflow.sim")
    return (name.split(".")[0], "dataflow", "hwspecs"), (FACE, "dataflow.sim")


@pytest.mark.parametrize("name", FILES)
def test_imports_stay_within_what_the_folder_may_know(name: str) -> None:
    allowed, denied = _may_know(name)
    for module in _imported(name):
        if module.split(".")[0] in PACKAGES:
            assert any(_inside(module, folder) for folder in allowed), f"{name} knows {module}"
            assert not any(_inside(module, folder) for folder in denied), f"{name} knows {module}"


@pytest.mark.parametrize("name", FILES)
def test_imports_of_third_party_packages_stay_at_home(name: str) -> None:
    for module in _imported(name):
        home = HOMES.get(module.split(".")[0])
        assert home is None or _inside(name, home), f"{module} belongs in {home}, not in {name}"


def test_imports_have_no_circles() -> None:
    edges = [(name, m) for name in FILES for m in _imported(name) if m in FILES and m != name]
    assert list(networkx.simple_cycles(networkx.DiGraph(edges))) == []


@pytest.mark.parametrize("name", [n for n in FILES if FILES[n].name == "__init__.py"])
def test_init_does_no_work(name: str) -> None:
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.Expr)
    for node in ast.parse(FILES[name].read_text()).body:
        if name in ("dataflow.kernels", "dataflow.rewrites"):
            continue  # they hold the one table of their family
        assert isinstance(node, allowed), f"{name}: line {node.lineno} does work"
        if isinstance(node, ast.Expr):
            assert isinstance(node.value, ast.Constant), f"{name}: line {node.lineno} does work"


def test_everything_but_gpu_imports_without_torch() -> None:
    modules = [name for name in FILES if not _inside(name, "gpu")]
    code = f"""
import importlib, sys
sys.modules["torch"] = sys.modules["triton"] = None
for name in {modules!r}:
    importlib.import_module(name)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, cwd=ROOT)
