"""A command for many values."""

import itertools
from pathlib import Path

import pytest

from tests.conftest import RunJoblens


def test_values_are_put_in_and_output_is_passed_on(joblens: RunJoblens) -> None:
    done = joblens("map", "--keep-order", "echo $(( {x} * {x} ))", ":::", "2", "3", "4", code=0)
    assert done.stdout == "4\n9\n16\n"
    assert done.stderr == ""


def test_lines_of_two_jobs_never_mix(joblens: RunJoblens) -> None:
    line = "for i in 1 2 3 4 5; do echo {}; sleep 0.02; done"
    done = joblens("map", "-j", "4", line, ":::", "a", "b", "c", "d", code=0)
    found = done.stdout.split()
    assert sorted(found) == sorted("abcd" * 5)
    assert sum(one != other for one, other in itertools.pairwise(found)) == 3


def test_keep_order_is_the_order_of_the_values(joblens: RunJoblens) -> None:
    done = joblens("map", "-k", "-j", "3", "sleep {}; echo {}", ":::", "0.5", "0.2", "0", code=0)
    assert done.stdout.split() == ["0.5", "0.2", "0"]


def test_values_stay_in_their_quotes(joblens: RunJoblens, tmp_path: Path) -> None:
    nasty = "a; touch broken; echo 'b"
    assert joblens("map", "echo {}", ":::", nasty, code=0).stdout == f"{nasty}\n"
    assert joblens("map", "--", "echo", "x={}", ":::", nasty, code=0).stdout == f"x={nasty}\n"
    assert not (tmp_path / "broken").exists()


def test_a_failure_is_reported_and_the_others_run(joblens: RunJoblens) -> None:
    done = joblens("map", "-k", "[ {} != 2 ] && echo {}", ":::", "1", "2", "3", code=1)
    assert done.stdout.split() == ["1", "3"]
    assert "✗ job_2: exit code 1" in done.stderr
    assert "2 of 3 jobs done: joblens results 1.1" in done.stderr


def test_it_is_a_workflow_like_any_other(joblens: RunJoblens, tmp_path: Path) -> None:
    for _ in range(2):
        joblens("map", "--name", "squares", "--memory", "64m", "echo {}", ":::", "1", "2", code=0)
    assert len(joblens("results", "squares", "--json", code=0).json["results"]) == 2
    advice = joblens("rightsize", "squares", "--json", code=0).json
    assert advice["runs"] == [1, 2]
    assert [(group["group"], group["jobs"]) for group in advice["groups"]] == [("each", 4)]
    assert not (tmp_path / "output").exists()


def test_an_unnamed_one_is_a_workflow_of_its_own(joblens: RunJoblens) -> None:
    for _ in range(2):
        joblens("map", "echo {}", ":::", "1", code=0)
    assert len(joblens("results", "2.1", "--json", code=0).json["results"]) == 1


def test_what_is_measured_may_be_said(joblens: RunJoblens) -> None:
    joblens("map", "--name", "some", "--probes", "threads", "echo {}", ":::", "1", code=0)
    joblens("run-jobs", "some", "--probes", "none", "-q", code=0)
    probes = [
        joblens("show", f"job:{number}", "--json", code=0).json["record"]["job"]["probes"]
        for number in (1, 2)
    ]
    assert probes == [["threads"], []]
    refused = joblens("map", "--probes", "nothing-such", "echo {}", ":::", "1", code=2)
    assert "unknown name 'nothing-such'" in refused.stderr


def test_parameters_and_files(joblens: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("ann\n\nbob lee\n")
    done = joblens("map", "-n", "--param", "n=1:2", "f {n} {who}", "::::", "names.txt", code=0)
    assert done.stdout.splitlines() == ["f 1 ann", "f 1 'bob lee'", "f 2 ann", "f 2 'bob lee'"]
    assert joblens("map", "-n", "f {}", "::::", "-", stdin="x\ny\n", code=0).stdout.split() == list("fxfy")


def test_lines_of_a_file_can_be_whole_commands(joblens: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "commands.txt").write_text("# two of them\necho a | tr a b\n\necho c && echo d\n")
    assert joblens("map", "-k", "{}", "::::", "commands.txt", code=0).stdout.split() == ["b", "c", "d"]
    assert joblens("map", "{}", "::::", "-", stdin="echo x y\n", code=0).stdout == "x y\n"


def test_only_line_ends_end_a_line(joblens: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_bytes("a\fb\r\nc\u2028d\n".encode())
    done = joblens("map", "-n", "--json", "f {}", "::::", "names.txt", code=0)
    assert [one["command"] for one in done.json] == ["f 'a\fb'", "f 'c\u2028d'"]


def test_a_time_out_holds_for_each_job(joblens: RunJoblens) -> None:
    done = joblens("map", "-k", "--timeout", "0.3", "sleep {}; echo {}", ":::", "0", "20", code=1)
    assert done.stdout == "0\n"
    assert "timed out after 300ms" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["echo {}"], "no values"),
        (["echo {x}", "--param", "x=1:3"], "--param after the command is part of the command"),
        (["exit {}", ":::", "0", "1", "--json"], "--json is among the values"),
        (["exit {}", ":::", "0", "1", "--name=x"], "--name=x is among the values"),
        (["echo {}", ":::"], "followed by nothing"),
        (["echo {}", "::::", "missing.txt"], "missing.txt: cannot be read"),
        (["echo {}", "::::", "empty.txt"], "empty.txt: has no lines"),
        (["echo {}", "::::", "."], ".: cannot be read"),
        (["echo {}", "::::", "nul.txt"], "nul.txt: line 2 has a NUL character"),
        (["echo {}", "::::", "latin.txt"], "latin.txt: line 2 is not UTF-8 text"),
        (["echo {}", "::::", "-"], ":::: -: has no lines"),
        (["--param", "x", "echo {x}"], "expected NAME=VALUES"),
        (["--param", "x=5:1", "echo {x}"], "--param x=5:1"),
        (["--memory", "lots", "echo {}", ":::", "1"], "lots"),
    ],
)
def test_bad_input_is_reported_before_anything_runs(
    joblens: RunJoblens, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "empty.txt").write_text("\n\n")
    (tmp_path / "nul.txt").write_bytes(b"a\nb\0c\n")
    (tmp_path / "latin.txt").write_bytes(b"a\nb\xff\n")
    done = joblens("map", *arguments, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "option",
    [("--cpus", "nan"), ("--cpus", "-1"), ("--memory", "1x"), ("--timeout", "0"), ("--timeout", "x")],
)
def test_an_amount_that_cannot_be_used_names_its_option(
    joblens: RunJoblens, store_path: Path, option: tuple[str, str]
) -> None:
    refused = joblens("map", *option, "echo {}", ":::", "1", code=2)
    assert refused.stderr.startswith(f"joblens: error: {option[0]}")
    assert not store_path.exists()
