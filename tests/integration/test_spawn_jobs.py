"""Jobs that a running job adds to its run: checked, recorded once, and run."""

import getpass
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from joblens.agent.runs.driver import RunDriver
from joblens.agent.runs.facts import ReportedFact, RunFacts, whole_batch
from joblens.agent.runs.signals import RunSignals
from joblens.agent.runtime.ownership import SupervisorLock
from joblens.app.driving.driver import drive
from joblens.app.runs.records import create_run
from joblens.app.runs.spawn import Caller, Spawned, lineage_state, spawn_in_run
from joblens.app.wiring.drivers import spool_dir, store_name
from joblens.app.wiring.settings import load_settings
from joblens.app.workflows.loader import load_spec, plan_of_run
from joblens.model.delivery import Order, Ticket
from joblens.model.errors import InputError
from joblens.model.jobs.job import Job, Owner, Record, RunLink
from joblens.model.runs.plan import Plan, PlannedDataset, PlannedJob
from joblens.model.runs.run import (
    DatasetFinalized,
    JobState,
    RaisedRequest,
    RequirementsRaised,
    Run,
    RunEnded,
    RunEvent,
    RunOptions,
    RunStarted,
    RunStatus,
)
from joblens.model.runs.workflow_spec import HashMode, JobSpec
from joblens.model.settings import Settings
from joblens.model.writes import JobQueued, RunNoted, TicketMade, Write
from joblens.plan.workflows.spawning import MOST_JOBS, MOST_STATE_BYTES
from joblens.spec.workflows.file import read_spawn
from joblens.stores.sqlite import SqliteStore
from tests.conftest import wait_until
from tests.integration.workflow_cli import WorkflowCli, states

FLOW = """
name: loop
dynamic_jobs: {max_iterations: 3}
resource_requirements:
  - {name: small, num_cpus: 1, memory: 64m}
failure_handlers:
  - {name: again, rules: [{exit_codes: [7], max_retries: 2}]}
files:
  - {name: made, path: made.txt}
jobs:
  - {name: seed, command: "true"}
  - {name: other, command: "true"}
"""


class OpenRun:
    """A run that nobody drives, and calls as its jobs would make them."""

    def __init__(self, folder: Path, options: RunOptions | None = None) -> None:
        self.folder = folder
        self.settings: Settings = load_settings(env={"JOBLENS_STORE": str(folder / "store.db")}).settings
        self.store = SqliteStore(str(folder / "store.db"))
        path = folder / "flow.yaml"
        path.write_text(FLOW)
        loaded = load_spec(str(path))
        options = options or RunOptions(cwd=str(folder), labels=("heavy",))
        self.uuid = create_run(self.store, str(path), loaded, options, self.settings).uuid

    @property
    def run(self) -> Run:
        return self.store.find_run(self.uuid)

    def names(self) -> list[str]:
        return [job.name for job in plan_of_run(self.run).jobs]

    def spawn(self, *jobs: dict[str, Any], by: str = "seed", **more: Any) -> Spawned:
        reading = read_spawn({"jobs": list(jobs)})
        assert reading.problems == ()
        caller = Caller(self.uuid, by, more.pop("attempt", 1), "", more.pop("caller_lineage", by))
        return spawn_in_run(self.store, self.settings, caller, reading.jobs, **more)

    def refused(self, *jobs: dict[str, Any], **more: Any) -> str:
        before = self.run
        with pytest.raises(InputError) as caught:
            self.spawn(*jobs, **more)
        assert self.run == before, "something was written"
        return str(caught.value)


@pytest.fixture
def one(tmp_path: Path) -> Iterator[OpenRun]:
    cli = OpenRun(tmp_path)
    yield cli
    cli.store.close()


def job(name: str, command: str = "true", **more: Any) -> dict[str, Any]:
    return {"name": name, "command": command, **more}


# ---- one call --------------------------------------------------------------------------------------------


