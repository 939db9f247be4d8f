"""Dry runs of workflows: the checks of the real run, its jobs and its requests to a cluster, and no trace."""

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import wait_until
from tests.integration.workflow_cli import WorkflowCli
from tests.servers import RedisServer
from tests.slurm_server import SlurmServer

SWEEP = """
name: sweep
jobs:
  - {name: prepare, command: "true"}
  - {name: "train_{i}", command: "true", num_cpus: 1, memory: 64m, runtime: 10m, depends_on: [prepare],
     parameters: {i: "1:3"}}
  - {name: report, command: "true", depends_on_regexes: ["train_.*"]}
"""
NAMES = ["prepare", "train_1", "train_2", "train_3", "report"]
TOO_LARGE = 'name: large\njobs: [{name: huge, command: "true", num_cpus: 4096}]\n'
ENGINES = {"slurm": ("--engine", "slurm"), "ray": ("--engine", "ray"), "celery": ("--engine", "celery")}


def everything_below(folder: Path) -> set[str]:
    return {os.path.join(where, name) for where, _, names in os.walk(folder) for name in (*names, "")}


def test_a_local_dry_run_refuses_what_the_run_refuses(cli: WorkflowCli) -> None:
    path = cli.write(TOO_LARGE)
    for more in ((), ("--dry-run",)):
        done = cli.call("run", path, *more, code=2)
        assert "huge: needs 4096 CPUs" in done.stderr
    missing = cli.write(
        'name: x\nfiles: [{name: f, path: none}]\njobs: [{name: a, command: "x", input_files: [f]}]\n'
    )
    for more in ((), ("--dry-run",)):
        assert "input files are missing" in cli.call("run", missing, *more, code=2).stderr


@pytest.mark.parametrize("options", [(), ("-o", "elsewhere"), ("--rerun-changed",)])
def test_a_dry_run_leaves_nothing_behind(cli: WorkflowCli, tmp_path: Path, options: tuple[str, ...]) -> None:
    path = cli.write(SWEEP)
    before = everything_below(tmp_path)
    document = cli.call("run", path, "--dry-run", "--json", *options, code=0).json
    assert [job["name"] for job in document["jobs"]] == NAMES
    assert everything_below(tmp_path) == before


def test_an_output_folder_that_cannot_be_used_is_refused_by_both(cli: WorkflowCli) -> None:
    path = cli.write(SWEEP)
    (cli.folder / "plain").write_text("a file")
    for more in ((), ("--dry-run",)):
        done = cli.call("run", path, "-o", "plain/inside", *more, code=2)
        assert "output directory plain/inside: cannot be created" in done.stderr
        assert "Not a directory" in done.stderr


def test_a_dry_run_inside_of_a_job_says_that_it_cannot_be_detached(cli: WorkflowCli) -> None:
    path = cli.write(SWEEP)
    for more in ("", " --dry-run"):
        line = f"exec $0 -m joblens run {path} --detach{more}"
        done = cli.call("run", "--", "sh", "-c", line, sys.executable)
        assert done.code == 125, (more, done.stderr)
        assert "inside a job" in done.stderr


@pytest.mark.parametrize("name", ["slurm", "ray"])
def test_options_that_the_run_refuses_are_refused(cli: WorkflowCli, name: str) -> None:
    path = cli.write(SWEEP)
    done = cli.call("run", path, "--dry-run", "--only", "nothing*", *ENGINES[name], code=2)
    assert "nothing*" in done.stderr


@pytest.mark.needs("ray")
def test_a_cluster_that_cannot_be_reached_ends_with_125(cli: WorkflowCli) -> None:
    path = cli.write(SWEEP)
    for more in ((), ("--dry-run",)):
        done = cli.call("run", path, "--engine", "ray", "--address", "127.0.0.1:1", *more, code=125)
        assert "no Ray answers at 127.0.0.1:1" in done.stderr
        assert "Traceback" not in done.stderr
    assert not cli.store_path.exists()


