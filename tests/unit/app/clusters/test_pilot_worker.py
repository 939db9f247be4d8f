"""What a pilot worker makes of what it was told and of what the cluster says in its environment."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from joblens.app.clusters.pilot_worker import (
    _deadline_s,
    _node_memory,
    _options,
    _WalltimeWatch,
    allocation_exit_code,
    is_cancelled_here,
    own_tickets,
    placement_of,
    read_worker_config,
    rename_command,
    serve,
    slurm_job_id,
)
from joblens.app.clusters.worker_files import WorkerConfigFiles, write_error
from joblens.model.clusters.placement import WorkerConfig
from joblens.model.errors import ConfigError, InputError
from joblens.model.jobs.job import Job, Outcome, Placement, Record, Status
from joblens.model.settings import Settings, StoreSettings
from joblens.runners.slurm.allocations import ending_of

CONFIG = WorkerConfig(store="jobs.db", tickets=("a", "b", "c"))


def settings_at(folder: Path) -> Settings:
    return Settings(store=StoreSettings(url=str(folder / "jobs.db")))


def test_a_configuration_comes_back_as_it_was_written_and_is_nobody_elses_to_read(tmp_path: Path) -> None:
    cli = WorkerConfigFiles(settings_at(tmp_path), None, "run")
    path = cli.write(replace(cli.config, tickets=("a",), concurrency=3))
    config = read_worker_config(path)
    assert config is not None
    assert (config.tickets, config.concurrency, config.run_uuid) == (("a",), 3, "run")
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(cli.folder).st_mode & 0o777 == 0o700
    assert path in cli.argv(path)
    cli.close()
    assert read_worker_config(path) is None


def test_the_last_words_of_a_worker_are_found_beside_its_file(tmp_path: Path) -> None:
    cli = WorkerConfigFiles(settings_at(tmp_path), None, "run")
    path = cli.write(cli.config)
    assert cli.last_words(path) == ""
    write_error(path, "no store")
    assert cli.last_words(path) == "no store"
    cli.drop(path)
    cli.drop(path)
    assert os.listdir(cli.folder) == []


def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("{}")
    with pytest.raises(InputError, match="the worker configuration is invalid"):
        read_worker_config(str(path))


def test_a_task_of_an_array_has_the_ticket_at_its_index() -> None:
    array = replace(CONFIG, is_array=True)
    assert own_tickets(CONFIG, {}) == ("a", "b", "c")
    assert own_tickets(array, {"SLURM_ARRAY_TASK_ID": "2"}) == ("c",)
    for index in ("", "3", "x"):
        with pytest.raises(InputError, match="no job for task"):
            own_tickets(array, {"SLURM_ARRAY_TASK_ID": index})


def test_an_element_of_an_array_gets_the_name_and_comment_of_its_job() -> None:
    array = replace(CONFIG, run_uuid="r", is_array=True, names=("w:a", "w:b", "w:c"))
    environ = {"SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "1", "SLURM_JOB_ID": "14"}
    assert rename_command(array, environ) == [
        *("scontrol", "update", "jobid=12_1", "name=w:b", "comment=joblens run=r job=b")
    ]
    assert rename_command(CONFIG, environ) is None
    assert rename_command(array, {"SLURM_JOB_ID": "14"}) is None


def record_of(status: Status, **outcome: Any) -> Record:
    job = Job(uuid="a", argv=("true",), created_at_us=0)
    return Record(
        status=status,
        job=job,
        outcome=Outcome(status=status, ended_at_us=1, duration_s=1.0, **outcome),
    )


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (record_of(Status.SUCCESS, exit_code=0), 0),
        (record_of(Status.FAILED, exit_code=3), 3),
        (record_of(Status.FAILED, exit_code=139, signal=11), 139),
        (record_of(Status.FAILED, exit_code=137, reason="out-of-memory"), 137),
        (record_of(Status.TIMEOUT, exit_code=152), 152),
        (record_of(Status.TIMEOUT), 124),
        (record_of(Status.ERROR, exit_code=127, reason="not-started"), 127),
        (record_of(Status.CANCELLED, exit_code=143, signal=15), 143),
        (record_of(Status.FAILED, exit_code=4711), 125),  # an exit code has eight bits
        (record_of(Status.FAILED), 125),
    ],
)
def test_the_allocation_of_one_job_ends_with_its_exit_code(record: Record, code: int) -> None:
    assert allocation_exit_code([record], has_ended_early=False) == code


def test_an_allocation_whose_job_did_not_end_in_it_says_so() -> None:
    assert allocation_exit_code([], has_ended_early=True) == 143
    assert allocation_exit_code([], has_ended_early=False) == 0


def test_only_a_job_that_joblens_cancelled_cancels_its_allocation() -> None:
    assert is_cancelled_here(record_of(Status.CANCELLED, reason="cancelled"))
    assert not is_cancelled_here(record_of(Status.CANCELLED, reason="slurm-cancelled"))
    assert not is_cancelled_here(record_of(Status.FAILED, exit_code=1))


def test_the_file_of_another_machine_is_refused(tmp_path: Path) -> None:
    config = replace(CONFIG, store=str(tmp_path / "jobs.db"), boot_id="another")
    with pytest.raises(ConfigError, match="is a file on another machine") as caught:
        serve(config, {}, print)
    assert "postgresql://" in (caught.value.hint or "")
    assert not (tmp_path / "jobs.db").exists()


def test_ids_of_slurm_are_those_that_people_write() -> None:
    assert slurm_job_id({"SLURM_JOB_ID": "12"}) == "12"
    task = {"SLURM_JOB_ID": "15", "SLURM_ARRAY_JOB_ID": "12", "SLURM_ARRAY_TASK_ID": "3"}
    assert slurm_job_id(task) == "12_3"


def test_what_the_placer_knew_and_what_shows_on_the_node_make_one_placement() -> None:
    config = replace(CONFIG, placement=Placement(engine="slurm", asked={"--mem": "2G"}))
    environ = {"SLURM_JOB_ID": "12", "SLURM_JOB_PARTITION": "main", "SLURM_CLUSTER_NAME": "hpc"}
    placement = placement_of(config, environ)
    assert placement is not None
    assert (placement.job_id, placement.partition, placement.cluster) == ("12", "main", "hpc")
    assert placement.asked == {"--mem": "2G"}


def test_a_worker_of_another_cluster_inside_a_slurm_job_is_not_slurms() -> None:
    config = replace(CONFIG, placement=Placement(engine="ray", node_id="n"))
    assert placement_of(config, {"SLURM_JOB_ID": "12"}) == config.placement


def test_what_slurm_gave_is_what_is_shared_out() -> None:
    environ = {"SLURM_CPUS_ON_NODE": "6", "SLURM_MEM_PER_NODE": "2048"}
    options = _options(replace(CONFIG, queues=("q",), tickets=()), None, environ)
    assert options.concurrency == 6
    assert options.pilot is not None
    assert options.pilot.memory_bytes == 2 << 30
    assert _node_memory({"SLURM_MEM_PER_CPU": "100", "SLURM_CPUS_ON_NODE": "3"}) == 300 << 20
    assert _node_memory({"SLURM_MEM_PER_NODE": "0"}) is None


def test_at_the_end_of_its_walltime_a_worker_takes_nothing_more_and_then_ends_its_jobs() -> None:
    calls: list[object] = []

    class Worker:
        def end(self) -> None:
            calls.append("end")

        def release_allocation(self, ending: object) -> None:
            calls.append(ending)

    class Running:
        worker = Worker()

    ending = ending_of("TIMEOUT", "12")
    now_s = time.monotonic()
    leaves = _WalltimeWatch(now_s - 2, now_s + 1000, Running(), ending)  # type: ignore[arg-type]
    leaves.wake()
    assert calls == ["end"]
    assert leaves.next_wake_s() == now_s + 1000
    leaves = _WalltimeWatch(now_s - 2, now_s - 1, Running(), ending)  # type: ignore[arg-type]
    leaves.wake()
    assert calls == ["end", "end", ending]
    assert leaves.next_wake_s() is None


@pytest.mark.parametrize(("left_s", "reserve_s"), [(1000, 60), (100, 20)])
def test_it_leaves_before_its_time_is_up(left_s: int, reserve_s: int) -> None:
    leaves_s = _deadline_s(CONFIG, {"SLURM_JOB_END_TIME": str(int(time.time()) + left_s)})
    assert leaves_s is not None
    assert leaves_s - time.monotonic() == pytest.approx(left_s - reserve_s, abs=2)
    assert _deadline_s(CONFIG, {}) is None
