"""Notebooks run from top to bottom, and stay thin."""

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def _code(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, 4)
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_holds_no_function_of_over_ten_lines(path: Path) -> None:
    for source in _code(path):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                assert node.end_lineno and node.end_lineno - node.lineno < 10, node.name


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_stored_without_outputs(path: Path) -> None:
    for cell in nbformat.read(path, 4).cells:
        assert not cell.get("outputs") and not cell.get("execution_count")
