"""Jobs of a user for whom systemd keeps the control groups, with a manager that makes its scopes by hand in
the real cgroup v2 hierarchy of this machine."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import joblens
from joblens.agent.cgroups import systemd_manager, systemd_scope
from joblens.agent.cgroups import systemd_scope as scope_terms
from joblens.agent.cgroups.groups import GroupFactory
from joblens.agent.cgroups.placement import enable_controllers, find_placement
from joblens.agent.cgroups.systemd_scope import ScopeTerms
from joblens.agent.launcher.launch import LauncherProcess
from joblens.agent.measuring import accounting
from joblens.app.wiring.drivers import SystemClock
from joblens.model.errors import AccountingUnavailable, LaunchError
from joblens.model.jobs.job import Accounting
from joblens.model.values.ids import new_uuid
from joblens.probes.cgroup.layout import UNIFIED, CgroupLayout, read_layout
from tests.fake_systemd import Answer, FakeSystemd

JOB = "/org/freedesktop/systemd1/job/1"
BURN = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"]
NO_SUCH_UNIT = "org.freedesktop.systemd1.NoSuchUnit"


class HandMadeScopes:
    """Answers as systemd does, and collects empty scopes before each answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, unit: str, _mode: str, properties: list[tuple[str, Any]], _others: list[Any]) -> Answer:
        self.collect()
        (self.folder / unit).mkdir()
        for pid in dict(properties)["PIDs"]:
            (self.folder / unit / "cgroup.procs").write_text(str(pid))
        return "o", (JOB,)

    def attach(self, unit: str, subgroup: str, pids: list[int]) -> Answer:
        self.collect()
        if not (self.folder / unit).exists():
            return "error", (NO_SUCH_UNIT, f"Unit {unit} not loaded.")
        for pid in pids:
            (self.folder / f"{unit}{subgroup}" / "cgroup.procs").write_text(str(pid))
        return "", ()

    def collect(self) -> None:
        for scope in self.folder.glob("*.scope"):
            if "populated 0" in (scope / "cgroup.events").read_text():
                for group in sorted((path for path in scope.rglob("*") if path.is_dir()), reverse=True):
                    group.rmdir()
                scope.rmdir()


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSystemd]:
    """Nothing of the hierarchy may be divided but its scopes."""
    unified = read_layout().unified
    if unified is None or unified.directory is None or os.geteuid() != 0:
        pytest.skip("needs a cgroup v2 hierarchy that can be written")
    # Below a group that hands its controllers down: on pure v2 the own one does not.
    folder = Path(find_placement(read_layout()).bases[UNIFIED]) / f"scopes-{os.getpid()}"
    folder.mkdir()
    enable_controllers(str(folder))
    scopes = HandMadeScopes(folder)
    answers: dict[str, Callable[..., Answer]] = {
        "StartTransientUnit": scopes.start,
        "AttachProcessesToUnit": scopes.attach,
    }
    fake = FakeSystemd(tmp_path / "run" / "private", answers)
    monkeypatch.setattr(systemd_manager, "_silent", set())
    monkeypatch.setattr(systemd_manager, "manager_sockets", lambda: [str(fake.path)])
    monkeypatch.setattr(scope_terms, "scope_terms", lambda _: ScopeTerms(slice="some.slice", tasks_max=99))
    monkeypatch.setattr(systemd_scope, "read_layout", _v2_alone)
    detect = GroupFactory.detect

    def refused_without_a_parent(parent: str | None = None, **options: Any) -> GroupFactory:
        if parent is None:
            raise AccountingUnavailable("not allowed here")
        return detect(parent, **options)

    monkeypatch.setattr(GroupFactory, "detect", refused_without_a_parent)
    yield fake
    fake.close()
    deadline_s = time.monotonic() + 5
    while list(folder.glob("*.scope")) and time.monotonic() < deadline_s:
        scopes.collect()
    folder.rmdir()


def _v2_alone(pid: int | str = "self") -> CgroupLayout:
    layout = read_layout(pid=pid)
    assert layout.unified is not None
    return CgroupLayout(kind=layout.kind, hierarchies={UNIFIED: layout.unified})


def methods(fake: FakeSystemd) -> list[str]:
    return [method for method, _ in fake.calls]


def group_of(result: Any) -> Path:
    attempt = result.record.attempt
    assert attempt is not None
    assert attempt.accounting == read_layout().kind
    assert attempt.accounting_reason == ""
    return Path(attempt.groups[UNIFIED])


