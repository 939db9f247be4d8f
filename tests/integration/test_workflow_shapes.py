"""Whole workflows of the usual shapes, run for real."""

import pytest

from tests.integration.workflow_cli import WorkflowCli, counted, states

DIAMOND = """
name: diamond
jobs:
  - {name: top, command: "echo top >> order"}
  - {name: left, command: "echo left >> order", depends_on: [top]}
  - {name: right, command: "echo right >> order", depends_on: [top]}
  - {name: bottom, command: "echo bottom >> order", depends_on: [left, right]}
"""


def test_a_diamond_runs_in_the_order_its_jobs_need(cli: WorkflowCli) -> None:
    document = cli.run(DIAMOND)
    order = cli.lines("order")
    assert (order[0], order[3], sorted(order[1:3])) == ("top", "bottom", ["left", "right"])
    assert document["counts"] == {"completed": 4}
    assert document["run_status"] == "completed"


def test_jobs_with_limits_and_jobs_without_wait_for_each_other(cli: WorkflowCli) -> None:
    limits = "resource_requirements: {cpus: 1, memory: 200m}"
    cli.run(DIAMOND.replace("depends_on: [top]}", f"depends_on: [top], {limits}}}"))
    order = cli.lines("order")
    assert (order[0], order[3], sorted(order[1:3])) == ("top", "bottom", ["left", "right"])


def test_a_thousand_jobs_fan_out_and_in(cli: WorkflowCli) -> None:
    document = cli.run(
        """
name: fan
jobs:
  - {name: begin, command: "true"}
  - {name: "work_{i}", command: "true", depends_on: [begin], parameters: {i: "1:1000"}}
  - {name: end, command: "echo end >> order", depends_on_regexes: ["^work_"]}
"""
    )
    assert counted(document) == {"completed": 1002}
    assert cli.lines("order") == ["end"]
    results = cli.results()
    assert len({result.index for result in results}) == len(results) == 1002
    ended = max(
        r.began_at_us + r.duration_s * 1e6 for r in results if 0 < r.index < 1001 and r.duration_s is not None
    )
    assert results[-1].began_at_us >= ended - 1000


def test_a_sweep_runs_every_combination(cli: WorkflowCli) -> None:
    document = cli.run(
        """
name: sweep
jobs:
  - name: "train_{lr}_{depth}"
    command: "echo {lr}:{depth} >> done"
    parameters: {lr: "[0.1,0.01]", depth: "2:4"}
"""
    )
    assert sorted(cli.lines("done")) == ["0.01:2", "0.01:3", "0.01:4", "0.1:2", "0.1:3", "0.1:4"]
    assert document["counts"] == {"completed": 6}


def test_a_parameter_of_the_command_line_wins(cli: WorkflowCli) -> None:
    text = """
name: p
parameters: {n: "1:3"}
jobs:
  - {name: "j_{n}", command: "echo {n} >> done", use_parameters: [n]}
"""
    cli.run(text, "--param", "n=[7,9]")
    assert sorted(cli.lines("done")) == ["7", "9"]


FILES = """
name: files
files:
  - {name: raw, path: raw.txt}
  - {name: clean, path: clean.txt}
  - {name: report, path: report.txt}
jobs:
  - {name: report, command: "wc -l ${files.input.clean} > ${files.output.report}"}
  - {name: clean, command: "sort ${files.input.raw} > ${files.output.clean}"}
"""


def test_files_order_the_jobs_that_make_and_read_them(cli: WorkflowCli) -> None:
    (cli.folder / "raw.txt").write_text("b\na\n")
    document = cli.run(FILES)
    assert (cli.folder / "report.txt").read_text() == "2 clean.txt\n"
    assert document["run_status"] == "completed"
    store = cli.store()
    by_name = {record.job.name: record for record in map(store.find, (r.job_uuid for r in cli.results()))}
    store.close()
    (stamp,) = by_name["clean"].job.inputs
    assert (stamp.path, stamp.size) == ("raw.txt", 4)
    assert stamp.digest
    assert by_name["clean"].job.command_digest != by_name["report"].job.command_digest


def test_an_input_file_that_is_missing_is_reported_before_anything_runs(cli: WorkflowCli) -> None:
    cli.write(FILES)
    done = cli.call("run", "flow.yaml", code=2)
    assert "raw.txt, which clean reads" in done.stderr
    assert not cli.store_path.exists() or not cli.store().workflows()


def test_an_output_that_was_not_made_fails_the_job(cli: WorkflowCli) -> None:
    (cli.folder / "raw.txt").write_text("b\na\n")
    document = cli.run(
        FILES.replace(
            "sort ${files.input.raw} > ${files.output.clean}",
            "test -f ${files.input.raw} # ${files.output.clean}",
        ),
        code=1,
    )
    assert states(document) == {"report": "blocked", "clean": "failed"}


FAILING = """
name: failing
jobs:
  - {{name: good, command: "true"}}
  - {{name: bad, command: "echo oh >&2; exit 3"}}
  - {{name: behind, command: "echo ran >> order", depends_on: [bad]{policy}}}
  - {{name: after, command: "true", depends_on: [behind]{policy}}}
"""


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("", {"behind": "blocked", "after": "blocked"}),
        (", cancel_on_blocking_job_failure: true", {"behind": "canceled", "after": "canceled"}),
        (", cancel_on_blocking_job_failure: false", {"behind": "completed", "after": "completed"}),
    ],
)
def test_what_follows_a_failure_is_as_written(
    cli: WorkflowCli, policy: str, expected: dict[str, str]
) -> None:
    document = cli.run(FAILING.format(policy=policy), code=1)
    assert states(document) == {"good": "completed", "bad": "failed", **expected}
    assert cli.lines("order") == (["ran"] if "completed" in expected.values() else [])
    bad = next(row for row in document["results"] if row["job_name"] == "bad")
    assert bad["return_code"] == 3


