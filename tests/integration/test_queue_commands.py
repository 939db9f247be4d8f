"""submit TOOL SCRIPT, status, cancel, submit-workflow, workflow-status and health, as typed."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from joblens.app.jobs.requests import Request
from joblens.app.queue.embedded_worker import worker_lock
from joblens.app.queue.submission import QueueRequest, make_tickets, open_queue_store
from joblens.app.queue.task_pipeline import TaskPipeline
from joblens.app.queue.watch import task_status
from joblens.app.wiring.settings import load_settings
from joblens.model.delivery import WorkerInfo
from joblens.model.jobs.job import Status
from joblens.model.writes import JobQueued, TicketMade
from tests.conftest import RunJoblens, python_path, wait_until
from tests.integration.engines import Engine
from tests.integration.tool_images import host_container
from tests.servers import RedisServer

SCRIPTS = {
    "say.sh": 'echo "x is $SIM_X and y $SIM_Y"\n',
    "fail.sh": "echo it broke >&2; exit 3\n",
    "slow.sh": "sleep 300\n",
}


@pytest.fixture
def cli(joblens: RunJoblens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunJoblens]:
    monkeypatch.setenv("JOBLENS_QUEUE_IDLE", "100ms")
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text)
    yield joblens
    settings = load_settings().settings
    wait_until(lambda: worker_lock(settings).holder() is None, what="the end of the idle worker")


def tasks_file(folder: Path, tasks: Any) -> Path:
    path = folder / "tasks.json"
    path.write_text(json.dumps(tasks))
    return path


def without_celery(folder: Path) -> dict[str, str]:
    """Surroundings in which it cannot be imported."""
    for name in ("celery", "kombu"):
        (folder / "hidden" / name).mkdir(parents=True)
        (folder / "hidden" / name / "__init__.py").write_text("raise ImportError('not installed')\n")
    return {"PYTHONPATH": python_path(folder / "hidden")}


def bash(script: str, **params: Any) -> dict[str, Any]:
    return {"tool": "bash", "script": script, "params": params}


# ---- one task


def test_parameters_of_both_kinds_reach_the_script(cli: RunJoblens) -> None:
    uuid = cli("submit", "bash", "say.sh", "-p", '{"x": 3}', "-p", "y=4", "--wait", code=0).stdout.split()[0]
    status = cli("status", uuid, "--json", code=0).json
    assert status["result"]["stdout"] == "x is 3 and y 4\n"
    assert (status["tool"], status["script"], status["params"]) == ("bash", "say.sh", {"x": 3, "y": 4})


def test_options_may_stand_before_the_tool_and_behind_the_script(cli: RunJoblens) -> None:
    first = cli("submit", "--name", "one", "--wait", "bash", "say.sh", "--tag", "a", "--json", code=0).json
    assert (first["name"], first["tags"], first["status"]) == ("one", ["a"], "success")


def test_waiting_ends_with_the_exit_code_of_the_task(cli: RunJoblens) -> None:
    assert cli("submit", "bash", "fail.sh", "--wait").code == 3
    assert "it broke" in cli("status", "1", code=0).stdout


def test_waiting_may_be_given_up_and_the_task_goes_on(cli: RunJoblens) -> None:
    done = cli("submit", "bash", "slow.sh", "--wait", "-t", "300ms", code=124)
    uuid = done.stdout.strip()
    assert "after 300ms" in done.stderr
    assert cli("status", uuid, "--json", code=0).json["state"] in ("PENDING", "STARTED")
    assert "cancelled" in cli("cancel", uuid, code=0).stdout
    assert cli("status", uuid, "--json", code=0).json["state"] == "REVOKED"


def test_a_task_is_followed_to_its_end(cli: RunJoblens) -> None:
    uuid = cli("submit", "bash", "say.sh", code=0).stdout.strip()
    lines = cli("status", uuid, "-m", "-i", "50ms", "--json", code=0).json_lines
    assert lines[-1]["state"] == "SUCCESS"
    assert {line["task_id"] for line in lines} == {uuid}


def test_a_plain_command_may_be_given_to_a_queue(cli: RunJoblens) -> None:
    record = cli("submit", "--queue", "night", "--wait", "--json", "--", "sh", "-c", "exit 4").json
    assert (record["returncode"], record["name"]) == (4, "sh -c exit 4")
    assert cli("status", record["job_uuid"], "--json").json["queue"] == "night"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("fenics", "poisson.py"), "did you mean 'fenicsx'"),
        (("gromacs", "md.mdp", "-p", '{"a": 1}', "--wait"), "there is no tool or command 'gromacs'"),
        (("bash", "say.sh", "-p", '{"a": 1, "a": 2}'), "--param a: given twice"),
        (("bash", "say.sh", "-p", 'a={"b": 1, "b": 2}'), "--param b: given twice"),
        (("bash", "nothing.sh"), "nothing.sh does not exist"),
        (("bash",), "bash needs a script"),
        (("bash", "say.sh", "more"), "'more' after the script"),
        (("bash", "-c", "true"), "a command goes after --: joblens submit -- bash"),
        (("bash", "say.sh", "-p", "{broken"), "not JSON"),
        (("bash", "say.sh", "-t", "3s"), "-t needs --wait"),
        (("bash", "say.sh", "--cwd", "/"), "--cwd applies to a command"),
        (("bash", "say.sh", "--device", "gpu"), "does not support 'gpu'"),
        (("bash", "say.sh", "--device", "tpu"), "--device tpu: tools run on cpu, gpu, intel-gpu"),
        (("bash", "say.sh", "--queue", "a b"), "name of a queue"),
        (("bash", "say.sh", "--broker", "nonsense"), "broker"),
        (("bash", "say.sh", "--retry-lost", "maybe"), "--retry-lost"),
    ],
)
def test_mistakes_are_reported_and_nothing_is_queued(
    joblens: RunJoblens, tmp_path: Path, store_path: Path, words: tuple[str, ...], message: str
) -> None:
    (tmp_path / "say.sh").write_text("echo hello\n")
    done = joblens("submit", *words, code=2)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not store_path.exists()


def test_an_unknown_id_is_an_error(cli: RunJoblens) -> None:
    cli("run", "--", "true", code=0)
    for command in ("status", "cancel", "workflow-status"):
        done = cli(command, "nosuchid", code=2)
        assert "nosuchid" in done.stderr
    assert "no workflow has the ID" in cli("workflow-status", "wf-00", code=2).stderr


def test_a_job_of_another_user_is_not_cancelled(cli: RunJoblens, store_path: Path) -> None:
    settings = load_settings().settings
    ((job, ticket),) = make_tickets([QueueRequest(request=Request(argv=("true",)))], settings)
    with closing(open_queue_store(settings)) as store:
        store.apply([JobQueued(replace(job, user="somebody-else")), TicketMade(ticket)])
    done = cli("cancel", job.uuid, code=2)
    assert "belongs to somebody-else" in done.stderr
    assert cli("status", job.uuid, "--json").json["state"] == "PENDING"


def test_a_job_whose_worker_was_lost_is_to_be_retried(cli: RunJoblens, store_path: Path) -> None:
    settings = load_settings().settings
    ((job, ticket),) = make_tickets([QueueRequest(request=Request(argv=("true",)))], settings)
    lost = WorkerInfo(name="w", host="gone", pid=1, user=job.user, queues=("default",), concurrency=1)
    with closing(open_queue_store(settings)) as store:
        store.apply([JobQueued(job), TicketMade(ticket)])
        (claim,) = store.claim(lost, [job.uuid], 30.0)
        assert store.take_back(job.uuid, claim.fence) is Status.QUEUED
        # Not by the command: that also starts a worker, which may have claimed the job already.
        assert task_status(store, store.find(job.uuid))["state"] == "RETRY"
    cli("wait", job.uuid, code=0)
    assert cli("status", job.uuid, "--json", code=0).json["state"] == "SUCCESS"


def test_parameters_reach_a_script_in_a_container(cli: RunJoblens, docker: Engine) -> None:
    inside = host_container(docker)
    volumes = [word for volume in inside.volumes for word in ("--volume", volume)]
    where = ("--container", inside.image, "--container-engine", "docker", "--container-socket", docker.socket)
    words = ("bash", "say.sh", "-p", "x=5", *where, *volumes, "--container-network", "none")
    uuid = cli("submit", *words, "--wait", code=0).stdout.split()[0]
    assert cli("status", uuid, "--json").json["result"]["stdout"] == "x is 5 and y \n"


# ---- several


def test_a_sequence_from_a_file_stops_at_a_failure(cli: RunJoblens, tmp_path: Path) -> None:
    file = tasks_file(tmp_path, [bash("say.sh"), bash("fail.sh"), bash("say.sh")])
    done = cli("submit-workflow", file, "--wait", "--json", code=1).json
    assert [task["state"] for task in done["tasks"]] == ["SUCCESS", "FAILURE", "REVOKED"]
    again = cli("workflow-status", done["workflow_id"], "--json", code=0).json
    assert again["tasks"] == done["tasks"]
    one_by_one = cli("workflow-status", *(task["task_id"] for task in done["tasks"]), "--json", code=0).json
    assert one_by_one == again


def test_tasks_of_a_file_may_run_side_by_side(cli: RunJoblens, tmp_path: Path) -> None:
    file = tasks_file(tmp_path, {"sequential": True, "tasks": [bash("fail.sh"), bash("say.sh")]})
    workflow = cli("submit-workflow", file, "--parallel", code=0).stdout.strip()
    assert workflow.startswith("wf-")
    ids = [task["task_id"] for task in cli("workflow-status", workflow, "--json", code=0).json["tasks"]]
    cli("wait", *ids, code=3)
    status = cli("workflow-status", workflow, "--json", code=0).json
    assert [task["state"] for task in status["tasks"]] == ["FAILURE", "SUCCESS"]


def test_mistakes_of_a_file_are_reported_with_their_places(cli: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "tasks.yaml").write_text("- {tool: bsh, script: say.sh}\n- {tool: bash, script: no.sh}\n")
    done = cli("submit-workflow", "tasks.yaml", code=2)
    assert "tasks.yaml:1:3: task 1: there is no tool 'bsh'" in done.stderr
    assert "tasks.yaml:2:3: task 2: script no.sh" in done.stderr


def test_mistakes_of_keys_tools_and_parameters_are_reported_together(cli: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "tasks.yaml").write_text(
        "- {tool: bsh, script: say.sh}\n"
        "- {tool: python, script: primes.py, params: {limt: 3, repeats: 2}, timeout: never}\n"
        "- {tol: bash, script: say.sh}\n"
    )
    output = cli("submit-workflow", "tasks.yaml", code=2).stderr
    result = (
        "no tool 'bsh'",
        "no parameter 'limt'",
        "no parameter 'repeats'",
        "timeout in a task",
        "key 'tol'",
    )
    assert [each for each in result if each not in output] == []
    assert "5 problems" in output
    assert "there is no file 'none.yaml'" in cli("submit-workflow", "none.yaml", code=2).stderr


def test_scripts_beside_the_file_are_found(cli: RunJoblens, tmp_path: Path) -> None:
    folder = tmp_path / "flow"
    folder.mkdir()
    (folder / "inner.sh").write_text("echo inner\n")
    file = tasks_file(folder, [bash("inner.sh")])
    done = cli("submit-workflow", file, "--wait", "--json", code=0).json
    assert done["tasks"][0]["result"]["stdout"] == "inner\n"


# ---- with a broker


def test_without_a_broker_the_queue_is_healthy(cli: RunJoblens, store_path: Path) -> None:
    store_path.parent.mkdir()
    done = cli("health", code=0)
    assert "a worker starts when there is work" in done.stdout
    assert cli("health", "--json", code=0).json["status"] == "healthy"


def test_without_celery_a_broker_is_refused_and_nothing_is_queued(
    joblens: RunJoblens, tmp_path: Path, store_path: Path
) -> None:
    words = ("submit", "--broker", "redis://nowhere:1", "--", "true")
    done = joblens(*words, env=without_celery(tmp_path), code=2)
    assert "joblens[celery]" in done.stderr
    assert not store_path.exists()


def test_without_celery_tasks_run_all_the_same(cli: RunJoblens, tmp_path: Path) -> None:
    cli("submit", "bash", "say.sh", "--wait", env=without_celery(tmp_path), code=0)


@pytest.mark.parametrize("broker", ["nonsense", "http://x"])
def test_a_broker_in_the_settings_that_is_none_is_refused_and_nothing_is_queued(
    joblens: RunJoblens, store_path: Path, broker: str
) -> None:
    joblens("submit", "--", "true", env={"JOBLENS_QUEUE_BROKER": broker}, code=2)
    assert not store_path.exists()


@pytest.mark.needs("celery")
def test_a_broker_that_is_away_is_reported_and_jobs_stay_queued(cli: RunJoblens, tmp_path: Path) -> None:
    url = f"redis+socket://{tmp_path}/nobody.sock"
    health = cli("health", "--broker", url, "--json", code=1).json
    assert not health["broker"]["ok"]
    done = cli("submit", "--broker", url, "--", "true", code=0)
    assert "queued anyway" in done.stderr
    assert cli("status", done.stdout.strip(), "--json").json["state"] == "PENDING"
    cli("cancel", done.stdout.strip(), code=0)


def test_tasks_go_over_redis_to_a_worker(
    cli: RunJoblens,
    redis_server: RedisServer,
    processes_to_end: list[subprocess.Popen[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JOBLENS_QUEUE_BROKER", redis_server.url)
    worker = subprocess.Popen(
        [sys.executable, "-m", "joblens", "worker", "--concurrency", "2"], stderr=subprocess.DEVNULL
    )
    processes_to_end.append(worker)
    wait_until(lambda: cli("health").code == 0, what="a healthy queue", timeout=40)
    health = cli("health", "--json", code=0).json
    assert [one["pid"] for one in health["workers"]] == [worker.pid]
    record = cli("submit", "--wait", "--json", "--", "sh", "-c", "exit 5", code=5).json
    assert record["status"] == "failed"
    uuid = cli("submit", "bash", "say.sh", "-p", "x=1", "--wait", code=0).stdout.split()[0]
    assert cli("status", uuid, "--json").json["result"]["worker"] == health["workers"][0]["name"]
    assert worker_lock(load_settings().settings).holder() is None  # none was started beside it
    worker.terminate()
    assert worker.wait(30) == 0


# ---- waiting, and whole workflows


def test_the_id_is_reported_before_the_waiting(cli: RunJoblens, tmp_path: Path) -> None:
    """Whoever waits may be killed."""
    for words in (
        ("submit", "bash", "slow.sh"),
        ("submit-workflow", str(tasks_file(tmp_path, [bash("slow.sh")]))),
    ):
        argv = [sys.executable, "-m", "joblens", *words, "--wait"]
        waiting = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=tmp_path)
        assert waiting.stdout is not None
        ident = waiting.stdout.readline().strip()
        waiting.kill()
        waiting.communicate()
        assert "cancelled" in cli("cancel", ident, code=0).stdout


def test_ctrl_c_ends_the_waiting_and_says_that_the_job_goes_on(cli: RunJoblens, tmp_path: Path) -> None:
    uuid = cli("submit", "bash", "slow.sh", code=0).stdout.strip()
    argv = [sys.executable, "-m", "joblens", "status", "-m", "-i", "50ms", uuid]
    waiting = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
    assert waiting.stdout is not None
    waiting.stdout.readline()
    waiting.send_signal(signal.SIGINT)
    _, result = waiting.communicate()
    assert f"job {uuid} keeps running; to stop it: joblens cancel {uuid}" in result
    cli("cancel", uuid, code=0)


@pytest.mark.parametrize("order", ["--sequential", "--parallel"])
def test_a_workflow_is_waited_for_looked_at_and_cancelled_by_its_id(
    cli: RunJoblens, tmp_path: Path, order: str
) -> None:
    file = tasks_file(tmp_path, [bash("slow.sh")] * 3)
    ident = cli("submit-workflow", str(file), order, code=0).stdout.strip()
    assert f"{ident} has not ended after 0s" in cli("wait", ident, "--timeout", "0", code=124).stderr
    assert cli("status", ident, "--json", code=0).json["workflow_id"] == ident
    assert cli("workflow-status", ident, "--json", code=0).json["workflow_id"] == ident
    assert cli("cancel", ident, code=0).stdout == f"{ident}  3 tasks: 3 cancelled\n"
    assert "had already ended" in cli("cancel", ident, code=0).stdout
    (again,) = cli("cancel", ident, "--json", code=0).json
    assert [task["status"] for task in again["tasks"]] == ["cancelled"] * 3
    cli("wait", ident, code=1)
    assert cli("status", ident, "-m", "--json", code=0).json_lines[-1]["cancelled"] == 3


def test_a_workflow_that_succeeds_is_waited_for_and_followed(cli: RunJoblens, tmp_path: Path) -> None:
    file = tasks_file(tmp_path, [bash("say.sh", x=1), bash("say.sh", x=2)])
    ident = cli("submit-workflow", str(file), code=0).stdout.strip()
    assert cli("status", ident, "-m", "-i", "50ms", "--json", code=0).json_lines[-1]["completed"] == 2
    waited = cli("wait", ident, "--json", code=0).json
    assert (waited["workflow_id"], len(waited["tasks"])) == (ident, 2)


def test_an_id_of_no_workflow_is_an_error_everywhere(cli: RunJoblens) -> None:
    cli("run", "--", "true", code=0)
    for command in ("status", "cancel", "wait", "workflow-status"):
        assert "no workflow has the ID 'wf-00'" in cli(command, "wf-00", code=2).stderr


def test_waiting_gives_what_status_gives(cli: RunJoblens) -> None:
    waited = cli("submit", "bash", "say.sh", "-p", "x=1", "--wait", "--json", code=0).json
    status = cli("status", waited["job_uuid"], "--json", code=0).json
    assert {key: waited[key] for key in status} == status
    assert waited["result"]["stdout"] == "x is 1 and y \n"


def test_an_empty_file_of_tasks_is_reported_what_to_write(cli: RunJoblens, tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    output = cli("submit-workflow", "empty.yaml", code=2).stderr
    assert "each with tool and script" in output
    assert "jobs" not in output


def test_a_program_that_only_an_image_has_is_no_mistake(
    joblens: RunJoblens, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    assert joblens("submit", "--container", "img", "onlyinside", code=0).stderr == ""


@pytest.mark.needs("celery")
def test_health_looks_at_the_broker_also_without_the_store(joblens: RunJoblens, tmp_path: Path) -> None:
    store = f"{tmp_path}/broken.db"
    Path(store).write_text("this is no database, " * 100)
    health = joblens("--store", store, "health", "--json", code=1).json
    assert (health["store"]["ok"], health["broker"]["ok"]) == (False, None)
    assert "not checked" in joblens("--store", store, "health", code=1).stdout
    folder = joblens("--store", store, "health", "--broker", str(tmp_path / "bell"), "--json", code=1).json
    assert (folder["store"]["ok"], folder["broker"]["ok"]) == (False, True)


def test_health_does_not_make_the_store_it_asks_about(joblens: RunJoblens, tmp_path: Path) -> None:
    mistyped = tmp_path / "nowhere" / "jobs.db"
    health = joblens("--store", str(mistyped), "health", "--json", code=1).json
    assert (health["store"]["ok"], health["store"]["new"]) == (False, True)
    assert f"there is no store at {mistyped}" in health["problems"][0]
    assert TaskPipeline(store=str(mistyped)).health_check()["status"] == "unhealthy"
    assert not mistyped.parent.exists()
    new = TaskPipeline(store=str(tmp_path / "new.db")).health_check()
    assert (new["status"], new["store"]["new"]) == ("healthy", True)
    assert not (tmp_path / "new.db").exists()


def test_before_the_first_job_all_is_well_and_nothing_is_made(
    joblens: RunJoblens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JOBLENS_STORE", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert "does not exist yet; the first job creates it" in joblens("health", code=0).stdout
    assert not (tmp_path / "data").exists()


def test_a_password_on_the_command_line_is_warned_of(joblens: RunJoblens) -> None:
    url = "postgresql://joe:hunter2@/none?host=/nonexistent"
    output = joblens("--store", url, "store", "path").stderr
    assert "other users of this machine can read the password in --store" in output
    assert "hunter2" not in output
    broker = "redis://:hunter2@127.0.0.1:1/0"
    for words in (("health",), ("submit", "bash", "no.sh"), ("submit-workflow", "no.json")):
        output = joblens(*words, "--broker", broker).stderr
        assert "other users of this machine can read the password in --broker" in output
        assert "hunter2" not in output
    output = joblens("store", "copy", "a.db", url).stderr
    assert "the password in TARGET" in output
    assert "hunter2" not in output


def test_a_worker_with_an_unusable_name_is_refused(joblens: RunJoblens) -> None:
    assert "is not a valid worker name" in joblens("worker", "--name", "x y/../z", code=2).stderr


def test_no_job_of_a_worker_sees_the_password_of_the_store(
    cli: RunJoblens, tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given as an option, and in the environment."""
    url = postgres_url.replace("@", ":hunter2@", 1)
    (tmp_path / "env.sh").write_text("env\n")
    monkeypatch.delenv("JOBLENS_STORE", raising=False)
    first = cli("--store", url, "submit", "bash", "env.sh", "--wait", "--json", code=0).json
    monkeypatch.setenv("JOBLENS_STORE", url)
    wait_until(lambda: worker_lock(load_settings().settings).holder() is None, what="the end of the worker")
    second = cli("submit", "bash", "env.sh", "--wait", "--json", code=0).json
    for record in (first, second):
        output = cli("logs", record["job_uuid"], code=0).stdout
        assert "JOBLENS_JOB_ID" in output
        assert "hunter2" not in output


