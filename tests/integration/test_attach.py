"""`joblens attach`: something that runs already is measured from now on, and never touched."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import joblens as package
from joblens.agent.cgroups.groups import JobGroups
from joblens.model.errors import InputError
from tests.conftest import RunJoblens, wait_until
from tests.integration.cgroup_jobs import make_groups, start_python_in, wait_usage
from tests.integration.engines import IMAGE, Engine, FrozenProxy
from tests.integration.run_jobs import JOBLENS, PYTHON

START = "import os, sys, time; sys.stdin.readline();"
BURN = "end = time.process_time() + {0}\nwhile time.process_time() < end: pass\n"
Begin = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Starts a program that goes on when a line is written to it; all are ended afterwards."""
    begun: list[subprocess.Popen[bytes]] = []

    def start(code: str, **popen: Any) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen([*PYTHON, code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **popen)
        begun.append(process)
        return process

    yield start
    for process in begun:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


@pytest.fixture
def groups() -> Iterator[JobGroups]:
    yield from make_groups()


class Looking:
    """A `joblens attach --json` in the background."""

    def __init__(self, *arguments: str) -> None:
        command = [*JOBLENS, "attach", "--json", "--interval", "50ms", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def has_begun(self, joblens: RunJoblens) -> dict[str, Any]:
        """The record, once samples are taken."""

        def running() -> Any:
            answer = joblens("list", "--json")
            return next(iter(answer.json), None) if answer.code == 0 else None

        record: dict[str, Any] = wait_until(running, what="the measuring to begin")
        return record

    def record(self) -> tuple[int, dict[str, Any]]:
        stdout, stderr = self.process.communicate(timeout=60)
        assert stdout, stderr
        return self.process.returncode, json.loads(stdout)


def go_on(process: "subprocess.Popen[bytes]") -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def test_a_process_is_measured_from_now_on_and_its_exit_code_known(joblens: RunJoblens, begin: Begin) -> None:
    process = begin(
        "import time\n"
        + BURN.format(0.5)
        + "print('burnt', flush=True)\n"
        + START
        + "\n"
        + BURN.format(0.2)
        + "time.sleep(0.3); sys.exit(3)"
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"burnt\n"
    looking = Looking(str(process.pid), "--tag", "night")
    looking.has_begun(joblens)
    go_on(process)
    code, record = looking.record()
    assert (code, record["status"], record["returncode"]) == (3, "failed", 3)
    assert 0.1 < record["resource_usage"]["cpu_total_seconds"] < 0.45  # the half second before is not in it
    assert record["accounting"]["mode"] == "process-tree"


def test_one_whose_parent_waits_at_once_has_its_exit_code_too(joblens: RunJoblens, begin: Begin) -> None:
    child = (sys.executable, "-I", "-S", "-c", START + "time.sleep(0.2); sys.exit(7)")
    parent = begin(
        f"import subprocess\nchild = subprocess.Popen({child!r})\nprint(child.pid, flush=True)\nchild.wait()"
    )
    assert parent.stdout is not None
    looking = Looking(parent.stdout.readline().decode().strip())
    looking.has_begun(joblens)
    go_on(parent)  # the child reads the same input
    code, record = looking.record()
    if record["status"] == "measured":
        pytest.skip("this kernel does not tell how another's child ended (Linux 6.15 and later do)")
    assert (code, record["returncode"]) == (7, 7)


def test_a_password_on_its_command_line_is_not_written_down(joblens: RunJoblens) -> None:
    wait = "import sys; sys.stdin.readline()"
    command = [*PYTHON, wait, "--password", "hunter2", "--api-token=abc123"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as process:
        looking = Looking(str(process.pid))
        looking.has_begun(joblens)
        go_on(process)
        _, record = looking.record()
    output = json.dumps(record) + joblens("show", record["job_uuid"], "--json").stdout
    assert "--password" in output
    assert "hunter2" not in output
    assert "abc123" not in output


def test_children_are_measured_with_it(joblens: RunJoblens, begin: Begin) -> None:
    process = begin(
        START
        + "\nif os.fork() == 0:\n    end = time.process_time() + 0.3\n"
        + "    while time.process_time() < end: pass\n    os._exit(0)\nos.wait()\ntime.sleep(0.3)"
    )
    looking = Looking(str(process.pid))
    looking.has_begun(joblens)
    go_on(process)
    _, record = looking.record()
    assert record["resource_usage"]["cpu_total_seconds"] >= 0.2
    assert record["resource_usage"]["processes_peak"] == 2


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_measuring_and_not_the_thing(
    joblens: RunJoblens, begin: Begin, ending: signal.Signals
) -> None:
    process = begin(START)
    looking = Looking(str(process.pid))
    looking.has_begun(joblens)
    looking.process.send_signal(ending)
    code, record = looking.record()
    assert (code, record["status"], record["returncode"]) == (0, "measured", None)
    assert process.poll() is None


def test_a_time_limit_ends_the_measuring_and_not_the_thing(joblens: RunJoblens, begin: Begin) -> None:
    process = begin(START)
    answer = joblens("attach", str(process.pid), "--timeout", "200ms", "--json")
    assert (answer.code, answer.json["status"]) == (0, "measured")
    assert process.poll() is None


@pytest.mark.parametrize("is_group", [False, True])
def test_what_it_wrote_until_the_looking_ended_is_counted(
    joblens: RunJoblens, groups: JobGroups, is_group: bool
) -> None:
    """With every number of every process, although the next sample would be far away."""
    program = START + "os.write(os.open('/dev/null', 1), b'x' * 100_000); print(flush=True); time.sleep(60)"
    process = start_python_in(groups, program, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        looking = Looking(
            next(iter(groups.paths.values())) if is_group else str(process.pid), "--interval", "60s"
        )
        looking.has_begun(joblens)
        go_on(process)
        assert process.stdout is not None
        process.stdout.readline()
        looking.process.send_signal(signal.SIGINT)
        code, record = looking.record()
        process.kill()
    assert (code, record["status"]) == (0, "measured")
    assert record["resource_usage"]["io_call_write_bytes"] >= 100_000


def test_cancelling_it_ends_the_measuring_and_not_the_thing(joblens: RunJoblens, begin: Begin) -> None:
    process = begin(START)
    looking = Looking(str(process.pid))
    record = looking.has_begun(joblens)
    assert joblens("cancel", record["job_uuid"]).code == 0
    assert looking.record()[1]["status"] == "measured"
    assert process.poll() is None


def test_killing_joblens_leaves_the_thing_alone_and_keeps_what_was_measured(
    joblens: RunJoblens, begin: Begin
) -> None:
    process = begin(START)
    looking = Looking(str(process.pid))
    uuid = looking.has_begun(joblens)["job_uuid"]
    wait_until(lambda: len(joblens("metrics", uuid, "--json", "--no-follow").json_lines) > 1)
    looking.process.kill()
    looking.process.communicate()
    record = joblens("show", uuid, "--json").json
    assert record["status"] == "measured"
    assert process.poll() is None
    # Nobody has seen how it went on, and nobody has waited for it.
    assert {"cpu_total_usec", "io_write_bytes"} <= set(record["accounting"]["lower_bounds"])
    assert "context_switches_voluntary" in record["accounting"]["unknown"]


def test_a_group_is_measured_exactly_and_stays_where_it_is(joblens: RunJoblens, groups: JobGroups) -> None:
    program = START + BURN.format(0.2) + "time.sleep(0.3)"
    process = start_python_in(groups, program, stdin=subprocess.PIPE)
    looking = Looking(next(iter(groups.paths.values())))
    looking.has_begun(joblens)
    go_on(process)
    status, used_usec = wait_usage(process)
    assert process.stdin is not None
    process.stdin.close()
    code, record = looking.record()
    assert (code, status, record["status"]) == (0, 0, "measured")  # a group has no exit code
    assert all(os.path.isdir(path) for path in groups.paths.values())
    assert 0.15 < record["resource_usage"]["cpu_total_seconds"] <= used_usec / 1e6 + 0.05
    assert record["accounting"]["mode"].startswith("cgroup")
    unknown = record["accounting"]["unknown"]
    assert unknown
    assert "could not be read" not in unknown.get("memory_largest_process_bytes", "")


def test_a_container_is_measured_and_its_exit_code_known(engine: Engine, joblens: RunJoblens) -> None:
    api = engine.api()
    work = "sleep 3; exit 5"
    body: dict[str, Any] = {"Image": IMAGE, "Cmd": ["sh", "-c", work], "HostConfig": {"NetworkMode": "none"}}
    if engine.name == "podman":
        body = {"image": f"localhost/{IMAGE}", "command": ["sh", "-c", work], "netns": {"nsmode": "none"}}
    container = api.create(body, f"attach-{os.getpid()}")
    try:
        api.start(container)
        looking = Looking(container[:12], "--container-socket", engine.socket)
        code, record = looking.record()
        assert (code, record["status"]) == (5, "failed")
        assert record["detailed_profile"]["container_stats"]
        assert joblens("show", record["job_uuid"]).stdout.count(f"attach-{os.getpid()}") >= 1
        refusal = joblens("attach", container[:12], "--container-socket", engine.socket)
        assert refusal.code == 2
        assert "is not running" in refusal.stderr
    finally:
        api.remove(container)


def test_a_container_that_someone_kills_is_not_said_to_have_lacked_memory(
    docker: Engine, joblens: RunJoblens
) -> None:
    api = docker.api()
    body = {"Image": IMAGE, "Cmd": ["sleep", "60"], "HostConfig": {"NetworkMode": "none"}}
    container = api.create(body, f"attach-killed-{os.getpid()}")
    try:
        api.start(container)
        looking = Looking(container[:12], "--container-socket", docker.socket)
        looking.has_begun(joblens)
        api.kill(container, signal.SIGKILL)
        code, record = looking.record()
        assert code == 137
        assert "sent by neither joblens nor the kernel's out-of-memory killer" in str(record["findings"])
    finally:
        api.remove(container)


def test_an_engine_that_stops_answering_does_not_hold_up_the_end(
    docker: Engine, joblens: RunJoblens, tmp_path: Path
) -> None:
    api = docker.api()
    body = {"Image": IMAGE, "Cmd": ["sleep", "60"], "HostConfig": {"NetworkMode": "none"}}
    container = api.create(body)
    proxy = FrozenProxy(docker, tmp_path)
    try:
        api.start(container)
        looking = Looking(container, "--container-socket", proxy.path)
        looking.has_begun(joblens)
        proxy.freeze()
        api.kill(container, "KILL")
        _, record = looking.record()
        assert record["status"] in ("failed", "measured")  # the kernel tells the exit code, or nobody does
        assert record["resource_usage"]["processes_peak"] == 1
    finally:
        api.remove(container)
        proxy.close()


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("", "attach needs a process"),
        ("0", "not a process id"),
        ("4194303", "there is no process"),
        ("99999999999", "not a process id"),
        ("pid:x", "not a process id"),
        ("/", "whole machine"),
        ("/no/such/group", "there is no control group"),
        ("cgroup:nothing", "there is no control group"),
        ("no-such-container", "no container no-such-container was found"),
    ],
)
def test_what_is_not_there_is_reported(joblens: RunJoblens, target: str, words: str) -> None:
    answer = joblens("attach", target, "--container-socket", "/nonexistent/engine.sock")
    assert answer.code == 2
    assert words in answer.stderr
    assert "Traceback" not in answer.stderr
    assert "no store" in joblens("history").stderr


def test_a_thread_is_no_process(joblens: RunJoblens, begin: Begin) -> None:
    process = begin("import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()")
    tasks = Path(f"/proc/{process.pid}/task")
    wait_until(lambda: len(list(tasks.iterdir())) == 2, what="the thread")
    (thread,) = (one.name for one in tasks.iterdir() if one.name != str(process.pid))
    assert "is a thread" in joblens("attach", thread).stderr


def test_from_python_too(store_path: Path, begin: Begin) -> None:
    process = begin(START)
    result = package.attach(process.pid, timeout=0.2, interval=0.05, name="mine", tags=["a"])
    assert (result.status, result.returncode, result.ok) == ("measured", None, False)
    assert (result.record.job.name, result.record.job.attached) == ("mine", f"process {process.pid}")
    assert process.poll() is None
    with pytest.raises(InputError, match="itself"):
        package.attach(os.getpid())


def test_measured_is_neither_success_nor_failure(joblens: RunJoblens, begin: Begin) -> None:
    process = begin(START)
    uuid = joblens("attach", str(process.pid), "--timeout", "100ms", "--json").json["job_uuid"]
    joblens("run", "--", "true")
    overall = joblens("stats", "--json").json
    assert (overall["successful"], overall["failed"], overall["success_rate"]) == (1, 0, 100.0)
    assert [job["job_uuid"] for job in joblens("history", "--status", "measured", "--json").json] == [uuid]
    assert joblens("wait", uuid).code == 0
    assert "only measured" in joblens("rerun", uuid).stderr
    assert "measured" in joblens("export", "csv").stdout
    shown = joblens("show", uuid).stdout
    assert f"process {process.pid}" in shown
    assert "✗" not in shown
