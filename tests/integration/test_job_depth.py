"""What instruments tell of real jobs: counters, threads, memory in depth, and the CPUs a job is bound to."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec
import pytest

import joblens
from joblens.app.jobs.live import read_now
from joblens.model.jobs.details import Details, ThreadUse
from joblens.model.jobs.job import Record
from joblens.model.values.units import format_cpu_list
from joblens.probes.host.energy import EnergyCounters
from joblens.probes.host.perf_counters import could_count
from joblens.stores.sqlite import SqliteStore
from tests.conftest import wait_until
from tests.integration.run_jobs import JOBLENS, MIB, PYTHON, Runner, runner

_WHY_NO_COUNTERS = could_count(os.getpid())["cpu_migrations"]
_CPUS = sorted(os.sched_getaffinity(0))
needs_two_cpus = pytest.mark.skipif(len(_CPUS) < 2, reason="only one CPU here")


@pytest.fixture(params=["cgroup", "process_tree"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Runner]:
    with runner(request.param, tmp_path) as one:
        yield one


def details_of(run: Runner) -> Details:
    with _opened(run) as store:
        return store.details(run.last_record().job.uuid)


@contextmanager
def _opened(run: Runner) -> Iterator[SqliteStore]:
    store = SqliteStore(str(run.store))
    try:
        yield store
    finally:
        store.close()


@contextmanager
def running(run: Runner, imports: str, code: str, *options: str) -> Iterator[None]:
    """A job that may go on until the file `go` is there."""
    go, here = run.folder / "go", run.folder / "here"
    head = f"{imports}\nimport os\ngo, here = {str(go)!r}, {str(here)!r}\n"
    process = run.start("-q", *options, "--", *PYTHON, head + code)
    try:
        wait_until(run.store.exists)
        wait_until(lambda: bool(run.status()))
        yield
    finally:
        go.touch()
        process.wait(timeout=30)


def _threads(run: Runner) -> tuple[ThreadUse, ...]:
    table = details_of(run).threads
    return table.threads if table is not None else ()


@needs_two_cpus
@pytest.mark.skipif(bool(_WHY_NO_COUNTERS), reason=f"no counters here: {_WHY_NO_COUNTERS}")
def test_forced_migrations_of_children_are_in_the_jobs_record(run: Runner) -> None:
    code = f"""
import os
for _ in range(2):
    if os.fork() == 0:
        for _ in range(50):
            os.sched_setaffinity(0, [{_CPUS[0]}])
            os.sched_setaffinity(0, [{_CPUS[1]}])
        os._exit(0)
for _ in range(2):
    os.wait()
"""
    done = run("--", *PYTHON, code)
    assert done.code == 0
    assert 2 * 99 <= done.usage["cpu_migrations"] <= 2 * 100 + 40
    record: Record = run.last_record()
    assert record.outcome is not None
    assert record.outcome.usage.sources["cpu_migrations"] == "perf_event_open cpu-migrations"
    assert "cpu_migrations" not in record.outcome.usage.lower_bounds


def test_what_cannot_be_counted_has_its_reason_in_the_record(run: Runner) -> None:
    assert run("--", "true").code == 0
    usage = run.last_record().outcome.usage
    for number in (
        "instructions",
        "cycles",
        "cpu_migrations",
        "energy_package_uj",
        "energy_dram_uj",
        "co2_mg",
    ):
        assert (getattr(usage, number) is None) == bool(usage.unknown.get(number)), number


def test_a_job_gets_its_share_of_the_energy_and_co2_by_the_factor_of_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counter is a made-up one: it is the job that makes it grow, by 50 J."""
    zone = tmp_path / "powercap" / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    (zone / "energy_uj").write_text("1000000\n")
    counters = partial(EnergyCounters, str(tmp_path / "powercap"))
    monkeypatch.setattr("joblens.probes.host.energy.EnergyCounters", counters)
    monkeypatch.setattr("joblens.agent.instruments.hardware.has_zones", lambda: True)
    monkeypatch.setenv("JOBLENS_ENERGY_GRID_CO2_G_PER_KWH", "360")
    code = f"""
import time
while time.process_time() < 0.3:
    pass
with open({str(zone / "energy_uj")!r}, 'r+') as file:
    file.write('51000000')
"""
    done = joblens.run([*PYTHON, code], store=str(tmp_path / "store.db"))
    assert done.record.outcome is not None
    usage = done.record.outcome.usage
    assert usage.energy_package_uj is not None
    assert 0 < usage.energy_package_uj <= 50_000_000
    assert usage.co2_mg == round(usage.energy_package_uj / 1e7)  # 360 g/kWh are 0.1 mg for a joule
    assert usage.sources["energy"] == "powercap (package-0), by its share of the CPU time"
    assert usage.unknown["energy_dram_uj"] == "this processor has no energy counter for its memory"


