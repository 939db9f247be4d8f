"""Configuration text becomes values; every mistake is told with its place and what was expected."""

from typing import Any

import pytest

from joblens.model.errors import InputError
from joblens.model.jobs.job import Accounting
from joblens.model.setting_list import Kind, all_settings
from joblens.model.settings import Settings, names_of
from joblens.spec.settings.config import read_config, value_from_text

HERE = "/project/joblens.yml"


def values(text: str) -> dict[str, Any]:
    reading = read_config(text, HERE)
    assert reading.problems == ()
    return reading.values


def problems(text: str) -> list[str]:
    return [problem.removeprefix("/project/") for problem in read_config(text, HERE).problems]


def test_the_job_metrics_section_works_as_written() -> None:
    text = """
job_metrics:
  enabled: true                       # Enable metrics collection
  default_sample_rate: 5s             # Sample every 5 seconds
  storage_dir: "/opt/joblens/metrics"  # Where to store metrics files
  retention_days: 7                   # Keep metrics for 7 days
"""
    assert values(text) == {
        "job_metrics.enabled": True,
        "job_metrics.default_sample_rate": 5.0,
        "job_metrics.storage_dir": "/opt/joblens/metrics",
        "job_metrics.retention_days": 7.0,
    }


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("limits: {grace: 1m30s}", 90.0),
        ("limits: {grace: 2.5}", 2.5),
        ("limits: {grace: 0}", 0.0),
        ("limits: {accounting: process-tree}", Accounting.PROCESS_TREE),
        ("output: {max_size: 2GB}", 2 * 1024**3),
        ("output: {max_size: 512m}", 512 * 1024**2),
        ("output: {max_size: 1000}", 1000),
        ("output: {max_size: 1e6}", 1_000_000),
        ("output: {dir: logs}", "/project/logs"),
        ("output: {dir: ../logs}", "/logs"),
        ("output: {dir: null}", None),
        ("store: {url: 'postgresql://host/name'}", "postgresql://host/name"),
        ("logs: {level: debug}", "DEBUG"),
        ("sinks: {history: {backup_count: 9}}", 9),
    ],
)
def test_a_value_is_read_in_its_unit(line: str, value: Any) -> None:
    (read,) = values(line).values()
    assert read == value
    assert type(read) is type(value)


def test_a_path_may_start_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")
    assert values("output: {dir: ~/out}") == {"output.dir": "/home/ada/out"}


@pytest.mark.parametrize("text", ["", "# nothing\n", "job_metrics:\n", "sinks:\n  history:\n"])
def test_an_empty_file_or_section_sets_nothing(text: str) -> None:
    assert values(text) == {}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("job_metric: {}", "joblens.yml:1:1: unknown key 'job_metric'; did you mean 'job_metrics'?"),
        (
            "job_metrics:\n  enabeld: true\n",
            "joblens.yml:2:3: unknown key 'enabeld' in 'job_metrics'; did you mean 'enabled'?",
        ),
        (
            "job_metrics:\n  default-sample-rate: 5s\n",
            "joblens.yml:2:3: unknown key 'default-sample-rate' in 'job_metrics'; did you mean 'default",
        ),
        (
            "retention_days: 7\n",
            "joblens.yml:1:1: unknown key 'retention_days'; did you mean 'job_metrics.retention_days'?",
        ),
        (
            "sinks: {history: {zzz: 1}}",
            "joblens.yml:1:19: unknown key 'zzz' in 'sinks.history'; expected enabled, path, max_size",
        ),
        (
            "job_metrics:\n  enabled: yes\n",
            "joblens.yml:2:3: job_metrics.enabled must be true or false, not 'yes'",
        ),
        (
            "job_metrics: {enabled: }",
            "joblens.yml:1:15: job_metrics.enabled must be true or false, not nothing",
        ),
        ("job_metrics: 7", "joblens.yml:1:1: expected enabled, default_sample_rate,"),
        ("- a\n- b\n", "joblens.yml:1:1: expected job_metrics, store,"),
        (
            "job_metrics: {compression_level: 3.5}",
            "joblens.yml:1:15: job_metrics.compression_level must be a whole number, not 3.5",
        ),
        (
            "job_metrics: {compression_level: 10}",
            "joblens.yml:1:15: job_metrics.compression_level must be at most 9, not 10",
        ),
        (
            "energy: {grid_co2_g_per_kwh: 380000}",  # milligrams
            "joblens.yml:1:10: energy.grid_co2_g_per_kwh must be at most 5000, not 380000",
        ),
        (
            "job_metrics: {default_sample_rate: 10ms}",
            "joblens.yml:1:15: job_metrics.default_sample_rate must be at least 50ms, not 10ms",
        ),
        (
            "limits: {grace: soon}",
            "joblens.yml:1:10: limits.grace must be a duration such as 5s, 500ms or 1h30m, not 'soon'",
        ),
        ("limits: {grace: -1}", "joblens.yml:1:10: limits.grace must be 0 or more, not -1"),
        ("limits: {grace: .inf}", "joblens.yml:1:10: limits.grace must be a duration"),
        ("limits: {grace: true}", "joblens.yml:1:10: limits.grace must be a duration"),
        (
            "output: {max_size: 2 potatoes}",
            "joblens.yml:1:10: output.max_size must be a size such as 512m or 2GB",
        ),
        ("output: {max_size: 0.5}", "joblens.yml:1:10: output.max_size must be a size"),
        ("output: {dir: [a]}", "joblens.yml:1:10: output.dir must be a path, not a list"),
        ("output: {dir: {a: 1}}", "joblens.yml:1:10: output.dir must be a path, not a mapping"),
        ("output: {dir: ''}", "joblens.yml:1:10: output.dir must be a path, not ''"),
        ("logs: {level: loud}", "joblens.yml:1:8: logs.level must be one of"),
        ("logs: {level: 10}", "joblens.yml:1:8: logs.level must be one of"),
        ("store: {url: a.db, url: b.db}", "joblens.yml:1:20: duplicate key 'url'"),
        ("store: [", "joblens.yml:2:1: not valid YAML"),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_the_way_out(text: str, problem: str) -> None:
    (result,) = problems(text)
    assert result.startswith(problem)


