"""Which jobs are taken for dead, and what is done to them: only one's own, only on this machine, and nothing
is ended because it has a number or a name that a dead one had."""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from joblens.agent.launcher.launcher import TOTALS, write_outcome
from joblens.agent.recovery.adoption import AdoptedJob
from joblens.agent.recovery.finalization import History
from joblens.agent.runtime.ownership import this_process
from joblens.app.queue.recovery import recover_dead_owners
from joblens.app.wiring.agent_context import close_context, current_user, open_context, open_recovery
from joblens.app.wiring.drivers import spool_dir
from joblens.app.wiring.settings import load_settings
from joblens.files.processes import is_running, process_start_ticks
from joblens.model.errors import StoreError
from joblens.model.jobs.job import Attempt, Job, Owner, Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.settings import Settings
from joblens.model.values.ids import new_uuid
from joblens.model.writes import CancelAsked, JobQueued, JobStarted, SamplesTaken
from joblens.probes.host.machine_load import read_host
from joblens.stores.sqlite import SqliteStore
from tests.conftest import wait_until


@pytest.fixture
def store(store_path: Path) -> Iterator[SqliteStore]:
    store_path.parent.mkdir()
    opened = SqliteStore(str(store_path))
    yield opened
    opened.close()


@pytest.fixture
def settings(store: SqliteStore) -> Settings:
    return load_settings().settings


