"""`joblens sql`: answers as a table, JSON, CSV and Arrow; mistakes are explained."""

import csv
import json
from pathlib import Path

import pytest

from joblens.model.sql import VIEWS, VIEWS_VERSION
from joblens.stores.sqlite import SqliteStore
from tests.builders.writes import whole_job
from tests.conftest import REPOSITORY, RunJoblens

QUERY = "SELECT number, name, exit_code FROM jobs ORDER BY number"


@pytest.fixture
def filled(joblens: RunJoblens) -> RunJoblens:
    store = SqliteStore(joblens("store", "path").stdout.strip())
    store.apply([*whole_job("a1", name="one"), *whole_job("a2", name="two,\x1b[31m\n")])
    store.close()
    return joblens


def test_a_table_has_a_line_per_row_and_no_control_characters(filled: RunJoblens) -> None:
    lines = filled("sql", QUERY).stdout.splitlines()
    assert lines[0].split() == ["number", "name", "exit_code"]
    assert lines[1].split() == ["1", "one", "-"]
    assert len(lines) == 3
    assert "\x1b" not in lines[2]


def test_json_and_csv_have_every_value(filled: RunJoblens) -> None:
    rows = json.loads(filled("sql", QUERY, "--json").stdout)
    assert rows[1] == {"number": 2, "name": "two,\x1b[31m\n", "exit_code": None}
    found = list(csv.reader(filled("sql", QUERY, "--as", "csv").stdout.splitlines(keepends=True)))
    assert found == [["number", "name", "exit_code"], ["1", "one", ""], ["2", "two,\x1b[31m\n", ""]]


def test_a_dash_is_standard_output(filled: RunJoblens, tmp_path: Path) -> None:
    assert filled("sql", "SELECT 1 AS x", "--as", "csv", "-o", "-", code=0).stdout.split() == ["x", "1"]
    assert not (tmp_path / "-").exists()


def test_arrow_goes_to_a_file(filled: RunJoblens, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "jobs.arrow"
    assert filled("sql", QUERY, "--as", "arrow", "--output", str(path)).code == 0
    with pa.ipc.open_stream(str(path)) as reader:
        assert reader.read_all().to_pydict()["number"] == [1, 2]


def test_rows_beyond_the_limit_are_reported(filled: RunJoblens) -> None:
    result = filled("sql", QUERY, "--limit", "1", "--json")
    assert len(json.loads(result.stdout)) == 1
    assert "stopped after 1 row;" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SELEKT 1", "SQL: near"),
        ("SELECT nowhere FROM jobs", "no such column: nowhere"),
        ("SELECT * FROM api_token", "is prohibited"),
        ("DELETE FROM jobs", "write one SELECT over the views jobs, attempts, runs"),
        (" ", "the query is empty"),
        ("SELECT 1); SELECT * FROM (SELECT 2, 3", "more than one statement"),
        ("SELECT CAST(x'ff' AS TEXT)", "a value in the answer is not UTF-8 text"),
        ("SELECT zeroblob(17000000)", "a value of the query has more than 16 MiB"),
    ],
)
def test_a_mistake_is_explained(filled: RunJoblens, text: str, message: str) -> None:
    refused = filled("sql", text)
    assert refused.code == 2
    assert message in refused.stderr
    assert "Traceback" not in refused.stderr


def test_one_call_of_a_function_ends_in_time_too(filled: RunJoblens) -> None:
    # SQLite compares each part of one text with another: many minutes in one call, which nothing interrupts.
    text = "SELECT instr(hex(zeroblob(8000000)), hex(zeroblob(4000000)) || '1')"
    refused = filled("sql", text, "--timeout", "1s")
    assert (refused.code, "took longer than 1s" in refused.stderr) == (2, True)


def test_memory_of_a_query_is_bounded(filled: RunJoblens) -> None:
    values = ", ".join(f"group_concat(hex(zeroblob(7000000)) || {number})" for number in range(60))
    refused = filled("sql", f"SELECT {values}")
    assert (refused.code, "needs more than 512 MiB of memory" in refused.stderr) == (2, True)


def test_the_docs_have_every_view_with_its_columns() -> None:
    page = (REPOSITORY / "docs" / "sql.md").read_text()
    assert f"They are version **{VIEWS_VERSION}**" in page
    for view, columns in VIEWS.items():
        (row,) = [line for line in page.splitlines() if line.startswith(f"| `{view}` |")]
        for column in columns:
            assert f"`{column}`" in row, (view, column)
