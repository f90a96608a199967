"""Finds and loads machine files: those of this package by name, a user's own by path."""

from __future__ import annotations

from pathlib import Path

from hwspecs.errors import Fault, SpecError
from hwspecs.located_yaml import read
from hwspecs.machine import Machine
from hwspecs.validate import check, did_you_mean

_FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Names of the machines that come with the package, in alphabetical order."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.yaml")))


def load(name_or_path: str | Path) -> Machine:
    """Return the machine of a name from `names()` or of a YAML file's path.

    A text that ends in .yaml or .yml, or holds a path separator, is a path; any other is a name.
    Raises SpecError with every fault of the file, or where there is no such machine or file.
    """
    if isinstance(name_or_path, str) and not _looks_like_path(name_or_path):
        return _load_named(name_or_path)
    return check(Machine, read(Path(name_or_path), "machine"))


def _looks_like_path(text: str) -> bool:
    return text.endswith((".yaml", ".yml")) or "/" in text or "\\" in text


def _load_named(name: str) -> Machine:
    if name in names():
        return check(Machine, read(_FOLDER / f"{name}.yaml", "machine"))
    near = did_you_mean(name, names()) or "a file of your own is given by its path"
    rule = f"must be one of {', '.join(names())} or the path of a .yaml file"
    raise SpecError([Fault("machine", 0, 0, "", f"{rule}, got {name[:60]!r}; {near}")])
