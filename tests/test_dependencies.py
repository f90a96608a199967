"""Every third-party import is declared in pyproject.toml, and every declaration is used."""

import ast
import json
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
OURS = {"hwspecs", "dataflow", "mapping", "gpu", "tests"}
OURS |= {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# Import name -> distribution, where they differ.
DISTRIBUTIONS = {"yaml": "pyyaml", "sklearn": "scikit-learn"}
# Declared for what they do, not for an import: test plug-ins, linters, the notebook's kernel.
TOOLS = {"ipykernel", "pyright", "pytest-timeout", "pytest-xdist", "ruff", "types-pyyaml"}


def _declared(requirements: list[str]) -> set[str]:
    names = {re.split(r"[<>=!~;\[ ]", text, maxsplit=1)[0] for text in requirements}
    return {name.lower() for name in names}


def _distributions(sources: list[str]) -> set[str]:
    found: set[str] = set()
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    third_party = found - OURS - set(sys.stdlib_module_names)
    return {DISTRIBUTIONS.get(name, name).lower() for name in third_party}


def _files(*folders: str) -> list[str]:
    return [
        path.read_text() for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))
    ]


def _notebook_cells() -> list[str]:
    cells = []
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            if cell["cell_type"] == "code":
                cells.append("".join(cell["source"]))
    return cells


CORE = _declared(PROJECT["dependencies"])
EXTRAS = {name: _declared(texts) for name, texts in PROJECT["optional-dependencies"].items()}


def test_packages_import_only_declared_dependencies() -> None:
    assert _distributions(_files("hwspecs", "dataflow", "mapping")) <= CORE
    assert _distributions(_files("gpu")) <= CORE | EXTRAS["gpu"]


def test_demo_and_notebooks_import_only_declared_dependencies() -> None:
    demo = [(ROOT / "benchmarks" / name).read_text() for name in ("demo.py", "measured_series.py")]
    assert _distributions(demo) <= CORE
    assert _distributions(_notebook_cells()) <= CORE | EXTRAS["explore"]


def test_tests_and_benchmarks_import_only_declared_dependencies() -> None:
    assert _distributions(_files("tests", "benchmarks")) <= CORE | EXTRAS["dev"]


def test_core_dependencies_are_all_used() -> None:
    assert CORE - _distributions(_files("hwspecs", "dataflow", "mapping")) == set()


def test_dev_dependencies_are_all_used() -> None:
    assert EXTRAS["dev"] - TOOLS - _distributions(_files("tests", "benchmarks")) == set()