@pytest.mark.needs("ray")
def test_ray_shows_the_capacity_it_would_have_and_starts_nothing(cli: WorkflowCli, tmp_path: Path) -> None:
    path = cli.write(SWEEP)
    before = everything_below(tmp_path)
    document = cli.call("run", path, "--engine", "ray", "--cpus", "3", "--dry-run", "--json", code=0).json
    assert [job["name"] for job in document["jobs"]] == NAMES
    cluster = document["cluster"]
    assert cluster["engine"] == "ray"
    assert [node["cpus"] for node in cluster["capacity"]] == [3]
    train = next(one for one in cluster["requests"] if one["name"].startswith("train"))
    assert (train["stage"], train["kind"], train["count"], train["cpus"]) == (2, "task", 3, 1)
    assert train["memory_bytes"] == 64 << 20
    assert everything_below(tmp_path) == before
    done = cli.call("run", cli.write(TOO_LARGE), "--engine", "ray", "--dry-run", code=2)
    assert "huge: needs 4096 CPUs" in done.stderr


@pytest.mark.needs("celery")
def test_a_broker_that_cannot_be_reached_ends_a_dry_run_with_125(cli: WorkflowCli) -> None:
    path = cli.write(SWEEP)
    broker = ("--engine", "celery", "--broker", "redis://user:hunter2secret@127.0.0.1:1/0")
    done = cli.call("run", path, *broker, "--dry-run", code=125)
    assert "127.0.0.1:1" in done.stderr
    assert "hunter2secret" not in done.stderr + done.stdout
    assert not cli.store_path.exists()


@pytest.mark.needs("celery")
def test_celery_names_the_workers_or_says_that_one_is_started(
    cli: WorkflowCli, redis_server: RedisServer, tmp_path: Path
) -> None:
    path = cli.write(SWEEP)
    before = everything_below(tmp_path)
    document = cli.call("run", path, "--engine", "celery", "--dry-run", "--json", code=0).json
    assert [job["name"] for job in document["jobs"]] == NAMES
    assert "a worker starts" in document["cluster"]["where"]
    done = cli.call("run", path, "--engine", "celery", "--broker", redis_server.url, "--dry-run", code=0)
    assert "no worker serves the queue" in done.stderr
    assert "5 jobs would run" in done.stdout
    assert everything_below(tmp_path) == before


def test_celery_shows_the_capacity_of_living_workers(cli: WorkflowCli, redis_server: RedisServer) -> None:
    path = cli.write(SWEEP)
    broker = ("--broker", redis_server.url)
    worker = cli.start("worker", *broker, "--concurrency", "3")
    try:
        wait_until(lambda: cli.store_path.exists() and _workers(cli) == 1, timeout=60, what="a worker")
        options = ("--engine", "celery", *broker, "--dry-run")
        document = cli.call("run", path, *options, "--json", code=0).json
        [capacity] = document["cluster"]["capacity"]
        assert (capacity["cpus"], capacity["queues"]) == (3, ["default"])
        assert [one["kind"] for one in document["cluster"]["requests"]] == ["queue"] * 3
        large = cli.write('name: l\njobs: [{name: huge, command: "true", num_cpus: 4}]\n', "large.yaml")
        for words in (options, options[:-1]):
            assert "huge: needs 4 CPUs, 3 available" in cli.call("run", large, *words, code=2).stderr
    finally:
        worker.terminate()
        worker.communicate(timeout=60)


def _workers(cli: WorkflowCli) -> int:
    store = cli.store()
    try:
        return len(store.workers())
    finally:
        store.close()


def test_runs_that_exist_can_be_tried_out_too(cli: WorkflowCli) -> None:
    path = cli.write(SWEEP)
    cli.call("workflows", "create-from-spec", path, code=0)
    document = cli.call("run-jobs", "1", "--dry-run", "--json", code=0).json
    assert [job["name"] for job in document["jobs"]] == NAMES
    assert cli.newest_run().status == "created"
    assert not (cli.folder / "output").exists()
    done = cli.call("resume", "1.1", "--dry-run", "--cpus", "0.5", code=2)
    assert "prepare: needs 1 CPU, 0.5 available" in done.stderr
    cli.call("run-jobs", "1", code=0)
    document = cli.call("rerun", "1.1", "--all", "--dry-run", "--json", code=0).json
    assert len(document["jobs"]) == 5
    assert cli.newest_run().number == 1


