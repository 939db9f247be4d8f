"""`joblens.run` and what a Python program gets back."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

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
    ("arguments", "said"),
    [
        ({"timeout": "soon"}, "soon"),
        ({"memory": "much"}, "much"),
        ({"accounting": "magic"}, "magic"),
        ({"cwd": "/no/such/folder"}, "/no/such/folder"),
        ({"store": "ftp://x/y"}, "ftp"),
    ],
)
def test_bad_input_says_what_is_wrong(store_path: Path, arguments: dict[str, str], said: str) -> None:
    with pytest.raises(InputError, match=said):
        joblens.run(["true"], **arguments)  # type: ignore[arg-type]


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
    joblens.run(["true"])
    list(joblens.map_commands([["true"]] * 3))
    before = sorted(os.listdir("/proc/self/fd"))
    threads = threading.active_count()
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
