"""`joblens stats --profiles` and `--compose` over stored jobs."""

from pathlib import Path

import pytest
import yaml

from joblens.app.in_process.monitor import JobMonitor
from joblens.app.reports.rightsizing import compose_advice
from tests.conftest import RunJoblens


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Three jobs of two tools."""
    monitor = JobMonitor(log_dir=tmp_path / "logs")
    for number, tool in enumerate(("fenicsx", "fenicsx", "lammps")):
        with monitor.track_job(f"t{number}", tool, "poisson.py"):
            held = bytearray((number + 1) * 8 << 20)
            sum(range(300_000))
        del held
    monitor.close()
    return tmp_path / "logs" / "joblens.db"


def test_profiles_of_stored_jobs_are_added_up(store: Path, joblens: RunJoblens) -> None:
    document = joblens("stats", "--profiles", "--store", store, "--json").json
    assert document["profiles"] == 3
    spread = document["process_cpu"]["mean_percent"]
    assert spread["n"] == 3
    assert 0 < spread["min"] <= spread["median"] <= spread["max"]
    narrowed = joblens("stats", "--profiles", "--store", store, "--json", "-t", "lammps").json
    assert (narrowed["profiles"], narrowed["duration_seconds"]["stdev"]) == (1, None)


def test_the_table_has_a_line_for_every_number(store: Path, joblens: RunJoblens) -> None:
    ended = joblens("stats", "--profiles", "--store", store)
    assert ended.code == 0
    assert ended.stdout.startswith("3 profiles\n")
    assert "process_memory.max_mb" in ended.stdout


def test_jobs_without_a_profile_are_counted_by_their_reason(store: Path, joblens: RunJoblens) -> None:
    joblens("run", "--store", store, "--", "no-such-command", code=127)
    document = joblens("stats", "--profiles", "--store", store, "--json").json
    assert (document["profiles"], document["without_profile"]) == (3, {"never_ran": 1})
    text = joblens("stats", "--profiles", "--store", store).stdout
    assert text.startswith("3 profiles of 4 jobs\nWithout a profile: 1 not started.\n")


def test_no_name_is_cut_where_a_program_reads(store: Path, joblens: RunJoblens) -> None:
    text = joblens("stats", "--profiles", "--store", store, env={"COLUMNS": "40"}).stdout
    assert "process_memory.max_virtual_mb" in text
    assert "…" not in text


def test_compose_is_a_file_that_compose_can_read(store: Path, joblens: RunJoblens) -> None:
    text = joblens("stats", "--compose", "--store", store).stdout
    services = yaml.safe_load(text)["services"]
    assert list(services) == ["fenicsx", "lammps"]
    resources = services["lammps"]["deploy"]["resources"]
    assert float(resources["limits"]["cpus"]) >= float(resources["reservations"]["cpus"]) > 0
    assert joblens("stats", "--compose", "--store", store, "--json").json["services"][0]["jobs"] == 2


def test_the_same_advice_comes_from_the_history(store: Path, joblens: RunJoblens) -> None:
    monitor = JobMonitor(log_dir=store.parent)
    advice = compose_advice(monitor.get_job_history())
    monitor.close()
    assert advice == joblens("stats", "--compose", "--store", store).stdout


@pytest.mark.parametrize("option", ["--profiles", "--compose"])
def test_where_no_job_matches_that_is_said(option: str, store: Path, joblens: RunJoblens) -> None:
    ended = joblens("stats", option, "-t", "nobody", "--store", store)
    assert (ended.code, ended.stderr) == (0, "No ended jobs match.\n")
    # What is printed may go to a file that somebody reads.
    assert ended.stdout == ("services: {}\n" if option == "--compose" else "")


def test_two_answers_at_once_are_refused(joblens: RunJoblens) -> None:
    ended = joblens("stats", "--profiles", "--compose")
    assert ended.code == 2
    assert "cannot be combined" in ended.stderr