def test_jobs_are_added_with_everything_a_file_can_say(one: OpenRun) -> None:
    answer = one.spawn(
        job("next", "echo ${files.input.made}", depends_on=["work"], cancel_on_blocking_job_failure=False),
        job(
            "work",
            resource_requirements="small",
            failure_handler="again",
            priority=4,
            label="heavy",
            env={"A": "b"},
            output_files=["made"],
        ),
        job("inline", resource_requirements={"num_cpus": 2}, depends_on=["other"]),
        state={"generation": 1},
    )
    assert answer == Spawned(
        lineage="seed",
        iteration=1,
        created=("next", "work", "inline"),
        spawned_job_ids=(3, 4, 5),
        state={"generation": 1},
    )
    run = one.run
    assert run.jobs == 5
    plan = plan_of_run(run)
    following, work, inline = plan.jobs[2:]
    assert following.depends_on == (0, 3)
    assert following.command == "echo made.txt"
    assert (work.requirements_name, work.requirements.cpus) == ("small", 1)
    assert work.failure_handler is not None
    assert (work.priority, work.label, work.spawned_by) == (4, "heavy", 0)
    assert work.env == {
        "A": "b",
        "JOBLENS_ORCHESTRATOR_LINEAGE_ID": "seed",
        "TORC_ORCHESTRATOR_LINEAGE_ID": "seed",
    }
    assert (inline.requirements.cpus, inline.depends_on) == (2, (0, 1))
    assert one.store.runs(run.workflow_uuid)[-1].jobs == 5


def test_the_same_batch_again_changes_nothing(one: OpenRun) -> None:
    first = one.spawn(job("a"), job("b", depends_on=["a"]), state=1)
    before = one.run
    again = one.spawn(job("a"), job("b", depends_on=["a"]), state=2, attempt=2)
    assert (again.created, again.existing) == ((), ("a", "b"))
    assert (again.iteration, again.state) == (first.iteration, 1)
    assert again.spawned_job_ids == first.spawned_job_ids
    assert one.run == before


def test_the_same_batch_with_nested_values_changes_nothing(one: OpenRun) -> None:
    first = job(
        "a",
        container={"image": "i", "volumes": ["/tmp:/x"]},
        stdio={"mode": "none"},
        resource_requirements={"num_cpus": 2},
    )
    one.spawn(first)
    assert one.spawn(first).existing == ("a",)
    container = plan_of_run(one.run).jobs[2].container
    assert container is not None
    assert container.volumes == ("/tmp:/x",)


def test_another_content_under_the_same_name_is_refused(one: OpenRun) -> None:
    one.spawn(job("a", "echo 1", priority=1))
    assert "'a' was already added with different content (command)" in one.refused(
        job("a", "echo 2", priority=1)
    )


def test_a_batch_that_is_half_there_is_refused(one: OpenRun) -> None:
    one.spawn(job("a"))
    assert "'b' is new" in one.refused(job("a"), job("b"))
    assert "the workflow file has it" in one.refused(job("other"))
    assert "'seed' has added it" in one.refused(job("a"), by="other")


def test_a_second_batch_of_one_attempt_is_another_iteration(one: OpenRun) -> None:
    assert one.spawn(job("a")).iteration == 1
    assert one.spawn(job("b", depends_on=["a"])).iteration == 2
    assert plan_of_run(one.run).jobs[3].depends_on == (0, 2)


def test_each_lineage_has_a_limit_of_its_own(one: OpenRun) -> None:
    for place in range(3):
        one.spawn(job(f"a{place}"))
    result = one.refused(job("a3"))
    assert "lineage 'seed' has added jobs 3 times" in result
    assert "max_iterations" in result
    assert one.spawn(job("b"), lineage="another").iteration == 1
    assert one.spawn(state="end").iteration == 3  # a final state is no iteration
    assert one.spawn(job("a0")).existing == ("a0",)  # neither is a batch that is there


