"""Datasets: directories that several jobs fill and others read once all of it is there."""

import hashlib
import json
import os
from typing import Any

import pytest

from joblens.model.runs.run import RunStatus
from tests.conftest import wait_until
from tests.integration.workflow_cli import WorkflowCli, states

FAN_IN = """\
name: fan_in
datasets:
  - name: parts
    path: out/parts/
    hash_mode: content
jobs:
  - name: part_{i}
    command: cd ${datasets.output.parts} && sleep 0.{i} && echo {i} > part_{i}.txt
    invocation_script: mkdir -p ${datasets.output.parts} &&
    parameters: {i: "0:4"}
  - name: combine
    command: cat ${datasets.input.parts}/*.txt > combined.txt
"""


def datasets_of(cli: WorkflowCli, *words: str) -> dict[str, dict[str, Any]]:
    listed = cli.call("datasets", "list", "1.1", "--json", *words, code=0).json
    return {one["name"]: one for one in listed}


def test_a_fan_in_waits_for_all_producers_and_records_what_was_made(cli: WorkflowCli) -> None:
    document = cli.run(FAN_IN)
    assert set(states(document).values()) == {"completed"}
    assert (cli.folder / "combined.txt").read_text().split() == ["0", "1", "2", "3", "4"]
    [found] = datasets_of(cli).values()
    digest = hashlib.sha256()
    for number in range(5):
        digest.update(f"part_{number}.txt\0".encode() + hashlib.sha256(f"{number}\n".encode()).digest())
    assert found["status"] == "finalized"
    assert (found["files"], found["bytes"], found["sha256"]) == (5, 10, digest.hexdigest())
    assert (found["producers"], found["producers_done"]) == (5, 5)
    [stamp] = cli.records()["combine"].inputs
    assert (stamp.path, stamp.files, stamp.digest) == ("out/parts/", 5, digest.hexdigest())


def test_the_lists_alone_create_the_same_dependencies(cli: WorkflowCli) -> None:
    text = """\
name: lists
datasets: [{name: parts, path: parts}]
jobs:
  - {name: join, command: cat parts/* > all.txt, input_datasets: [parts]}
  - name: part_{i}
    command: mkdir -p parts; sleep 0.{i}; echo {i} > parts/{i}
    parameters: {i: "1:3"}
    output_datasets: [parts]
"""
    cli.run(text)
    assert cli.lines("all.txt") == ["1", "2", "3"]
    [found] = datasets_of(cli, "--status", "finalized").values()
    assert (found["hash_mode"], found["files"]) == ("manifest", 3)
    assert datasets_of(cli, "--status", "pending") == {}


@pytest.mark.parametrize(
    ("written", "state"),
    [
        ("", "blocked"),
        ("cancel_on_blocking_job_failure: true", "canceled"),
        ("cancel_on_blocking_job_failure: false", "completed"),
    ],
)
def test_a_producer_that_fails_leaves_the_dataset_pending(cli: WorkflowCli, written: str, state: str) -> None:
    text = f"""\
name: partial
datasets: [{{name: parts, path: parts}}]
jobs:
  - {{name: good, command: mkdir -p parts; touch parts/good, output_datasets: [parts]}}
  - {{name: bad, command: exit 3, output_datasets: [parts]}}
  - name: join
    command: ls parts > all.txt
    input_datasets: [parts]
    {written}
"""
    document = cli.run(text, code=1)
    assert states(document)["join"] == state
    [found] = datasets_of(cli).values()
    assert (found["status"], found["producers_done"], found["files"]) == ("pending", 1, None)
    refused = cli.call("datasets", "finalize", "1.1", "--dataset", "parts", code=1)
    assert "dataset 'parts' waits for 1 of its 2 producers" in refused.stderr


UNREADABLE = """\
name: unreadable
datasets: [{name: parts, path: parts}]
jobs:
  - {name: make, command: "true", output_datasets: [parts]}
  - {name: join, command: ls parts > all.txt, input_datasets: [parts]}
"""


