"""Controllers and leaves, on a tree whose files take what is written to them."""

import errno
import os
from pathlib import Path

import pytest

from joblens.agent.cgroups import placement
from joblens.agent.cgroups.placement import (
    LEAF,
    divide,
    enable_controllers,
    holds_only_own_processes,
    holds_processes,
    is_delegated,
    undo_division,
)

FOUR = "cpu io memory pids"


class FakeKernel:
    """Answers writes as cgroup v2 does. `forks`: how often a process starts in the group after it was
    emptied. `refuses`: controller -> error number."""

    def __init__(self, group: Path, *pids: int, controllers: str = FOUR) -> None:
        self.group = group
        self.refuses: dict[str, int] = {}
        self.unmovable: dict[str, int] = {}
        self.forks = 0
        self.written: list[str] = []
        for directory in (group, group / LEAF):
            directory.mkdir()
            for file, text in (("type", "domain\n"), ("subtree_control", ""), ("procs", "")):
                (directory / f"cgroup.{file}").write_text(text)
        (group / "cgroup.controllers").write_text(controllers)
        (group / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))

    def write(self, path: str, text: str) -> OSError | None:
        directory, file = os.path.split(path)
        if file == "cgroup.procs":
            return self._move(Path(directory), text)
        self.written.append(text)
        return self._switch(Path(directory), text)

    def _move(self, target: Path, pid: str) -> OSError | None:
        if pid in self.unmovable:
            return OSError(self.unmovable[pid], os.strerror(self.unmovable[pid]))
        for source in (self.group, self.group / LEAF):
            _set(source, *(one for one in _pids(source) if one != pid))
        _set(target, *_pids(target), pid)
        if self.forks and target.name == LEAF:
            self.forks -= 1
            _set(self.group, *_pids(self.group), str(1000 + self.forks))
        return None

    def _switch(self, directory: Path, text: str) -> OSError | None:
        sign, controller = text[0], text[1:]
        if sign == "+" and controller in self.refuses:
            return OSError(self.refuses[controller], os.strerror(self.refuses[controller]))
        file = directory / "cgroup.subtree_control"
        enabled = set(file.read_text().split())
        file.write_text(" ".join(sorted(enabled | {controller} if sign == "+" else enabled - {controller})))
        return None

    @property
    def enabled(self) -> set[str]:
        return set((self.group / "cgroup.subtree_control").read_text().split())

    def pids(self, leaf: str = "") -> list[str]:
        return _pids(self.group / leaf)


def _pids(directory: Path) -> list[str]:
    return (directory / "cgroup.procs").read_text().split()