def test_an_empty_batch_stores_the_final_state(one: OpenRun) -> None:
    one.spawn(job("a"), state={"at": 1})
    one.spawn(state={"value": 7.5})
    found = lineage_state(one.run, "seed", one.settings)
    assert (found.iteration, found.state, found.is_final) == (1, {"value": 7.5}, True)
    before = one.run
    one.spawn(state={"value": 7.5})
    assert one.run == before


def test_all_mistakes_are_reported_at_once_and_nothing_is_written(one: OpenRun) -> None:
    result = one.refused(
        job("a", resource_requirements="smal"),
        job("a"),
        job("b", depends_on=["c", "nobody"]),
        job("c", depends_on=["b"], failure_handler="agan"),
        job("d", input_files=["maed"], parameters={"i": "1:3"}),
        job("seed"),
    )
    for text in (
        "jobs[0].resource_requirements: there is no resource requirement 'smal'",
        "did you mean 'small'?",
        "two jobs of the batch are named 'a'",
        "there is no job 'nobody'",
        "there is no failure handler 'agan'",
        "there is no file 'maed'",
        "parameters is only for jobs of a workflow file",
        "the run has a job 'seed' already: the workflow file has it",
    ):
        assert text in result
    result = one.refused(job("b", depends_on=["c"]), job("c", depends_on=["b"]), job("d", depends_on=["d"]))
    assert "jobs wait for each other: 'b' needs 'c' needs 'b'" in result
    assert "'d' needs 'd'" in result


def test_sizes_have_limits(one: OpenRun) -> None:
    jobs = tuple(JobSpec(name=f"j{place}", command="true") for place in range(MOST_JOBS + 1))
    caller = Caller(one.uuid, "seed", 1, "", "seed")
    with pytest.raises(InputError, match="at most 10,000"):
        spawn_in_run(one.store, one.settings, caller, jobs)
    assert "bytes are too many" in one.refused(job("a"), state="x" * MOST_STATE_BYTES)
    assert "lineage" in one.refused(job("a"), lineage="a\x1b[31m")
    assert "JSON" in one.refused(job("a"), state=object())
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    assert "JSON" in one.refused(job("a"), state=deep)
    assert one.spawn(job("a"), state=(1, 2)).state == [1, 2]


