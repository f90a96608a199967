"""What a command line asks for: a kernel's graph at given settings, and arrays from files.

A kernel is a name of the library, or `file.py:function` of the user's own: a function that takes
sizes by name and returns a Graph.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dataflow.errors import FaultsError
from dataflow.graph import Graph
from dataflow.kernels import KERNELS, build, kernel, settings
from dataflow.reference import check_inputs, draw_inputs
from dataflow.rewrites import apply

PLAIN = "none"
"""What `--rewrite` says for the plain form."""


class RequestError(FaultsError):
    """A command line that asks for what cannot be done; each fault has its place."""


@dataclass(frozen=True)
class Request:
    """A kernel at its settings. `plain` is its graph before any rewrite, `graph` what to run."""

    kernel: str
    sizes: Mapping[str, Any]
    options: Mapping[str, Any]
    rewrites: tuple[str, ...]
    graph: Graph
    plain: Graph


def read_settings(texts: Sequence[str]) -> dict[str, str]:
    """Return the settings that texts such as "n=4096 causal=true" hold, by name.

    >>> read_settings(["n=4096 d=128", "causal=true"])
    {'n': '4096', 'd': '128', 'causal': 'true'}
    """
    found: dict[str, str] = {}
    faults: list[str] = []
    for part in (part for text in texts for part in text.split()):
        name, equals, value = part.partition("=")
        if not (name and equals and value):
            faults.append(f"--set: a setting must be name=value, got {part!r}")
        elif found.get(name, value) != value:
            faults.append(f"--set: {name} must be set once, got {found[name]!r} and {value!r}")
        else:
            found[name] = value
    if faults:
        raise RequestError(faults)
    return found


def request(name: str, texts: Mapping[str, str], rewrites: Sequence[str] = ()) -> Request:
    """Return the kernel `name` at the settings in `texts`.

    No rewrite means those that the kernel applies by default; "none" means its plain form. Raises
    FaultsError (RequestError, KernelError, RewriteError, GraphError) on what cannot be had.
    """
    chosen = _rewrites(rewrites)
    if _is_file(name):
        return _own(name, texts, chosen or ())
    sizes, options = settings(name, texts)
    family = kernel(name)
    graph = build(name, sizes, options, chosen)
    every = {**family.sizes, **sizes}
    for axis, leader in family.follows.items():
        if axis not in sizes and leader in sizes:
            every[axis] = sizes[leader]
    applied = family.rewrites if chosen is None else chosen
    plain = build(name, sizes, options, ())
    return Request(name, every, {**family.options, **options}, applied, graph, plain)


def _rewrites(names: Sequence[str]) -> tuple[str, ...] | None:
    if not names:
        return None
    if PLAIN in names and len(names) > 1:
        raise RequestError(f"--rewrite: {PLAIN} must stand alone, got {', '.join(names)}")
    return () if PLAIN in names else tuple(names)


def _is_file(name: str) -> bool:
    return ".py:" in name or name.endswith(".py")


def _own(name: str, texts: Mapping[str, str], rewrites: tuple[str, ...]) -> Request:
    function = _function(name)
    given = {key: _value(text) for key, text in texts.items()}
    try:
        bound = inspect.signature(function).bind(**given)
    except TypeError as error:
        takes = inspect.signature(function)
        raise RequestError(f"{name}: settings must fit {takes}, {error}") from error
    bound.apply_defaults()
    plain = _call(name, lambda: function(**given))
    if not isinstance(plain, Graph):
        raise RequestError(f"{name}: it must return a Graph, got {type(plain).__name__}")
    graph = plain
    for rewrite in rewrites:
        graph = apply(graph, rewrite)
    return Request(name, dict(bound.arguments), {}, rewrites, graph, plain)


def _value(text: str) -> Any:
    """Return what the text of a setting of a user's own function means."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _function(name: str) -> Callable[..., Any]:
    path, _, attribute = name.rpartition(":")
    if not path:
        hint = f"write {name}:FUNCTION, a function that returns a Graph"
        raise RequestError(f"kernel: a file must be given with its function, got {name!r}; {hint}")
    if not Path(path).is_file():
        known = ", ".join(KERNELS)
        raise RequestError(f"kernel: file must exist, got {path!r}; names of the library: {known}")
    spec = importlib.util.spec_from_file_location("tileloom_user_kernel", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    loader = spec.loader
    _call(path, lambda: loader.exec_module(module))
    function = getattr(module, attribute, None)
    if not callable(function):
        raise RequestError(f"{path}: {attribute} must be a function in it, got none of that name")
    return function


def _call(name: str, action: Callable[[], Any]) -> Any:
    """Run a user's code; what it raises becomes one line with the file and line it came from.

    What it prints goes to standard error, as standard output may be JSON.
    """
    try:
        with redirect_stdout(sys.stderr):
            return action()
    except FaultsError:
        raise
    except (Exception, SystemExit) as error:
        file = name.rpartition(":")[0] if ".py:" in name else name
        whole = Path(file).resolve()  # a module's own path is absolute
        trace = traceback.extract_tb(error.__traceback__)
        frames = [f for f in trace if Path(f.filename).resolve() == whole]
        line = frames[-1].lineno if frames else getattr(error, "lineno", None)
        where = f"{file}:{line}" if line else name
        raise RequestError(f"{where}: {type(error).__name__}: {error}") from error


def inputs_of(
    graph: Graph, file: Path | None, seed: int
) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """Return an array for every input of `graph`, and remarks on those of `file`.

    What the .npz file lacks is drawn from a unit normal by `seed`. Raises RequestError where the
    file cannot be read, InputError where an array does not fit.
    """
    given = _read_arrays(file) if file else {}
    drawn = {name: array for name, array in draw_inputs(graph, seed).items() if name not in given}
    arrays = {**drawn, **given}
    remarks = check_inputs(graph, arrays)
    return {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}, remarks


def _read_arrays(file: Path) -> dict[str, NDArray[Any]]:
    try:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise RequestError(f"{file}: it must hold arrays by name (.npz), got a single array")
        return {name: archive[name] for name in archive.files}
    except RequestError:
        raise
    except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RequestError(f"{file}: it must be a readable .npz file, got: {reason}") from error


def write_arrays(file: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name as an .npz file; the name is taken as it stands."""
    with file.open("wb") as out:
        np.savez(out, **dict(arrays))  # type: ignore[arg-type]