def test_a_command_that_does_not_exist_fails_its_job_and_not_the_run(cli: WorkflowCli) -> None:
    document = cli.run(
        """
name: lost
jobs:
  - {name: nowhere, command: "no-such-program-at-all x"}
  - {name: limited, command: "no-such-program-at-all x", resource_requirements: {cpus: 1}}
  - {name: fine, command: "true"}
""",
        code=1,
    )
    assert states(document) == {"nowhere": "failed", "limited": "failed", "fine": "completed"}
    assert {row["return_code"] for row in document["results"]} == {0, 127}


def test_each_job_prints_to_files_of_its_own(cli: WorkflowCli) -> None:
    text = """
name: prints
execution_config: {stdio: {mode: separate}}
jobs:
  - {name: two, command: "echo out; echo err >&2"}
  - {name: both, command: "echo out; echo err >&2", stdio: {mode: combined}}
  - {name: none, command: "echo out; echo err >&2", stdio: {mode: none}}
  - {name: gone, command: "echo out; echo err >&2", stdio: {delete_on_success: true}}
  - {name: held, command: "echo out; echo err >&2", stdio: {mode: combined}, resource_requirements: {cpus: 1}}
"""
    cli.run(text, "-o", "results")
    folder = cli.folder / "results" / "job_output" / "1_1"
    assert (folder / "two" / "stdout.log").read_text() == "out\n"
    assert (folder / "two" / "stderr.log").read_text() == "err\n"
    assert (folder / "both" / "stdout.log").read_text() == "out\nerr\n"
    assert (folder / "held" / "stdout.log").read_text() == "out\nerr\n"
    assert not (folder / "none").exists()
    assert not (folder / "gone").exists()
    two = next(r for r in cli.results() if r.index == 0)
    assert cli.call("logs", two.job_uuid, code=0).stdout == "out\n"


def test_jobs_know_which_job_of_which_run_they_are(cli: WorkflowCli) -> None:
    names = ["WORKFLOW_ID", "RUN_NUMBER", "JOB_NAME", "ATTEMPT"]
    line = " ".join(f"$JOBLENS_{name}" for name in names) + " $TORC_JOB_NAME $MINE"
    cli.run(f"name: env\nenv: {{MINE: both}}\njobs:\n  - {{name: who, command: 'echo {line} > said'}}\n")
    assert cli.lines("said") == ["1", "1", "who", "1", "who", "both"]


def test_gpus_are_given_to_one_job_at_a_time_by_name(cli: WorkflowCli) -> None:
    text = """
name: gpus
jobs:
  - name: "g_{i}"
    command: "echo $CUDA_VISIBLE_DEVICES:$JOBLENS_GPUS >> devices; sleep 0.2"
    parameters: {i: "1:4"}
    resource_requirements: {num_cpus: 1, num_gpus: 1}
"""
    cli.run(text, "--gpus", "3,5", "--cpus", "4")
    assert sorted(cli.lines("devices")) == ["3:3", "3:3", "5:5", "5:5"]


def test_a_job_that_can_never_fit_is_refused_with_all_others(cli: WorkflowCli) -> None:
    cli.write(
        """
name: big
jobs:
  - {name: wide, command: "true", resource_requirements: {num_cpus: 9000}}
  - {name: deep, command: "true", resource_requirements: {memory: 900t}}
  - {name: fine, command: "echo ran >> order"}
"""
    )
    done = cli.call("run", "flow.yaml", code=2)
    assert "wide: needs 9000 CPUs" in done.stderr
    assert "deep: needs 900.0 TiB of memory" in done.stderr
    assert "--cpus" in done.stderr
    assert cli.lines("order") == []


def test_only_skip_and_until_choose_jobs(cli: WorkflowCli) -> None:
    assert states(cli.run(DIAMOND, "--until", "left")) == {
        "top": "completed",
        "left": "completed",
        "right": "disabled",
        "bottom": "disabled",
    }
    assert states(cli.run(DIAMOND, "--skip", "bottom"))["bottom"] == "disabled"
    assert states(cli.run(DIAMOND, "--only", "bottom"))["bottom"] == "completed"
    assert "there is no job 'buttom'" in cli.call("run", "flow.yaml", "--only", "buttom", code=2).stderr


def test_a_dry_run_tells_the_order_and_runs_nothing(cli: WorkflowCli) -> None:
    cli.write(DIAMOND)
    done = cli.call("run", "flow.yaml", "--dry-run", code=0)
    assert "4 jobs would run" in done.stdout
    assert cli.lines("order") == []
    cli.call("run", "flow.yaml", code=0)
    document = cli.call("run", "flow.yaml", "--dry-run", "--json", code=0).json
    assert [job["name"] for job in document["jobs"]][::3] == ["top", "bottom"]
    assert document["expected_s"] > 0


def test_on_a_pipe_every_end_is_a_line_and_the_last_words_say_what_to_do(cli: WorkflowCli) -> None:
    cli.write(FAILING.format(policy=""))
    done = cli.call("run", "flow.yaml", code=1)
    assert "good" in done.stdout
    assert "bad failed: exit code 3" in done.stdout
    assert "job_output/1_1/bad" in done.stdout
    assert "joblens rerun 1.1 --failed" in done.stdout
