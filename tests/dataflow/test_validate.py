"""Lists of published cases: what is read, what is refused, and the figures over all cases."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataflow.validate import (
    Case,
    CaseError,
    Comparison,
    Measured,
    mean_abs_error,
    published,
    rank_correlation,
    read_cases,
    worst_abs_error,
)

HEADER = "case,kernel,sizes,tile,unroll,vector,reference_cycles\n"


def _file(folder: Path, text: str) -> Path:
    path = folder / "cases.csv"
    path.write_text(text)
    return path


def _faults(folder: Path, text: str) -> tuple[str, ...]:
    with pytest.raises(CaseError) as caught:
        read_cases(_file(folder, text))
    return tuple(fault.removeprefix(f"{folder}/") for fault in caught.value.faults)


def test_read_cases_takes_the_published_list() -> None:
    cases = read_cases(published())
    assert len(cases) == 24
    assert sum(case.kernel == "gemm" for case in cases) == 13


def test_read_cases_reads_counts_and_places(tmp_path: Path) -> None:
    path = _file(tmp_path, HEADER + "A,outer_product,i=8 j=8,i=4,-,compute:j=4 load:1,99\n")
    expected = Case("A", "outer_product", {"i": 8, "j": 8}, {"i": 4}, {},
                    {"compute:j": 4, "load": 1}, 99, f"{path}:2")  # fmt: skip
    assert read_cases(path) == (expected,)


def test_read_cases_keeps_further_columns_out(tmp_path: Path) -> None:
    text = HEADER.strip() + ",reference_pcus\nA,gemm,i=8 j=8 k=8,-,-,-,99,4\n"
    assert read_cases(_file(tmp_path, text))[0].name == "A"


def test_read_cases_takes_units_where_they_are_given(tmp_path: Path) -> None:
    rows = "A,gemm,i=8 j=8 k=8,-,-,-,99,4,0\nB,gemm,i=8 j=8 k=8,-,-,-,99,-,\n"
    header = HEADER.strip() + ",reference_pcus,reference_pmus\n"
    first, second = read_cases(_file(tmp_path, header + rows))
    assert (first.reference_pcus, first.reference_pmus) == (4, 0)
    assert (second.reference_pcus, second.reference_pmus) == (None, None)
    (fault,) = _faults(tmp_path, header + rows.replace("4,0", "4,-1"))
    where = "cases.csv:2: reference_pmus"
    assert fault == f"{where} must be a whole number >= 0, or empty, got '-1'"


def test_comparison_has_the_units_of_both_sides(tmp_path: Path) -> None:
    header = HEADER.strip() + ",reference_pcus\n"
    (case,) = read_cases(_file(tmp_path, header + "A,gemm,i=8 j=8 k=8,-,-,-,100,4\n"))
    row = Comparison.of(case, Measured(cycles=110, pcus=3, pmus=5))
    assert row.error == pytest.approx(0.1)
    assert (row.pcus, row.reference_pcus, row.pmus, row.reference_pmus) == (3, 4, 5, None)


def test_read_cases_reports_all_faults_with_row_and_column(tmp_path: Path) -> None:
    rows = "A,gem,i=8,i=0,-,-,99\nB,gemm,i,-,i=2 i=3,-,many\n,gemm,i=8,-,-,-,5\n"
    assert _faults(tmp_path, HEADER + rows) == (
        "cases.csv:2: kernel must be of the library, got 'gem'; did you mean gemm?",
        "cases.csv:2: tile must hold name=count, count >= 1, got 'i=0'",
        "cases.csv:3: sizes must hold name=count, count >= 1, got 'i'",
        "cases.csv:3: unroll must name i once, got it twice",
        "cases.csv:3: reference_cycles must be a whole number >= 1, got 'many'",
        "cases.csv:4: case must be a name, got ''",
    )


def test_read_cases_names_the_missing_column(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path, HEADER.replace("unroll", "unrol"))
    assert fault == "cases.csv:1: column unroll must be given, got none; did you mean unrol?"


def test_read_cases_refuses_a_column_given_twice(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path, HEADER.replace("tile", "tile,unroll") + "A,gemm,,,-,-,-,5\n")
    assert fault == "cases.csv:1: column unroll must be given once, got 2"


def test_read_cases_of_an_empty_file_is_one_fault(tmp_path: Path) -> None:
    (fault,) = _faults(tmp_path, "")
    assert fault.startswith("cases.csv:1: it must name the columns case, kernel, sizes")


def test_read_cases_takes_spaces_round_the_columns_and_any_end_of_line(tmp_path: Path) -> None:
    plain = HEADER + "A,gemm,i=8 j=8 k=8,-,-,k=4,99\n"
    expected = read_cases(_file(tmp_path, plain))
    path = tmp_path / "cases.csv"
    for text in (plain.replace(",", " , "), plain.replace("\n", "\r"), plain.replace("\n", "\r\n")):
        path.write_bytes(text.encode())
        assert read_cases(path) == expected


def test_read_cases_refuses_counts_that_no_schedule_takes(tmp_path: Path) -> None:
    row = "A,gemm,i=2147483649 j=8 k=8,-,i.o=2147483648,k=8,5\n"
    (fault,) = _faults(tmp_path, HEADER + row)
    where = "cases.csv:2: sizes must hold counts of at most 2147483648"
    assert fault == f"{where}, got 'i=2147483649'"


def test_read_cases_counts_the_columns_of_a_row(tmp_path: Path) -> None:
    assert _faults(tmp_path, HEADER + "A,gemm,i=8\n") == ("cases.csv:2: columns must be 7, got 3",)


def test_read_cases_refuses_an_empty_list_and_repeated_names(tmp_path: Path) -> None:
    assert _faults(tmp_path, HEADER) == ("cases.csv:2: there must be at least one case, got none",)
    twice = _faults(tmp_path, HEADER + 2 * "A,gemm,-,-,-,-,5\n")
    assert twice[0] == "cases.csv:2: case must be a name of its own, got 'A' twice"


def test_read_cases_refuses_what_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "cases.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CaseError, match="UTF-8"):
        read_cases(path)
    with pytest.raises(CaseError, match="readable"):
        read_cases(tmp_path)


@given(text=st.text(max_size=80))
@settings(max_examples=60, deadline=None)
def test_read_cases_gives_cases_or_places(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "random.csv"
    path.write_text(HEADER + text, encoding="utf-8")
    try:
        read_cases(path)
    except CaseError as error:
        assert all(fault.startswith(f"{path}:") for fault in error.faults)


def _rows(*pairs: tuple[int, int]) -> list[Comparison]:
    return [Comparison(str(i), reference, ours) for i, (reference, ours) in enumerate(pairs)]


def test_errors_are_relative_to_the_reference() -> None:
    rows = _rows((100, 110), (200, 190))  # +10 % and -5 %
    assert [row.error for row in rows] == pytest.approx([0.10, -0.05])
    assert mean_abs_error(rows) == pytest.approx(0.075)
    assert worst_abs_error(rows) == pytest.approx(0.10)


def test_rank_correlation_is_one_in_order_and_minus_one_reversed() -> None:
    assert rank_correlation(_rows((1, 5), (2, 6), (3, 70))) == pytest.approx(1)
    assert rank_correlation(_rows((1, 7), (2, 6), (3, 5))) == pytest.approx(-1)


def test_rank_correlation_shares_the_ranks_of_equals() -> None:
    # ranks 0 1 2 against 0.5 0.5 2: deviations (-1 0 1) and (-.5 -.5 1): 1.5 / sqrt(2 * 1.5)
    assert rank_correlation(_rows((1, 4), (2, 4), (3, 9))) == pytest.approx(1.5 / 3**0.5)


def test_rank_correlation_of_one_case_means_nothing() -> None:
    assert rank_correlation(_rows((1, 4))) is None
