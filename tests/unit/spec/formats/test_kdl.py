"""KDL 1 and KDL 2, and the workflow they describe."""

from typing import Any

import pytest

from joblens.spec.editing.edit import same_value
from joblens.spec.formats.kdl_workflow import parse_kdl_workflow
from joblens.spec.formats.positions import Mark


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a 1", {"a": 1}),
        ("a -1.5e2 1_000 0xff 0o17 0b101 +3", {"a": [-150.0, 1000, 255, 15, 5, 3]}),
        ("a #true #false #null", {"a": [True, False, None]}),
        ("a true false null", {"a": [True, False, None]}),
        ("a #inf #-inf", {"a": [float("inf"), float("-inf")]}),
        ("a word", {"a": "word"}),
        ('a "q\\"\\n\\t\\u{1F600}\\s\\/"', {"a": 'q"\n\t😀 /'}),
        ('a "one \\\n      two"', {"a": "one two"}),
        ('a "over\nlines"', {"a": "over\nlines"}),
        ('a r"C:\\x" r#"say "hi""#', {"a": ["C:\\x", 'say "hi"']}),
        ('a #"C:\\x"# ##"a"#b"##', {"a": ["C:\\x", 'a"#b']}),
        ('a """\n    one\n      two\n\n    three\n    """', {"a": "one\n  two\n\nthree"}),
        ('a #"""\n  C:\\x\n  """#', {"a": "C:\\x"}),
        ('a """\r\n  one\r\n  two\r\n  """', {"a": "one\ntwo"}),
        ("a (u8)1 (text)b", {"a": [1, "b"]}),
        ("(type)a 1", {"a": 1}),
        ("a 1; b 2", {"a": 1, "b": 2}),
        ("a 1 // note\n/* more /* nested */ */ b 2", {"a": 1, "b": 2}),
        ("a \\\n  1 \\ // note\n  2", {"a": [1, 2]}),
        ("/- a 1\nb 2 /- 3 /- c=4 /- { d 5; }", {"b": 2}),
        ("/- kdl-version 2\na 1", {"a": 1}),
        ("a b=1 c=d", {"a": {"b": 1, "c": "d"}}),
        ('a "b c"=1 d = 2', {"a": {"b c": 1, "d": 2}}),
        ("a { b 1; c { d 2 } }", {"a": {"b": 1, "c": {"d": 2}}}),
        ("a {}", {"a": {}}),
        ("a { - 1; - b=2; }", {"a": [1, {"b": 2}]}),
        ('"odd key" 1', {"odd key": 1}),
        ("mail-type FAIL", {"mail-type": "FAIL"}),
        ("// nothing\n", None),
    ],
)
def test_a_text_means(text: str, value: Any) -> None:
    document = parse_kdl_workflow(text)
    assert document.problems == ()
    assert same_value(document.value, value)


@pytest.mark.parametrize(
    ("text", "mark", "words"),
    [
        ("a 1\nb {\nc 1", Mark(2, 3), "unclosed brace"),
        ("a 1 }", Mark(1, 5), "'}' closes nothing"),
        ('a "x\n', Mark(1, 3), "unterminated string"),
        ('a #"x"', Mark(1, 3), 'no closing "#'),
        ("a /* x", Mark(1, 3), "unclosed comment"),
        ("a 12x", Mark(1, 3), "'12x' is not a number"),
        ("a 1g", Mark(1, 3), "needs quotes"),
        ("a #yes", Mark(1, 3), "expected a value, not '#yes'"),
        ('a "\\q"', Mark(1, 4), "invalid escape"),
        ('a "\\u{110000}"', Mark(1, 4), "no character"),
        ('a """x\n"""', Mark(1, 3), "must be below its quotes"),
        ('a """\n x\n  """', Mark(1, 3), "indented less than"),
        ('a"b"', Mark(1, 2), "expected a space"),
        ("a true=1", Mark(1, 3), "cannot be the name of a property"),
        ("a {} b", Mark(1, 6), "nothing may follow"),
        ("a (u8 1", Mark(1, 3), "unclosed type annotation"),
        ("= 1", Mark(1, 1), "expected the name of a node"),
    ],
)
def test_what_is_wrong_with_the_syntax_is_reported_with_its_place(text: str, mark: Mark, words: str) -> None:
    document = parse_kdl_workflow(text)
    assert document.value is None
    (problem,) = document.problems
    assert problem.mark == mark
    assert words in problem.message


