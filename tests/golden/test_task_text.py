"""What commands for queues show, pinned."""

from typing import Any

from msgspec.structs import replace

from joblens.app.queue.task_results import Expected, status_form, workflow_form
from joblens.model.jobs.job import (
    Artifact,
    Attempt,
    Finding,
    Job,
    Outcome,
    Owner,
    Record,
    Severity,
    Status,
    Usage,
)
from joblens.model.jobs.sample import Sample
from joblens.views.runs.tasks import render_health, render_status, render_workflow
from joblens.views.text.style import PLAIN
from tests.golden.golden import same_as_golden

START_US = 1_763_208_000_000_000
SECOND = 1_000_000
MIB = 1 << 20
PARAMS = {"mesh_size": 64, "degree": 2}


def task(status: Status, place: int = 1, **outcome: Any) -> Record:
    job = Job(
        uuid=f"{place:08x}-5b1f-4c06-9e44-2f6d1c8a9b01",
        argv=("python3", "poisson.py"),
        created_at_us=START_US,
        tool="fenicsx",
        script="poisson.py",
        params=PARAMS,
        queue="default",
    )
    attempt = Attempt(started_at_us=START_US, owner=Owner("node1", 7, 8, "boot"))
    usage = Usage(cpu_total_usec=11_500_000, memory_peak_bytes=412 * MIB)
    usual: dict[str, Any] = {"exit_code": 0, "usage": usage, "worker": "node1-4242-1a2b3c4d"}
    ended = Outcome(
        status=status, ended_at_us=START_US + 12 * SECOND, duration_s=12.3, **{**usual, **outcome}
    )
    has_started = status is not Status.QUEUED
    return Record(
        status=status,
        number=place,
        job=job,
        attempt=attempt if has_started else None,
        outcome=ended if status.is_final else None,
    )


def shown(record: Record, **more: Any) -> list[str]:
    return render_status(status_form(record, now_us=START_US + 8 * SECOND, **more), paint=PLAIN)


def test_a_task_that_waits() -> None:
    same_as_golden("status-pending", shown(task(Status.QUEUED)))


def test_a_task_that_runs() -> None:
    sample = Sample(
        at_us=START_US,
        elapsed_us=8 * SECOND,
        cpu_total_usec=7_400_000,
        memory_anon_bytes=300 * MIB,
        memory_shmem_bytes=0,
        memory_kernel_bytes=2 * MIB,
    )
    worker = "node1-4242-1a2b3c4d"
    text = shown(task(Status.RUNNING), expected=Expected(20.0, 3), newest=sample, worker=worker)
    same_as_golden("status-running", text)


def test_a_task_that_runs_for_longer_than_earlier_ones() -> None:
    same_as_golden("status-longer", shown(task(Status.RUNNING), expected=Expected(0.027, 3)))


def test_a_task_that_runs_for_the_first_time() -> None:
    same_as_golden("status-first", shown(task(Status.RUNNING)))


def test_a_task_that_succeeded() -> None:
    files = (Artifact("solution.xdmf", 2048), Artifact("solution.h5", 3 * MIB))
    record = task(
        Status.SUCCESS,
        artifacts=files,
        work_dir="/var/lib/joblens/logs/1/work",
        stdout_tail="mesh_size=64 degree=2\nl2_error=5.4e-06\n",
    )
    same_as_golden("status-success", shown(record))


def test_a_task_that_failed_on_its_second_worker() -> None:
    finding = Finding("taken-up-again", Severity.INFO, "its first worker was lost, another took it up")
    record = task(
        Status.FAILED,
        exit_code=1,
        error="exit code 1",
        stdout_tail="mesh_size=64 degree=2\n",
        stderr_tail="Traceback (most recent call last):\nValueError: degree\n",
        findings=(finding,),
    )
    assert record.attempt is not None
    same_as_golden("status-failed", shown(replace(record, attempt=replace(record.attempt, number=2))))


def test_a_workflow() -> None:
    statuses = (Status.SUCCESS, Status.FAILED, Status.CANCELLED, Status.RUNNING, Status.QUEUED)
    records = [task(status, place) for place, status in enumerate(statuses, start=1)]
    never_began = task(Status.CANCELLED, 6, exit_code=None, usage=Usage())
    records.append(replace(never_began, attempt=None))
    form = workflow_form([status_form(each, now_us=START_US + 8 * SECOND) for each in records])
    same_as_golden("workflow-status", render_workflow(form, width=110, paint=PLAIN))


def health(**fields: Any) -> dict[str, Any]:
    worker = {
        "name": "node1-4242-1a2b3c4d",
        "host": "node1",
        "user": "ana",
        "queues": ["default", "night"],
        "labels": [],
        "concurrency": 8,
        "running": 3,
        "any_user": False,
        "seen_seconds_ago": 4.2,
    }
    return {
        "store": {"ok": True, "url": "postgresql://db/joblens", "new": False, "error": None},
        "broker": {
            "ok": True,
            "url": "redis://broker:6379/0",
            "answer": "Redis at redis://broker:6379/0",
            "error": None,
        },
        "workers": [worker, {**worker, "name": "node2-17-99887766", "host": "node2", "any_user": True}],
        "backlog": [
            {"queue": "default", "label": "", "waiting": 12, "held": 6, "oldest_waiting_seconds": 93.0},
            {"queue": "night", "label": "", "waiting": 0, "held": 0, "oldest_waiting_seconds": 0.0},
        ],
        "problems": [],
        **fields,
    }


def test_a_healthy_queue() -> None:
    same_as_golden("health", render_health(health(), width=110, paint=PLAIN))


def test_a_queue_with_something_down() -> None:
    url = "redis://broker:6379/0"
    broker = {"ok": False, "url": url, "answer": None, "error": "connection refused"}
    problems = [f"broker: the broker at {url} cannot be used: connection refused", "workers: none running"]
    down = health(broker=broker, workers=[], backlog=[], problems=problems)
    same_as_golden("health-down", render_health(down, width=110, paint=PLAIN))
