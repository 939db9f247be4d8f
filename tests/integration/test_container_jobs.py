"""Jobs in containers, on a real Docker engine and a real Podman service."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import joblens
from joblens.model.jobs.job import Record, Status
from tests.conftest import wait_until
from tests.integration.background_jobs import BackgroundCli, kill
from tests.integration.engines import IMAGE, Engine, FrozenProxy
from tests.integration.run_jobs import OnTerminal

# Of a shell that counts; prints what the kernel says it used itself: user and system ticks.
BURN = "i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; cut -d' ' -f14,15 /proc/$$/stat"


class ContainerCli(BackgroundCli):
    def options(self, engine: Engine) -> list[str]:
        return engine.options

    def run(self, engine: Engine, *arguments: str | Path, stdin: bytes = b"") -> Any:
        return self(*engine.options, *arguments, stdin=stdin)

    def details(self, uuid: str) -> Any:
        with self.opened() as store:
            return store.details(uuid)


@pytest.fixture
def user(tmp_path: Path) -> Iterator[ContainerCli]:
    folder = tmp_path / "user"
    folder.mkdir()
    one = ContainerCli("auto", folder)
    yield one
    one.assert_nothing_left()


def only_uuid(one: BackgroundCli) -> str:
    records = one.records()
    assert len(records) == 1
    return records[0].job.uuid


def test_streams_variables_and_the_exit_code_pass_through(user: ContainerCli, engine: Engine) -> None:
    line = 'echo "out $GREETING"; echo err >&2; cat; exit 7'
    ran = user.run(engine, "--env", "GREETING=hello", "--", "sh", "-c", line, stdin=b"typed\n")
    assert (ran.code, ran.stdout, ran.stderr) == (7, b"out hello\ntyped\n", b"err\n")
    assert (ran.record["status"], ran.record["reason"], ran.record["exit_code"]) == ("failed", "exited", 7)
    assert user.logs() == (b"out hello\ntyped\n", b"err\n")
    assert engine.containers_of(ran.record["job_uuid"]) == []


def test_output_larger_than_any_buffer_comes_through_whole(user: ContainerCli, docker: Engine) -> None:
    ran = user.run(docker, "--", "sh", "-c", "head -c 3000000 /dev/zero | tr '\\0' x")
    assert (ran.code, len(ran.stdout), set(ran.stdout)) == (0, 3_000_000, {ord("x")})


def test_cpu_time_is_what_the_job_says_it_used(user: ContainerCli, engine: Engine) -> None:
    ran = user.run(engine, "--", "sh", "-c", BURN)
    ticks = sum(int(word) for word in ran.stdout.split())
    said_s = ticks / os.sysconf("SC_CLK_TCK")
    # Beside the shell there are the runtime's first instructions in the group, and `cut`.
    assert said_s * 0.95 - 0.02 <= ran.usage["cpu_total_seconds"] <= said_s * 1.1 + 0.15
    assert ran.usage["memory_peak_mb"] > 0
    assert "cgroup" in ran.record["accounting"]["sources"]["cpu"]
    assert "io_read_bytes" in ran.record["accounting"]["lower_bounds"]
    assert ran.record["accounting"]["unknown"]["context_switches_voluntary"]


def test_a_short_jobs_files_are_no_memory_of_it_and_its_processes_are_seen(
    user: ContainerCli, docker: Engine
) -> None:
    # It is over before its next sample is due, and the engine takes the file away with the container.
    line = "dd if=/dev/zero of=/tmp/file bs=1M count=30 2>/dev/null; sleep 1"
    ran = user.run(docker, "--interval", "30s", "--", "sh", "-c", line)
    sources, unknown = ran.record["accounting"]["sources"], ran.record["accounting"]["unknown"]
    assert ran.usage["memory_peak_mb"] < 20, sources["memory_peak"]
    for number in ("processes_peak", "threads_peak", "open_files_peak"):
        assert ran.usage[number], unknown  # looked at as soon as it had started


def test_limits_are_the_containers_too_and_reported(user: ContainerCli, engine: Engine) -> None:
    limits = ["--cpus", "0.1", "--memory", "64m", "--pids", "50"]
    ran = user.run(engine, *limits, "--", "sh", "-c", BURN)
    facts = user.details(ran.record["job_uuid"]).container
    assert (facts.engine, facts.image) == (engine.name, IMAGE)
    assert (facts.cpus, facts.memory_bytes, facts.pids) == (0.1, 64 << 20, 50)
    assert facts.memory_swap_bytes == 64 << 20
    assert facts.network_mode == "none"
    assert facts.startup_s is not None
    assert 0 < facts.startup_s < 60
    assert facts.overhead["helper_memory_bytes"] > 0
    assert facts.overhead["client_cpu_s"] > 0
    assert set(ran.record["accounting"]["enforced_by"]) == {"cpus", "memory", "pids"}
    assert ran.usage["cpu_throttled_usec"] > 0


def test_without_limits_none_are_reported(user: ContainerCli, docker: Engine) -> None:
    ran = user.run(docker, "--", "true")
    facts = user.details(ran.record["job_uuid"]).container
    assert (facts.cpus, facts.memory_bytes, facts.memory_swap_bytes, facts.pids) == (None, None, None, None)


def test_too_little_memory_is_reported_as_such(user: ContainerCli, engine: Engine) -> None:
    ran = user.run(engine, "--memory", "16m", "--", "tail", "/dev/zero")
    assert (ran.record["status"], ran.record["reason"]) == ("failed", "out-of-memory")
    assert (ran.code, ran.usage["oom_kills"]) == (137, 1)


def test_more_processes_than_the_limit_are_refused_to_the_job(user: ContainerCli, docker: Engine) -> None:
    line = "i=0; while [ $i -lt 60 ]; do sleep 20 & i=$((i+1)); done; wait"
    ran = user.run(docker, "--pids", "30", "--", "sh", "-c", line)
    assert ran.code != 0
    assert b"fork" in ran.stderr


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        (["no-such-program"], 127, b"not found in the image"),
        (["/etc"], 126, b"cannot be executed in the image"),
    ],
)
def test_a_command_that_cannot_run_has_the_usual_codes(
    user: ContainerCli, engine: Engine, command: list[str], code: int, words: bytes
) -> None:
    ran = user.run(engine, "--", *command)
    assert ran.code == code
    assert ran.stderr.endswith(words + b" " + IMAGE.encode() + b"\n")  # and not what the runtime said
    assert (ran.record["status"], ran.record["reason"]) == ("error", "not-started")
    shown = json.loads(user.call("show", ran.record["job_uuid"], "--json", code=0).stdout)
    assert command[0] in shown["details"]["container"]["unknown"]["start"]  # that is kept
    assert ran.usage["cpu_total_seconds"] is None  # the runtime's work is not the job's
    assert ran.usage["memory_peak_mb"] is None
    assert engine.containers_of(ran.record["job_uuid"]) == []


def test_a_missing_image_says_how_to_get_it(user: ContainerCli, engine: Engine) -> None:
    ran = user("--container", "no-such-image:1", "--container-socket", engine.socket, "--", "true")
    assert ran.code == 125
    assert f"{engine.name} has no image no-such-image:1".encode() in ran.stderr
    assert f"\n  {engine.name} pull no-such-image:1, or --pull\n".encode() in ran.stderr
    assert (ran.record["status"], ran.record["reason"]) == ("error", "not-started")
    assert "no image" in ran.record["error"]


def test_what_an_engine_refuses_is_reported_in_its_words(user: ContainerCli, docker: Engine) -> None:
    ran = user.run(docker, "--container-network", "no-such-network", "--", "true")
    assert ran.code == 125
    assert b"no-such-network" in ran.stderr
    assert ran.record["status"] == "error"


def test_an_engine_that_is_not_there_is_reported_with_what_was_tried(user: ContainerCli) -> None:
    ran = user("--container", IMAGE, "--container-socket", "/nowhere/engine.sock", "--", "true")
    assert ran.code == 125
    assert b"nothing listens at /nowhere/engine.sock" in ran.stderr
    assert (ran.record["status"], ran.record["reason"]) == ("error", "not-started")


def test_a_device_that_is_not_there_is_no_missing_program(user: ContainerCli, engine: Engine) -> None:
    ran = user.run(engine, "--device", "/dev/no-such-device", "--", "true")
    assert ran.code == 125
    assert b"refused the container" in ran.stderr
    assert b"not found in the image" not in ran.stderr


def test_volumes_directory_user_name_and_entrypoint(
    user: ContainerCli, engine: Engine, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "words").write_text("from outside\n")
    (tmp_path / "out").mkdir(mode=0o777)
    (tmp_path / "out").chmod(0o777)
    line = "cat words; id -u; pwd; echo made > /out/file; echo x > words || echo read-only"
    ran = user.run(
        engine,
        *("--volume", f"{tmp_path}/in:/data:ro", "--volume", f"{tmp_path}/out:/out"),
        *("--container-workdir", "/data", "--container-user", "1234"),
        *("--container-name", f"joblens-named-{os.getpid()}", "--entrypoint", "/bin/sh"),
        *("--", "-c", line),
    )
    assert ran.stdout.decode().split("\n")[:4] == ["from outside", "1234", "/data", "read-only"]
    assert (tmp_path / "out" / "file").read_text() == "made\n"
    facts = user.details(ran.record["job_uuid"]).container
    assert facts.name == f"joblens-named-{os.getpid()}"
    assert any("/data" in text for text in facts.volumes)


def test_a_device_is_there_inside(user: ContainerCli, docker: Engine) -> None:
    ran = user.run(docker, "--device", "/dev/fuse", "--", "ls", "/dev/fuse")
    if not os.path.exists("/dev/fuse"):
        assert ran.code == 125
    else:
        assert (ran.code, ran.stdout) == (0, b"/dev/fuse\n")


def test_only_variables_that_were_asked_for_go_in_and_secrets_are_not_kept(
    user: ContainerCli, docker: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTSIDE", "stays outside")
    ran = user.run(docker, "--env", "API_TOKEN=hush-hush-123", "--", "env")
    inside = dict(line.split("=", 1) for line in ran.stdout.decode().splitlines())
    assert inside["API_TOKEN"] == "hush-hush-123"
    assert inside["JOBLENS_JOB_ID"] == ran.record["job_uuid"]
    assert "OUTSIDE" not in inside
    assert not any(name.startswith("JOBLENS_CONTAINER") for name in inside)
    assert "hush-hush-123" not in str(ran.record)
    assert ran.record["env"] == {"API_TOKEN": "***"}  # and nothing of joblens' own surroundings
    facts = user.details(ran.record["job_uuid"])
    assert facts
    assert "hush-hush-123" not in str(facts)


def test_the_time_limit_ends_a_program_that_handles_no_signal(user: ContainerCli, engine: Engine) -> None:
    ran = user.run(engine, "--timeout", "1", "--grace", "30", "--", "sleep", "100")
    assert (ran.code, ran.record["status"]) == (124, "timeout")
    assert ran.record["duration_seconds"] < 25, "it was not left to run into the grace time"


def test_a_signal_is_handed_to_a_program_that_handles_it(
    user: ContainerCli, docker: Engine, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    line = "trap 'echo told; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    process, record = _running(user, docker, "sh", "-c", line)
    processes_to_end.append(process)
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert process.stdout.read() == b"told\n"
    assert process.wait(20) == 3
    assert user.record(record.job.uuid).status is Status.CANCELLED


def test_an_interrupt_ends_job_and_container(
    user: ContainerCli, docker: Engine, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    one = user.start(*docker.options, "--", "sh", "-c", "echo up; exec sleep 100", stdout=subprocess.PIPE)
    processes_to_end.append(one)
    assert one.stdout is not None
    assert one.stdout.readline() == b"up\n"
    (container,) = docker.containers_of(only_uuid(user))
    pid = docker.api().inspect(container).pid
    # The shell handles the signal, what it becomes does not: one that comes in between would be nobody's.
    wait_until(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", what="the shell to become sleep")
    one.send_signal(signal.SIGINT)
    assert one.wait(20) in (-signal.SIGINT, 130)
    record = user.record(only_uuid(user))
    assert (record.status, record.outcome and record.outcome.signal) == (Status.CANCELLED, signal.SIGINT)
    assert docker.containers_of(record.job.uuid) == []


def test_a_terminal_is_the_containers_terminal(user: ContainerCli, docker: Engine) -> None:
    # The engine learns the size of the terminal a moment after the start.
    wait_for_size = "until stty size | grep 93; do sleep 0.1; done"
    line = f"{wait_for_size}; test -t 1 && read word; echo got $word; exec sleep 100"
    one = OnTerminal(user, *docker.options, "--", "sh", "-c", line, columns=93)
    try:
        one.wait_for(b"30 93")
        assert b"procs" not in one.screen  # the container has the screen: there is no live line
        one.type(b"something\r")
        one.wait_for(b"got something")
        (container,) = docker.containers_of(only_uuid(user))
        inside = docker.api().inspect(container).pid
        name = Path(f"/proc/{inside}/comm")
        wait_until(lambda: name.read_text() == "sleep\n", what="the shell to have become sleep")
        one.type(b"\x03")
        assert one.wait() in (130, -signal.SIGINT)
    finally:
        one.close()
    record = user.record(only_uuid(user))
    assert record.outcome is not None
    assert record.outcome.signal == signal.SIGINT


def test_in_the_background_and_cancelled(user: ContainerCli, engine: Engine) -> None:
    uuid = user.submit(*engine.options, "--", "sh", "-c", "echo up; sleep 100")
    wait_until(lambda: _printed(user, uuid) == "up\n", what="its first words")
    assert len(engine.containers_of(uuid)) == 1
    user.call("cancel", uuid, code=0)
    record = user.ended(uuid)
    assert record.status is Status.CANCELLED
    assert engine.containers_of(uuid) == []


def _printed(one: ContainerCli, uuid: str) -> str:
    attempt = one.record(uuid).attempt
    path = Path(attempt.logs_dir) / "stdout.log" if attempt else None
    return path.read_text() if path is not None and path.exists() else ""


def _running(one: ContainerCli, engine: Engine, *command: str) -> tuple[subprocess.Popen[bytes], Record]:
    """A job in front whose container runs."""
    process = one.start(*engine.options, "--", *command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return process, one.record(only_uuid(one))


def test_a_killed_joblens_leaves_a_job_that_the_next_one_looks_after(
    user: ContainerCli, engine: Engine, processes_to_end: list[subprocess.Popen[Any]], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    go.mkdir()
    line = "echo up; while ! test -e /go/now; do sleep 0.05; done; exit 5"
    process = user.start(
        *(*engine.options, "--volume", f"{go}:/go", "--", "sh", "-c", line), stdout=subprocess.PIPE
    )
    processes_to_end.append(process)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    uuid = only_uuid(user)
    process.kill()
    process.wait()
    user.call("history", code=0)
    supervisor = user.wait_for_supervisor()
    wait_until(lambda: _owner(user, uuid) == supervisor, what="the job to be taken over")
    (go / "now").touch()
    record = user.ended(uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.exit_code) == (Status.FAILED, 5)
    assert record.outcome.usage.cpu_total_usec
    assert engine.containers_of(uuid) == []


def _owner(one: BackgroundCli, uuid: str) -> int | None:
    attempt = one.record(uuid).attempt
    return attempt.owner.pid if attempt else None


def test_when_all_of_joblens_is_killed_the_next_one_takes_the_container_away(
    user: ContainerCli, engine: Engine, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    process, record = _running(user, engine, "sh", "-c", "echo up; exec sleep 100")
    processes_to_end.append(process)
    attempt = record.attempt
    assert attempt is not None
    assert len(engine.containers_of(record.job.uuid)) == 1
    process.kill()
    process.wait()
    kill(attempt.launcher_pid)
    kill(attempt.pid)
    user.call("history", code=0)
    record = user.ended(record.job.uuid)
    assert record.status is Status.LOST
    assert record.outcome is not None
    assert record.outcome.usage.cpu_total_usec
    wait_until(lambda: engine.containers_of(record.job.uuid) == [], what="the container to go")


def test_a_reader_that_leaves_ends_a_program_that_would_have_died_of_it(
    user: ContainerCli, docker: Engine, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    one = user.start(*docker.options, "--", "yes", stdout=subprocess.PIPE)
    processes_to_end.append(one)
    assert one.stdout is not None
    assert one.stdout.readline() == b"y\n"
    one.stdout.close()
    assert one.wait(20) in (-signal.SIGPIPE, 128 + signal.SIGPIPE)
    record = user.record(only_uuid(user))
    assert record.outcome is not None
    assert record.outcome.signal == signal.SIGPIPE


def test_a_killed_client_ends_the_job_and_its_container(
    user: ContainerCli, docker: Engine, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    process, record = _running(user, docker, "sh", "-c", "echo up; exec sleep 100")
    processes_to_end.append(process)
    assert record.attempt is not None
    kill(record.attempt.pid)
    assert process.wait(30) == 125
    ended = user.record(record.job.uuid)
    assert ended.outcome is not None
    # Nobody can say how it would have gone; it was not the job that was killed.
    assert (ended.status, ended.outcome.signal) == (Status.LOST, None)
    assert "the joblens process of its container was killed" in (ended.outcome.error or "")
    wait_until(lambda: docker.containers_of(record.job.uuid) == [], what="the container to go")


def test_an_engine_that_never_answers_does_not_hold_the_job_beyond_its_time(
    user: ContainerCli, docker: Engine, tmp_path: Path
) -> None:
    proxy = FrozenProxy(docker, tmp_path)
    proxy.freeze()
    try:
        ran = user(*("--container", IMAGE, "--container-socket", proxy.path, "--timeout", "1", "--", "true"))
    finally:
        proxy.close()
    assert (ran.code, ran.record["status"]) == (124, "timeout")
    assert ran.record["duration_seconds"] < 9, "that is when the client would have given up by itself"


def test_an_engine_that_stops_answering_leaves_a_reason(
    user: ContainerCli, docker: Engine, tmp_path: Path, processes_to_end: list[subprocess.Popen[Any]]
) -> None:
    proxy = FrozenProxy(docker, tmp_path)
    try:
        options = ["--container", IMAGE, "--container-socket", proxy.path, "--container-network", "none"]
        process = user.start(
            *(*options, "--", "sh", "-c", "echo up; sleep 1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        processes_to_end.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        proxy.freeze()
        process.wait(40)
        record = user.record(only_uuid(user))
        assert record.status is Status.LOST
        assert record.outcome is not None
        assert "its exit code is unknown" in str(record.outcome.error)
        assert record.outcome.usage.cpu_total_usec
        (container,) = docker.containers_of(record.job.uuid)
        docker.api().remove(container)
    finally:
        proxy.close()
    for path in user.spool.glob("*.container"):
        path.unlink()


def test_a_container_that_the_engine_puts_elsewhere_is_measured_there(
    user: ContainerCli, engine: Engine
) -> None:
    user.extra_env["JOBLENS_LIMITS_CGROUP_PARENT"] = "/no/such/group"
    ran = user.run(engine, "--interval", "50ms", "--cpus", "0.1", "--", "sh", "-c", BURN)
    assert ran.code == 0
    said_s = sum(int(word) for word in ran.stdout.split()) / os.sysconf("SC_CLK_TCK")
    assert said_s * 0.95 - 0.02 <= ran.usage["cpu_total_seconds"] <= said_s * 1.1 + 0.15
    assert ran.usage["cpu_throttled_usec"] > 0
    assert ran.usage["memory_peak_mb"] > 0


def test_network_use_of_a_container_that_is_elsewhere(user: ContainerCli, docker: Engine) -> None:
    user.extra_env["JOBLENS_LIMITS_CGROUP_PARENT"] = "/no/such/group"
    ran = user.run(docker, "--interval", "50ms", "--", "ping", "-c", "12", "-i", "0.2", "127.0.0.1")
    if ran.usage["network_rx_packets"] is None:
        pytest.skip(ran.record["accounting"]["unknown"]["network_rx_packets"])
    assert 2 <= ran.usage["network_rx_packets"] <= 24
    assert "a moment after its start" in ran.record["accounting"]["sources"]["network"]


def test_from_python(docker: Engine, store_path: Path) -> None:
    result = joblens.run(
        ["sh", "-c", "echo hello; exit 4"],
        container={"image": IMAGE, "socket": docker.socket, "network": "none"},
        memory="64m",
    )
    assert (result.returncode, result.stdout) == (4, "hello\n")
    assert docker.containers_of(result.record.job.uuid) == []


def test_a_shell_line_runs_in_the_containers_shell(user: ContainerCli, docker: Engine) -> None:
    ran = user.run(docker, "--shell", "ls /bin/busybox | tr a-z A-Z")
    assert (ran.code, ran.stdout) == (0, b"/BIN/BUSYBOX\n")


def test_a_job_in_a_container_runs_again_in_one(user: ContainerCli, docker: Engine) -> None:
    user.run(docker, "--", "ls", "/bin/busybox")
    again = user.call("rerun", only_uuid(user), code=0)
    assert again.stdout == "/bin/busybox\n"
    assert [record.job.container is not None for record in user.records()] == [True, True]


def test_its_variables_come_again_or_it_is_not_run_again(user: ContainerCli, docker: Engine) -> None:
    user.run(docker, "--env", "GREETING=good day", "--", "sh", "-c", 'echo "$GREETING"')
    assert user.call("rerun", only_uuid(user), code=0).stdout == "good day\n"
    secret = user.run(docker, "--env", "API_TOKEN=hush-hush-123", "--env", "A=b", "--", "env")
    refused = user.call("rerun", secret.record["job_uuid"], code=2)
    assert "API_TOKEN" in refused.stderr


def test_many_at_once_do_not_get_in_each_others_way(user: ContainerCli, docker: Engine) -> None:
    code = (
        "import joblens\n"
        f"one = {{'image': {IMAGE!r}, 'socket': {docker.socket!r}, 'network': 'none'}}\n"
        "import concurrent.futures\n"
        "def go(n): return joblens.run(['sh', '-c', f'exit {n}'], container=one).returncode\n"
        "with concurrent.futures.ThreadPoolExecutor(4) as pool: print(list(pool.map(go, range(6))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=user.env(), check=False
    )
    assert done.stdout == "[0, 1, 2, 3, 4, 5]\n", done.stderr


def test_network_use_is_the_containers(user: ContainerCli, docker: Engine) -> None:
    ran = user.run(docker, "--", "ping", "-c", "3", "-i", "0.1", "127.0.0.1")
    if ran.usage["network_rx_packets"] is None:
        pytest.skip(ran.record["accounting"]["unknown"]["network_rx_packets"])
    assert ran.usage["network_rx_packets"] >= 6


def test_a_container_without_an_engine_is_a_plain_child_and_measured_exactly(
    user: ContainerCli, tmp_path: Path
) -> None:
    """What Apptainer does: namespaces and another root, with no service in between. The program that makes
    them is the job's main process, and everything inside is below it."""
    if os.geteuid() != 0 or not os.path.exists("/bin/busybox"):
        pytest.skip("needs root and busybox-static")
    root = tmp_path / "root"
    for folder in ("bin", "proc"):
        (root / folder).mkdir(parents=True)
    shutil.copy("/bin/busybox", root / "bin" / "busybox")
    (root / "bin" / "sh").symlink_to("busybox")
    line = "/bin/busybox mount -t proc proc /proc; i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done"
    inside = f"{line}; /bin/busybox cat /proc/$$/schedstat; exit 6"
    ran = user(
        *("--", "unshare", "--mount", "--pid", "--fork", "--uts", "--ipc", "--net"),
        *("chroot", root, "/bin/sh", "-c", inside),
    )
    assert (ran.code, ran.record["reason"]) == (6, "exited")
    reported_s = int(ran.stdout.split()[0]) / 1e9
    assert reported_s <= ran.usage["cpu_total_seconds"] <= reported_s * 1.1 + 0.15
    assert not {"cpu_total_usec", "io_read_bytes"} & set(ran.record["accounting"]["lower_bounds"])
    assert ran.usage["context_switches_voluntary"] > 0
