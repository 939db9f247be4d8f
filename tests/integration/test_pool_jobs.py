"""Many jobs from a Python program: `joblens.map_commands`, in slots and in sessions of their own."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import joblens
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from joblens.stores.sqlite import SqliteStore
from tests.conftest import RunJoblens, wait_until
from tests.integration import run_jobs
from tests.integration.background_jobs import kill, open_cli
from tests.integration.run_jobs import PYTHON, is_gone, wait_for_file

MIB = 1 << 20
MODES = ["auto", "process_tree"]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("JOBLENS_LIMITS_ACCOUNTING", request.param)
    return str(request.param)


@pytest.fixture(autouse=True)
def nothing_left(store_path: Path, tmp_path: Path) -> Iterator[None]:
    yield
    wait_until(lambda: run_jobs._processes_of(tmp_path) == {}, what="the last process to end", timeout=10)
    if not store_path.exists():
        return
    paths = {
        path for record in stored(store_path) if record.attempt for path in record.attempt.groups.values()
    }
    assert [path for path in paths if os.path.exists(path)] == []
    assert [record.status for record in stored(store_path) if not record.status.is_final] == []
    logs = store_path.parent / "logs"
    assert not logs.exists() or [name for name in os.listdir(logs) if name.startswith(".")] == []


def stored(path: Path) -> list[Record]:
    store = SqliteStore(str(path))
    try:
        return list(store.records(HistoryQuery()))
    finally:
        store.close()


def test_every_command_has_a_result_and_a_record(mode: str, store_path: Path) -> None:
    results = list(joblens.map_commands([["sh", "-c", f"exit {n % 4}"] for n in range(40)], jobs=3))
    assert sorted(result.returncode or 0 for result in results) == sorted(n % 4 for n in range(40))
    assert {record.job.uuid for record in stored(store_path)} == {result.uuid for result in results}
    assert all((result.usage.cpu_total_usec or 0) > 0 for result in results)


def test_cpu_time_is_that_of_wait4_over_a_hundred_jobs(mode: str, store_path: Path) -> None:
    command = [*PYTHON, "sum(range(100000))"]
    truth = 0.0
    for _ in range(50):
        pid = os.posix_spawn(command[0], command, os.environ)
        _, _, usage = os.wait4(pid, 0)
        truth += usage.ru_utime + usage.ru_stime
    measured = [result.usage for result in joblens.map_commands([command] * 100, jobs=2)]
    mean = sum(usage.cpu_total_usec or 0 for usage in measured) / 100 / 1e6
    # Two runs of the same program on a busy machine differ more than the two ways of counting do.
    assert mean == pytest.approx(truth / 50, rel=0.15)
    assert all("cpu_total_usec" not in usage.lower_bounds for usage in measured)


def test_a_job_of_a_millisecond_lasts_as_long_as_its_processor_time(mode: str) -> None:
    results = list(joblens.map_commands([["sh", "-c", "exit 0"]] * 40, jobs=2))
    for result in results:
        used_s = (result.usage.cpu_total_usec or 0) / 1e6
        assert result.duration_s >= used_s * 0.8 - 0.0002, (result.duration_s, used_s)


def test_a_job_counts_itself_and_not_the_one_before(mode: str, store_path: Path) -> None:
    burn = [*PYTHON, "import time\nwhile time.process_time() < 0.4: pass"]
    big = [*PYTHON, "x = bytearray(120 << 20)"]
    by_name = {
        result.record.job.argv[-1]: result.usage
        for result in joblens.map_commands([burn, big, ["true"]], jobs=1)
    }
    assert 390_000 < (by_name[burn[-1]].cpu_total_usec or 0) < 600_000
    assert (by_name[big[-1]].memory_peak_bytes or 0) == pytest.approx(125 * MIB, rel=0.1)
    assert (by_name["true"].cpu_total_usec or 0) < 60_000
    assert (by_name["true"].memory_peak_bytes or 0) < 8 * MIB


def test_a_number_that_is_too_small_to_be_seen_is_unknown_with_its_reason(
    mode: str, store_path: Path
) -> None:
    (result,) = joblens.map_commands([["true"]])
    usage = result.usage
    for number in ("memory_peak_bytes", "memory_largest_process_bytes", "processes_peak"):
        assert getattr(usage, number) != 0
        assert getattr(usage, number) is not None or len(usage.unknown[number]) > 10


def test_page_cache_that_a_job_leaves_is_not_the_next_ones(store_path: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(os.urandom(40 * MIB))
    os.sync()
    read = [*PYTHON, f"open({str(tmp_path / 'file')!r}, 'rb').read()"]
    small = [*PYTHON, "x = bytearray(30 << 20)"]
    _, after = joblens.map_commands([read, small], jobs=1)
    assert (after.usage.memory_peak_bytes or 0) == pytest.approx(34 * MIB, rel=0.2)
    assert (after.usage.memory_kernel_peak_bytes or 0) < 45 * MIB


def test_what_jobs_print_is_kept_for_each(mode: str, store_path: Path) -> None:
    commands = [["sh", "-c", f"echo out{n}; echo err{n} >&2"] for n in range(6)] + [["true"]]
    results = list(joblens.map_commands(commands, jobs=2))
    printed = {(result.stdout, result.stderr) for result in results}
    assert printed == {(f"out{n}\n", f"err{n}\n") for n in range(6)} | {("", "")}


def test_output_beyond_the_bound_is_cut(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLENS_OUTPUT_MAX_SIZE", "256k")
    (result,) = joblens.map_commands(
        [["sh", "-c", "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo last"]]
    )
    assert result.record.outcome is not None
    assert result.record.outcome.stdout_bytes == 3_000_011
    assert len(result.stdout) < 600_000
    assert result.stdout.startswith("first\n")
    assert result.stdout.endswith("xlast\n")


def test_output_goes_to_another_file_system_too(store_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shm = Path("/dev/shm")
    if not os.access(shm, os.W_OK) or os.stat(shm).st_dev == os.stat(store_path.parent.parent).st_dev:
        pytest.skip("no second file system here")
    folder = shm / f"joblens-test-{os.getpid()}"
    monkeypatch.setenv("JOBLENS_OUTPUT_DIR", str(folder))
    try:
        (result,) = joblens.map_commands([["echo", "there"]])
        assert result.stdout == "there\n"
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)


def test_jobs_that_cannot_start_are_errors_and_the_others_go_on(mode: str, store_path: Path) -> None:
    commands = [["true"], ["/no/such/program"], [os.devnull], ["true"]]
    found = sorted((result.status, result.returncode) for result in joblens.map_commands(commands, jobs=1))
    assert found == [("error", 126), ("error", 127), ("success", 0), ("success", 0)]


def test_leftovers_are_counted_ended_and_belong_to_their_job(
    mode: str, store_path: Path, tmp_path: Path
) -> None:
    done = f'open("{tmp_path}/burned", "w")'
    burn = (
        f"{PYTHON[0]} -I -S -c 'import time\nwhile time.process_time() < 0.3: pass\n{done}; time.sleep(300)'"
    )
    wait = f"while [ ! -e {tmp_path}/burned ]; do sleep 0.02; done"
    leave = ["sh", "-c", f"{burn} & echo $! > {tmp_path}/pid; {wait}"]
    results = list(joblens.map_commands([leave, ["true"], ["true"]], jobs=1))
    first = results[0].record.outcome
    assert first is not None
    assert (first.status, first.leftovers) == ("success", 1)
    assert 290_000 < (first.usage.cpu_total_usec or 0) < 600_000
    assert is_gone(int((tmp_path / "pid").read_text()))
    assert all((result.usage.cpu_total_usec or 0) < 100_000 for result in results[1:])


def test_a_killed_job_is_a_failed_job(mode: str, store_path: Path) -> None:
    (result,) = joblens.map_commands([["sh", "-c", "kill -9 $$"]])
    assert (result.status, result.returncode) == ("failed", 137)


def test_a_killed_launcher_costs_one_job_and_not_the_others(
    mode: str, store_path: Path, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    long = ["sh", "-c", f"echo $$ $PPID > {here}; exec sleep 300"]

    def assassin() -> None:
        kill(int(wait_for_file(here)[0].split()[1]))

    thread = threading.Thread(target=assassin)
    thread.start()
    results = list(joblens.map_commands([long, *[["true"]] * 5], jobs=1))
    thread.join()
    assert [result.status for result in results] == ["lost", *["success"] * 5]
    assert "launcher" in (results[0].record.outcome.error or "")  # type: ignore[union-attr]
    assert is_gone(int(here.read_text().split()[0]))


def test_a_long_job_is_sampled_while_it_runs(
    mode: str, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_JOB_METRICS_DEFAULT_SAMPLE_RATE", "50ms")
    (result,) = joblens.map_commands([[*PYTHON, "x = bytearray(50 << 20)\nimport time; time.sleep(0.6)"]])
    samples = result.samples
    assert len(samples) == result.record.outcome.samples > 5  # type: ignore[union-attr]
    assert [sample.elapsed_us for sample in samples] == sorted(sample.elapsed_us for sample in samples)
    assert max(sample.memory_anon_bytes or 0 for sample in samples) > 50 * MIB
    assert result.usage.processes_peak == 1


def test_the_environment_and_directory_of_jobs(mode: str, store_path: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "only-here").write_text("#!/bin/sh\necho found $EXTRA\n")
    (tools / "only-here").chmod(0o755)
    env = {"EXTRA": "value", "PATH": f"{tools}:{os.environ['PATH']}"}
    results = joblens.map_commands([["only-here"], ["pwd"]], jobs=1, env=env, cwd=str(tools))
    assert [result.stdout for result in results] == ["found value\n", f"{tools}\n"]


def test_a_long_command_line_arrives_whole(mode: str, store_path: Path) -> None:
    (result,) = joblens.map_commands([["sh", "-c", 'echo "${#1} $#"', "sh", *["x" * 120_000] * 3]])
    assert result.stdout == "120000 3\n"


def test_jobs_do_not_hold_descriptors_of_their_launcher(mode: str, store_path: Path) -> None:
    command = ["sh", "-c", "ls /proc/self/fd | wc -l"]
    (result,) = joblens.map_commands([command])
    # Three streams, the directory that ls reads, and whatever these tests were started with.
    assert result.stdout == subprocess.check_output(command, close_fds=False, text=True)


# ---- whoever reads the results takes its time ------------------------------------------------------------


def test_a_reader_that_takes_its_time_does_not_mix_up_whose_numbers_are_whose(
    mode: str, store_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_JOB_METRICS_DEFAULT_SAMPLE_RATE", "50ms")
    hold = f"x = bytearray(150 << 20)\nimport time; time.sleep(0.5); open({str(tmp_path / 'held')!r}, 'w')"
    peaks = {}
    for result in joblens.map_commands([["true"], ["sleep", "0.15"], [*PYTHON, hold], ["true"]], jobs=1):
        wait_until((tmp_path / "held").exists, what="the large job to run while nobody reads")
        peaks[result.record.job.argv[0]] = result.usage.memory_peak_bytes or 0
    assert peaks["sleep"] < 20 * MIB
    assert peaks[PYTHON[0]] > 150 * MIB


def test_jobs_end_in_the_store_while_nobody_reads_their_results(mode: str, store_path: Path) -> None:
    results = joblens.map_commands([["true"]] * 20, jobs=2)
    next(results)
    wait_until(lambda: [one.status for one in stored(store_path)] == ["success"] * 20, what="all to end")
    assert len(list(results)) == 19


def test_cancelling_a_job_that_has_just_ended_spares_the_next_one(
    mode: str,
    store_path: Path,
    tmp_path: Path,
    joblens_command: RunJoblens,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("JOBLENS_JOB_METRICS_DEFAULT_SAMPLE_RATE", "50ms")
    here, there = tmp_path / "here", tmp_path / "there"
    first = ["sh", "-c", "sleep 0.2"]
    second = ["sh", "-c", f"echo $$ > {here}; sleep 1.5; echo > {there}; exit 5"]
    results = joblens.map_commands([["true"], first, second], jobs=1)
    next(results)
    pid = int(wait_for_file(here)[0])
    uuid = next(one.job.uuid for one in stored(store_path) if one.job.argv[-1] == first[-1])
    joblens_command("cancel", "--no-wait", uuid, code=0)
    wait_until(lambda: there.exists() or is_gone(pid), what="the second job to end")
    assert [(result.status, result.returncode) for result in results] == [("success", 0), ("failed", 5)]


@contextlib.contextmanager
def going_once(folder: Path, lines: int) -> Iterator[None]:
    """Jobs that wait for `go` may go on once `order` has so many lines."""

    def let_go() -> None:
        with contextlib.suppress(pytest.fail.Exception):
            wait_for_file(folder / "order", lines)
        (folder / "go").touch()

    thread = threading.Thread(target=let_go)
    thread.start()
    yield
    thread.join()


def test_jobs_start_in_the_order_they_were_given(mode: str, store_path: Path, tmp_path: Path) -> None:
    command = ["sh", "-c", f"echo $0 >> {tmp_path}/order; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"]
    results = joblens.map_commands([[*command, str(n)] for n in (1, 2, 3, 4)], jobs=2)
    with going_once(tmp_path, 2):
        assert len(list(results)) == 4
    order = (tmp_path / "order").read_text().split()
    assert (set(order[:2]), set(order[2:])) == ({"1", "2"}, {"3", "4"})


def test_no_job_waits_behind_a_long_one_while_others_end(mode: str, store_path: Path, tmp_path: Path) -> None:
    long = ["sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.02; done"]
    short = [["sh", "-c", f"echo $0 >> {tmp_path}/order; sleep 0.02", str(n)] for n in range(60)]
    results = joblens.map_commands([long, *short], jobs=2)
    with going_once(tmp_path, 60):
        assert len(list(results)) == 61
    order = (tmp_path / "order").read_text().split()
    assert len(order) == 60
    assert set(order[:40]) >= {str(n) for n in range(10)}


def test_a_program_that_ends_without_reading_all_results_ends_its_jobs(
    mode: str, store_path: Path, tmp_path: Path
) -> None:
    code = (
        "import joblens\n"
        f"line = 'echo $$ > {tmp_path}/pid; exec sleep 300'\n"
        "kept = joblens.map_commands([['true'], ['sh', '-c', line]], jobs=2)\n"
        "next(kept)\n"
        f"import os, time\nwhile not os.path.exists('{tmp_path}/pid'): time.sleep(0.01)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
    assert is_gone(int(wait_for_file(tmp_path / "pid")[0]))
    assert sorted(one.status for one in stored(store_path)) == ["cancelled", "success"]


# ---- what a record says ----------------------------------------------------------------------------------


def test_the_last_words_of_a_failed_job_are_in_its_record(mode: str, store_path: Path) -> None:
    line = "echo fine; echo no such key: --password=hunter2 >&2; exit 3"
    failed, fine = joblens.map_commands([["sh", "-c", line], ["sh", "-c", "echo well >&2"]], jobs=1)
    assert failed.record.outcome is not None
    assert fine.record.outcome is not None
    assert "no such key" in failed.record.outcome.stderr_tail
    assert "hunter2" not in failed.record.outcome.stderr_tail
    assert fine.record.outcome.stderr_tail == ""


def test_a_record_names_the_real_sources_and_the_real_spacing(
    mode: str, store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_JOB_METRICS_DEFAULT_SAMPLE_RATE", "50ms")
    monkeypatch.setenv("JOBLENS_JOB_METRICS_PROBES", "-gpu")  # sampled wherever there is one
    work = "x = bytearray(30 << 20)\nimport time\nwhile time.process_time() < 0.4: pass"
    (result,) = joblens.map_commands([[*PYTHON, work]])
    assert [name for name, source in result.usage.sources.items() if "samples" in source.split()] == []
    assert result.record.outcome is not None
    assert result.record.outcome.sampling_interval_s == pytest.approx(0.05, rel=0.8)
    assert result.usage.processes_peak == 1


# ---- giving up -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{}, {"timeout": 100}], ids=["slots", "sessions"])
def test_leaving_the_loop_early_ends_what_runs_and_records_it(
    mode: str, limits: dict[str, int], store_path: Path, tmp_path: Path
) -> None:
    results = joblens.map_commands(
        [["true"], ["sh", "-c", f"echo $$ > {tmp_path}/pid; exec sleep 300"], ["true"], ["true"]],
        jobs=2,
        **limits,  # type: ignore[arg-type]
    )
    next(results)
    wait_for_file(tmp_path / "pid")
    results.close()  # type: ignore[attr-defined]
    assert is_gone(int((tmp_path / "pid").read_text()))
    by_command = {
        record.job.argv[-1][:4]: record.status for record in stored(store_path) if len(record.job.argv) > 1
    }
    assert by_command == {"echo": "cancelled"}


@pytest.mark.parametrize("limits", [{}, {"timeout": 100}], ids=["slots", "sessions"])
def test_an_interrupt_ends_everything(limits: dict[str, int], store_path: Path, tmp_path: Path) -> None:
    code = (
        "import joblens, sys\n"
        f"command = ['sh', '-c', 'echo $$ >> {tmp_path}/pids; exec sleep 300']\n"
        f"list(joblens.map_commands([command] * 5, jobs=2, **{limits!r}))\n"
    )
    program = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    pids = [int(line) for line in wait_for_file(tmp_path / "pids", 2)]
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=30)
    assert program.returncode in (1, -signal.SIGINT)
    assert "KeyboardInterrupt" in errors
    assert all(is_gone(pid) for pid in pids)
    assert {record.status for record in stored(store_path)} == {"cancelled"}


@pytest.mark.parametrize("limits", [{}, {"timeout": 100}], ids=["slots", "sessions"])
def test_cancel_reaches_a_job_of_a_python_program(
    mode: str, limits: dict[str, int], store_path: Path, joblens_command: RunJoblens, tmp_path: Path
) -> None:
    def cancel() -> None:
        wait_for_file(tmp_path / "here")
        wait_until(lambda: any(record.status == "running" for record in stored(store_path)), what="it to run")
        uuid = next(record.job.uuid for record in stored(store_path) if record.status == "running")
        joblens_command("cancel", uuid, code=0)

    thread = threading.Thread(target=cancel)
    thread.start()
    command = ["sh", "-c", f"echo > {tmp_path}/here; exec sleep 300"]
    first, second = joblens.map_commands([command, ["true"]], jobs=1, **limits)  # type: ignore[arg-type]
    thread.join()
    assert (first.status, second.status) == ("cancelled", "success")


@pytest.fixture
def joblens_command(request: pytest.FixtureRequest) -> RunJoblens:
    """The command line; the name `joblens` is the package's here."""
    found: RunJoblens = request.getfixturevalue("joblens")
    return found


