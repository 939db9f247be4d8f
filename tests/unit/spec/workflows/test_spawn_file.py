"""What a batch of jobs says, and everything that is wrong with one."""

from typing import Any

import pytest

from joblens.spec.workflows.file import read_spawn


def test_a_batch_is_a_mapping_or_a_list_of_jobs() -> None:
    one = {"name": "a", "command": "x", "num_cpus": 2, "blocked_by": ["b"]}
    whole = read_spawn({"jobs": [one], "lineage": "l", "state": None})
    assert (whole.lineage, whole.state) == ("l", None)
    assert whole.jobs == read_spawn([one]).jobs
    assert whole.jobs[0].depends_on == ("b",)
    assert read_spawn({"jobs": []}).problems == ()


@pytest.mark.parametrize(
    ("value", "path", "text"),
    [
        (7, (), "a batch must be a mapping"),
        ({}, (), "'jobs' is missing"),
        ({"jobs": {}}, ("jobs",), "must be a list"),
        ({"jobs": [], "lineage": 3}, ("lineage",), "must be text"),
        ({"jobs": [], "stat": 3}, ("stat",), "unknown key 'stat'"),
        ({"jobs": [{"name": "a"}]}, ("jobs", 0), "command"),
        ({"jobs": [{"name": "a\x00", "command": "x"}]}, ("jobs", 0, "name"), "name"),
        ([{"name": "a", "command": "x", "memory": "lots"}], (0, "memory"), "memory"),
        ([3], (0,), "must be"),
    ],
)
def test_mistakes_are_found_at_their_places(value: Any, path: tuple[Any, ...], text: str) -> None:
    found = dict(read_spawn(value).problems)
    assert path in found, found
    assert text in found[path]


def test_all_mistakes_are_found_at_once() -> None:
    value = {"jobs": [{"name": "a"}, {"command": "x"}, {"name": "c", "command": "y", "nope": 1}], "x": 1}
    assert len(read_spawn(value).problems) == 4