@pytest.mark.parametrize(
    "text", ["name: bash\ncommand: [echo, '{script}', '{nope}']\n", "name: bash\ncommand: [echo\nx: {\n"]
)
def test_a_tool_whose_file_has_mistakes_does_not_become_another_of_its_name(
    joblens: RunJoblens, tmp_path: Path, store_path: Path, text: str
) -> None:
    tools = tmp_path / ".joblens" / "tools"
    tools.mkdir(parents=True)
    (tools / "mine.yaml").write_text(text)
    (tmp_path / "say.sh").write_text("echo hello\n")
    assert "mine.yaml:" in joblens("submit", "bash", "say.sh", code=2).stderr
    assert not store_path.exists()


def test_workflows_of_tasks_are_found_again_by_name_and_id(cli: RunJoblens, tmp_path: Path) -> None:
    tasks = {"name": "overnight", "tasks": [bash("say.sh"), bash("fail.sh"), bash("say.sh")]}
    ident = cli("submit-workflow", tasks_file(tmp_path, tasks), "--wait", "--json").json["workflow_id"]
    (listed,) = cli("workflows", "--json", code=0).json
    assert (listed["id"], listed["name"], listed["status"]) == (ident, "overnight", "failed")
    assert (listed["tasks"], listed["completed"], listed["failed"], listed["left"]) == (3, 1, 1, 1)
    row = cli("workflows", code=0).stdout.splitlines()[1].split()
    assert row[:7] == [ident, "overnight", "-", "failed", "1", "1", "1"]
    shown = cli("workflows", "show", ident, code=0).stdout
    assert "3 tasks: 1 completed, 1 failed, 1 cancelled" in shown
    copied = cli("store", "copy", str(tmp_path / "store" / "joblens.db"), "copy.db", code=0).stdout
    assert "1 workflow of tasks" in copied
    assert "`joblens workflows` lists them" in cli("cancel", "wf-000000000000", code=2).stderr


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_file_of_tasks_is_not_run_as_a_workflow(cli: RunJoblens, tmp_path: Path, wrapped: bool) -> None:
    tasks: Any = [bash("say.sh"), bash("fail.sh")]
    file = tasks_file(tmp_path, {"tasks": tasks} if wrapped else tasks)
    output = cli("run", file, code=2).stderr
    assert "is a file of tasks, not a workflow file" in output
    assert f"joblens submit-workflow {file}" in output
    assert "did you mean" not in output


def test_a_workflow_file_is_not_submitted_as_tasks(cli: RunJoblens, tmp_path: Path) -> None:
    file = tasks_file(tmp_path, {"name": "flow", "jobs": [{"name": "one", "command": "true"}]})
    output = cli("submit-workflow", file, code=2).stderr
    assert "is a workflow file, not a file of tasks" in output
    assert f"joblens run {file}" in output
