"""Tables at the width of a terminal: whole figures, wrapped words, pieces one below the other."""

from rich.console import Console

from dataflow.tables import FittedTable


def printed(table: FittedTable, width: int) -> list[str]:
    """The lines of a table without their trailing spaces, empty ones left out."""
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    return [line.rstrip() for line in console.export_text().splitlines() if line.strip(" \u2500")]


def runs(name: str = "load x") -> FittedTable:
    table = FittedTable(("unit", "firings", "busy"), wraps=("unit",))
    table.add(name, "1,234,567", "98.5%")
    return table


def test_table_stands_in_one_piece_where_it_fits() -> None:
    # 6 + 9 + 5 characters, two gaps of 3, an edge of 1 on either side
    assert printed(runs(), 28) == [
        " unit       firings    busy",
        " load x   1,234,567   98.5%",
    ]


def test_table_that_is_too_wide_goes_on_below_with_its_first_column() -> None:
    assert printed(runs(), 27) == [
        " unit       firings",
        " load x   1,234,567",
        " unit      busy",
        " load x   98.5%",
    ]


def test_words_wrap_before_a_table_goes_on_below() -> None:
    # Of 24 characters the name keeps 12: 12 + 9 + 5 + 2 x 3 + 2 = 34
    assert printed(runs("load x -> a.shifted read"), 34) == [
        " unit             firings    busy",
        " load x ->      1,234,567   98.5%",
        " a.shifted",
        " read",
    ]
    assert len(printed(runs("load x -> a.shifted read"), 33)) > 4


def test_lines_of_a_cell_stay_lines_and_brackets_brackets() -> None:
    table = FittedTable(("with", "in the file"), wraps=("with", "in the file"))
    table.add("[b]more[/b]", "lanes: 1 -> 2\nbanks: 1 -> 2")
    assert printed(table, 80) == [
        " with          in the file",
        " [b]more[/b]   lanes: 1 -> 2",
        "               banks: 1 -> 2",
    ]


def test_columns_stand_on_the_right_unless_told() -> None:
    table = FittedTable(("case", "cycles"), wraps=("case", "cycles"), left=("case",))
    table.add("a", "12")
    assert printed(table, 80) == [" case   cycles", " a          12"]
