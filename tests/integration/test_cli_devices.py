"""GPU, network, energy, threads and memory of a job, as commands show them from a real store."""

from pathlib import Path

import msgspec
import pytest

from joblens.model.writes import DetailsTaken, JobStarted, SamplesTaken
from joblens.stores.sqlite import SqliteStore
from tests.builders import past_jobs
from tests.builders.gpu_job import DETAILS, gpu_samples
from tests.builders.past_jobs import POISSON
from tests.conftest import RunJoblens


@pytest.fixture
def devices(store_path: Path) -> Path:
    """The job poisson, with samples and details of everything."""
    store_path.parent.mkdir(parents=True, exist_ok=True)
    store = SqliteStore(str(store_path))
    queued, started, _, ended = past_jobs.poisson()
    assert isinstance(started, JobStarted)
    taken = SamplesTaken(POISSON, 0, tuple(gpu_samples(60)))
    store.apply([queued, started, taken, DetailsTaken(POISSON, DETAILS), ended])
    store.close()
    return store_path


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("--threads", "worker-0"),
        ("--network", "192.0.2.7:443"),
        ("--memory", "page cache       380.0 MiB (38%)"),
        ("--gpu", "GPU 0 (Tesla T4)"),
    ],
)
def test_show_has_a_closer_look_at_each_part(
    devices: Path, joblens: RunJoblens, option: str, word: str
) -> None:
    shown = joblens("show", POISSON, option).stdout
    assert word in shown
    assert "Findings" not in shown


def test_several_closer_looks_come_in_the_order_they_are_asked_for(
    devices: Path, joblens: RunJoblens
) -> None:
    shown = joblens("show", POISSON, "--gpu", "--threads").stdout
    assert shown.index("GPU 0 (Tesla T4)") < shown.index("Threads (25 sampled)")


def test_show_tells_which_closer_looks_there_are(devices: Path, joblens: RunJoblens) -> None:
    assert "--threads --network --memory --gpu" in joblens("show", POISSON).stdout


def test_show_of_a_job_that_was_not_looked_at_closely_says_nothing_of_it(
    store_path: Path, joblens: RunJoblens
) -> None:
    past_jobs.fill(store_path)
    assert "--threads" not in joblens("show", POISSON).stdout
    assert "not in its record" in joblens("show", POISSON, "--threads").stdout


def test_show_as_json_carries_the_details(devices: Path, joblens: RunJoblens) -> None:
    form = msgspec.json.decode(joblens("--json", "show", POISSON).stdout)
    assert form["details"]["threads"]["seen"] == 25
    assert [gpu["name"] for gpu in form["details"]["gpus"]] == ["Tesla T4", "UHD Graphics"]
    assert form["details"]["container"]["image"] == "example/train:1"


def test_metrics_name_the_gpus_and_their_limits(devices: Path, joblens: RunJoblens) -> None:
    text = joblens("metrics", POISSON, "--since", "+2s").stdout
    assert "  GPU 0 (Tesla T4):\n    Utilization: 78.5%\n    Memory: 3.2 GiB / 16.0 GiB (20.0%)\n" in text
    assert "    Temperature: 65.0°C\n    Power: 45.2W / 70.0W\n" in text
    assert "This Job: 12.0% busy" in text  # of a counter that is in every second sample


def test_metrics_as_json_are_whole_and_name_the_gpus(devices: Path, joblens: RunJoblens) -> None:
    lines = joblens("--json", "metrics", POISSON).stdout.splitlines()
    forms = [msgspec.json.decode(line) for line in lines]
    assert len(forms) == 60
    gpu = next(gpu for gpu in forms[2]["gpu"] if gpu["name"] == "Tesla T4")
    assert gpu["memory_total"] == 16 * 1024**3
    assert forms[2]["network"]["rx_bps"] == 15 * 1024**2