def test_two_calls_at_the_same_moment_both_count(one: OpenRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between reading the run and writing to it another job adds its own."""
    apply = one.store.apply
    calls: list[int] = []

    def others_first(writes: list[Write]) -> None:
        if not calls:
            calls.append(1)
            one.spawn(job("first"), by="other")
        apply(writes)

    monkeypatch.setattr(one.store, "apply", others_first)
    answer = one.spawn(job("second"))
    assert answer.spawned_job_ids == (4,)
    assert one.names() == ["seed", "other", "first", "second"]
    assert [(batch.lineage, batch.first) for batch in one.run.spawned] == [("other", 2), ("seed", 3)]


def test_a_batch_that_comes_at_the_moment_the_run_ends_can_still_be_run(
    one: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = one.store.apply

    def end_first(writes: Sequence[Write]) -> None:
        monkeypatch.setattr(one.store, "apply", apply)
        apply([RunNoted(RunEvent("end", one.uuid, 1, RunEnded(RunStatus.COMPLETED)))])
        apply(writes)

    monkeypatch.setattr(one.store, "apply", end_first)
    assert one.spawn(job("late")).created == ("late",)
    assert one.run.status is RunStatus.STOPPED  # joblens resume continues it


def test_a_driver_finds_jobs_that_were_added_after_its_last_question(
    one: OpenRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_to_its_end = RunDriver.run

    def run_then_add(driver: RunDriver, signals: RunSignals, running: Sequence[Record] = ()) -> RunStatus:
        status = run_to_its_end(driver, signals, running)
        assert status is RunStatus.COMPLETED
        one.spawn(job("late"))
        return status

    monkeypatch.setenv("JOBLENS_STORE", str(one.folder / "store.db"))
    monkeypatch.setattr(RunDriver, "run", run_then_add)
    driven = drive(one.run, plan_of_run(one.run), one.settings)
    assert [driven.status, one.run.status] == [RunStatus.STOPPED] * 2
    monkeypatch.setattr(RunDriver, "run", run_to_its_end)
    driven = drive(one.run, plan_of_run(one.run), one.settings)
    assert [driven.status, one.run.status] == [RunStatus.COMPLETED] * 2
    assert driven.states == (JobState.COMPLETED,) * 3


def test_a_driver_adopts_a_queued_job_that_was_added_after_it_had_read_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver before it took the job into its plan, queued it and died before the lock was free."""
    pytest.importorskip("celery")
    monkeypatch.setenv("JOBLENS_STORE", str(tmp_path / "store.db"))
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "500ms")
    one = OpenRun(tmp_path, RunOptions(cwd=str(tmp_path), engine="celery"))
    run = one.run
    plan = plan_of_run(run)
    one.spawn(job("late"))
    argv = ("sh", "-c", f"echo x >> {tmp_path}/late")
    late = Job(
        uuid="22222222-2222-4222-8222-222222222222",
        argv=argv,
        created_at_us=1,
        name="late",
        queue="joblens",
        user=getpass.getuser(),
        run=RunLink(one.uuid, index=2),
    )
    ticket = Ticket(uuid=late.uuid, queue="joblens", order=Order(argv=argv, cwd=str(tmp_path)))
    one.store.apply([JobQueued(late), TicketMade(ticket)])
    driven = drive(run, plan, load_settings().settings)
    assert driven.states == (JobState.COMPLETED,) * 3
    assert (tmp_path / "late").read_text() == "x\n"
    lock = SupervisorLock(spool_dir(str(tmp_path / "store.db")), "worker")
    wait_until(lambda: lock.holder() is None, what="the worker to end")
    one.store.close()


def test_a_job_that_could_never_fit_is_refused(one: OpenRun) -> None:
    owner = Owner(host="h", boot_id="b", pid=1, start_ticks=1)
    started = RunStarted(owner, 2.0, 1 << 30)
    one.store.apply([RunNoted(RunEvent("11111111-1111-4111-8111-111111111111", one.uuid, 1, started))])
    result = one.refused(job("a", num_cpus=3), job("b", memory="2g"), job("c", num_gpus=1))
    for name in ("a", "b", "c"):
        assert name in result


def test_labels_of_added_jobs_mean_the_same_as_in_a_file(tmp_path: Path, one: OpenRun) -> None:
    assert "'gpu'; no worker of this run serves it" in one.refused(job("a", label="gpu"))
    (tmp_path / "celery").mkdir()
    many = OpenRun(tmp_path / "celery", RunOptions(cwd=str(tmp_path), engine="celery"))
    owner = Owner(host="h", boot_id="b", pid=1, start_ticks=1)
    many.store.apply([RunNoted(RunEvent("started", many.uuid, 1, RunStarted(owner, 2.0, 1 << 30)))])
    assert "b: needs 64 CPUs" in many.refused(job("b", num_cpus=64))
    many.spawn(job("a", label="gpu", num_cpus=64))  # for workers that are not the run's own
    many.store.close()


def test_secrets_of_added_jobs_stay_out_of_the_store(one: OpenRun) -> None:
    secret = "hunter2-hunter2"
    one.spawn(
        job("a", f"curl -H {secret} x", env={"API_TOKEN": secret, "PLAIN": "1"}), state={"api_key": secret}
    )
    stored = one.run
    assert secret not in msgspec.json.encode(stored.spawned).decode()
    [batch] = stored.spawned
    assert batch.private
    whole = whole_batch(batch, spool_dir(store_name(one.settings)))
    assert whole is not None
    assert whole.jobs[0].env["API_TOKEN"] == secret
    assert lineage_state(stored, "seed", one.settings).state == {"api_key": secret}
    assert one.spawn(job("a", f"curl -H {secret} x", env={"API_TOKEN": secret, "PLAIN": "1"})).existing == (
        "a",
    )
    assert "the name contains a secret" in one.refused(job(f"b-{secret}", env={"API_TOKEN": secret}))