def test_a_dataset_that_is_not_there_fails_the_run_and_a_resume_tries_again(cli: WorkflowCli) -> None:
    document = cli.run(UNREADABLE, code=1)
    assert states(document) == {"make": "completed", "join": "blocked"}
    assert document["failed_datasets"] == [
        {"name": "parts", "path": "parts", "error": "parts: it does not exist"}
    ]
    [row] = [row for row in cli.call("results", "1.1", "--json").json["results"] if row["job_name"] == "join"]
    assert "dataset 'parts'" in str(row)
    [found] = datasets_of(cli).values()
    assert (found["status"], found["error"]) == ("failed", "parts: it does not exist")
    (cli.folder / "parts").mkdir()
    (cli.folder / "parts" / "one").write_text("1")
    resumed = cli.call("resume", "1.1", "--json", code=0).json
    assert set(states(resumed).values()) == {"completed"}
    assert resumed["failed_datasets"] == []
    assert datasets_of(cli)["parts"]["files"] == 1
    assert len(cli.results()) == 2  # 'make' did not run again


def test_a_canceled_reader_runs_once_its_dataset_can_be_read(cli: WorkflowCli) -> None:
    reader = "input_datasets: [parts], cancel_on_blocking_job_failure: true"
    document = cli.run(UNREADABLE.replace("input_datasets: [parts]", reader), code=1)
    assert states(document)["join"] == "canceled"
    assert "could not be finalized" in cli.call("results", "1.1", "--json").stdout
    (cli.folder / "parts").mkdir()
    resumed = cli.call("resume", "1.1", "--json", code=0).json
    assert set(states(resumed).values()) == {"completed"}


def test_a_failed_dataset_alone_fails_the_run_and_the_summary_says_why(cli: WorkflowCli) -> None:
    cli.write(
        UNREADABLE.replace("  - {name: join, command: ls parts > all.txt, input_datasets: [parts]}\n", "")
    )
    done = cli.call("run", "flow.yaml", code=1)
    assert "dataset parts could not be finalized: parts: it does not exist" in done.stdout
    assert "joblens resume 1.1" in done.stdout
    assert "dataset parts could not be finalized: parts: it does not exist" in cli.call("results").stdout
    failed = [{"name": "parts", "path": "parts", "error": "parts: it does not exist"}]
    assert cli.call("results", "--json").json["failed_datasets"] == failed


def test_a_dataset_that_no_job_makes_has_to_be_there(cli: WorkflowCli) -> None:
    text = """\
name: outside
datasets: [{name: raw, path: raw/}]
jobs:
  - {name: fit, command: "cat raw/* > fitted", input_datasets: [raw]}
"""
    cli.write(text)
    for words in (("run", "flow.yaml"), ("run", "flow.yaml", "--dry-run")):
        refused = cli.call(*words, code=2)
        assert "input datasets are missing:\n  raw/, which fit reads" in refused.stderr
    assert "these datasets do not exist" in cli.call("validate", "flow.yaml", code=0).stdout
    (cli.folder / "raw").mkdir()
    (cli.folder / "raw" / "a").write_text("x\n")
    cli.run(text)
    assert cli.lines("fitted") == ["x"]
    assert datasets_of(cli)["raw"]["status"] == "finalized"


def test_a_dry_run_shows_readers_behind_producers(cli: WorkflowCli) -> None:
    cli.write(FAN_IN)
    document = cli.call("run", "flow.yaml", "--dry-run", "--json", code=0).json
    assert [job["name"] for job in document["jobs"]][-1] == "combine"
    assert not (cli.folder / "out").exists()


def test_mistakes_have_their_line_and_column(cli: WorkflowCli) -> None:
    cli.write(
        """\
name: wrong
datasets:
  - {name: parts, path: parts}
  - {name: parts, path: more}
jobs:
  - name: a
    command: make ${datasets.output.partz}
  - name: b
    command: make
    input_datasets: [prts]
  - name: c
    command: make
    input_datasets: [parts]
    output_datasets: [parts]
"""
    )
    output = cli.call("validate", "flow.yaml", code=2).stderr
    for line in (
        "flow.yaml:4:6: duplicate dataset 'parts'",
        "flow.yaml:7:5: there is no dataset 'partz'; did you mean 'parts'?",
        "flow.yaml:10:22: there is no dataset 'prts'; did you mean 'parts'?",
        "flow.yaml:14:5: job 'c' both reads and makes dataset 'parts'",
    ):
        assert line in output
    cli.write(
        """\
name: ring
datasets: [{name: one, path: one}, {name: two, path: two}]
jobs:
  - {name: a, command: make, input_datasets: [two], output_datasets: [one]}
  - {name: b, command: make, input_datasets: [one], output_datasets: [two]}
"""
    )
    assert "jobs wait for each other: 'a' needs 'b' needs 'a'" in cli.call("validate", "flow.yaml").stderr