def test_map_makes_the_checks_of_its_run(cli: WorkflowCli) -> None:
    done = cli.call("map", "--dry-run", "--cpus", "4096", "echo {}", ":::", "1", code=2)
    assert "needs 4096 CPUs" in done.stderr
    assert cli.call("map", "--dry-run", "echo {}", ":::", "1", "2", code=0).stdout == "echo 1\necho 2\n"
    assert not cli.store_path.exists()


def test_jobs_that_may_be_too_late_are_listed(cli: WorkflowCli) -> None:
    path = cli.write(
        'name: late\njobs: [{name: a, command: "true", runtime: 40m},'
        ' {name: b, command: "true", runtime: 40m, depends_on: [a]}]\n'
    )
    document = cli.call("run", path, "--time", "1h", "--dry-run", "--json", code=0).json
    assert [job["name"] for job in document["jobs"]] == ["a", "b"]
    assert document["not_started"] == ["b"]
    text = cli.call("run", path, "--time", "1h", "--dry-run", code=0).stdout
    assert "2 jobs would run in 2 stages" in text
    assert "1 job may not start within the time of the run: b." in text


def test_secrets_are_not_shown(cli: WorkflowCli) -> None:
    path = cli.write(
        'name: s\nenv: {API_TOKEN: "hunter2-hunter2"}\n'
        "jobs: [{name: a, command: \"curl -u hunter2-hunter2 -H 'Authorization: Bearer abcdef123456'\"}]\n"
    )
    for more in ((), ("--json",)):
        shown = cli.call("run", path, "--dry-run", *more, code=0).stdout
        assert "curl -u ***" in shown
        assert "hunter2" not in shown
        assert "abcdef123456" not in shown


def test_slurm_shows_each_sbatch_as_the_run_submits_it(
    slurm: SlurmServer, cli: WorkflowCli, tmp_path: Path
) -> None:
    path = cli.write(SWEEP)
    before = everything_below(tmp_path)
    options = ("--engine", "slurm", "--packing", "jobs", "--sbatch=--nice=7")
    document = cli.call("run", path, *options, "--dry-run", "--json", code=0).json
    assert [job["name"] for job in document["jobs"]] == NAMES
    requests = document["cluster"]["requests"]
    assert [(one["stage"], one["kind"], one["name"], len(one["jobs"])) for one in requests] == [
        (1, "job", "sweep:prepare", 1),
        (2, "array", "sweep:train", 3),
        (3, "job", "sweep:report", 1),
    ]
    array = requests[1]
    assert array["argv"][:2] == ["sbatch", "--parsable"]
    assert "--nice=7" in array["argv"]
    assert "--array=0-2" in array["argv"]
    assert (array["nodes"], array["cpus"], array["partition"]) == (1, 1, "")
    assert array["walltime_s"] >= 600
    assert array["script"].startswith("#!/bin/sh\n")
    text = cli.call("run", path, *options, "--dry-run", code=0).stdout
    assert "5 jobs would run" in text
    assert "--array=0-2" in text
    assert everything_below(tmp_path) == before
    queued = slurm.ask("squeue", "--noheader", "--format=%j").split()  # tests beside this one have jobs too
    assert not [name for name in queued if name.startswith("sweep")]


def test_slurm_checks_as_the_run_does(slurm: SlurmServer, cli: WorkflowCli) -> None:
    path = cli.write(SWEEP)
    for more in ((), ("--dry-run",)):
        done = cli.call("run", path, "--engine", "slurm", "--partition", "nowhere", *more, code=2)
        assert "Slurm has no partition 'nowhere'" in done.stderr
        done = cli.call("run", cli.write(TOO_LARGE, "large.yaml"), "--engine", "slurm", *more, code=2)
        assert "huge: needs 4096 CPUs" in done.stderr


def test_a_slurm_that_is_away_ends_with_125(
    cli: WorkflowCli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sbatch", "sinfo", "scontrol", "squeue"):
        (programs / name).write_text(
            "#!/bin/sh\necho 'slurm_load_partitions: Unable to contact slurm controller' >&2\nexit 1\n"
        )
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    path = cli.write(SWEEP)
    for more in ((), ("--dry-run",)):
        done = cli.call("run", path, "--engine", "slurm", *more, code=125)
        assert "Unable to contact slurm controller" in done.stderr