# ---- runs ------------------------------------------------------------------------------------------------

ORCHESTRATOR = """
import os, sys, time
from joblens import Orchestrator

loop = Orchestrator.from_env(lineage_fallback="case")
generation, last = loop.generation, int(sys.argv[1])
with open("trace", "a") as trace:
    trace.write(f"{os.environ['JOBLENS_JOB_NAME']} {generation}\\n")
if generation >= last:
    loop.converge(state={"generations": generation, "token": None})
    sys.exit()
following = generation + 1
me = [sys.executable, __file__, str(last)]
loop.spawn(
    [
        {"name": f"work{following}",
         "command": f"echo work{following} $TORC_ORCHESTRATOR_LINEAGE_ID >> trace",
         "resource_requirements": "small", "env": {"API_TOKEN": "not-for-the-store"}},
        {"name": f"check{following}", "command": " ".join(me), "depends_on": [f"work{following}"]},
    ],
    state={"generation": following},
)
"""
LOOP = """
name: loop
resource_requirements:
  - {{name: small, num_cpus: 1, memory: 64m}}
failure_handlers:
  - {{name: again, rules: [{{exit_codes: [7], max_retries: 2}}]}}
jobs:
  - {{name: check0, command: "{python} loop.py {last}{more}", failure_handler: again}}
"""
LOOP_OF_THREE = ["check0", "work1", "check1", "work2", "check2", "work3", "check3"]


def loop(last: int, more: str = "") -> str:
    return LOOP.format(python=sys.executable, last=last, more=more)


def test_a_loop_runs_until_it_has_converged(cli: WorkflowCli) -> None:
    (cli.folder / "loop.py").write_text(ORCHESTRATOR)
    document = cli.run(loop(3), timeout=180.0)
    assert states(document) == dict.fromkeys(LOOP_OF_THREE, "completed")
    assert document["counts"] == {"completed": 7}
    assert [row["added_by"] for row in document["results"]] == [
        None,
        "check0",
        "check0",
        *["check1"] * 2,
        *["check2"] * 2,
    ]
    trace = (cli.folder / "trace").read_text().splitlines()
    assert trace == ["check0 0", "work1 case", "check1 1", "work2 case", "check2 2", "work3 case", "check3 3"]
    [shown] = cli.call("spawn-jobs", "--show", "--run", "loop", "--json", code=0).json
    assert shown == {
        "lineage": "case",
        "iteration": 3,
        "state": {"generations": 3, "token": None},
        "is_final": True,
    }
    assert b"not-for-the-store" not in cli.store_path.read_bytes()
    assert "check3" in cli.call("graph", "loop", code=0).stdout
    assert cli.call("workflows", "--json", code=0).json[0]["last_run"]["jobs"] == 7
    watched = cli.call("watch", "loop", "--once", code=0).stdout
    assert "7 of 7 done" in watched


def test_an_orchestrator_that_is_tried_again_adds_its_jobs_once(cli: WorkflowCli) -> None:
    (cli.folder / "loop.py").write_text(ORCHESTRATOR)
    document = cli.run(loop(1, " && test $JOBLENS_ATTEMPT = 2 || exit 7"), timeout=180.0)
    assert states(document) == dict.fromkeys(["check0", "work1", "check1"], "completed")
    trace = (cli.folder / "trace").read_text().splitlines()
    # The second attempt finds the batch of the first: the lineage has come to its end, so it adds nothing.
    assert trace == ["check0 0", "check0 1", "work1 case", "check1 1"]


