"""`joblens.run` and what a Python program gets back."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import joblens
from joblens.model.errors import InputError, JoblensError
from tests.conftest import RunJoblens, wait_until
from tests.integration import run_jobs
from tests.integration.run_jobs import PYTHON

MIB = 1 << 20


@pytest.fixture(autouse=True)
def nothing_left(store_path: Path, tmp_path: Path) -> Iterator[None]:
    yield
    wait_until(lambda: run_jobs._processes_of(tmp_path) == {}, what="the last process to end", timeout=10)


def test_a_result_has_status_code_output_usage_and_profile(store_path: Path) -> None:
    result = joblens.run([*PYTHON, "x = bytearray(64 << 20); print('hello')"], name="big", tags=["a"])
    assert (result.ok, result.status, result.returncode) == (True, "success", 0)
    assert (result.stdout, result.stderr) == ("hello\n", "")
    assert (result.usage.memory_peak_bytes or 0) == pytest.approx(68 * MIB, rel=0.15)
    assert 0 < result.duration_s < 20
    assert result.profile["process_memory"]
    assert [sample.elapsed_us for sample in result.samples] == sorted(s.elapsed_us for s in result.samples)
    assert result.as_dict()["tool"] == os.path.basename(sys.executable)
    assert "big" in repr(result)


def test_a_string_is_a_shell_line(store_path: Path) -> None:
    assert joblens.run("echo a | tr a b; exit 3").stdout == "b\n"


def test_the_command_line_finds_what_a_program_ran(store_path: Path, request: pytest.FixtureRequest) -> None:
    command: RunJoblens = request.getfixturevalue("joblens")
    result = joblens.run(["true"], task_id="my-task-1", params={"n": 3})
    assert command("show", "my-task-1", "--json", code=0).json["record"]["job"]["uuid"] == result.uuid
    assert result.uuid[:8] in command("history", code=0).stdout


def test_with_check_anything_but_success_is_raised_with_its_result(store_path: Path) -> None:
    with pytest.raises(joblens.JobFailed, match="exit code 4") as raised:
        joblens.run(["sh", "-c", "echo why >&2; exit 4"], check=True)
    assert raised.value.result.returncode == 4
    assert raised.value.result.stderr == "why\n"


def test_a_command_that_does_not_exist_is_a_result_and_no_exception(store_path: Path) -> None:
    result = joblens.run(["/no/such/program"])
    assert (result.status, result.returncode, result.ok) == ("error", 127, False)
    assert result.findings


def test_limits_are_enforced(store_path: Path) -> None:
    assert joblens.run(["sleep", "60"], timeout="200ms").status == "timeout"
    hungry = joblens.run([*PYTHON, "x = bytearray(300 << 20)"], memory="64m")
    assert hungry.status == "failed"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timeout": "soon"}, "soon"),
        ({"memory": "much"}, "much"),
        ({"accounting": "magic"}, "magic"),
        ({"cwd": "/no/such/folder"}, "/no/such/folder"),
        ({"store": "ftp://x/y"}, "ftp"),
        ({"cpus": -1}, "cpus -1"),
        ({"cpus": float("nan")}, "cpus nan"),
        ({"cpus": "2"}, "cpus '2'"),
        ({"cpus": True}, "cpus True"),
        ({"memory": -5}, "memory -5"),
        ({"memory": "0"}, "memory 0"),
        ({"memory": 1.5}, "memory 1.5"),
        ({"memory": "9" * 400 + "p"}, "larger than any memory"),
        ({"pids": 0}, "pids 0"),
        ({"pids": 2.5}, "pids 2.5"),
        ({"timeout": -1}, "timeout -1"),
        ({"timeout": float("inf")}, "timeout inf"),
        ({"interval": 0}, "interval 0"),
        ({"interval": 0.01}, "at least 50ms"),
        ({"env": {"A": 1}}, "env A"),
        ({"env": {"A": "x\0y"}}, "env A"),
        ({"env": {"A=B": "x"}}, "env A=B"),
        ({"env": {"": "x"}}, "env"),
        ({"env": ["A"]}, "env"),
        ({"params": ["a"]}, "params"),
        ({"tags": "abc"}, "tags"),
        ({"tags": [1]}, "tags"),
        ({"tags": [""]}, "tag"),
        ({"name": 3}, "name"),
        ({"tool": 3}, "tool"),
        ({"task_id": ""}, "id"),
        ({"cwd": 3}, "cwd"),
    ],
    ids=str,
)
def test_bad_input_says_what_is_wrong_before_anything_is_begun(
    store_path: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        joblens.run(["true"], **arguments)
    assert not store_path.exists()


@pytest.mark.parametrize(
    "command", [["true", 3], ["true\0"], "true\0", [b"true"], 7, ["true", "\ud800"]], ids=repr
)
@pytest.mark.parametrize("more", [{}, {"timeout": 60}], ids=["shared", "own groups"])
def test_a_command_that_cannot_be_one_is_bad_input_for_one_job_and_for_many(
    store_path: Path, command: Any, more: dict[str, Any]
) -> None:
    with pytest.raises(InputError, match="command"):
        joblens.run(command, **more)
    with pytest.raises(InputError, match="command"):
        list(joblens.map_commands([["true"], command, ["true"]], jobs=1, **more))


@pytest.mark.parametrize(
    "arguments",
    [{"cpus": -1}, {"memory": "much"}, {"env": {"A": 1}}, {"tags": "abc"}, {"jobs": "2"}],
    ids=str,
)
def test_bad_input_for_many_jobs_is_reported_at_the_call(store_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        joblens.map_commands([["true"]], **arguments)


def test_one_command_where_many_are_expected_is_bad_input(store_path: Path) -> None:
    with pytest.raises(InputError, match="commands"):
        joblens.map_commands("true")


def test_paths_are_words_of_a_command(store_path: Path, tmp_path: Path) -> None:
    assert joblens.run(["ls", tmp_path / "home"], cwd=tmp_path).ok


def test_parameters_of_any_kind_are_recorded_as_text(store_path: Path) -> None:
    result = joblens.run(["true"], params={"where": Path("/tmp"), "n": 3})
    assert result.record.job.params == {"where": "/tmp", "n": 3}


def test_what_the_call_does_not_say_comes_from_the_settings(
    store_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_LIMITS_ENFORCE", "false")
    monkeypatch.setenv("JOBLENS_LIMITS_ACCOUNTING", "process_tree")
    monkeypatch.setenv("JOBLENS_JOB_METRICS_ENABLED", "false")
    job = joblens.run(["true"]).record.job
    assert (job.enforce, job.monitor, job.accounting) == (False, False, "process_tree")
    job = joblens.run(["true"], enforce=True, monitor=True, accounting="auto").record.job
    assert (job.enforce, job.monitor, job.accounting) == (True, True, "auto")


def test_no_command_is_bad_input(store_path: Path) -> None:
    with pytest.raises(InputError, match="no command"):
        joblens.run([])
    with pytest.raises(InputError, match="at least 1"):
        list(joblens.map_commands([["true"]], jobs=0))


def test_several_threads_run_at_once(store_path: Path) -> None:
    found: list[int | None] = []
    threads = [
        threading.Thread(target=lambda n=n: found.append(joblens.run(["sh", "-c", f"exit {n}"]).returncode))
        for n in range(1, 5)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(code or 0 for code in found) == [1, 2, 3, 4]


def test_running_leaves_no_descriptor_and_no_thread_behind(store_path: Path) -> None:
    threads = threading.active_count()
    joblens.run(["true"])
    list(joblens.map_commands([["true"]] * 3))
    wait_until(lambda: threading.active_count() <= threads, what="the threads to end")
    before = sorted(os.listdir("/proc/self/fd"))
    for _ in range(3):
        joblens.run(["true"])
        list(joblens.map_commands([["true"]] * 3))
    wait_until(lambda: threading.active_count() <= threads, what="the threads to end")
    assert len(os.listdir("/proc/self/fd")) <= len(before)


def test_the_programs_signal_handlers_stay_as_they_are(store_path: Path) -> None:
    code = (
        "import signal, joblens\n"
        "before = [signal.getsignal(n) for n in signal.valid_signals()]\n"
        "joblens.run(['true']); list(joblens.map_commands([['true']]))\n"
        "print(before == [signal.getsignal(n) for n in signal.valid_signals()])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_errors_are_joblens_errors() -> None:
    assert issubclass(joblens.JobFailed, JoblensError)