def test_all_mistakes_of_a_file_are_reported_at_once_in_its_order() -> None:
    text = "logs: {level: loud}\nzzz: 1\noutput:\n  max_size: 1\n  max_size: 2\n"
    assert [problem.split(":")[1] for problem in problems(text)] == ["1", "2", "5"]


def test_what_is_right_beside_a_mistake_keeps_its_line() -> None:
    reading = read_config("zzz: 1\nlogs:\n  level: ERROR\n", HERE)
    assert reading.values == {"logs.level": "ERROR"}
    assert reading.lines == {"logs.level": 3}


@pytest.mark.parametrize("word", ["1", "true", "Yes", "ON"])
def test_the_environment_may_say_true_in_several_ways(word: str) -> None:
    assert value_from_text(all_settings()["limits.enforce"], word, "/") is True


@pytest.mark.parametrize("word", ["0", "false", "No", "off"])
def test_the_environment_may_say_false_in_several_ways(word: str) -> None:
    assert value_from_text(all_settings()["limits.enforce"], word, "/") is False


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("job_metrics.retention_days", "7.5", 7.5),
        ("logs.backup_count", " 3 ", 3),
        ("limits.grace", "500ms", 0.5),
        ("limits.cgroup_parent", "/jobs", "/jobs"),
        ("store.url", "a.db", "/here/a.db"),
    ],
)
def test_text_is_read_by_the_kind_of_the_setting(name: str, text: str, value: Any) -> None:
    assert value_from_text(all_settings()[name], text, "/here") == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("limits.enforce", "maybe"),
        ("logs.backup_count", "3.5"),
        ("logs.backup_count", "-1"),
        ("job_metrics.retention_days", "nan"),
        ("job_metrics.retention_days", "week"),
        ("store.url", "a\0b"),
    ],
)
def test_text_of_the_wrong_kind_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InputError, match=name):
        value_from_text(all_settings()[name], text, "/here")


def test_the_cheap_list_of_names_is_the_whole_list() -> None:
    assert names_of(Settings()) == list(all_settings())


def test_every_setting_has_a_meaning_and_a_variable_of_its_own() -> None:
    settings = all_settings().values()
    assert all(setting.meaning for setting in settings)
    assert len({setting.variable for setting in settings}) == len(settings)


def test_every_default_is_a_value_the_setting_would_accept() -> None:
    for setting in all_settings().values():
        if setting.default is None:
            assert setting.is_optional, setting.name
        else:
            word = str(setting.default)
            assert value_from_text(setting, word, "/") == setting.default, setting.name
    assert all_settings()["job_metrics.default_sample_rate"].kind is Kind.DURATION