def test_a_driver_that_was_killed_while_it_finalized_is_made_up_for(cli: WorkflowCli) -> None:
    (cli.folder / "parts").mkdir()
    blocked = cli.folder / "parts" / "large"
    with blocked.open("wb") as file:
        file.truncate(1 << 40)  # hashing its content takes longer than any test
    text = """\
name: killed
datasets: [{name: parts, path: parts, hash_mode: content}]
jobs:
  - {name: make, command: touch parts/made, output_datasets: [parts]}
  - {name: join, command: ls parts > all.txt, input_datasets: [parts]}
"""
    cli.write(text)
    driver = cli.start("run", "flow.yaml")
    wait_until(
        lambda: (
            cli.store_path.exists() and cli.call("datasets", "list", "1.1").stdout.count("finalizing") == 1
        )
    )
    assert "waits until dataset parts is finalized" in cli.call("results", "1.1", "--json").stdout
    refused = cli.call("datasets", "finalize", "1.1", code=2)
    assert "is being run by process" in refused.stderr
    driver.kill()
    driver.communicate(timeout=30)
    assert datasets_of(cli)["parts"]["status"] == "pending"
    blocked.unlink()
    would = cli.call("datasets", "finalize", "1.1", "--dry-run", code=0).stdout
    assert would == "parts would be finalized: parts\n"
    resumed = cli.call("resume", "1.1", "--json", code=0).json
    assert set(states(resumed).values()) == {"completed"}
    assert datasets_of(cli)["parts"]["files"] == 1
    assert len(cli.results()) == 2


def test_a_finalization_delays_no_time_limit(cli: WorkflowCli) -> None:
    (cli.folder / "raw").mkdir()
    with (cli.folder / "raw" / "large").open("wb") as file:
        file.truncate(1 << 40)
    cli.write(
        """\
name: beside
datasets: [{name: raw, path: raw, hash_mode: content}]
jobs:
  - {name: reads, command: "true", input_datasets: [raw]}
  - {name: too_long, command: echo begun > begun; sleep 60, runtime: 1s}
"""
    )
    driver = cli.start("run", "flow.yaml")
    cli.wait_for_line("begun", "begun")
    wait_until(lambda: any(one.exit_code for one in cli.results()))
    driver.terminate()
    driver.communicate(timeout=20)
    [ended] = cli.results()
    assert ended.reason == "timeout"
    assert ended.duration_s is not None
    assert ended.duration_s < 5


def test_a_second_signal_does_not_wait_for_a_finalization(cli: WorkflowCli) -> None:
    (cli.folder / "parts").mkdir()
    with (cli.folder / "parts" / "large").open("wb") as file:
        file.truncate(1 << 40)
    cli.write(
        """\
name: stopped
datasets: [{name: parts, path: parts, hash_mode: content}]
jobs:
  - {name: make, command: touch parts/made, output_datasets: [parts]}
"""
    )
    driver = cli.start("run", "flow.yaml")
    wait_until(
        lambda: (
            cli.store_path.exists() and cli.call("datasets", "list", "1.1").stdout.count("finalizing") == 1
        )
    )
    driver.terminate()
    driver.communicate(timeout=20)
    assert cli.newest_run().status is RunStatus.STOPPED
    assert datasets_of(cli)["parts"]["status"] == "pending"
    (cli.folder / "parts" / "large").unlink()
    assert cli.call("resume", "1.1", "--json", code=0).json["run_status"] == "completed"
    assert datasets_of(cli)["parts"]["status"] == "finalized"


