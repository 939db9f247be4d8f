"""Whose word counts when Slurm is asked: the command line, the scheduler, the defaults, the settings."""

from typing import Any

import pytest

from joblens.model.errors import PlanError
from joblens.model.jobs.job import Requirements
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import SlurmChoice
from joblens.model.settings import SlurmSettings
from joblens.model.values.units import GIB, MIB
from joblens.runners.slurm.terms import (
    AllocationSize,
    Headroom,
    Terms,
    all_terms,
    allocation_options,
    job_options,
)

HEADROOM = Headroom(memory_bytes=128 * MIB, lead_s=60)
BIG = {"name": "big", "account": "physics", "partition": "long", "mem": "180G", "walltime": "04:00:00"}
SIZE = AllocationSize(nodes=1, cpus=8, memory_bytes=16 * GIB, gpus=0, time_s=3600)


def plan(*schedulers: dict[str, Any], **defaults: Any) -> Plan:
    return Plan(name="test", jobs=(), slurm_schedulers=schedulers, slurm_defaults=defaults)


def terms(
    of: Plan, name: str = "", choice: SlurmChoice | None = None, settings: SlurmSettings | None = None
) -> Terms:
    return all_terms(of, choice or SlurmChoice(), settings or SlurmSettings())[0][name]


def asked(of: Terms, limit_s: float | None = None, **needs: Any) -> dict[str, str]:
    return job_options(of, Requirements(**needs), HEADROOM, limit_s)


def test_the_first_who_says_something_is_noticed() -> None:
    settings = SlurmSettings(partition="any", account="common", qos="low")
    of = plan(BIG, qos="normal", account="defaults")
    assert {
        key: asked(terms(of, "big", settings=settings))[key] for key in ("partition", "account", "qos")
    } == {
        "partition": "long",
        "account": "physics",
        "qos": "normal",
    }
    named = SlurmChoice(account="mine", qos="high", constraint="a100&ib", options=("--constraint=other",))
    options = asked(terms(of, "big", named, settings))
    assert (options["account"], options["qos"], options["constraint"]) == ("mine", "high", "a100&ib")
    assert asked(terms(of, "big", settings=SlurmSettings(constraint="ib")))["constraint"] == "ib"
    choice = SlurmChoice(partition="debug", options=("--constraint=ib", "-x n7"))
    options = asked(terms(of, "big", choice, settings))
    assert (options["partition"], options["constraint"], options["exclude"]) == ("debug", "ib", "n7")


def test_mails_and_constraints_reach_sbatch_from_the_file_and_the_command_line() -> None:
    extra = {"name": "big", "account": "a", "extra": "--mail-type=FAIL --constraint=ib"}
    options = asked(terms(plan(extra, mail_type="END", mail_user="me@example.org"), "big"))
    assert (options["mail-type"], options["mail-user"], options["constraint"]) == (
        *("FAIL", "me@example.org", "ib"),
    )
    line = SlurmChoice(options=("--mail-type=FAIL,TIME_LIMIT",))
    assert asked(terms(plan(), "", line))["mail-type"] == "FAIL,TIME_LIMIT"


def test_what_a_job_needs_becomes_options() -> None:
    options = asked(terms(plan()), cpus=2.5, memory_bytes=2 * GIB, gpus=1, timeout_s=600, nodes=2)
    assert options == {
        "nodes": "2",
        "cpus-per-task": "3",
        "ntasks-per-node": "1",
        "mem": "2176M",  # with room for the worker beside it
        "gres": "gpu:1",
        "time": "00:12:00",  # and time for it
    }


def test_a_job_that_says_nothing_asks_for_one_cpu_and_leaves_the_rest_to_the_site() -> None:
    assert asked(terms(plan())) == {"nodes": "1", "cpus-per-task": "1", "ntasks-per-node": "1"}


def test_what_a_job_needs_wins_over_the_size_of_its_schedulers_allocations() -> None:
    options = asked(terms(plan(BIG), "big"), memory_bytes=GIB, timeout_s=60)
    assert (options["mem"], options["time"]) == ("1152M", "00:03:00")
    assert asked(terms(plan(BIG), "big"))["mem"] == "180G"


def test_a_job_that_just_fits_its_partition_is_not_refused_for_what_the_worker_needs() -> None:
    assert asked(terms(plan()), 600, timeout_s=600)["time"] == "00:10:00"


def test_cpus_are_shared_out_between_the_tasks_of_a_node() -> None:
    mpi = {"name": "mpi", "account": "a", "ntasks_per_node": 4}
    options = asked(terms(plan(mpi), "mpi"), cpus=32, nodes=2)
    assert (options["ntasks-per-node"], options["cpus-per-task"]) == ("4", "8")


def test_the_only_scheduler_is_meant_by_jobs_that_name_none() -> None:
    assert asked(terms(plan(BIG)))["account"] == "physics"
    assert "account" not in asked(terms(plan(BIG, {**BIG, "name": "other"})))


def test_memory_in_other_words_gives_way_to_anyone_who_has_more_to_say() -> None:
    of = plan(mem_per_cpu="2G")
    assert asked(terms(of))["mem-per-cpu"] == "2G"
    assert "mem-per-cpu" not in asked(terms(of), memory_bytes=GIB)
    chosen = asked(terms(of, choice=SlurmChoice(options=("--mem-per-gpu=4G",))), memory_bytes=GIB)
    assert "mem" not in chosen
    assert chosen["mem-per-gpu"] == "4G"


def test_options_that_joblens_decides_are_reported_and_left_aside() -> None:
    scheduler = {**BIG, "extra": "--exclusive --array=1-4 -o log"}
    by_name, warnings = all_terms(plan(scheduler, wrap="x"), SlurmChoice(), SlurmSettings())
    assert "exclusive" in by_name["big"].written
    assert [text.split(" is not used")[0] for text in warnings] == [
        "slurm_defaults: wrap",
        "scheduler 'big': array",
        "scheduler 'big': output",
    ]


@pytest.mark.parametrize("word", ["--array=1-4", "-N 2", "--clusters=x", "nonsense"])
def test_on_the_command_line_they_are_refused(word: str) -> None:
    with pytest.raises(PlanError, match="--sbatch"):
        all_terms(plan(), SlurmChoice(options=(word,)), SlurmSettings())


def test_an_extra_that_cannot_be_read_is_reported_with_its_scheduler() -> None:
    with pytest.raises(PlanError, match="scheduler 'big': extra"):
        all_terms(plan({**BIG, "extra": "--x 'open"}), SlurmChoice(), SlurmSettings())


def test_an_allocation_is_as_its_scheduler_says_and_else_as_worked_out() -> None:
    options = allocation_options(terms(plan(BIG), "big"), SIZE)
    assert (options["mem"], options["cpus-per-task"], options["nodes"]) == ("180G", "8", "1")
    assert allocation_options(terms(plan()), SIZE)["mem"] == "16384M"


def test_who_has_whole_nodes_is_not_reported_how_many_cpus() -> None:
    options = allocation_options(terms(plan(exclusive=True)), SIZE)
    assert "exclusive" in options
    assert "cpus-per-task" not in options


def test_what_the_command_line_says_of_allocations_wins_over_the_scheduler() -> None:
    chosen = terms(plan(BIG), "big", SlurmChoice(nodes=3, time_s=7200))
    assert (chosen.nodes, chosen.walltime_s) == (3, 7200)
    assert terms(plan(BIG), "big").walltime_s == 4 * 3600