# ---- kill -9 ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accounting", ["cgroup", "process_tree"])
def test_a_killed_program_loses_no_job(accounting: str, tmp_path: Path) -> None:
    """What runs is adopted and has its true outcome; what only waited in the program never was a job."""
    with open_cli("auto", tmp_path) as one:
        code = (
            "import joblens\n"
            "line = 'echo started; echo $$ >> pids; while [ ! -e go ]; do sleep 0.02; done; exit 7'\n"
            "list(joblens.map_commands([['sh', '-c', line]] * 6, jobs=2))\n"
        )
        env = {**one.env(), "JOBLENS_LIMITS_ACCOUNTING": accounting}
        program = subprocess.Popen([sys.executable, "-c", code], env=env, cwd=one.folder)
        wait_for_file(one.folder / "pids", 2)
        wait_until(
            lambda: sum(record.status == "running" for record in one.records()) == 2, what="two to run"
        )
        program.kill()
        program.wait()
        one.call("list", code=0)
        (one.folder / "go").touch()
        wait_until(lambda: all(record.status.is_final for record in one.records()), what="all to end")
        found = sorted(
            (str(record.status), record.outcome.exit_code, record.outcome.error)
            for record in one.records()
            if record.outcome
        )
        assert found == [("failed", 7, "exit code 7")] * 2
        ran = [record for record in one.records() if record.status == "failed"]
        assert {one.call("logs", record.job.uuid, code=0).stdout for record in ran} == {"started\n"}