@pytest.fixture
def bystander(processes_to_end: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
    """A process that has nothing to do with any job."""
    process = subprocess.Popen(["sleep", "300"])
    processes_to_end.append(process)
    return process


def here() -> Owner:
    return this_process(read_host())


def gone() -> Owner:
    """This machine, this boot, a process that is no more."""
    process = subprocess.Popen(["sleep", "300"])
    ticks = process_start_ticks(process.pid)
    process.kill()
    process.wait()
    return replace(here(), pid=process.pid, start_ticks=ticks or 0)


def put(store: SqliteStore, attempt: Attempt | None = None, **changes: object) -> str:
    job = Job(
        uuid=new_uuid(), argv=("x",), created_at_us=time.time_ns() // 1000, user=current_user(), **changes  # type: ignore[arg-type]
    )  # fmt: skip
    store.apply([JobQueued(job)])
    if attempt is not None:
        store.apply([JobStarted(job.uuid, attempt)])
    return job.uuid


def attempt_of(owner: Owner, **changes: object) -> Attempt:
    return Attempt(
        started_at_us=time.time_ns() // 1000 - 5_000_000,
        started_mono_ns=time.monotonic_ns() - 5_000_000_000,
        owner=owner,
        accounting="process-tree",
        **changes,  # type: ignore[arg-type]
    )


def recovered(store: SqliteStore, settings: Settings, uuid: str) -> Record:
    recover_dead_owners(store, settings)
    return store.find(uuid)


def test_a_running_job_whose_owner_is_gone_is_lost(store: SqliteStore, settings: Settings) -> None:
    record = recovered(store, settings, put(store, attempt_of(gone())))
    assert record.status is Status.LOST


def test_a_job_of_a_living_owner_is_left_alone(store: SqliteStore, settings: Settings) -> None:
    assert recovered(store, settings, put(store, attempt_of(here()))).status is Status.RUNNING


def test_a_job_on_another_machine_is_left_alone(store: SqliteStore, settings: Settings) -> None:
    elsewhere = replace(gone(), host="elsewhere")
    assert recovered(store, settings, put(store, attempt_of(elsewhere))).status is Status.RUNNING


def test_another_users_job_is_left_alone(store: SqliteStore, settings: Settings) -> None:
    job = Job(uuid=new_uuid(), argv=("x",), created_at_us=1, user="somebody-else")
    store.apply([JobQueued(job), JobStarted(job.uuid, attempt_of(gone()))])
    assert recovered(store, settings, job.uuid).status is Status.RUNNING


def test_an_owner_whose_number_another_process_has_now_is_gone(
    store: SqliteStore, settings: Settings, bystander: subprocess.Popen[bytes]
) -> None:
    reused = replace(here(), pid=bystander.pid, start_ticks=1)
    assert recovered(store, settings, put(store, attempt_of(reused))).status is Status.LOST
    assert bystander.poll() is None


def test_an_owner_that_nobody_has_waited_for_is_gone(store: SqliteStore, settings: Settings) -> None:
    process = subprocess.Popen(["true"])
    wait_until(lambda: b") Z " in Path(f"/proc/{process.pid}/stat").read_bytes(), what="the zombie")
    ticks = process_start_ticks(process.pid)
    zombie = replace(here(), pid=process.pid, start_ticks=ticks or 0)
    assert not is_running(process.pid, ticks)
    assert recovered(store, settings, put(store, attempt_of(zombie))).status is Status.LOST
    process.wait()


def test_nothing_is_killed_that_has_the_numbers_of_the_job_and_its_launcher(
    store: SqliteStore, settings: Settings, bystander: subprocess.Popen[bytes]
) -> None:
    attempt = attempt_of(
        gone(), pid=bystander.pid, pid_start_ticks=1, launcher_pid=bystander.pid, launcher_start_ticks=1
    )
    assert recovered(store, settings, put(store, attempt)).status is Status.LOST
    assert bystander.poll() is None


def test_a_job_from_before_a_restart_of_the_machine_is_lost_and_nothing_is_killed(
    store: SqliteStore, settings: Settings, processes_to_end: list[subprocess.Popen[bytes]]
) -> None:
    uuid = put(store)
    marked = subprocess.Popen(["sleep", "300"], env={**os.environ, "JOBLENS_JOB_ID": uuid})
    processes_to_end.append(marked)
    before = replace(here(), boot_id="another-boot")
    attempt = attempt_of(
        before, launcher_pid=marked.pid, launcher_start_ticks=process_start_ticks(marked.pid), pid=marked.pid
    )
    store.apply([JobStarted(uuid, attempt), SamplesTaken(uuid, 0, (Sample(at_us=9, elapsed_us=700_000),))])
    record = recovered(store, settings, uuid)
    assert record.outcome is not None
    assert record.status is Status.LOST
    assert record.outcome.error == "the machine was restarted while it ran"
    assert record.outcome.duration_s == pytest.approx(0.7)
    assert marked.poll() is None


def test_a_job_from_another_pid_namespace_is_lost_and_nothing_is_killed(
    store: SqliteStore, settings: Settings, bystander: subprocess.Popen[bytes]
) -> None:
    """A container that was started anew has the same boot and the same name, but its pids mean nothing."""
    owner = replace(
        here(), pid=bystander.pid, start_ticks=process_start_ticks(bystander.pid) or 0, pid_namespace=1
    )
    assert recovered(store, settings, put(store, attempt_of(owner))).status is Status.LOST
    assert bystander.poll() is None


def test_processes_with_the_jobs_id_are_ended(
    store: SqliteStore, settings: Settings, processes_to_end: list[subprocess.Popen[bytes]]
) -> None:
    uuid = put(store)
    marked = subprocess.Popen(["sleep", "300"], env={**os.environ, "JOBLENS_JOB_ID": uuid})
    processes_to_end.append(marked)
    store.apply([JobStarted(uuid, attempt_of(gone()))])
    assert recovered(store, settings, uuid).status is Status.LOST
    assert marked.wait(10) == -9


def test_a_group_that_joblens_cannot_have_made_is_not_touched(
    store: SqliteStore, settings: Settings, tmp_path: Path, bystander: subprocess.Popen[bytes]
) -> None:
    fake = tmp_path / "system.slice"
    fake.mkdir()
    (fake / "cgroup.procs").write_text(f"{bystander.pid}\n")
    attempt = attempt_of(gone(), groups={"unified": str(fake)})
    assert recovered(store, settings, put(store, attempt)).status is Status.LOST
    assert bystander.poll() is None
    assert (fake / "cgroup.procs").exists()


@pytest.mark.parametrize("name", ["x", "slot-x", "{uuid}", "{uuid}-1", "slot-{uuid}"])
def test_a_folder_that_only_looks_like_a_job_group_kills_nobody(
    store: SqliteStore, settings: Settings, tmp_path: Path, bystander: subprocess.Popen[bytes], name: str
) -> None:
    """Whoever wrote the store may name any directory and put any number into a file there."""
    fake = tmp_path / f"joblens-{os.geteuid()}" / name.format(uuid=new_uuid())
    fake.mkdir(parents=True)
    (fake / "cgroup.procs").write_text(f"{bystander.pid}\n")
    attempt = attempt_of(gone(), groups={"unified": str(fake)})
    assert recovered(store, settings, put(store, attempt)).status is Status.LOST
    assert bystander.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_nothing_is_recovered_from_a_store_that_belongs_to_someone_else(
    store: SqliteStore, settings: Settings, store_path: Path, processes_to_end: list[subprocess.Popen[bytes]]
) -> None:
    uuid = put(store)
    marked = subprocess.Popen(["sleep", "300"], env={**os.environ, "JOBLENS_JOB_ID": uuid})
    processes_to_end.append(marked)
    store.apply([JobStarted(uuid, attempt_of(gone()))])
    os.chown(store_path, 65534, 65534)
    assert recovered(store, settings, uuid).status is Status.RUNNING
    assert marked.poll() is None


def test_a_job_that_its_creator_can_no_longer_start_is_lost_with_a_reason(
    store: SqliteStore, settings: Settings
) -> None:
    record = recovered(store, settings, put(store, created_by=gone()))
    assert record.outcome is not None
    assert (record.status, record.outcome.error) == (
        "lost",
        "the program that should have started it is gone",
    )


def test_a_job_whose_creator_lives_stays_queued(store: SqliteStore, settings: Settings) -> None:
    assert recovered(store, settings, put(store, created_by=here())).status is Status.QUEUED


@pytest.mark.parametrize(("asked_s_ago", "status"), [(4, "cancelled"), (1, "success")])
def test_a_wish_to_cancel_counts_only_when_it_came_before_the_end(
    store: SqliteStore, settings: Settings, asked_s_ago: int, status: str
) -> None:
    uuid = put(store, attempt_of(gone()))
    _leave_outcome(settings, uuid, ended_s_ago=2)
    store.apply([CancelAsked(uuid, time.time_ns() // 1000 - asked_s_ago * 1_000_000)])
    assert recovered(store, settings, uuid).status == status


def test_what_a_launcher_left_is_the_outcome_and_is_cleared_away(
    store: SqliteStore, settings: Settings
) -> None:
    uuid = put(store, attempt_of(gone()))
    file = _leave_outcome(settings, uuid, ended_s_ago=2, status=5 << 8)
    record = recovered(store, settings, uuid)
    assert record.outcome is not None
    assert (record.status, record.outcome.exit_code) == ("failed", 5)
    assert record.outcome.duration_s == pytest.approx(3, abs=0.5)
    assert record.outcome.usage.cpu_total_usec == 30
    assert not file.exists()


def test_a_torn_outcome_file_is_as_good_as_none(store: SqliteStore, settings: Settings) -> None:
    uuid = put(store, attempt_of(gone()))
    file = _leave_outcome(settings, uuid, ended_s_ago=2)
    file.write_text(file.read_text()[:20])
    assert recovered(store, settings, uuid).status is Status.LOST


def test_jobs_that_one_slot_ran_one_after_the_other_are_distinguished(
    store: SqliteStore, settings: Settings, bystander: subprocess.Popen[bytes]
) -> None:
    """The launcher lives and runs the newer one; the older one has ended, its record unsaid."""
    launcher = {
        "launcher_pid": bystander.pid,
        "launcher_start_ticks": process_start_ticks(bystander.pid),
    }
    owner = gone()
    older = put(store, attempt_of(owner, **launcher))
    newer = put(store, replace(attempt_of(owner, **launcher), started_mono_ns=time.monotonic_ns()))
    from joblens.agent.measuring.accounting import Accountant
    from joblens.agent.recovery.orphans import Recovery
    from joblens.app.wiring.drivers import SystemClock

    clock = SystemClock()
    recovery = Recovery("", Accountant(clock), clock, read_host(), user=current_user(), output_max_bytes=1)
    found = recovery.orphans(store.running())
    assert [record.job.uuid for record in found.adoptable] == [newer]
    assert [record.job.uuid for record in found.dead] == [older]
    assert found.superseded == {older}


def _leave_outcome(settings: Settings, uuid: str, *, ended_s_ago: int, status: int = 0) -> Path:
    folder = Path(spool_dir(str(settings.store.url)))
    folder.mkdir(parents=True, exist_ok=True)
    totals = tuple({"user_usec": 20, "system_usec": 10}.get(name, 0) for name in TOTALS)
    file = folder / f"{uuid}.outcome"
    write_outcome(str(file), status, totals, time.monotonic_ns() - ended_s_ago * 1_000_000_000, [])
    return file


def test_the_last_sample_of_an_adopted_job_replaces_none_when_the_store_fails(
    store: SqliteStore, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = gone()
    uuid = put(
        store, attempt_of(gone(), launcher_pid=launcher.pid, launcher_start_ticks=launcher.start_ticks)
    )
    before = [Sample(at_us=index, elapsed_us=index) for index in range(3)]
    store.apply([SamplesTaken(uuid, 0, tuple(before))])
    _leave_outcome(settings, uuid, ended_s_ago=1)
    context = open_context(settings)

    def fail(_uuid: str) -> None:
        raise StoreError("no answer")

    ended: list[AdoptedJob] = []
    seen = History(store.samples(uuid))
    monkeypatch.setattr(context.recorder.store, "samples", fail)
    AdoptedJob(store.find(uuid), seen, context, open_recovery(context, settings), ended.append).start()
    context.loop.run_until(lambda: bool(ended))
    close_context(context)
    assert [index for index, _ in store.samples(uuid)] == [0, 1, 2, 3]
    assert [sample for _, sample in store.samples(uuid)][:3] == before
