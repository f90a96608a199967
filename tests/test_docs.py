"""Pages link to files that exist and name commands and machines that there are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hwspecs
from dataflow.kernels import KERNELS

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "docs", "hwspecs", "dataflow", "dataflow/sim", "mapping", "gpu")
PAGES = sorted(page for folder in FOLDERS for page in (ROOT / folder).glob("*.md"))
COMMANDS = {"machines", "kernels", "simulate", "map", "validate", "gpu"}
GPU_COMMANDS = {"check", "bench", "compile", "source", "tune"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_exist(page: Path) -> None:
    for line in page.read_text().splitlines():
        words = line.strip().removeprefix("$ ").split()
        if words[:1] != ["tileloom"] or len(words) < 2:
            continue
        assert words[1] in COMMANDS, line
        if words[1] == "gpu":
            assert words[2] in GPU_COMMANDS, line
        if words[1] in ("simulate", "map") and not words[2].isupper():
            assert words[2] in KERNELS or ".py:" in words[2], line
        if "--hw" in words and not words[words.index("--hw") + 1].endswith(".yaml"):
            assert words[words.index("--hw") + 1] in hwspecs.names(), line


@pytest.mark.parametrize("package", ["hwspecs", "dataflow", "dataflow/sim", "mapping", "gpu"])
def test_every_package_has_a_page(package: str) -> None:
    assert (ROOT / package / "README.md").is_file()


@pytest.mark.slow
def test_tour_of_the_front_page_shows_what_its_command_prints() -> None:
    (block,) = re.findall(r"```\n\$ tileloom (.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    command, *shown = block.splitlines()
    done = subprocess.run(
        [sys.executable, "-m", "dataflow.cli", *command.split()],
        check=True,
        capture_output=True,
        text=True,
    )
    printed = {line.rstrip() for line in done.stdout.splitlines()} | {"..."}
    stale = [line for line in shown if line.rstrip() not in printed]
    assert stale == [], "the front page shows figures that the command no longer prints"
