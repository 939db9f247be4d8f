"""What is refused before anything is asked of Ray."""

import importlib.util
from typing import cast

import pytest

from joblens.model.errors import InputError, MissingExtra
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import RunOptions
from joblens.model.settings import Settings
from joblens.ports.workers import WorkerConfigWriter
from joblens.runners.ray.backend import RayBackend


def backend(options: RunOptions) -> RayBackend:
    return RayBackend(Plan(name="w", jobs=()), options, Settings(), cast(WorkerConfigWriter, None), print)


def test_without_ray_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="--engine ray needs Ray, which is not installed"):
        backend(RunOptions(engine="ray")).check([])


def test_an_address_that_cannot_be_one_is_a_mistake_in_what_was_typed() -> None:
    with pytest.raises(InputError, match="'nonsense' is no address of a Ray cluster"):
        backend(RunOptions(engine="ray", address="nonsense"))
