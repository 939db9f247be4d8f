"""JobMonitor in real programs: what it records, what it survives, and the examples people start from."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from joblens.app.in_process.measured import measured
from joblens.app.in_process.monitor import JobMonitor, get_monitor, samples
from joblens.model.errors import InputError, MissingExtra, UnknownJob
from tests.keystone import KEYSTONE_KEYS

BURN = "import time\nwhile time.process_time() < {seconds}: pass\n"


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[JobMonitor]:
    made = JobMonitor(log_dir=tmp_path / "logs")
    yield made
    made.close()


def python(code: str) -> list[str]:
    return [sys.executable, "-S", "-E", "-c", code]


def own_memory_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def run_program(code: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """A host program of its own, as a user would write it."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, **more)


def history_lines(monitor: JobMonitor) -> list[dict[str, Any]]:
    assert monitor.log_dir is not None
    text = Path(monitor.log_dir, "jobs_history.jsonl").read_bytes()
    return [msgspec.json.decode(line) for line in text.splitlines()]


# -- the record


def test_a_record_has_the_keys_of_the_history_form_in_order(monitor: JobMonitor) -> None:
    monitor.start_monitoring("abc-123", "fenicsx", "poisson.py", {"mesh_size": 64})
    record = monitor.stop_monitoring("abc-123", "success", result={"x": 1})
    assert list(record)[: len(KEYSTONE_KEYS)] == KEYSTONE_KEYS
    assert record["params"] == {"mesh_size": 64}
    assert record["returncode"] == 0
    assert record["error"] is None
    assert record["has_result"] is True
    assert record["start_time"] <= record["end_time"]
    assert record["start_time"].endswith("+00:00")
    assert record["accounting"]["mode"] == "in-process"
    profile = record["detailed_profile"]
    assert profile["samples_collected"] == 2
    assert {"cpu", "memory", "process_cpu", "process_memory", "io_stats"} <= set(profile)


def test_a_child_of_the_job_is_measured_and_not_the_worker_alone(monitor: JobMonitor) -> None:
    code = "block = bytearray(300 << 20)\nfor i in range(0, len(block), 4096): block[i] = 1\n" + BURN.format(
        seconds=0.5
    )
    with monitor.track_job("child", "sim", "child.py", {}) as tracker:
        subprocess.run(python(code), check=True)
    usage = tracker.record["resource_usage"]
    assert 0.45 <= usage["cpu_total_seconds"] <= 1.5
    # The program around the job is part of it, and this one may have imported a lot by now.
    assert 300 <= usage["memory_peak_mb"] < 340 + own_memory_mb()
    assert usage["cpu_total_seconds"] == pytest.approx(
        usage["cpu_user_seconds"] + usage["cpu_system_seconds"]
    )


def test_the_profile_knows_the_jobs_cpu(monitor: JobMonitor) -> None:
    with monitor.track_job("busy", "sim", "x", {}) as tracker:
        end = time.thread_time() + 0.3
        while time.thread_time() < end:
            pass
    assert tracker.record["detailed_profile"]["process_cpu"]["mean_percent"] > 0


def test_without_profiling_there_is_no_profile_and_the_numbers_are_the_same(tmp_path: Path) -> None:
    plain = JobMonitor(log_dir=tmp_path / "plain", enable_profiling=False)
    with plain.track_job("t", "sim", "x", {}) as tracker:
        subprocess.run(python(BURN.format(seconds=0.2)), check=True)
    plain.close()
    assert "detailed_profile" not in tracker.record
    assert tracker.record["resource_usage"]["cpu_total_seconds"] >= 0.18


def test_secrets_in_params_are_neither_stored_nor_logged(
    monitor: JobMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="joblens.monitor"):
        monitor.start_monitoring("s", "t", "x", {"api_key": "sk-very-secret", "mesh_size": 64})
        record = monitor.stop_monitoring("s", "success")
    assert "mesh_size" in caplog.text
    assert "sk-very-secret" not in caplog.text
    assert "sk-very-secret" not in str(record)
    assert record["params"]["mesh_size"] == 64


