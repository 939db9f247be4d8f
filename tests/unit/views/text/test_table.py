from joblens.views.text.style import Palette, visible_width
from joblens.views.text.table import Column, render_table

COLUMNS = (Column("ID"), Column("NAME", gives_way=True, least=5), Column("CPU", is_right=True))


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert render_table(COLUMNS, [["a", "poisson", "1.5s"], ["bb", "x", "20s"]], 80) == [
        "ID  NAME      CPU",
        "a   poisson  1.5s",
        "bb  x         20s",
    ]


def test_the_column_that_gives_way_is_cut_to_fit() -> None:
    lines = render_table(COLUMNS, [["a", "a very long name", "1.5s"]], 20)
    assert visible_width(lines[1]) == 20
    assert "…" in lines[1]


def test_it_is_not_cut_below_its_least_width() -> None:
    lines = render_table(COLUMNS, [["a", "a very long name", "1.5s"]], 5)
    assert "a ve…" in lines[1]


def test_coloured_cells_line_up_with_plain_ones() -> None:
    red = Palette(is_on=True).paint("x", "red")
    lines = render_table((Column("A"), Column("B")), [[red, "1"], ["yy", "2"]], 80)
    assert [visible_width(line) for line in lines[1:]] == [5, 5]


def test_a_table_without_rows_is_its_titles() -> None:
    assert render_table(COLUMNS, [], 80) == ["ID  NAME  CPU"]


def test_where_all_is_too_wide_the_least_wanted_columns_are_left_out() -> None:
    columns = (
        Column("ID"),
        Column("NAME", gives_way=True, least=4),
        Column("CPU", goes=2),
        Column("I/O", goes=1),
    )
    rows = [["12", "poisson", "1.5s", "20M"]]
    assert render_table(columns, rows, 17) == ["ID  NAME     CPU", "12  poisson  1.5s"]
    assert render_table(columns, rows, 13) == ["ID  NAME", "12  poisson"]
    assert render_table(columns, rows, 14) == ["ID  NAME  CPU", "12  poi…  1.5s"]


def test_nothing_is_left_out_where_there_is_room_for_an_ordinary_terminal() -> None:
    columns = (Column("ID"), Column("CPU", goes=1))
    assert render_table(columns, [["x" * 80, "1s"]], 80)[1].endswith("  1s")