def test_a_job_is_measured_in_a_group_below_the_scope_of_its_owner(systemd: FakeSystemd) -> None:
    result = joblens.run(BURN)
    assert result.ok
    group = group_of(result)
    ((method, (unit, _, properties, _)),) = systemd.calls
    assert method == "StartTransientUnit"
    assert (dict(properties)["Slice"], dict(properties)["TasksMax"]) == ("some.slice", 99)
    assert group.parent.name == f"joblens-{os.geteuid()}"
    assert group.parent.parent.name == unit
    assert not group.exists()
    assert result.usage.sources["cpu"] == "cgroup v2 cpu.stat"
    assert 300_000 <= (result.usage.cpu_total_usec or 0) < 600_000


def test_all_slots_of_an_owner_share_one_scope(systemd: FakeSystemd) -> None:
    results = list(joblens.map_commands([["true"], *[BURN] * 3, ["false"]], jobs=3))
    assert [result.ok for result in results].count(True) == 4
    groups = {group_of(result) for result in results}
    assert all(group.name.startswith("slot-") for group in groups)
    assert len({group.parent.parent for group in groups}) == 1
    assert methods(systemd).count("StartTransientUnit") == 1
    assert methods(systemd).count("AttachProcessesToUnit") == len(groups) - 1
    burned = [result.usage.cpu_total_usec or 0 for result in results]
    assert sum(usec >= 300_000 for usec in burned) == 3
    assert not any(group.exists() for group in groups)


def test_a_scope_that_has_ended_meanwhile_is_replaced(systemd: FakeSystemd) -> None:
    accountant = accounting.Accountant(SystemClock())
    for expected in (["StartTransientUnit"], ["AttachProcessesToUnit", "StartTransientUnit"]):
        systemd.calls.clear()
        launcher = LauncherProcess(None)
        groups = accountant.groups_for_process("00000000", Accounting.CGROUP, launcher.pid)
        assert methods(systemd) == expected
        assert groups is not None
        groups.remove()
        launcher.abandon()
    accountant.close()


def test_a_launcher_that_ends_on_its_way_into_the_scope_spoils_nothing_for_the_next(
    systemd: FakeSystemd,
) -> None:
    warnings: list[str] = []
    accountant = accounting.Accountant(SystemClock(), warn=warnings.append)
    dead, other = LauncherProcess(None), LauncherProcess(None)
    os.kill(dead.pid, signal.SIGKILL)
    os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # nobody has waited for it
    with pytest.raises(LaunchError, match="the launcher ended before it was ready"):
        accountant.groups_for_process(new_uuid(), Accounting.AUTO, dead.pid)
    groups = accountant.groups_for_process(new_uuid(), Accounting.CGROUP, other.pid)
    assert groups is not None
    assert warnings == []
    groups.remove()
    for launcher in (dead, other):
        launcher.abandon()
    accountant.close()


def test_when_systemd_refuses_the_process_tree_is_measured_and_the_record_says_why(
    systemd: FakeSystemd, capfd: pytest.CaptureFixture[str]
) -> None:
    systemd.answers["StartTransientUnit"] = lambda *_: ("error", ("org.x.Denied", "Not today."))
    result = joblens.run(["true"])
    assert result.ok
    attempt = result.record.attempt
    assert attempt is not None
    assert attempt.accounting == "process-tree"
    assert attempt.accounting_reason == "no systemd scope: systemd refused: Not today."
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("joblens: warning: ")
    assert line.endswith("no systemd scope: systemd refused: Not today.")


def test_slots_fall_back_too_when_systemd_refuses(systemd: FakeSystemd) -> None:
    systemd.answers["StartTransientUnit"] = lambda *_: ("error", ("org.x.Denied", "Not today."))
    results = list(joblens.map_commands([["true"]] * 4, jobs=2))
    assert all(result.ok for result in results)
    attempts = [result.record.attempt for result in results]
    assert {attempt.accounting for attempt in attempts if attempt} == {"process-tree"}
    assert methods(systemd) == ["StartTransientUnit"]  # not asked again


def test_groups_are_required_and_refused_with_the_reason(systemd: FakeSystemd) -> None:
    systemd.answers["StartTransientUnit"] = lambda *_: ("error", ("org.x.Denied", "Not today."))
    result = joblens.run(["true"], accounting="cgroup")
    assert not result.ok
    assert result.record.outcome is not None
    assert "no systemd scope: systemd refused: Not today." in (result.record.outcome.error or "")


def test_a_manager_that_hangs_delays_jobs_by_two_seconds_once(
    systemd: FakeSystemd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "private"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(1)
    monkeypatch.setattr(systemd_manager, "manager_sockets", lambda: [str(path)])
    waited_s = []
    for _ in range(2):
        started_s = time.monotonic()
        result = joblens.run(["true"])
        waited_s.append(time.monotonic() - started_s)
        assert result.ok
        assert result.record.attempt is not None
        assert "has not answered within 2s" in result.record.attempt.accounting_reason
    listener.close()
    assert 2 <= waited_s[0] < 3.5
    assert waited_s[1] < 1.5
