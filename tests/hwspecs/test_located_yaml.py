"""The reader that keeps places."""

import pytest

from hwspecs import SpecError, read
from hwspecs.located_yaml import MAX_BYTES, MAX_DEPTH, MAX_VALUES, dotted

TEXT = """\
# a comment
grid:
  rows: 2
  pattern: [CM, MC]
list:
  - a: 1
  - b: "2"
"""


def test_read_gives_plain_data():
    data = read(TEXT, "machine").data
    assert data == {"grid": {"rows": 2, "pattern": ["CM", "MC"]}, "list": [{"a": 1}, {"b": "2"}]}


@pytest.mark.parametrize(
    ("path", "value_place", "key_place"),
    [
        ((), (2, 1), (2, 1)),
        (("grid",), (3, 3), (2, 1)),
        (("grid", "rows"), (3, 9), (3, 3)),
        (("grid", "pattern", 1), (4, 17), (4, 17)),
        (("list", 1, "b"), (7, 8), (7, 5)),
    ],
)
def test_read_keeps_line_and_column(path, value_place, key_place):
    located = read(TEXT, "machine")
    assert located.place(path) == value_place
    assert located.key_place(path) == key_place


def test_place_of_what_is_missing_is_that_of_its_parent():
    assert read(TEXT, "machine").place(("grid", "columns", 3)) == (3, 3)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("010", 10),
        ("0x10", "0x10"),
        ("2026-01-01", "2026-01-01"),
        ("1:30", "1:30"),
        ("1e3", 1000.0),
        ("'5'", "5"),
        ("true", True),
        ("~", None),
        ("-.inf", float("-inf")),
        ("9" * 80, "9" * 80),
        ("<<", "<<"),
    ],
)
def test_read_resolves_plain_scalars(text, value):
    assert read(f"a: {text}", "machine").data == {"a": value}


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (
            "a: 1\nb: 2\na: 3",
            "3:1",
            "a must be given once, got a second one; the first is on line 1",
        ),
        ("a: &x 1", "1:4", "a must have no anchor, got '&x'"),
        ("a: 1\nb: *x", "2:4", "b must be written out, got the alias '*x'"),
        ("a: !!python/object:os.system x", "1:4", "a must have no tag"),
        ("a:\n  [1, !x 2]", "2:7", "a[1] must have no tag"),
        ("? [1]\n: 2", "1:3", "a key must be plain text, got list"),
        ("a: 1\n---\nb: 2", "2:1", "one document"),
        ("a: b: c", "1:5", "must be YAML"),
        ("a: [1,\nb: 2", "2:5", "must be YAML"),
        ("a: {\n", "2:1", "must be YAML"),
        ("a: \x07", "1:4", "printable text, got character #x0007"),
        ("a: 1\nb: x\x00", "2:5", "printable text, got character #x0000"),
        ('a: "\\UFFFFFFFF"', "1:7", "number or escape out of range"),
        ("[" * (MAX_DEPTH + 1), f"1:{MAX_DEPTH + 1}", f"at most {MAX_DEPTH} deep"),
    ],
)
def test_read_refuses_with_the_place(text, place, said):
    with pytest.raises(SpecError) as caught:
        _ = read(text, "machine").data
    assert str(caught.value).startswith(f"<machine text>:{place}: ")
    assert said in str(caught.value)


def test_read_refuses_an_alias_bomb():
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)]
    with pytest.raises(SpecError, match="alias"):
        _ = read("\n".join(lines), "machine").data


def test_read_reports_all_faults_that_do_not_stop_it():
    with pytest.raises(SpecError) as caught:
        _ = read("a: &x 1\na: 2\nb: !t 3", "machine").data
    assert [fault.line for fault in caught.value.faults] == [1, 2, 3]


def test_read_refuses_too_much(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(SpecError, match=f"at most {MAX_BYTES} bytes"):
        read(path, "machine")
    with pytest.raises(SpecError, match=f"at most {MAX_BYTES} bytes"):
        read("#" * (MAX_BYTES + 1), "machine")


@pytest.mark.slow
def test_read_refuses_too_many_values():
    with pytest.raises(SpecError, match=f"at most {MAX_VALUES} values"):
        read("[" + "a," * (MAX_VALUES + 1), "machine")


def test_read_refuses_what_is_not_utf8_with_its_place(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes("a: 1\nü: ".encode() + b"\xfc\n")
    with pytest.raises(SpecError) as caught:
        read(path, "machine")
    assert str(caught.value) == f"{path}:2:4: must be UTF-8 text, got byte 0xfc"


def test_read_refuses_missing_files_and_folders(tmp_path):
    for path in (tmp_path, tmp_path / "none.yaml", tmp_path / ("x" * 5000), tmp_path / "a\0b"):
        with pytest.raises(SpecError):
            read(path, "machine")


def test_dotted_writes_paths_as_people_do():
    assert dotted(("a", "b", 0, "c")) == "a.b[0].c"
    assert dotted(()) == ""
