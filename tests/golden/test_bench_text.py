"""What `joblens bench` shows."""

from joblens.views.bench.report import html_report, markdown_report, ratios_svg
from joblens.views.bench.text import fine_duration, render_list, render_result
from tests.golden.bench_results import tool_result, two_commands
from tests.golden.golden import same_as_golden, same_text


def test_two_commands() -> None:
    same_as_golden("bench", render_result(two_commands(), 100))


def test_two_runs_have_no_interval() -> None:
    same_as_golden("bench-few", render_result(two_commands(2), 100))


def test_a_tool_that_always_fails() -> None:
    same_as_golden("bench-failed", render_result(tool_result(fails=True), 100))


def test_the_list_of_results() -> None:
    same_as_golden("bench-list", render_list([two_commands(), tool_result(), tool_result(fails=True)], 100))


def test_the_report() -> None:
    text, pictures = markdown_report([two_commands(), tool_result()], "Sorting")
    same_text("bench-report.md", text)
    for name, svg in pictures.items():
        assert f"({name})" in text
        same_text(name, svg)


def test_named_results_are_compared_with_the_first() -> None:
    before, after = tool_result(), tool_result(middle=3.0, seed=6)
    after["params"] = {"cells": 256}
    text, pictures = markdown_report([before, after], "Heat", compares=True)
    same_text("bench-report-compared.md", text)
    assert all(f"({name})" in text for name in pictures)
    assert "they differ: cells 128 → 256" in text
    assert html_report([before, after], "Heat", compares=True).count("<svg") == 4
    assert "Compared" not in markdown_report([before, after], "Heat")[0]


def test_each_machine_is_reported_where_they_differ_and_one_only_once() -> None:
    one, two = tool_result(), tool_result(seed=6)
    two["system_info"] = {**two["system_info"], "load_1min": 5.0}
    assert markdown_report([one, two], "Heat")[0].count("| host |") == 1
    two["system_info"] = {**two["system_info"], "hostname": "node8"}
    assert markdown_report([one, two], "Heat")[0].count("| host |") == 2


def test_wide_tables_of_the_page_scroll_by_themselves() -> None:
    page = html_report([tool_result()], "solver heat.py on cpu")
    assert ".table { overflow-x: auto;" in page
    assert page.count("<table") == page.count('<div class="table"><table')
    assert page.count("solver heat.py on cpu</h") == 1


def test_a_first_round_that_takes_all_the_time_is_reported() -> None:
    document = {**two_commands(1), "stopped": "time"}
    assert "in the first round" in " ".join(render_result(document, 200))


def test_one_command_has_no_order() -> None:
    document = two_commands()
    assert "random order" in " ".join(render_result(document, 200))
    document["variants"] = document["variants"][:1]
    assert "random order" not in " ".join(render_result(document, 200))


def test_the_page_holds_its_pictures_and_nothing_of_a_name_becomes_markup() -> None:
    document = two_commands()
    document["variants"][1]["name"] = document["comparisons"][0]["variant"] = "<script>alert(1)</script>"
    page = html_report([document], "A & B")
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<title>A &amp; B</title>" in page


def test_without_anything_to_compare_there_is_no_picture() -> None:
    assert ratios_svg([]) == ""
    _, pictures = markdown_report([tool_result(fails=True)], "Failed")
    assert pictures == {}


def test_durations_have_three_digits_that_count() -> None:
    shown = [
        fine_duration(value) for value in (None, 0.0, 2e-6, 0.00123, 0.0456, 1.0, 12.345, 99.9, 754, 7200)
    ]
    assert shown == [
        "-",
        "0µs",
        "2.00µs",
        "1.23ms",
        "45.6ms",
        "1.00s",
        "12.3s",
        "99.9s",
        "12m34s",
        "2h00m00s",
    ]
