from joblens.views.style import Palette, visible_width
from joblens.views.table import Column, render_table

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
