"""Kernels by name and of the user's own, settings, and arrays from files."""

from pathlib import Path

import numpy as np
import pytest

from dataflow.errors import FaultsError
from dataflow.reference import InputError
from dataflow.request import RequestError, inputs_of, read_settings, request, write_arrays

OWN = """
from dataflow.graph import Builder

def scaled(n=8, factor=2.0, flip=False):
    g = Builder("scaled", n=n)
    g.output("y", g.map("mul", g.input("x", "n"), -factor if flip else factor))
    return g.build()

def broken(n=8):
    return 1 // 0

def text():
    return "no graph"
"""


@pytest.fixture
def own(tmp_path: Path) -> str:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return str(path)


def _fault(name: str, texts: dict[str, str], rewrites: tuple[str, ...] = ()) -> str:
    with pytest.raises(FaultsError) as caught:
        request(name, texts, rewrites)
    return str(caught.value)


def test_read_settings_reports_every_part_that_is_none() -> None:
    with pytest.raises(RequestError) as caught:
        read_settings(["n=", "=4 d", "n=4 n=5"])
    assert len(caught.value.faults) == 4


def test_request_of_a_library_kernel_fills_in_its_defaults() -> None:
    made = request("attention", {"n": "32", "causal": "true"})
    assert made.sizes == {"batch": 1, "heads": 2, "n": 32, "m": 32, "d": 64}
    assert made.options["causal"] is True
    assert made.rewrites == ("online_softmax",)
    assert made.graph != made.plain


def test_request_of_the_plain_form() -> None:
    made = request("attention", {}, ("none",))
    assert made.rewrites == ()
    assert made.graph == made.plain


def test_request_refuses_none_beside_a_rewrite() -> None:
    assert "none must stand alone" in _fault("attention", {}, ("none", "online_softmax"))


def test_request_names_the_nearest_kernel_and_size() -> None:
    assert "did you mean attention?" in _fault("attenton", {})
    assert "did you mean heads?" in _fault("attention", {"head": "2"})


def test_request_calls_a_function_of_the_user(own: str) -> None:
    made = request(f"{own}:scaled", {"n": "5", "flip": "true"})
    assert made.sizes == {"n": 5, "factor": 2.0, "flip": True}
    assert made.graph.extent("n") == 5


def test_request_says_what_a_users_function_takes(own: str) -> None:
    assert "settings must fit (n=8, factor=2.0, flip=False)" in _fault(f"{own}:scaled", {"m": "5"})


def test_request_says_where_a_users_function_failed(own: str) -> None:
    assert _fault(f"{own}:broken", {}).startswith(f"{own}:10: ZeroDivisionError")


def test_request_refuses_functions_that_give_no_graph(own: str) -> None:
    assert "must return a Graph, got str" in _fault(f"{own}:text", {})
    assert "missing must be a function in it" in _fault(f"{own}:missing", {})
    assert "must be given with its function" in _fault(own, {})


def test_request_says_where_a_users_file_is_no_python(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("x = 1\ndef f(:\n")
    assert _fault(f"{path}:f", {}).startswith(f"{path}:2: SyntaxError")


def test_request_says_that_a_file_is_missing() -> None:
    assert "file must exist, got 'nowhere.py'" in _fault("nowhere.py:f", {})


def test_inputs_of_mixes_a_file_with_drawn_arrays(tmp_path: Path) -> None:
    graph = request("gemm", {"i": "2", "j": "3", "k": "4"}).graph
    file = tmp_path / "a.npz"
    write_arrays(file, {"a": np.ones((2, 4), np.float32)})
    arrays, remarks = inputs_of(graph, file, seed=3)
    assert remarks == ()
    assert arrays["a"].dtype == np.float64
    np.testing.assert_array_equal(arrays["a"], 1)
    np.testing.assert_array_equal(arrays["b"], inputs_of(graph, None, seed=3)[0]["b"])


def test_inputs_of_reports_names_and_shapes_together(tmp_path: Path) -> None:
    graph = request("gemm", {"i": "2", "j": "3", "k": "4"}).graph
    file = tmp_path / "a.npz"
    write_arrays(file, {"a": np.ones((4, 2)), "bb": np.ones(3)})
    with pytest.raises(InputError) as caught:
        inputs_of(graph, file, seed=0)
    assert len(caught.value.faults) == 2


@pytest.mark.parametrize("content", [b"", b"junk", b"PK\x03\x04 cut short"])
def test_inputs_of_refuses_what_is_no_archive(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "a.npz"
    file.write_bytes(content)
    graph = request("gemm", {}).graph
    with pytest.raises(RequestError, match=r"must be a readable \.npz file"):
        inputs_of(graph, file, seed=0)


def test_inputs_of_refuses_pickles_and_single_arrays(tmp_path: Path) -> None:
    graph = request("gemm", {}).graph
    pickled, single = tmp_path / "p.npz", tmp_path / "s.npy"
    np.savez(pickled, a=np.array([{}], dtype=object))
    np.save(single, np.ones(3))
    for file in (pickled, single):
        with pytest.raises(RequestError, match=str(file)):
            inputs_of(graph, file, seed=0)


@pytest.mark.parametrize(
    ("source", "line"),
    [("import sys\nsys.exit(3)\n", 2), ("import sys\ndef f():\n    sys.exit('no')\n", 3)],
)
def test_request_says_that_a_users_code_left(tmp_path: Path, source: str, line: int) -> None:
    path = tmp_path / "leaves.py"
    path.write_text(source)
    assert _fault(f"{path}:f", {}).startswith(f"{path}:{line}: SystemExit: ")


def test_request_gives_lines_of_relative_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rais.py").write_text("def f():\n    raise RuntimeError('boom')\n")
    monkeypatch.chdir(tmp_path)
    assert _fault("rais.py:f", {}) == "rais.py:2: RuntimeError: boom"
    assert _fault("./rais.py:f", {}) == "./rais.py:2: RuntimeError: boom"


def test_request_words_settings_that_do_not_fit_once(own: str) -> None:
    fault = _fault(f"{own}:scaled", {"m": "5"})
    assert fault.endswith(", got an unexpected keyword argument 'm'")
    assert "got got" not in fault