def _set(directory: Path, *pids: str) -> None:
    (directory / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    fake = FakeKernel(tmp_path / "group", 11, 12)
    monkeypatch.setattr(placement, "_write", fake.write)
    return fake


def test_no_controller_is_enabled_in_a_group_with_processes(kernel: FakeKernel) -> None:
    gaps = enable_controllers(str(kernel.group))
    assert kernel.written == []  # pids and cpu would make it a threaded group
    assert set(gaps) == {"memory", "pids", "cpu", "io"}
    assert f"{kernel.group} holds processes" in gaps["pids"]


def test_the_first_controller_that_is_busy_is_the_last_one_tried(kernel: FakeKernel) -> None:
    (kernel.group / "cgroup.procs").write_text("")
    kernel.refuses["memory"] = errno.EBUSY
    gaps = enable_controllers(str(kernel.group))
    assert kernel.written == ["+memory"]
    assert "is in use" in gaps["pids"]


def test_a_controller_that_is_refused_for_another_reason_leaves_the_rest(kernel: FakeKernel) -> None:
    (kernel.group / "cgroup.procs").write_text("")
    kernel.refuses["cpu"] = errno.EINVAL  # realtime processes
    gaps = enable_controllers(str(kernel.group))
    assert kernel.enabled == {"memory", "pids", "io"}
    assert gaps == {"cpu": f"the cpu controller cannot be enabled in {kernel.group}: Invalid argument"}


def test_processes_in_the_root_of_all_groups_hinder_nothing(kernel: FakeKernel) -> None:
    (kernel.group / "cgroup.type").unlink()
    assert not holds_processes(str(kernel.group))
    assert enable_controllers(str(kernel.group)) == {}


def test_all_processes_move_into_the_leaf_before_controllers_are_enabled(kernel: FakeKernel) -> None:
    assert divide(str(kernel.group)) == ""
    assert (kernel.pids(), kernel.pids(LEAF)) == ([], ["11", "12"])
    assert kernel.enabled == {"memory", "pids", "cpu", "io"}
    assert divide(str(kernel.group)) == ""  # another joblens, or the next one


def test_processes_that_start_meanwhile_move_too(kernel: FakeKernel) -> None:
    kernel.forks = 5
    assert divide(str(kernel.group)) == ""
    assert kernel.pids() == []
    assert len(kernel.pids(LEAF)) == 7


def test_processes_that_never_stop_starting_are_given_up(kernel: FakeKernel) -> None:
    kernel.forks = 1 << 30
    assert "keep starting" in divide(str(kernel.group), timeout_s=0.02)
    assert kernel.enabled == set()


@pytest.mark.parametrize(
    ("pid", "error", "reason"),
    [(12, errno.EACCES, "cannot move process 12"), (0, 0, "of another pid namespace")],
)
def test_a_process_that_cannot_be_moved_is_named(
    kernel: FakeKernel, pid: int, error: int, reason: str
) -> None:
    (kernel.group / "cgroup.procs").write_text(f"11\n{pid}\n")
    kernel.unmovable[str(pid)] = error
    assert reason in divide(str(kernel.group))
    assert kernel.enabled == set()


def test_a_process_that_has_just_ended_is_no_hindrance(kernel: FakeKernel) -> None:
    (kernel.group / "cgroup.procs").write_text("11\n")
    kernel.unmovable["11"] = errno.ESRCH
    kernel.written.clear()
    (kernel.group / "cgroup.type").unlink()  # its pid stays in the file of this fake
    assert divide(str(kernel.group)) == ""


def test_a_group_without_the_memory_controller_is_not_divided(kernel: FakeKernel) -> None:
    (kernel.group / "cgroup.controllers").write_text("cpu pids")
    assert "the memory controller is not delegated" in divide(str(kernel.group))


def test_a_lent_group_is_put_back_as_it_was(kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "rmdir", lambda path: os.rename(path, f"{kernel.group.parent}/removed"))
    assert divide(str(kernel.group)) == ""
    undo_division(str(kernel.group))
    assert kernel.enabled == set()
    assert kernel.pids() == ["11", "12"]
    assert not (kernel.group / LEAF).exists()


def test_a_lent_group_stays_divided_while_jobs_are_in_it(kernel: FakeKernel) -> None:
    assert divide(str(kernel.group)) == ""
    (kernel.group / "joblens-1000").mkdir()
    undo_division(str(kernel.group))
    assert kernel.enabled == {"memory", "pids", "cpu", "io"}
    assert kernel.pids(LEAF) == ["11", "12"]


def test_a_controller_that_cannot_be_disabled_does_not_keep_processes_in_the_leaf(
    kernel: FakeKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "rmdir", lambda path: os.rename(path, f"{kernel.group.parent}/removed"))
    assert divide(str(kernel.group)) == ""
    monkeypatch.setattr(kernel, "_switch", lambda *_: OSError(errno.EBUSY, "busy"))
    undo_division(str(kernel.group))
    assert kernel.pids() == ["11", "12"]


def test_the_systems_manager_marks_what_it_has_delegated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = {"user.delegate": b"1"}

    def getxattr(_: str, name: str) -> bytes:
        if name not in marks:
            raise OSError(errno.ENODATA, "no such attribute")
        return marks[name]

    monkeypatch.setattr(os, "getxattr", getxattr)
    assert is_delegated(str(tmp_path), "/system.slice/a.service")
    marks["user.delegate"] = b"0"
    assert not is_delegated(str(tmp_path), "/system.slice/a.service")
    marks.clear()
    assert not is_delegated(str(tmp_path), "/system.slice/a.service")


def test_a_group_that_is_gone_or_that_others_are_in_is_not_ones_own(tmp_path: Path) -> None:
    assert not holds_only_own_processes(str(tmp_path / "gone"))
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    assert not holds_only_own_processes(str(tmp_path))
    (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n")
    assert holds_only_own_processes(str(tmp_path))
