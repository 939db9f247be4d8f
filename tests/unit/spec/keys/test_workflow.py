"""The tables of keys say what the model does."""

from typing import Any

import pytest
from msgspec import structs

from joblens.model.runs.workflow_spec import (
    ActionSpec,
    ExecutionSpec,
    FailureHandler,
    FileSpec,
    JobSpec,
    MonitorSpec,
    RequirementsSpec,
    RetryRule,
    Stdio,
    UserDataSpec,
    WorkflowSpec,
)
from joblens.spec.keys.readers import reader_of
from joblens.spec.keys.table import Key
from joblens.spec.keys.workflow import AMOUNT_NAMES, SECTIONS
from joblens.spec.workflows.values import section_reader

STRUCTS: dict[str, Any] = {
    "workflow": WorkflowSpec,
    "job": JobSpec,
    "file": FileSpec,
    "user_data": UserDataSpec,
    "resource_requirements": RequirementsSpec,
    "inline_requirements": RequirementsSpec,
    "failure_handler": FailureHandler,
    "rule": RetryRule,
    "action": ActionSpec,
    "resource_monitor": MonitorSpec,
    "monitor_jobs": MonitorSpec,
    "monitor_compute_node": MonitorSpec,
    "execution_config": ExecutionSpec,
    "stdio": Stdio,
}
INSIDE = {name: section_reader(name) for name in SECTIONS}
KEYS = [(name, key) for name, section in SECTIONS.items() for key in section.keys.values()]
IDS = [f"{name}.{key.name}" for name, key in KEYS]


@pytest.mark.parametrize(
    ("name", "key"),
    [(name, key) for name, key in KEYS if key.default is not None and name in STRUCTS],
    ids=lambda part: getattr(part, "name", part),
)
def test_the_default_of_a_key_is_the_models(name: str, key: Key) -> None:
    (field,) = (field for field in structs.fields(STRUCTS[name]) if field.name == key.target)
    assert reader_of(key, INSIDE)(key.default) == field.default


@pytest.mark.parametrize(("name", "key"), KEYS, ids=IDS)
def test_an_example_can_be_read(name: str, key: Key) -> None:
    if key.example is not None:
        reader_of(key, INSIDE)(key.example)


@pytest.mark.parametrize("name", STRUCTS)
def test_every_field_of_the_model_can_be_written(name: str) -> None:
    targets = {key.target for key in SECTIONS[name].keys.values()}
    fields = {field.name for field in structs.fields(STRUCTS[name])}
    by_another_way = {
        "workflow": {"other"},
        "resource_monitor": {"host_enabled", "host_granularity", "host_cpu", "host_memory"},
        "monitor_jobs": fields - {"enabled", "granularity"},
        "monitor_compute_node": {field for field in fields if not field.startswith("host_")},
    }
    assert fields - targets == by_another_way.get(name, set())


@pytest.mark.parametrize(("name", "key"), KEYS, ids=IDS)
def test_a_key_refers_to_keys_and_sections_that_exist(name: str, key: Key) -> None:
    keys = SECTIONS[name].keys
    assert not key.older_name_of or key.older_name_of in keys
    assert not key.section or key.section in SECTIONS
    if key.only_with is not None:
        assert set(key.only_with[1]) <= set(keys[key.only_with[0]].choices)
    assert key.meaning.endswith(".")


@pytest.mark.parametrize("section", SECTIONS.values(), ids=SECTIONS)
def test_rules_between_keys_are_about_keys_of_the_section(section: Any) -> None:
    for leader, others in section.excludes:
        assert {leader, *others} <= section.keys.keys()
    for need in section.needs:
        assert {need.key, *need.any_of} <= section.keys.keys()
    assert set(section.needs_any) <= section.keys.keys()


def test_a_job_takes_every_amount_directly() -> None:
    assert set(AMOUNT_NAMES) <= SECTIONS["job"].keys.keys()