def test_threads_are_remembered_with_their_names_when_the_job_is_over(run: Runner) -> None:
    code = """
def burn():
    ctypes.CDLL(None).prctl(15, b"hot-one", 0, 0, 0)
    while not os.path.exists(go):
        sum(range(1000))
thread = threading.Thread(target=burn)
thread.start()
thread.join()
"""
    with running(run, "import ctypes, threading", code):
        wait_until(lambda: any(use.name == "hot-one" for use in _threads(run)))
    table = details_of(run).threads
    assert table is not None
    assert table.seen >= 2
    assert not any(use.is_alive for use in table.threads)
    hot = table.threads[0]
    assert (hot.name, hot.process[:6]) == ("hot-one", "python")
    assert hot.cpu_usec > 0
    assert hot.cpus_allowed == format_cpu_list(_CPUS)


def test_a_threads_time_is_counted_from_the_jobs_start(run: Runner) -> None:
    """Not from the first look at it: all that the main thread did before that is the job's."""
    code = """
end = time.process_time() + 0.5
while time.process_time() < end:
    pass
while not os.path.exists(go):
    time.sleep(0.01)
"""
    with running(run, "import time", code):
        wait_until(lambda: any(use.cpu_usec >= 500_000 for use in _threads(run)))


def test_nobody_looks_at_threads_of_a_job_that_does_not_want_it(run: Runner) -> None:
    assert run("--probes", "none", "--", "true").code == 0
    assert details_of(run).threads is None


def test_memory_in_depth_is_looked_at_only_where_it_was_asked_for(run: Runner) -> None:
    assert run("--", *PYTHON, "import time; x = bytearray(30_000_000); time.sleep(0.2)").code == 0
    assert details_of(run).memory is None
    code = f"""
x = b'x' * (30 * {MIB})
os.fork()
while not os.path.exists(go):
    time.sleep(0.02)
"""
    with running(run, "import time", code, "--probes", "+memory", "--interval", "200ms"):
        wait_until(
            lambda: (memory := details_of(run).memory) is not None and (memory.pss_bytes or 0) > 30 * MIB
        )
    depth = details_of(run).memory
    assert depth is not None
    assert depth.pss_bytes is not None
    # Two processes share what one of them made: it is counted once.
    assert 30 * MIB < depth.pss_bytes < 55 * MIB
    with _opened(run) as store:
        samples = [sample for _, sample in store.samples(run.last_record().job.uuid)]
    assert any(sample.memory_pss_bytes == depth.pss_bytes for sample in samples)


def test_a_running_jobs_memory_can_be_looked_at_now_and_is_remembered(run: Runner) -> None:
    code = f"""
x = b'x' * (40 * {MIB})
open(here, 'w').close()
while not os.path.exists(go):
    time.sleep(0.02)
"""
    with running(run, "import time", code):
        wait_until((run.folder / "here").exists)
        wait_until(lambda: run.status() == "running")
        with _opened(run) as store:
            record = run.last_record()
            details = read_now(store, record)
            assert details.memory is not None
            assert details.memory.pss_bytes is not None
            assert details.memory.pss_bytes > 40 * MIB
            assert store.details(record.job.uuid).memory == details.memory
        shown = subprocess.run(
            [*JOBLENS, "show", record.job.uuid, "--memory", "--json"],
            env=run.env(),
            capture_output=True,
            check=True,
        )
        assert msgspec.json.decode(shown.stdout)["details"]["memory"]["pss_bytes"] > 40 * MIB
    with _opened(run) as store:
        assert read_now(store, run.last_record()) == Details(), "it is over: there is nothing to look at"


@needs_two_cpus
@pytest.mark.parametrize("options", [(), ("--no-enforce",), ("--cpus", "1")])
def test_a_job_is_bound_to_the_cpus_of_its_list(run: Runner, options: tuple[str, ...]) -> None:
    done = run(
        *options, "--cpu-list", str(_CPUS[1]), "--", *PYTHON, "import os; print(os.sched_getaffinity(0))"
    )
    assert done.stdout.decode().strip() == str({_CPUS[1]})
    record: Record = run.last_record()
    assert record.job.cpu_list == str(_CPUS[1])
    assert record.attempt is not None
    assert record.attempt.enforced_by["cpu_list"] == "CPU affinity"


@pytest.mark.parametrize(
    ("options", "data"),
    [
        (("--cpu-list", "4000"), b"CPU 4000 is not available here"),
        (("--cpu-list", "one"), b"'one' is not a CPU"),
        (("--cpu-list", str(_CPUS[0]), "--cpus", "2"), b"2 CPUs were requested, but the list has 1"),
    ],
)
def test_a_list_that_cannot_be_had_is_refused_before_anything_runs(
    root_run: Runner, options: tuple[str, ...], data: bytes
) -> None:
    done = root_run(*options, "--", "true")
    assert done.code == 2
    assert data in done.stderr
    assert done.record == {}