def test_jobs_of_an_orchestrator_that_fails_stay_blocked_until_it_is_run_again(cli: WorkflowCli) -> None:
    (cli.folder / "loop.py").write_text(ORCHESTRATOR)
    document = cli.run(loop(1, " && test -e fixed"), code=1, timeout=180.0)
    assert states(document) == {"check0": "failed", "work1": "blocked", "check1": "blocked"}
    (cli.folder / "fixed").touch()
    again = cli.call("rerun", "loop", "--failed", "--json", code=0, timeout=180.0).json
    assert states(again) == dict.fromkeys(["check0", "work1", "check1"], "completed")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_driver_killed_at_any_moment_loses_and_repeats_no_added_job(cli: WorkflowCli, seed: int) -> None:
    (cli.folder / "loop.py").write_text(ORCHESTRATOR)
    path = cli.write(loop(3))
    chance = random.Random(seed)
    driver = cli.start("run", path)
    wait_until((cli.folder / "trace").exists, timeout=60.0, what="the first job to begin")
    kills = 0
    while kills < 3 and driver.poll() is None:
        time.sleep(chance.uniform(0.5, 3.0))
        os.kill(driver.pid, signal.SIGKILL)  # its launchers live on, and record jobs that end meanwhile
        driver.wait()
        assert driver.stdout is not None
        driver.stdout.close()  # launchers may hold the other end
        kills += 1
        driver = cli.start("resume", "loop")
    printed, _ = driver.communicate(timeout=180)
    assert driver.returncode == 0, printed
    results = cli.call("results", "loop", "--json", code=0).json["results"]
    assert {row["job_name"]: row["status"] for row in results} == dict.fromkeys(LOOP_OF_THREE, "completed")
    works = [line for line in (cli.folder / "trace").read_text().splitlines() if line.startswith("work")]
    assert works == ["work1 case", "work2 case", "work3 case"]
    assert [batch.iteration for batch in cli.newest_run().spawned] == [1, 2, 3, 3]


def test_a_part_of_a_run_keeps_the_jobs_that_were_added_to_it(cli: WorkflowCli) -> None:
    batch = {
        "jobs": [
            job("good", "echo good >> trace"),
            job("bad", "test -e fixed && echo bad >> trace"),
            job("last", "echo last >> trace", depends_on=["good", "bad"]),
        ]
    }
    (cli.folder / "batch.json").write_text(json.dumps(batch))
    command = f"{sys.executable} -m joblens spawn-jobs batch.json"
    document = cli.run(FLOW.replace('command: "true"', f'command: "{command}"', 1), code=1, timeout=180.0)
    assert states(document)["bad"] == "failed"
    (cli.folder / "fixed").touch()
    again = cli.call("rerun", "loop", "--failed", "--json", code=0, timeout=180.0).json
    assert set(states(again).values()) == {"completed"}
    assert sorted((cli.folder / "trace").read_text().split()) == ["bad", "good", "last"]
    assert cli.call("rerun", "loop", "--changed", "--json", code=0, timeout=180.0).json["again"] == []


def test_requests_raised_for_added_jobs_hold_in_a_later_run(cli: WorkflowCli) -> None:
    """Also where a job has another index there."""
    for name in ("seed", "other"):
        jobs = [job(f"{name}_{one}", "test -e fixed", resource_requirements="small") for one in "ab"]
        (cli.folder / f"{name}.json").write_text(json.dumps({"jobs": jobs}))
    spawn = f"{sys.executable} -m joblens spawn-jobs"
    text = FLOW.replace('command: "true"', f'command: "{spawn} seed.json && test -e fixed"', 1)
    text = text.replace('command: "true"', f'command: "sleep 0.1; {spawn} other.json"', 1)
    cli.run(text, code=1, timeout=180.0)
    before = cli.newest_run()
    there = [one.name for one in plan_of_run(before).jobs].index("other_b")
    raised = RequirementsRaised((RaisedRequest(there, 1, memory_bytes=100 << 20),))
    store = cli.store()
    store.apply([RunNoted(RunEvent("raised", before.uuid, 1, raised))])
    store.close()
    (cli.folder / "fixed").touch()
    (cli.folder / "seed.json").write_text(json.dumps({"jobs": [job("seed_c"), job("seed_d")]}))
    again = cli.call("rerun", "loop", "--failed", "--json", code=0, timeout=180.0).json
    assert set(states(again).values()) == {"completed"}
    asked = {one.name: one.requirements.memory_bytes for one in plan_of_run(cli.newest_run()).jobs}
    assert asked["other_b"] == 100 << 20
    assert asked["other_a"] == 64 << 20
    assert cli.records_of(cli.newest_run())["other_b"].job.requirements.memory_bytes == 100 << 20
    assert asked["seed_c"] is None
    assert asked["seed_d"] is None