def test_finalize_by_hand_is_what_resume_goes_on_from(cli: WorkflowCli) -> None:
    cli.run(UNREADABLE, code=1)
    (cli.folder / "parts").mkdir()
    (cli.folder / "parts" / "one").write_text("1")
    [done] = cli.call("datasets", "finalize", "1.1", "--json", code=0).json
    assert (done["status"], done["files"]) == ("finalized", 1)
    assert "Nothing to finalize" in cli.call("datasets", "finalize", "1.1", code=0).stdout
    (cli.folder / "parts" / "two").write_text("2")  # not counted any more: it was finalized
    cli.call("resume", "1.1", code=0)
    assert datasets_of(cli)["parts"]["files"] == 1


def test_show_has_everything_and_an_unknown_name_is_refused(cli: WorkflowCli) -> None:
    cli.run(FAN_IN)
    shown = cli.call("datasets", "show", "fan_in", "parts", code=0).stdout
    for words in ("finalized", "5 of 5 jobs done", "read by     combine", "hash mode   content"):
        assert words in shown
    detail = cli.call("datasets", "get", "1.1", "parts", "--json", code=0).json
    assert detail["producers"] == [f"part_{number}" for number in range(5)]
    assert detail["readers"] == ["combine"]
    refused = cli.call("datasets", "show", "1.1", "prts", code=2)
    assert "run 1.1 has no dataset 'prts'" in refused.stderr
    assert "did you mean 'parts'?" in refused.stderr


def test_names_of_files_cannot_write_to_the_terminal(cli: WorkflowCli) -> None:
    text = """\
name: hostile
datasets: [{name: parts, path: parts, hash_mode: content}]
jobs:
  - name: make
    command: python3 -c "import os; os.mkdir('parts'); os.mkdir('parts/\\x1b[31mred', 0)"
    output_datasets: [parts]
"""
    cli.write(text)
    done = cli.call("run", "flow.yaml")
    for word, shown in (("make", done.stdout), ("parts", cli.call("datasets", "list", "1.1").stdout)):
        assert word in shown
        assert "\x1b" not in shown


# ---- rerun --changed ---------------------------------------------------------------------------------


def modes(mode: str) -> str:
    return f"""\
name: modes
datasets: [{{name: parts, path: parts, hash_mode: {mode}}}]
jobs:
  - name: make
    command: mkdir -p parts; echo 1 > parts/one; echo make >> ran.txt
    output_datasets: [parts]
  - name: join
    command: cat parts/* > all.txt; echo join >> ran.txt
    input_datasets: [parts]
"""


def would_run(cli: WorkflowCli) -> dict[str, str]:
    document = cli.call("run", "flow.yaml", "--rerun-changed", "--dry-run", "--json", code=0).json
    again = cli.call("rerun", "1.1", "--changed", "--dry-run", "--json", code=0).json
    found = {job["name"]: job["because"] for job in document["jobs"]}
    assert {job["name"]: job["because"] for job in again.get("jobs", ())} == found
    return found


@pytest.mark.parametrize(
    ("mode", "touched", "changed"),
    [("manifest", True, True), ("content", False, True), ("none", False, False)],
)
def test_a_changed_dataset_runs_its_readers_again(
    cli: WorkflowCli, mode: str, touched: bool, changed: bool
) -> None:
    cli.run(modes(mode))
    assert would_run(cli) == {}
    because = {"join": "dataset 'parts' has changed"}
    os.utime(cli.folder / "parts" / "one", ns=(1, 1))
    assert would_run(cli) == (because if touched else {})
    (cli.folder / "parts" / "two").write_text("2\n")
    assert would_run(cli) == (because if changed else {})
    if changed:
        cli.call("rerun", "1.1", "--changed", code=0)
        assert cli.lines("ran.txt") == ["make", "join", "join"]
        assert cli.lines("all.txt") == ["1", "2"]
        assert would_run_after(cli) == {}


def would_run_after(cli: WorkflowCli) -> dict[str, str]:
    document = cli.call("run", "flow.yaml", "--rerun-changed", "--dry-run", "--json", code=0).json
    return {job["name"]: job["because"] for job in document["jobs"]}


def test_a_dataset_that_is_gone_is_made_again(cli: WorkflowCli) -> None:
    cli.run(modes("none"))
    (cli.folder / "parts" / "one").unlink()
    (cli.folder / "parts").rmdir()
    assert would_run(cli) == {
        "make": "dataset 'parts' is missing",
        "join": "needs 'make', which runs again",
    }
    cli.call("rerun", "1.1", "--changed", code=0)
    assert cli.lines("ran.txt") == ["make", "join", "make", "join"]


