"""Keys that are read and change nothing get a warning with their position; a file is valid all the same."""

import pytest
from msgspec import structs

from joblens.spec.keys.kinds import Kind, Wrong
from joblens.spec.keys.readers import SectionReader
from joblens.spec.keys.table import NoEffect, Section, flag, key, section
from joblens.spec.keys.unknown import find_key_warnings
from joblens.spec.keys.workflow import SECTIONS
from joblens.spec.workflows.file import read_workflow

TOP = "name: w\njobs: [{name: a, command: ls}]\n"


def warned(text: str) -> list[tuple[tuple[str | int, ...], str]]:
    reading = read_workflow(text, "yaml", "w.yaml")
    assert reading.problems == ()
    return [(one.path, one.message) for one in reading.warnings]


def test_a_file_whose_keys_all_have_an_effect_gets_no_warning() -> None:
    assert warned(TOP) == []


def test_a_key_without_effect_is_warned_of_with_its_position() -> None:
    [(path, message)] = warned(TOP + "access_groups: [team]\n")
    assert path == ("access_groups",)
    assert message == "access_groups has no effect: everyone who can read the store sees its workflows"


@pytest.mark.parametrize("value", ["null", "[]"])
def test_a_value_that_says_nothing_is_not_warned_of(value: str) -> None:
    assert warned(TOP + f"access_groups: {value}\n") == []


def test_a_value_that_is_the_default_elsewhere_is_not_warned_of() -> None:
    assert warned(TOP + "compute_node_ignore_workflow_completion: false\n") == []
    assert len(warned(TOP + "compute_node_ignore_workflow_completion: true\n")) == 1


def test_one_is_not_taken_for_true() -> None:
    no_effect = NoEffect(why="it is so", only=(True,))
    assert no_effect.covers(True)
    assert not no_effect.covers(1)


def test_a_file_with_mistakes_has_only_mistakes() -> None:
    reading = read_workflow(TOP + "access_groups: [team]\nnonsense: 1\n", "yaml", "w.yaml")
    assert reading.problems
    assert reading.warnings == ()


def tolerant() -> Section:
    return section(
        "resource_monitor",
        "resource_monitor",
        "`resource_monitor`",
        flag("enabled", "Measure."),
        key("old", Kind.TEXT, "Nothing.", no_effect=NoEffect(why="it is old", engines=("ray",))),
        warns_of_unknown=True,
    )


def test_a_section_may_tolerate_unknown_keys_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    table = tolerant()
    assert SectionReader(table, dict, {})({"enabled": True, "enabeld": 1}) == {"enabled": True}
    strict = structs.replace(table, warns_of_unknown=False)
    with pytest.raises(Wrong):
        SectionReader(strict, dict, {})({"enabeld": 1})
    monkeypatch.setitem(SECTIONS, "resource_monitor", table)
    from joblens.spec.keys import unknown as key_warnings

    key_warnings._watched.cache_clear()
    try:
        found = find_key_warnings({"resource_monitor": {"enabeld": 1, "old": "x"}})
    finally:
        key_warnings._watched.cache_clear()
    assert [(one.path, one.engines) for one in found] == [
        (("resource_monitor", "enabeld"), ()),
        (("resource_monitor", "old"), ("ray",)),
    ]
    assert found[0].message.startswith("unknown key 'enabeld' in resource_monitor; did you mean 'enabled'?")
    assert "has no effect with this engine: it is old" in found[1].message


SLURM_FLOW = """\
name: w
slurm_schedulers: [{name: s, account: a, qos: high}]
slurm_defaults: {constraint: ib}
compute_node_wait_for_new_jobs_seconds: 30
actions: [{trigger_type: on_workflow_start, action_type: schedule_nodes, scheduler: s}]
execution_config: {mode: auto, srun_mpi: pmix, enable_cpu_bind: true}
jobs:
  - {name: a, command: ls, scheduler: s, num_nodes: 2}
  - {name: b, command: ls, scheduler: s, queue: large, retry_lost: never}
"""
CONCERNED = {
    "slurm_schedulers": {"local", "celery", "ray"},
    "slurm_defaults": {"local", "celery", "ray"},
    "compute_node_wait_for_new_jobs_seconds": {"local", "celery", "ray"},
    "action_type": {"local", "celery", "ray"},
    "srun_mpi": {"local", "celery", "ray"},
    "enable_cpu_bind": {"local", "celery", "ray"},
    "scheduler": {"local", "celery", "ray"},
    "num_nodes": {"local", "celery"},
    "queue": {"local", "ray", "slurm"},
}


def test_keys_of_one_engine_are_warned_of_with_the_others() -> None:
    reading = read_workflow(SLURM_FLOW, "yaml", "w.yaml")
    assert {str(one.path[-1]): set(one.engines) for one in reading.warnings} == CONCERNED


def test_many_entries_with_the_same_key_give_one_warning() -> None:
    [warning] = [one for one in warned(SLURM_FLOW) if one[0][-1] == "scheduler"]
    assert warning[0] == ("jobs", 0, "scheduler")
    assert warning[1].endswith("only for --engine slurm (and 1 more like it)")


@pytest.mark.parametrize(
    "lines",
    [
        "resource_monitor: {flush_interval_seconds: 300, compute_node: {granularity: summary}}",
        "execution_config: {mode: direct, staggered_start: true}",
        "execution_config: {mode: auto, enable_cpu_bind: false}",
        "user_data: [{name: d, is_ephemeral: false}]",
        "resource_requirements: [{name: small, num_cpus: 1, num_nodes: 1}]",
        "compute_node_wait_for_healthy_database_minutes: null",
        "$schema: https://example.org/schema.json",
        "x-own: {anything: 1}",
    ],
)
def test_values_that_say_nothing_new_are_not_warned_of(lines: str) -> None:
    assert warned(TOP + lines + "\n") == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("resource_monitor: {flush_interval_seconds: 10}", "flush_interval_seconds in resource_monitor"),
        ("resource_monitor: {compute_node: {granularity: time_series}}", "granularity in resource_monitor"),
        (
            "execution_config: {mode: slurm}",
            "mode in execution_config: 'slurm' has no effect: joblens starts",
        ),
        ("files: [{name: f, path: f, st_mtime: 1}]", "st_mtime in file 'f' has no effect"),
        ("user_data: [{name: d, is_ephemeral: true}]", "is_ephemeral in user data 'd' has no effect"),
        (
            "compute_node_wait_for_healthy_database_minutes: 5",
            "compute_node_wait_for_healthy_database_minutes",
        ),
    ],
)
def test_a_value_without_effect_is_warned_of(lines: str, message: str) -> None:
    [(_, result)] = warned(TOP + lines + "\n")
    assert result.startswith(message)


def test_every_format_has_the_same_warnings() -> None:
    kdl = 'name "w"\naccess_group "team"\njob "a" {\n    command "ls"\n}\n'
    reading = read_workflow(kdl, "kdl", "w.kdl")
    assert [one.path for one in reading.warnings] == [("access_groups",)]