def test_mistakes_in_a_file_are_shown_with_their_lines(cli: WorkflowCli) -> None:
    batch = "jobs:\n  - {name: a, command: x, depends_on: [nobody]}\n  - {name: b, command: y, num_cpu: 1}\n"
    (cli.folder / "batch.yaml").write_text(batch)
    command = f"{sys.executable} -m joblens spawn-jobs batch.yaml"
    document = cli.run(FLOW.replace('command: "true"', f'command: "{command}"', 1), code=1, timeout=180.0)
    rows = {row["job_name"]: row for row in document["results"]}
    assert rows["seed"]["return_code"] == 2
    printed = cli.call("logs", rows["seed"]["job_uuid"], "--stderr", code=0).stdout
    assert "batch.yaml:3:" in printed
    assert "num_cpus" in printed
    assert "Traceback" not in printed


def test_outside_of_a_job_nothing_can_be_added(cli: WorkflowCli) -> None:
    (cli.folder / "batch.json").write_text('{"jobs": []}')
    refused = cli.call("spawn-jobs", "batch.json", code=2)
    assert "only a job of a running workflow" in refused.stderr
    assert "--final" in cli.call("spawn-jobs", code=2).stderr


def test_who_watches_a_run_sees_the_jobs_that_are_added(cli: WorkflowCli) -> None:
    (cli.folder / "loop.py").write_text(ORCHESTRATOR)
    driver = cli.start("run", cli.write(loop(5)), "--quiet")  # lasts longer than it takes to start watching
    wait_until((cli.folder / "trace").exists, timeout=60.0, what="the first job to begin")
    watching = cli.start("watch", "loop")
    printed, _ = watching.communicate(timeout=180)
    driver.communicate(timeout=60)
    assert watching.returncode == 0, printed
    assert "✓ work5: done" in printed
    assert "11 of 11 done: run completed" in printed


# ---- together with datasets and recover ------------------------------------------------------------------

TOGETHER = """
name: together
datasets: [{{name: parts, path: parts}}, {{name: raw, path: raw}}]
user_data: [{{name: word}}]
jobs:
  - {{name: seed, command: "{joblens} spawn-jobs batch.json"}}
  - {{name: one, command: "mkdir -p parts && echo 1 > ${{datasets.output.parts}}/1", depends_on: [seed]}}
  - {{name: two, command: "mkdir -p parts && test -e ok && echo 2 > parts/2", output_datasets: [parts]}}
"""