def test_another_hash_mode_runs_readers_again(cli: WorkflowCli) -> None:
    cli.run(modes("manifest"))
    cli.write(modes("content"))
    assert would_run(cli) == {"join": "the hash mode of dataset 'parts' has changed"}


# ---- elsewhere ---------------------------------------------------------------------------------------


def test_a_crate_has_the_dataset_with_its_size_and_hash(cli: WorkflowCli) -> None:
    cli.run(FAN_IN)
    cli.call("export", "ro-crate", "1.1", "-o", "crate", code=0)
    graph = json.loads((cli.folder / "crate" / "ro-crate-metadata.json").read_text())["@graph"]
    [found] = [one for one in graph if one["@type"] == "Dataset" and one.get("name") == "out/parts/"]
    listed = datasets_of(cli)["parts"]
    assert found["contentSize"] == str(listed["bytes"])
    assert (found["fileCount"], found["sha256"], found["hashMode"]) == (5, listed["sha256"], "content")
    by_id = {one["@id"]: one for one in graph}
    [reader] = [one for one in graph if one["@type"] == "CreateAction" and "combine" in one["name"]]
    assert found["@id"] in [one["@id"] for one in as_list(reader["object"])]
    makers = [one for one in graph if one["@type"] == "CreateAction" and "part_" in one["name"]]
    assert len(makers) == 5
    assert all(found["@id"] in [one["@id"] for one in as_list(maker["result"])] for maker in makers)
    assert by_id[found["@id"]] is found


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_expand_writes_datasets_that_stand_for_the_same_jobs(cli: WorkflowCli) -> None:
    cli.write(
        """\
name: swept
variables: {root: out}
datasets:
  - name: parts_{k}
    path: "{root}/{k}"
    description: Parts of {k}
    parameters: {k: [a, b]}
jobs:
  - name: make_{k}
    command: make ${datasets.output.parts_{k}}
    parameters: {k: [a, b]}
  - name: join
    command: join
    input_datasets: [parts_a, parts_b]
"""
    )
    document = cli.call("expand", "flow.yaml", "--json", code=0).json
    assert document["datasets"] == [
        {"name": f"parts_{k}", "path": f"out/{k}", "hash_mode": "manifest", "description": f"Parts of {k}"}
        for k in ("a", "b")
    ]
    jobs = {job["name"]: job for job in document["jobs"]}
    assert jobs["make_a"]["command"] == "make out/a"
    assert jobs["make_a"]["output_datasets"] == ["parts_a"]
    assert "depends_on" not in jobs["join"]
    (cli.folder / "again.json").write_text(json.dumps(document))
    again = cli.call("expand", "again.json", "--json", code=0).json
    assert again == document
    graph = cli.call("graph", "flow.yaml", "--format", "mermaid", code=0).stdout
    assert "make_a" in graph


def test_secrets_in_names_and_paths_are_not_shown(cli: WorkflowCli) -> None:
    secret = "hunter2secretvalue"
    text = f"""\
name: hidden
parameters: {{api_token: [{secret}]}}
datasets:
  - {{name: "parts_{{api_token}}", path: "out/{{api_token}}", use_parameters: [api_token]}}
jobs:
  - name: make
    command: "true ${{datasets.output.parts_{{api_token}}}}"
    use_parameters: [api_token]
  - name: read
    command: ls ${{datasets.input.parts_{{api_token}}}}
    use_parameters: [api_token]
"""
    cli.write(text)
    done = cli.call("run", "flow.yaml", code=1)
    assert "dataset 'parts_***' could not be finalized: out/***: it does not exist" in done.stdout
    shown = [done, cli.call("datasets", "list", "1"), cli.call("results", "1", "--json")]
    (cli.folder / "out" / secret).mkdir(parents=True)
    shown += [cli.call("datasets", "finalize", "1", code=0), cli.call("resume", "1", code=0)]
    assert all(secret not in one.stdout + one.stderr for one in shown)
    assert [one["status"] for one in cli.call("datasets", "list", "1", "--json").json] == ["finalized"]
    assert secret.encode() not in cli.store_path.read_bytes()
