"""What a report must not show."""

import pytest

from joblens.app.html_report.redaction import Redactor
from tests.builders.records import a_record


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("/home/ana/project/train.py", "[…]/train.py"),
        ("python /home/ana/train.py --out=/data/x/model.pt", "python […]/train.py --out=[…]/model.pt"),
        ("cannot open '/data/secret project/x.csv'", "cannot open '[…]/secret project/x.csv'"),
        ("~/project/run.sh and ~bob/x/y", "[…]/run.sh and […]/y"),
        ("file:///home/ana/a.txt", "[…]/a.txt"),
        ("C:\\Users\\ana\\a.txt", "[…]\\a.txt"),
        ("/home/ana/results/", "[…]/results"),
        ("PATH=/opt/tool/bin:/usr/local/bin", "PATH=[…]/bin:[…]/bin"),
        ("/tmp", "/tmp"),
        ("https://example.org/a/b", "https://example.org/a/b"),
        ("12.5 MiB/s, 3/4 of it, and/or", "12.5 MiB/s, 3/4 of it, and/or"),
        ("relative/path.txt", "relative/path.txt"),
    ],
)
def test_folders_of_paths_are_hidden_and_names_stay(text: str, shown: str) -> None:
    assert Redactor(hides_paths=True).text(text) == shown
    assert Redactor(hides_paths=False).text(text) == text


def test_a_known_folder_is_hidden_as_a_whole_though_it_has_spaces() -> None:
    redactor = Redactor(hides_paths=True)
    redactor.know_folders(["/home/ana/My Project", "/home/ana"])
    assert redactor.text("in /home/ana/My Project/a b/x.txt") == "in […]/a b/x.txt"
    assert redactor.text("/home/ana/My Project") == "[…]"


def test_a_secret_value_is_hidden_wherever_it_occurs() -> None:
    record = a_record(job={"params": {"password": "hunter22"}, "argv": ("run", "--token", "abcd1234")})
    redactor = Redactor(hides_paths=False)
    answers = {
        "lines": [{"text": "logged in with hunter22"}, {"text": "abcd1234"}],
        "numbers": [1, None, 2.5],
    }
    assert redactor.values(answers, redactor.secrets_of(record)) == {
        "lines": [{"text": "logged in with ***"}, {"text": "***"}],
        "numbers": [1, None, 2.5],
    }


def test_texts_in_a_list_that_begins_with_a_number_are_redacted() -> None:
    found = Redactor(hides_paths=False).values([1, "https://me:swordfish@example.org"])
    assert found == [1, "https://me:***@example.org"]


def test_parameters_are_redacted_by_name_in_every_answer() -> None:
    found = Redactor(hides_paths=False).values({"job": {"params": {"api_key": "x1y2z3", "epochs": 4}}})
    assert found == {"job": {"params": {"api_key": "***", "epochs": 4}}}


def test_values_of_secret_variables_of_this_environment_are_hidden_in_output() -> None:
    redactor = Redactor(hides_paths=False, environ={"DB_TOKEN": "swordfish", "LANG": "swordfight"})
    secrets = redactor.secrets_of(a_record(job={"params": {"password": "hunter22"}}))
    assert redactor.values("swordfish hunter22 swordfight", secrets) == "*** *** swordfight"
    assert redactor.values("swordfish", redactor.secrets_of(a_record())) == "***"


def test_names_of_secrets_are_returned_whose_values_are_nowhere() -> None:
    redactor = Redactor(hides_paths=False, environ={"DB_TOKEN": "swordfish"})
    env = {"DB_TOKEN": "***", "MY_PASSWORD": "***", "LANG": "C"}
    record = a_record(job={"env": env, "params": {"api_key": "***"}})
    assert redactor.unknown_secrets(record) == ["api_key", "MY_PASSWORD"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[1mpassword\x1b[0m: swordfish", "password: ***"),
        ("pass\x1b[31mword=swordfish\x1b[0m", "password=***"),
        ("\x1b[32mpassed\x1b[0m 12 tests", "\x1b[32mpassed\x1b[0m 12 tests"),
    ],
)
def test_colours_do_not_save_a_secret(line: str, shown: str) -> None:
    assert Redactor(hides_paths=False).text(line) == shown