def test_nodes_become_the_lists_of_a_workflow() -> None:
    document = parse_kdl_workflow(
        'job "a" { command "x"; }\njob "b" {\n  command "y"\n  depends_on "a"\n  input_file "f"\n'
        '  input_file "g"\n  use_parameters "p" "q"\n}\nfile "f" path="f.txt"\n'
    )
    assert document.problems == ()
    assert document.value == {
        "jobs": [
            {"name": "a", "command": "x"},
            {
                "name": "b",
                "command": "y",
                "depends_on": ["a"],
                "input_files": ["f", "g"],
                "use_parameters": ["p", "q"],
            },
        ],
        "files": [{"name": "f", "path": "f.txt"}],
    }
    assert document.mark(("jobs", 1, "input_files", 1)) == Mark(6, 14)
    assert document.mark(("jobs", 1, "depends_on")) == Mark(4, 3)
    assert document.mark(("files", 0, "path")) == Mark(9, 10)


def test_a_node_that_is_not_known_keeps_its_name_for_anyone_who_checks_keys() -> None:
    document = parse_kdl_workflow('name "w"\njobb "a" { command "x"; }\njob "b" {\n  comand "y"\n}\n')
    assert document.value["jobb"] == {"name": "a", "command": "x"}
    assert document.mark(("jobb",)) == Mark(2, 1)
    assert document.value["jobs"][0] == {"name": "b", "comand": "y"}
    assert document.mark(("jobs", 0, "comand")) == Mark(4, 3)


def test_data_of_user_data_is_json_text() -> None:
    document = parse_kdl_workflow('user_data "x" { data #"{"a": [1, null]}"#; }\nuser_data { data 5; }')
    assert document.value == {"user_data": [{"name": "x", "data": {"a": [1, None]}}, {"data": 5}]}
    (problem,) = parse_kdl_workflow('user_data "x" {\n  data "{a: 1}"\n}').problems
    assert problem.mark == Mark(2, 8)
    assert "must be JSON text" in problem.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('job "a" "b"', "takes one name"),
        ('job "a" command="x" { command "y"; }', "duplicate key 'command'"),
        ('job "a" { name "b"; }', "duplicate key 'name'"),
        ("a b=1 b=2", "duplicate key 'b'"),
        ('job "a" { depends_on x=1; }', "takes values only"),
        ('job "a" depends_on="b"', "is a list"),
    ],
)
def test_what_nodes_cannot_say_is_reported(text: str, words: str) -> None:
    (problem,) = parse_kdl_workflow(text).problems
    assert words in problem.message


def test_older_words_for_nodes_are_read() -> None:
    text = """
name "w"
resource_requirements "r" { num_cpus 1 }
slurm_scheduler "s" { account "p" }
job "a" { command "x"; resource_requirements_name "r"; scheduler_name "s" }
job "b" { command "x"; blocked_by_job "a" }
action {
    trigger_type "on_jobs_ready"
    action_type "schedule_nodes"
    scheduler_name "s"
    scheduler_type "slurm"
    job_name "a"
    job_name "b"
}
"""
    value = parse_kdl_workflow(text).value
    assert value["jobs"][0]["resource_requirements"] == "r"
    assert value["jobs"][0]["scheduler"] == "s"
    assert value["jobs"][1]["blocked_by"] == ["a"]
    assert value["actions"][0]["jobs"] == ["a", "b"]
    assert value["actions"][0]["scheduler"] == "s"
