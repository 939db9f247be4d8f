"""Workflow files as they may be remembered."""

import pytest

from joblens.spec.formats.documents import read_document
from joblens.spec.workflows.redaction import Depth, redact_spec, secrets_in

TEXTS = {
    "kdl": 'name "x"\nenv { API_KEY "hunter2hunter2" }\njob "a" command="curl -u me:hunter2hunter2 http://x"\n',
    "toml": 'name="x" # one\n[env]\nAPI_KEY="hunter2hunter2"\n[[jobs]]\nname="a"\ncommand="true"\n',
    "json": '{"name":"x","env":{"API_KEY":"hunter2hunter2"},"jobs":[{"name":"a","command":"true"}]}',
    "json5": '{name:"x", /* token: hunter2hunter2 */ env:{API_KEY:"hunter2hunter2"}, jobs:[]}',
    "yaml": "name: x\nenv:\n  A: &s hunter2hunter2  # hunter2hunter2\n  TOKEN: *s\njobs: []\n",
}


@pytest.mark.parametrize("form", TEXTS)
def test_secrets_go_and_the_rest_stays_as_it_was_written(form: str) -> None:
    text, same_form = redact_spec(TEXTS[form], form)
    assert "***" in text
    assert "hunter2hunter2" not in text
    assert same_form == form
    document = read_document(text, form)
    assert not document.problems
    assert document.value.keys() == read_document(TEXTS[form], form).value.keys()


def test_a_text_without_secrets_stays_byte_for_byte() -> None:
    text = "name: keys  # of the\r\njobs: [{name: a, command: 'sort --key 2'}]\n"
    assert redact_spec(text, "yaml") == (text, "yaml")


def test_values_are_hidden_by_the_name_of_what_they_are_for() -> None:
    assert secrets_in({"env": {"DB_PASSWORD": "longenough", "MODE": "fast"}}) == {"longenough": "***"}


def test_several_secrets_of_a_parameter_stay_several() -> None:
    text = "parameters: {token: [first, second, first], n: [1, 2]}\n"
    assert redact_spec(text, "yaml") == ('parameters: {token: ["***1", "***2", "***1"], n: [1, 2]}\n', "yaml")


def test_what_is_given_away_has_only_the_variables_that_records_keep() -> None:
    text = (
        "name: x  # mine\nenv: {OMP_NUM_THREADS: 4, DB_PW: abc}\n"
        "jobs:\n  - {name: a, command: run, env: {STRIPE: def}}\n"
    )
    result, form = redact_spec(text, "yaml", depth=Depth.FOR_OTHERS)
    assert form == "yaml"
    assert "# mine" in result
    assert read_document(result, "yaml").value["env"] == {"OMP_NUM_THREADS": 4, "DB_PW": "***"}
    assert "def" not in result