def test_added_jobs_datasets_and_recovered_jobs_work_together(cli: WorkflowCli) -> None:
    joblens = f"{sys.executable} -m joblens"
    much = f"{sys.executable} -c \"import time; x = b'x' * (80 << 20); time.sleep(1)\""
    jobs = [
        job("join", "cat ${datasets.input.parts}/* ${datasets.input.raw}/x >> trace"),
        job("says", f"{joblens} user-data set word 5", output_user_data=["word"]),
        job("hears", "echo ${user_data.input.word} >> trace", depends_on=["join"]),
        job("much", much, resource_requirements={"memory": "40m"}),
    ]
    (cli.folder / "batch.json").write_text(json.dumps({"jobs": jobs}))
    (cli.folder / "raw").mkdir()
    (cli.folder / "raw" / "x").write_text("x\n")
    first = cli.run(TOGETHER.format(joblens=joblens), code=1, timeout=180.0)
    assert {name: state for name, state in states(first).items() if state != "completed"} == {
        "two": "failed",
        "join": "blocked",
        "hears": "blocked",
        "much": "failed",
    }
    (cli.folder / "ok").touch()
    recovering = cli.start(
        "recover", "together", "--retry-unknown", "--memory-multiplier", "4", "--no-prompts"
    )
    wait_until(lambda: any(one.index == 6 and one.attempt == 2 for one in cli.results()), timeout=60.0)
    recovering.send_signal(signal.SIGKILL)
    recovering.communicate(timeout=30)
    last = cli.call("resume", "together", "--json", code=0, timeout=180.0).json
    assert set(states(last).values()) == {"completed"}
    assert cli.lines("trace") == ["1", "2", "x", "5"]
    tried = [one for one in cli.results() if one.index == 6]
    assert tried[-1].attempt >= 2
    store = cli.store()
    limits = [store.find(one.job_uuid).job.requirements.memory_bytes for one in tried]
    store.close()
    assert limits == [40 << 20] + [160 << 20] * (len(tried) - 1)
    again = cli.call("rerun", "together", "--only", "two", "--json", code=0, timeout=180.0).json
    assert set(states(again).values()) == {"completed"}
    assert cli.lines("trace") == ["1", "2", "x", "5"] * 2
    assert [one.index for one in cli.results()] == [2, 3, 5]


def test_the_last_answer_about_actions_of_workers_hides_no_added_jobs(one: OpenRun) -> None:
    """It is asked for when the run is over: jobs in it are for a resumed run."""
    facts = RunFacts(FakeKit(one.store), one.uuid, plan_of_run(one.run))  # type: ignore[arg-type]
    driver = RunDriver.__new__(RunDriver)
    driver._facts = facts
    driver.inbox = IgnoringInbox()  # type: ignore[assignment]
    one.spawn(job("late"), job("later"))
    facts.fetch(driver._take_last_facts)
    assert driver._is_over
    assert facts.count_late_jobs() == 2
    one.spawn(job("last"), by="other")
    assert facts.count_late_jobs() == 3


class IgnoringInbox:
    def take(self, news: Iterable[ReportedFact]) -> None:
        pass


class FakeKit:
    """A recorder that answers at once, and a loop that calls at once."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.recorder = self.loop = self

    def read(self, question: Callable[[SqliteStore], Any]) -> Any:
        return question(self._store)

    def ask(self, question: Callable[[SqliteStore], Any], then: Callable[[Any], None], *_: Any) -> None:
        then(question(self._store))

    def call(self, work: Callable[[], None]) -> None:
        work()


def test_an_added_reader_of_a_dataset_that_an_earlier_run_finalized_has_its_stamp(one: OpenRun) -> None:
    """Else each `rerun --changed` would run it again: the dataset would be new to it."""
    plan = Plan(
        name="w",
        jobs=(PlannedJob(name="reader", command="true", input_datasets=(0, 1)),),
        datasets=(PlannedDataset("parts", "parts"), PlannedDataset("moved", "elsewhere")),
    )
    facts = RunFacts(FakeKit(one.store), one.uuid, plan)  # type: ignore[arg-type]
    kept = DatasetFinalized(5, "parts", "parts", HashMode.MANIFEST, 2, 10, "ab")
    moved = DatasetFinalized(6, "moved", "before", HashMode.MANIFEST, 2, 10, "cd")
    facts.take_earlier([RunEvent("a", "base", 1, kept), RunEvent("b", "base", 2, moved)])
    assert [(one.path, one.digest) for one in facts.stamps_of_datasets(0)] == [("parts", "ab")]
