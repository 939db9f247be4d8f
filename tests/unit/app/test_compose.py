from typing import Any

import pytest
import yaml

from joblens.analysis.compose import service_name
from joblens.app.compose import compose_advice
from joblens.model.errors import InputError


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
    told = resources(text, "fenicsx")
    assert told["limits"]["cpus"] == "4"
    assert told["limits"]["memory"] in ("1.9G", "1920M", "2G", "1900M")
    assert told["reservations"]["cpus"] == "1.5"  # the median of 1.65 and 1.05 is 1.35
    assert told["reservations"]["memory"].endswith("M")


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
    told = resources(compose_advice([a_profile(100, 20, mean_mb=5000)]), "job")
    assert told["reservations"]["memory"] == told["limits"]["memory"]


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
