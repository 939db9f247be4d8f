"""What is told of a job's memory fits together, however it is run: no sample and no mean above the peak."""

import json
import resource
from pathlib import Path

import pytest

import joblens as joblens_api
from joblens.analysis.numbers.rates import unreclaimable_bytes
from joblens.app.queue.embedded_worker import worker_lock
from joblens.app.wiring.settings import load_settings
from joblens.model.history import HistoryQuery
from joblens.model.jobs.job import Record
from joblens.model.jobs.sample import Sample
from joblens.stores.sqlite import SqliteStore
from tests.conftest import RunJoblens, wait_until
from tests.integration.run_jobs import PYTHON

KIB = 1 << 10
SHORT = [*PYTHON, "pass"]
LOOKED_AT = [*PYTHON, "import time; time.sleep(0.25)"]
MIXED = [SHORT, LOOKED_AT, SHORT, SHORT, LOOKED_AT, LOOKED_AT, ["sleep", "0.2"], ["sleep", "0.2"]]


@pytest.fixture(autouse=True)
def looked_at_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBLENS_JOB_METRICS_DEFAULT_SAMPLE_RATE", "50ms")


def stored(path: Path) -> list[tuple[Record, list[Sample]]]:
    store = SqliteStore(str(path))
    try:
        found = list(store.records(HistoryQuery()))
        return [(record, [sample for _, sample in store.samples(record.job.uuid)]) for record in found]
    finally:
        store.close()


def check_all(path: Path, count: int) -> None:
    found = stored(path)
    assert len(found) == count
    assert sum(len(samples) > 2 for _, samples in found) >= count // 2, "too few were looked at"
    for record, samples in found:
        assert record.outcome is not None
        usage = record.outcome.usage
        peak = usage.memory_peak_bytes or 0
        seen = [unreclaimable_bytes(sample) or 0 for sample in samples]
        assert peak >= max([*seen, usage.memory_mean_bytes or 0]), (record.job.argv, peak, seen)
        if usage.memory_kernel_peak_bytes is not None:
            assert peak <= usage.memory_kernel_peak_bytes
            assert_never_back([sample.memory_kernel_peak_bytes for sample in samples])


def assert_never_back(peaks: list[int | None]) -> None:
    known = [peak for peak in peaks if peak is not None]
    assert known == sorted(known)


@pytest.mark.parametrize("accounting", ["auto", "process_tree"])
def test_in_slots_one_job_after_another(
    store_path: Path, accounting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBLENS_LIMITS_ACCOUNTING", accounting)
    assert all(result.ok for result in joblens_api.map_commands(MIXED * 2, jobs=1))
    check_all(store_path, len(MIXED) * 2)


def test_in_sessions_of_their_own(store_path: Path) -> None:
    assert all(result.ok for result in joblens_api.map_commands(MIXED, jobs=2, memory="300M"))
    check_all(store_path, len(MIXED))


def test_a_slots_launcher_is_in_no_sample_of_its_jobs(store_path: Path) -> None:
    """The same command held the same in a group that never had a launcher inside."""
    list(joblens_api.map_commands([LOOKED_AT] * 4, jobs=1))
    list(joblens_api.map_commands([LOOKED_AT] * 2, jobs=1, memory="300M"))
    seen: dict[bool, list[int]] = {True: [], False: []}
    for record, samples in stored(store_path):
        sizes = [sample.memory_anon_bytes or 0 for sample in samples[1:-1]]
        seen[record.job.requirements.memory_bytes is None].append(max(sizes))
    # The kernel adds up what CPUs have counted for a group in batches of 64 pages.
    assert max(seen[True]) <= max(seen[False]) + 200 * KIB + 64 * resource.getpagesize()


def test_in_a_workflow_and_in_a_queue(joblens: RunJoblens, store_path: Path, tmp_path: Path) -> None:
    commands = [{"name": f"job{place}", "command": "sleep 0.2"} for place in range(6)]
    (tmp_path / "flow.json").write_text(json.dumps({"name": "many", "jobs": commands}))
    joblens("run", tmp_path / "flow.json", cwd=tmp_path, code=0)
    (tmp_path / "nap.py").write_text("import time; time.sleep(0.25)\n")
    tasks = [{"tool": "python", "script": "nap.py"}] * 6
    (tmp_path / "tasks.json").write_text(json.dumps(tasks))
    arguments = ("submit-workflow", tmp_path / "tasks.json", "--parallel", "--wait", "--json")
    joblens(*arguments, cwd=tmp_path, code=0, env={"JOBLENS_QUEUE_IDLE": "100ms"})
    check_all(store_path, 12)
    wait_until(lambda: worker_lock(load_settings().settings).holder() is None, what="the worker's end")