def test_a_program_that_takes_its_children_itself_is_no_trouble(mode: str, store_path: Path) -> None:
    code = (
        "import signal, joblens; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "print([r.returncode for r in joblens.map_commands([['true'], ['sh', '-c', 'exit 3']], jobs=1)])\n"
        "print(joblens.run(['sh', '-c', 'exit 4']).returncode)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[0, 3]\n4\n", done.stderr


@pytest.mark.within(60)
def test_a_result_is_handed_over_while_others_still_run(store_path: Path, tmp_path: Path) -> None:
    waits = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done"
    results = joblens.map_commands([["true"], ["sh", "-c", waits]], jobs=2)
    assert next(results).ok
    (tmp_path / "go").touch()
    assert [result.ok for result in results] == [True]


@pytest.mark.parametrize("limits", [{}, {"timeout": 100}], ids=["slots", "sessions"])
@pytest.mark.parametrize("after_s", [0.05, 0.15, 0.25, 0.35])
def test_interrupts_at_any_moment_end_everything(
    limits: dict[str, int],
    after_s: float,
    store_path: Path,
    tmp_path: Path,
    joblens_command: RunJoblens,
) -> None:
    code = (
        "import joblens, os, signal, threading, time\n"
        "def interrupt():\n"
        f"    while {after_s} > 0.1 and not os.path.exists({str(store_path)!r}): time.sleep(0.002)\n"
        f"    time.sleep({after_s})\n"
        "    for _ in range(3):\n"
        "        os.kill(os.getpid(), signal.SIGINT); time.sleep(0.004)\n"
        "threading.Thread(target=interrupt, daemon=True).start()\n"
        "try:\n"
        f"    list(joblens.map_commands([['true'], ['sleep', '0.01']] * 500, jobs=2, **{limits!r}))\n"
        "except KeyboardInterrupt: pass\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, timeout=30, check=False, capture_output=True, text=True
    )
    assert done.returncode in (0, 1, -signal.SIGINT), done.stderr
    # Interrupted while it cleared up, a program is like one that was killed: the next command does the rest.
    if store_path.exists():
        joblens_command("list", code=0)