def test_secrets_of_any_shape_are_hidden_in_scripts_and_errors_too(
    monitor: JobMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    params = {"api_tokens": ["zz01-list"], "credentials": {"user": "zz02-deep"}}
    with caplog.at_level(logging.DEBUG):
        monitor.start_monitoring("abc", "tool", "use zz01-list", params)
        record = monitor.stop_monitoring("abc", "error", error="zz02-deep was refused")
    assert record["params"] == {"api_tokens": ["***"], "credentials": {"user": "***"}}
    assert record["error"] == "*** was refused"
    assert "zz0" not in str(record) + caplog.text + str(history_lines(monitor))


def test_params_that_are_not_json_are_kept_as_text(monitor: JobMonitor) -> None:
    monitor.start_monitoring("p", "t", "x", {"path": Path("/data"), "many": {1}})
    assert monitor.stop_monitoring("p", "success")["params"] == {"path": "/data", "many": [1]}


# -- stopping and tracking


def test_an_unknown_id_gives_an_empty_record_and_a_warning(
    monitor: JobMonitor, caplog: pytest.LogCaptureFixture
) -> None:
    assert monitor.stop_monitoring("nobody", "success") == {}
    assert "nobody" in caplog.text


def test_a_wrong_status_is_refused_and_the_job_goes_on(monitor: JobMonitor) -> None:
    monitor.start_monitoring("j", "t", "x", {})
    with pytest.raises(InputError, match="'finished' is not a status"):
        monitor.stop_monitoring("j", "finished")
    assert monitor.stop_monitoring("j", "failed", returncode=7)["returncode"] == 7


def test_an_exception_ends_the_job_as_error_and_goes_on(monitor: JobMonitor) -> None:
    with pytest.raises(ZeroDivisionError), monitor.track_job("bad", "t", "x", {}):
        _ = 1 / 0
    job = monitor.get_job_stats("bad")
    assert job is not None
    assert (job["status"], job["returncode"]) == ("error", 1)
    assert job["error"] == "ZeroDivisionError: division by zero"


def test_a_timeout_error_ends_the_job_as_timeout(monitor: JobMonitor) -> None:
    with pytest.raises(subprocess.TimeoutExpired), monitor.track_job("slow", "t", "x", {}):
        subprocess.run(["sleep", "10"], timeout=0.05, check=False)
    job = monitor.get_job_stats("slow")
    assert job is not None
    assert (job["status"], job["returncode"]) == ("timeout", 124)


def test_a_job_started_twice_ends_the_first_one(monitor: JobMonitor) -> None:
    first = monitor.start_monitoring("twice", "t", "x", {})
    monitor.start_monitoring("twice", "t", "x", {})
    monitor.stop_monitoring("twice", "success")
    assert [job["status"] for job in monitor.get_job_history()] == ["success", "error"]
    earlier = monitor.get_job_stats(first)
    assert earlier is not None
    assert "started again" in earlier["error"]


# -- remembering


def test_history_is_newest_first_and_limited(monitor: JobMonitor) -> None:
    for number in range(5):
        with monitor.track_job(f"job-{number}", "t", "x", {}):
            pass
    assert [job["task_id"] for job in monitor.get_job_history()] == [f"job-{n}" for n in (4, 3, 2, 1, 0)]
    assert [job["task_id"] for job in monitor.get_job_history(limit=2)] == ["job-4", "job-3"]
    assert monitor.get_job_history(limit=0) == []
    with pytest.raises(InputError):
        monitor.get_job_history(limit=-1)


def test_an_unknown_job_has_no_stats(monitor: JobMonitor) -> None:
    assert monitor.get_job_stats("never-was") is None


def test_a_running_job_is_known_but_not_yet_history(monitor: JobMonitor) -> None:
    monitor.start_monitoring("now", "t", "x", {})
    job = monitor.get_job_stats("now")
    assert job is not None
    assert job["status"] == "running"
    assert monitor.get_job_history() == []
    monitor.stop_monitoring("now", "success")


def test_the_summary_has_the_same_keys_with_and_without_jobs(monitor: JobMonitor) -> None:
    empty = monitor.get_summary_statistics()
    with monitor.track_job("a", "lammps", "x", {}):
        pass
    with monitor.track_job("b", "lammps", "x", {}) as tracker:
        tracker.set_status("failed", returncode=1)
    full = monitor.get_summary_statistics()
    assert list(empty) == list(full)
    assert empty["total_jobs"] == 0
    assert full["success_rate"] == 50.0
    assert full["by_tool"]["lammps"]["count"] == 2


def test_another_monitor_on_the_same_directory_sees_the_jobs(monitor: JobMonitor) -> None:
    with monitor.track_job("shared", "t", "x", {}):
        pass
    assert monitor.log_dir is not None
    other = JobMonitor(log_dir=monitor.log_dir)
    assert [job["task_id"] for job in other.get_job_history()] == ["shared"]
    other.close()


def test_the_history_file_has_one_line_a_job(monitor: JobMonitor) -> None:
    for status in ("success", "failed"):
        monitor.start_monitoring(f"file-{status}", "t", "x", {})
        monitor.stop_monitoring(f"file-{status}", status)
    assert [line["task_id"] for line in history_lines(monitor)] == ["file-success", "file-failed"]


def test_a_torn_line_in_the_history_file_costs_nothing(monitor: JobMonitor) -> None:
    with monitor.track_job("before", "t", "x", {}):
        pass
    assert monitor.log_dir is not None
    with open(os.path.join(monitor.log_dir, "jobs_history.jsonl"), "ab") as file:
        file.write(b'{"task_id": "torn", "too')
    with monitor.track_job("after", "t", "x", {}):
        pass
    assert [job["task_id"] for job in monitor.get_job_history()] == ["after", "before"]
    last = Path(monitor.log_dir, "jobs_history.jsonl").read_bytes().splitlines()[-1]
    assert msgspec.json.decode(last)["task_id"] == "after"


def test_samples_come_as_plain_dicts(monitor: JobMonitor) -> None:
    with monitor.track_job("sampled", "t", "x", {}):
        pass
    rows = monitor.samples("sampled")
    assert [row["index"] for row in rows] == [0, 1]
    assert rows[0]["cpu_total_usec"] == 0
    assert rows[1]["elapsed_us"] > 0
    assert all(type(row) is dict for row in rows)
    assert samples("sampled", log_dir=monitor.log_dir) == rows
    with pytest.raises(UnknownJob):
        monitor.samples("nobody")


def test_samples_become_an_arrow_table(monitor: JobMonitor) -> None:
    with monitor.track_job("arrow", "t", "x", {}):
        pass
    try:
        import pyarrow as pa
    except ImportError:
        with pytest.raises(MissingExtra, match="pyarrow"):
            monitor.samples("arrow").to_arrow()
        return
    table = monitor.samples("arrow").to_arrow()
    assert table.num_rows == 2
    assert table.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert table.column("index").to_pylist() == [0, 1]


# -- living inside a program


def test_threads_of_one_program_can_all_be_monitored_at_once(monitor: JobMonitor) -> None:
    def work(number: int) -> None:
        for turn in range(5):
            with monitor.track_job(f"t{number}-{turn}", "t", "x", {}):
                pass

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(monitor.get_job_history()) == 30
    assert len(history_lines(monitor)) == 30


def test_overlapping_jobs_have_their_own_cpu_and_say_that_they_overlapped(monitor: JobMonitor) -> None:
    records: dict[float, dict[str, Any]] = {}
    together = threading.Barrier(2)

    def work(seconds: float) -> None:
        with monitor.track_job(f"burn-{seconds}", "t", "x", {}) as tracker:
            together.wait()
            subprocess.run(python(BURN.format(seconds=seconds)), check=True)
            together.wait()
        records[seconds] = tracker.record

    threads = [threading.Thread(target=work, args=(seconds,)) for seconds in (0.1, 0.5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for seconds, record in records.items():
        assert record["resource_usage"]["cpu_total_seconds"] == pytest.approx(seconds, abs=0.12)
        assert record["accounting"]["shared"] is True


def test_a_program_that_dies_leaves_a_record_of_the_job(tmp_path: Path) -> None:
    logs = tmp_path / "dead"
    code = f"""
import os, signal
from joblens import JobMonitor
JobMonitor(log_dir={str(logs)!r}).start_monitoring("doomed", "t", "x", {{"a": 1}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    assert run_program(code).returncode == -9
    survivor = JobMonitor(log_dir=logs)
    job = survivor.get_job_stats("doomed")
    survivor.close()
    assert job is not None
    assert job["status"] == "lost"
    assert job["params"] == {"a": 1}


def test_a_program_that_ends_without_stopping_keeps_its_samples(tmp_path: Path) -> None:
    logs = tmp_path / "forgotten"
    code = f"""
from joblens import JobMonitor
JobMonitor(log_dir={str(logs)!r}).start_monitoring("forgotten", "t", "x", {{}})
"""
    done = run_program(code)
    assert (done.returncode, done.stderr) == (0, "")
    survivor = JobMonitor(log_dir=logs)
    assert len(survivor.samples("forgotten")) == 1
    survivor.close()


def test_a_forked_child_can_monitor_jobs_of_its_own(tmp_path: Path) -> None:
    logs = tmp_path / "forked"
    code = f"""
import os, time
from joblens import JobMonitor
monitor = JobMonitor(log_dir={str(logs)!r}, interval=0.05)
monitor.start_monitoring("parent", "t", "x", {{}})
pids = []
for number in range(4):
    pid = os.fork()
    if pid == 0:
        assert monitor.stop_monitoring("parent", "success") == {{}}  # it is not the child's
        with monitor.track_job(f"child-{{number}}", "t", "x", {{}}) as tracker:
            end = time.process_time() + 0.15
            while time.process_time() < end: pass
        os._exit(0 if tracker.record["detailed_profile"]["samples_collected"] >= 3 else 1)
    pids.append(pid)
assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0, 0, 0]
record = monitor.stop_monitoring("parent", "success")
assert record["resource_usage"]["cpu_total_seconds"] > 0.55, record["resource_usage"]
print(sorted(job["task_id"] for job in monitor.get_job_history()))
"""
    done = run_program(code, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(["child-0", "child-1", "child-2", "child-3", "parent"])


def test_a_child_forked_while_other_threads_monitor_does_not_hang(tmp_path: Path) -> None:
    logs = tmp_path / "busy"
    code = f"""
import os, threading
from joblens import JobMonitor
monitor = JobMonitor(log_dir={str(logs)!r}, interval=0.05)
stop = threading.Event()
def work(name):
    turn = 0
    while not stop.is_set():
        turn += 1
        with monitor.track_job(f"{{name}}-{{turn}}", "t", "x", {{}}): pass
        stop.wait(0.01)  # a store that is never free would keep the children waiting
threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
for thread in threads: thread.start()
for _ in range(15):
    pid = os.fork()
    if pid == 0:
        with monitor.track_job("in-child", "t", "x", {{}}): pass
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
stop.set()
for thread in threads: thread.join()
print(sum(job["task_id"] == "in-child" for job in monitor.get_job_history()))
"""
    done = run_program(code, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "15"), done.stderr


def test_a_store_that_cannot_be_written_never_stops_the_work(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logs = tmp_path / "broken"
    logs.mkdir()
    (logs / "joblens.db").mkdir()
    broken = JobMonitor(log_dir=logs)
    with broken.track_job("t", "t", "x", {}) as tracker:
        pass
    assert tracker.record["status"] == "success"


def test_a_log_directory_that_cannot_be_one_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be used as a log directory"):
        JobMonitor(log_dir=tmp_path / "file")


def test_the_log_directory_is_private(monitor: JobMonitor) -> None:
    assert monitor.log_dir is not None
    assert os.stat(monitor.log_dir).st_mode & 0o077 == 0


def test_start_and_stop_cost_little(monitor: JobMonitor) -> None:
    costs = []
    for number in range(20):
        began = time.thread_time()
        with monitor.track_job(f"cheap-{number}", "t", "x", {}):
            pass
        costs.append(time.thread_time() - began)
    assert sorted(costs)[len(costs) // 2] < 0.01  # a guard against a blunder; docs say what is usual


# -- the decorator


def test_every_call_of_a_measured_function_is_a_job(monitor: JobMonitor) -> None:
    @measured(name="add", tool="maths", tags=("night",), monitor=monitor)
    def add(a: int, b: int) -> int:
        """Adds."""
        return a + b

    before = add.last_record
    assert before is None
    assert add(1, b=2) == 3
    record = add.last_record
    assert record is not None
    assert (record["name"], record["tool"], record["tags"]) == ("add", "maths", ["night"])
    assert record["has_result"] is True
    assert add.__doc__ == "Adds."


def test_a_measured_function_works_bare_and_uses_the_default_store(store_path: Path) -> None:
    code = """
import joblens
from joblens.app.in_process.measured import measured
@measured
def work(): return 7
assert work() == 7
print(work.last_record["name"], work.last_record["status"], len(joblens.get_monitor().get_job_history()))
"""
    done = run_program(code)
    assert done.stdout.split() == ["work", "success", "1"], done.stderr
    assert store_path.exists()
    assert (store_path.parent / "jobs_history.jsonl").exists()


def test_an_exception_in_a_measured_function_is_recorded_and_raised(monitor: JobMonitor) -> None:
    @measured(monitor=monitor)
    def fail() -> None:
        raise OSError("disk gone")

    with pytest.raises(OSError, match="disk gone"):
        fail()
    assert fail.last_record is not None
    assert fail.last_record["error"] == "OSError: disk gone"


def test_measured_async_functions_are_shared_when_they_overlap(monitor: JobMonitor) -> None:
    @measured(monitor=monitor)
    async def nap() -> str:
        await asyncio.sleep(0.05)
        return "rested"

    assert asyncio.run(nap()) == "rested"
    assert nap.last_record is not None
    assert nap.last_record["accounting"]["shared"] is False
    assert nap.last_record["duration_seconds"] >= 0.05

    async def both() -> None:
        await asyncio.gather(nap(), nap())

    asyncio.run(both())
    assert [job["accounting"]["shared"] for job in monitor.get_job_history(limit=2)] == [True, True]


def test_generators_cannot_be_measured() -> None:
    with pytest.raises(InputError, match="is a generator"):

        @measured
        def numbers() -> Iterator[int]:
            yield 1


# -- programs as people write them


def test_example_of_starting_and_stopping(store_path: Path) -> None:
    code = """
from joblens import JobMonitor

monitor = JobMonitor()
monitor.start_monitoring(
    task_id="my-task-123",
    tool="fenicsx",
    script="poisson.py",
    params={"mesh_size": 64}
)
job_stats = monitor.stop_monitoring(
    task_id="my-task-123",
    status="success",
    returncode=0
)
print(f"Duration: {job_stats['duration_seconds']}s")
print(f"CPU Time: {job_stats['resource_usage']['cpu_total_seconds']}s")
"""
    done = run_program(code)
    assert done.returncode == 0, done.stderr
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["Duration", "CPU Time"]


def test_example_of_the_context_manager(store_path: Path) -> None:
    code = """
from joblens import get_monitor

def run_simulation():
    return {'returncode': 3, 'stderr': 'diverged'}

monitor = get_monitor()

with monitor.track_job("task-456", "lammps", "example.lammps", {}) as tracker:
    result = run_simulation()

    if result['returncode'] != 0:
        tracker.set_status("failed", returncode=result['returncode'], error=result['stderr'])

job = monitor.get_job_stats("task-456")
print(job['status'], job['returncode'], job['error'])
"""
    done = run_program(code)
    assert done.stdout.split() == ["failed", "3", "diverged"], done.stderr


def test_example_of_reading_the_history(store_path: Path) -> None:
    code = """
from joblens import get_monitor

monitor = get_monitor()
with monitor.track_job("task-id-123", "lammps", "example.lammps", {}):
    pass

all_jobs = monitor.get_job_history()
recent_jobs = monitor.get_job_history(limit=10)
job = monitor.get_job_stats("task-id-123")
stats = monitor.get_summary_statistics()
print(f"Success rate: {stats['success_rate']}%")
print(f"Total CPU time: {stats['total_cpu_time_seconds']}s")

high_memory = [j for j in all_jobs if j['resource_usage']['memory_peak_mb'] > 4000]
slow_jobs = [j for j in all_jobs if j['duration_seconds'] > 600]
for tool, tool_stats in stats['by_tool'].items():
    avg = tool_stats['total_duration'] / tool_stats['count']
    print(f"{tool}: avg {avg:.2f}s per job")
"""
    done = run_program(code)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "Success rate: 100.0%"
    assert lines[-1].startswith("lammps: avg 0.")


def test_example_of_a_directory_of_ones_own(tmp_path: Path) -> None:
    logs = tmp_path / "custom" / "logs"
    code = f"""
from joblens import JobMonitor

monitor = JobMonitor(log_dir={str(logs)!r})
with monitor.track_job("t", "fenicsx", "poisson.py", {{}}):
    pass
"""
    done = run_program(code)
    assert done.returncode == 0, done.stderr
    assert {"joblens.db", "jobs_history.jsonl"} <= {path.name for path in logs.iterdir()}


def test_the_log_lines_are_those_people_know(monitor: JobMonitor, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="joblens.monitor"):
        monitor.start_monitoring("3f8a21b2c4d5", "fenicsx", "poisson.py", {"mesh_size": 64})
        monitor.stop_monitoring("3f8a21b2c4d5", "success")
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "Starting job 3f8a21b2c4d5: tool=fenicsx, script=poisson.py, params={'mesh_size': 64}"
    assert lines[1].startswith("Job 3f8a21b2c4d5 completed successfully - Duration: 0.")
    assert ", CPU: 0." in lines[1]


def test_there_is_one_global_monitor() -> None:
    assert get_monitor() is get_monitor()


def test_waiting_is_not_needed(monitor: JobMonitor, wait_until: Callable[..., Any]) -> None:
    """A record is there as soon as the stop returns, in the store and in the file."""
    monitor.start_monitoring("now", "t", "x", {})
    record = monitor.stop_monitoring("now", "success")
    assert monitor.get_job_stats("now") == record
    assert history_lines(monitor)[-1]["job_uuid"] == record["job_uuid"]
