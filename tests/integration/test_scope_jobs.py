"""Jobs of a user for whom systemd keeps the control groups: with a systemd-run that makes its scope by hand,
in the real cgroup v2 hierarchy of this machine."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import joblens
from joblens.agent import accounting
from joblens.agent.groups import GroupFactory
from joblens.model.errors import AccountingUnavailable
from joblens.probes.cgroup_layout import UNIFIED, CgroupLayout, read_layout


@pytest.fixture
def scopes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory that scopes are made in; nothing else of the hierarchy may be divided."""
    unified = read_layout().unified
    if unified is None or unified.directory is None or os.geteuid() != 0:
        pytest.skip("needs a cgroup v2 hierarchy that can be written")
    folder = Path(unified.directory) / f"scopes-{os.getpid()}"
    folder.mkdir()
    script = tmp_path / "bin" / "systemd-run"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        'for word in "$@"; do case "$word" in --unit=*) unit=${word#--unit=};; esac; done\n'
        'while [ "$1" != -- ]; do shift; done; shift\n'
        f'mkdir "{folder}/$unit" && echo $$ > "{folder}/$unit/cgroup.procs" && exec "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}:{os.environ['PATH']}")
    monkeypatch.setattr(accounting, "user_systemd_available", lambda: True)
    monkeypatch.setattr(accounting, "read_layout", _v2_alone)
    detect = GroupFactory.detect

    def refused_without_a_parent(
        parent: str | None = None, *, layout: CgroupLayout | None = None
    ) -> GroupFactory:
        if parent is None:
            raise AccountingUnavailable("not allowed here")
        return detect(parent, layout=layout)

    monkeypatch.setattr(GroupFactory, "detect", refused_without_a_parent)
    yield folder
    for scope in folder.iterdir():
        for group in sorted((path for path in scope.rglob("*") if path.is_dir()), reverse=True):
            group.rmdir()
        if scope.is_dir():
            scope.rmdir()
    folder.rmdir()


def _v2_alone(pid: str = "self") -> CgroupLayout:
    unified = read_layout(pid=pid).unified
    assert unified is not None
    return CgroupLayout(kind="cgroup-v2", hierarchies={UNIFIED: unified})


def test_a_job_is_measured_in_a_group_below_the_scope_of_its_launcher(scopes: Path) -> None:
    burn = [sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"]
    result = joblens.run(burn)
    assert result.ok
    attempt = result.record.attempt
    assert attempt is not None
    group = Path(attempt.groups[UNIFIED])
    assert group.parent.parent.parent == scopes
    assert group.parent.parent.name == f"joblens-{result.uuid}.scope"
    assert not group.exists()
    assert result.usage.sources["cpu"] == "cgroup v2 cpu.stat"
    assert (result.usage.cpu_total_usec or 0) >= 300_000


def test_when_systemd_refuses_the_process_tree_does(scopes: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "systemd-run").write_text("#!/bin/sh\necho no >&2\nexit 1\n")
    result = joblens.run(["true"])
    assert result.ok
    assert result.record.attempt is not None
    assert result.record.attempt.accounting == "process-tree"
