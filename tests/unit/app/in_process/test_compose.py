from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from joblens.analysis.sizing.compose import service_name
from joblens.app.reports.rightsizing import compose_advice
from joblens.model.errors import InputError
from joblens.model.jobs.job import Usage
from joblens.model.values.units import MIB
from tests.builders.records import a_record


def a_profile(peak_mb: float, cpu_percent: float, mean_mb: float = 100.0) -> dict[str, Any]:
    return {
        "duration_seconds": 10.0,
        "process_cpu": {"mean_percent": cpu_percent / 2, "max_percent": cpu_percent},
        "process_memory": {"mean_mb": mean_mb, "max_mb": peak_mb},
    }


def resources(text: str, service: str) -> Any:
    return yaml.safe_load(text)["services"][service]["deploy"]["resources"]


def test_limits_have_room_above_the_peak_and_reservations_are_what_is_usual() -> None:
    text = compose_advice([a_profile(900, 330), a_profile(1700, 210)], service="fenicsx")
    result = resources(text, "fenicsx")
    assert result["limits"]["cpus"] == "4"
    assert result["limits"]["memory"] in ("1.9G", "1920M", "2G", "1900M")
    assert result["reservations"]["cpus"] == "1.5"  # the median of 1.65 and 1.05 is 1.35
    assert result["reservations"]["memory"].endswith("M")


def test_records_say_which_service_they_are() -> None:
    records = [
        {"tool": "lammps", "detailed_profile": a_profile(200, 100)},
        {"tool": "open foam", "detailed_profile": a_profile(400, 100)},
        {"tool": "lammps", "detailed_profile": a_profile(300, 100)},
    ]
    text = compose_advice(records)
    assert list(yaml.safe_load(text)["services"]) == ["lammps", "open-foam"]
    assert "2 jobs" in text


def test_one_profile_alone_will_do_and_has_a_name() -> None:
    assert resources(compose_advice(a_profile(64, 20)), "job")["limits"]["cpus"] == "1"


def test_a_reservation_is_never_above_its_limit() -> None:
    result = resources(compose_advice([a_profile(100, 20, mean_mb=5000)]), "job")
    assert result["reservations"]["memory"] == result["limits"]["memory"]


def test_nobody_is_given_more_cpus_than_the_machine_has() -> None:
    """A job that keeps two CPUs busy is seen with a little more."""
    usage = Usage(cpu_total_usec=202_000_000, memory_peak_bytes=64 * MIB)
    record = a_record(duration_s=100.0, usage=usage, job={"tool": "solver"}, attempt={"cpu_count": 2})
    profile = {"cpu_usage": {"max_percent": 215.0}, "process_cpu": {"max_percent": 215.0}}
    assert record.outcome is not None
    record = replace(record, outcome=replace(record.outcome, profile=profile))
    text = compose_advice([record])
    result = resources(text, "solver")
    assert (result["limits"]["cpus"], result["reservations"]["cpus"]) == ("2", "2")
    assert "# peak 215% CPU, and the machine has no more\n" in text


def test_of_what_nothing_is_known_nothing_is_said() -> None:
    assert yaml.safe_load(compose_advice([])) == {"services": {}}
    assert yaml.safe_load(compose_advice([{"duration_seconds": 1.0}])) == {"services": {"job": {}}}


def test_what_is_no_profile_is_refused() -> None:
    with pytest.raises(InputError, match="item 1"):
        compose_advice([a_profile(1, 1), "profile.json"])


@pytest.mark.parametrize("tool", ["yes", "12", "a b/c", "größe", "../x", ""])
def test_every_tool_makes_a_name_that_yaml_reads_back(tool: str) -> None:
    text = compose_advice([a_profile(64, 20)], service=tool or "-")
    [name] = yaml.safe_load(text)["services"]
    assert name == service_name(tool or "-")
