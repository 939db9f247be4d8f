"""Ends of jobs whose control groups are gone: from counters that their launchers noted, or flagged."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from joblens.agent.launcher.launcher import TOTALS, write_outcome
from joblens.agent.launcher.slot_ledger import outcome_path, read_launcher_outcome
from joblens.agent.measuring.accounting import PROCESS_TREE, Accountant
from joblens.agent.recovery.finalization import UNKNOWN, Finalization, History, Tools
from joblens.agent.runtime.ownership import this_process
from joblens.app.wiring.drivers import SystemClock
from joblens.model.jobs.details import Details
from joblens.model.jobs.job import Attempt, Job, Outcome, Record, Status
from joblens.model.jobs.sample import Sample
from joblens.model.values.ids import new_uuid
from joblens.model.writes import JobEnded, SamplesTaken, Write
from joblens.probes.cgroup.probe import CgroupProbe
from joblens.probes.host.machine_load import read_host
from tests.unit.probes.cgroup.test_recorded_kernels import MIB, RECORDINGS, truth_of

_SEEN = Sample(at_us=2_000_000, elapsed_us=1_000_000, cpu_total_usec=400, memory_kernel_peak_bytes=MIB)
_BASE_USEC = 1000


class Gone:
    """A job whose groups are those of a recording, copied and removed again."""

    def __init__(self, recording: Path, folder: Path) -> None:
        self._spool = folder / "spool"
        self._spool.mkdir()
        kind = truth_of(recording)["kind"]
        # Names under which no group can stand.
        self.paths = {path.name: f"/gone{path}" for path in (recording / "end").iterdir()}
        standing = CgroupProbe({path.name: str(path) for path in (recording / "end").iterdir()}, kind)
        self.contents = {f"/gone{path}": Path(path).read_bytes() for path in standing.noted_files()}
        self.reading = standing.read()
        standing.close()
        attempt = Attempt(
            started_at_us=1_000_000,
            started_mono_ns=1,
            owner=this_process(read_host()),
            accounting=kind,
            groups=self.paths,
            base={"cpu_total_usec": _BASE_USEC},
            launcher_pid=os.getpid(),
        )
        job = Job(uuid=new_uuid(), argv=("x",), created_at_us=1)
        self.record = Record(status=Status.RUNNING, job=job, attempt=attempt)

    def leave_outcome(self, *, with_counters: bool) -> None:
        path = outcome_path(str(self._spool), self.record.job.uuid)
        totals = {"user_usec": 700_000, "max_rss_bytes": 70 * MIB, "reaped": 1, "rss_floor_bytes": MIB}
        write_outcome(path, 0, tuple(totals.get(name, 0) for name in TOTALS), 3_000_000_001, [])
        if with_counters:
            text = Path(path).read_text()
            assert text.endswith("{})")
            Path(path).write_text(text.removesuffix("{})") + ascii(self.contents) + ")")

    def finalize(self, *, has_valid_pid: bool = True) -> tuple[Outcome, list[Write]]:
        clock = SystemClock()
        tools = Tools(str(self._spool), Accountant(clock), clock, 0)
        seen = History([(0, _SEEN)], Details())
        writes = Finalization(self.record, seen, UNKNOWN, tools, None, has_valid_pid=has_valid_pid).writes()
        ended = writes[-1]
        assert isinstance(ended, JobEnded)
        return ended.outcome, writes


@pytest.fixture(params=RECORDINGS, ids=lambda path: path.name)
def gone(request: pytest.FixtureRequest, tmp_path: Path) -> Gone:
    return Gone(request.param, tmp_path)


@pytest.mark.parametrize("has_valid_pid", [True, False], ids=["same boot", "after a reboot"])
def test_noted_counters_are_the_final_sample(gone: Gone, *, has_valid_pid: bool) -> None:
    gone.leave_outcome(with_counters=True)
    outcome, writes = gone.finalize(has_valid_pid=has_valid_pid)
    usage = outcome.usage
    assert outcome.status is Status.SUCCESS
    assert usage.cpu_total_usec == gone.reading["cpu_total_usec"] - _BASE_USEC
    assert usage.memory_kernel_peak_bytes == gone.reading["memory_kernel_peak_bytes"]
    assert (usage.memory_peak_bytes or 0) >= 60 * MIB
    assert usage.sources["cpu"].startswith("cgroup v")
    assert {"cpu_total_usec", "memory_peak_bytes", "faults_minor"}.isdisjoint(usage.lower_bounds)
    (final,) = (write for write in writes if isinstance(write, SamplesTaken))
    assert final.first == 1
    assert final.samples[0].memory_limit_bytes == gone.reading["memory_limit_bytes"]
    assert final.samples[0].host_cpu_total_usec is None


def test_without_noted_counters_the_waited_processes_give_lower_bounds(gone: Gone) -> None:
    gone.leave_outcome(with_counters=False)
    usage = gone.finalize()[0].usage
    assert (usage.cpu_total_usec, usage.sources["cpu"]) == (700_000, "wait4 rusage")
    assert usage.memory_largest_process_bytes == 70 * MIB
    assert {"cpu_total_usec", "memory_peak_bytes", "memory_kernel_peak_bytes"} <= {*usage.lower_bounds}


def test_a_job_without_an_outcome_is_lost_with_lower_bounds(gone: Gone) -> None:
    outcome, _ = gone.finalize()
    assert outcome.status is Status.LOST
    assert outcome.usage.cpu_total_usec == _SEEN.cpu_total_usec
    assert {"cpu_total_usec", "memory_kernel_peak_bytes"} <= {*outcome.usage.lower_bounds}
    (finding,) = (one for one in outcome.findings if one.code == "lower-bounds")
    assert "control group was removed before the last reading: CPU time" in finding.text


def test_counters_that_do_not_fit_are_not_used(gone: Gone) -> None:
    """A part of them, or those of other groups."""
    gone.leave_outcome(with_counters=True)
    assert gone.record.attempt is not None
    gone.record = replace(gone.record, attempt=replace(gone.record.attempt, groups={"unified": "/other"}))
    usage = gone.finalize()[0].usage
    assert usage.cpu_total_usec == 700_000
    assert "cpu_total_usec" in usage.lower_bounds


def test_an_outcome_of_an_earlier_version_has_no_counters(tmp_path: Path) -> None:
    totals = (0,) * len(TOTALS)
    (tmp_path / "u.outcome").write_text(ascii((0, totals, 1, 2, "")))
    left = read_launcher_outcome(str(tmp_path), "u", None)
    assert left is not None
    assert left.counters == {}


@pytest.mark.parametrize("text", [b"no numbers", b"", b"\xff 1\nusage_usec x\n", b"8:0 rbytes=x\n"])
def test_counters_that_cannot_be_read_are_not_used(gone: Gone, text: bytes) -> None:
    gone.contents = dict.fromkeys(gone.contents, text)
    gone.leave_outcome(with_counters=True)
    usage = gone.finalize()[0].usage
    assert usage.cpu_total_usec == 700_000
    assert "cpu_total_usec" in usage.lower_bounds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "(0, None, 1, 2, '', {})",
        f"(0, {(0,) * len(TOTALS)}, 1, 2, '', {{1: b''}})",
        f"(0, {(0,) * len(TOTALS)}, 1, 2, '', {{'/a': 5}})",
        "(" * 5000,
        "\0",
    ],
    ids=["empty", "no totals", "no paths", "no contents", "deep", "zero"],
)
def test_an_outcome_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "u.outcome").write_text(text)
    assert read_launcher_outcome(str(tmp_path), "u", None) is None


def test_more_facts_of_a_later_version_are_skipped(tmp_path: Path) -> None:
    totals = (0,) * len(TOTALS)
    (tmp_path / "u.outcome").write_text(ascii((0, totals, 1, 2, "", {"/a": b"1"}, "more")))
    left = read_launcher_outcome(str(tmp_path), "u", None)
    assert left is not None
    assert (left.counters, left.slot_job) == ({"/a": b"1"}, None)


@pytest.mark.parametrize("seen_usec", [(40_000, 270_000), (0, 0), (50_000, 260_000)])
def test_cpu_time_of_a_tree_is_that_of_its_launcher_however_ticks_split_it(
    tmp_path: Path, seen_usec: tuple[int, int]
) -> None:
    """User and system time of samples are in ticks, and divided otherwise than by wait4."""
    attempt = Attempt(
        started_at_us=1_000_000,
        started_mono_ns=1,
        owner=this_process(read_host()),
        accounting=PROCESS_TREE,
        launcher_pid=os.getpid(),
    )
    job = Job(uuid=new_uuid(), argv=("x",), created_at_us=1)
    totals = {"user_usec": 45_538, "system_usec": 268_000, "reaped": 1}
    path = outcome_path(str(tmp_path), job.uuid)
    write_outcome(path, 0, tuple(totals.get(name, 0) for name in TOTALS), 3_000_000_001, [])
    user, system = seen_usec
    seen = replace(_SEEN, cpu_total_usec=user + system, cpu_user_usec=user, cpu_system_usec=system)
    clock = SystemClock()
    writes = Finalization(
        Record(status=Status.RUNNING, job=job, attempt=attempt),
        History([(0, seen)], Details()),
        UNKNOWN,
        Tools(str(tmp_path), Accountant(clock), clock, 0),
        None,
        has_valid_pid=True,
    ).writes()
    ended, taken = writes[-1], writes[0]
    assert isinstance(ended, JobEnded)
    assert isinstance(taken, SamplesTaken)
    usage = ended.outcome.usage
    assert (usage.cpu_total_usec, usage.cpu_user_usec, usage.cpu_system_usec) == (313_538, 45_538, 268_000)
    assert "cpu_total_usec" not in usage.lower_bounds
    assert taken.samples[-1].cpu_total_usec == 313_538
