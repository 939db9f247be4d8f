"""Labels of jobs and workers, and the names under which labelled tickets wait."""

import pytest

from joblens.model.values.labels import label_problem, queue_and_label, route_of, routes_of, unserved_words

LABELS = ["windows", "GPU", "my label", "a:b", "a/b", "50%", "~x", "ünïcode", "a.b", "%41", "x" * 80]


@pytest.mark.parametrize("label", LABELS)
def test_a_route_tells_queue_and_label_again(label: str) -> None:
    route = route_of("default", label)
    assert queue_and_label(route) == ("default", label)
    assert label_problem(label) == ""
    assert set(route.partition(":")[2]) <= set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-%"
    )


def test_routes_of_different_labels_differ() -> None:
    assert len({route_of("q", label) for label in LABELS}) == len(LABELS)


def test_a_queue_without_a_label_is_its_own_route() -> None:
    assert route_of("default", "") == "default"
    assert queue_and_label("default") == ("default", "")
    assert queue_and_label("@slurm.0a-1~") == ("@slurm.0a-1~", "")


def test_a_worker_takes_from_every_queue_with_every_label() -> None:
    assert routes_of(("a", "b"), ()) == ("a", "b")
    assert routes_of(("a", "b"), ("x", "y")) == ("a:x", "a:y", "b:x", "b:y")


@pytest.mark.parametrize("label", ["", " x", "x ", "a\nb", "a\x1b[31m", "x" * 81, "é" * 30])
def test_what_cannot_be_a_label_is_reported(label: str) -> None:
    assert label_problem(label)


def test_the_command_that_starts_a_worker_can_be_pasted() -> None:
    assert unserved_words(route_of("default", "windows"), 1) == (
        "no worker with the label 'windows' serves the queue default, and 1 job waits for it: "
        "start one with joblens worker --label windows"
    )
    assert unserved_words(route_of("side", "my label")).endswith(
        "joblens worker --label 'my label' --queues side"
    )
