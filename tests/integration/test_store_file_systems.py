"""Stores on file systems that are read-only or full, each mounted for one command only."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from joblens.stores.sqlite import SqliteStore
from tests.conftest import RunJoblens

READ_ONLY = "mount --bind {0} {0} && mount -o remount,ro,bind {0} && "
FLOW = "{name: flow, jobs: [{name: a, command: echo said}]}"


def _may_mount() -> bool:
    try:
        return subprocess.run(["unshare", "-rm", "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not _may_mount(), reason="needs a mount namespace of its own")


def _on(mount: str, *arguments: str | Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = shlex.join([sys.executable, "-m", "joblens", *map(str, arguments)])
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", f"{mount}{command}"],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("is_in_use", [False, True])
def test_a_store_that_may_not_be_written_is_read(
    joblens: RunJoblens, store_path: Path, tmp_path: Path, is_in_use: bool
) -> None:
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW)
    joblens("run", flow, code=0)
    user = SqliteStore(str(store_path)) if is_in_use else None  # then a log lies beside it
    if user is not None:
        user.apply([])
        joblens("run", flow, code=0)
    before = sorted(os.listdir(store_path.parent))
    mount = READ_ONLY.format(shlex.quote(str(store_path.parent)))
    try:
        for arguments, told in (
            (("results", "flow"), "completed"),
            (("workflows",), "flow"),
            (("history",), "success"),
            (("show", "1"), "success"),
            (("logs", "1"), "said"),
            (("watch", "flow"), "run completed"),
            (("run", flow, "--dry-run"), "echo said"),
        ):
            done = _on(mount, *arguments, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert told in done.stdout
            assert done.stderr == ""
    finally:
        if user is not None:
            user.close()
    if not is_in_use:
        assert sorted(os.listdir(store_path.parent)) == before


def test_a_new_store_on_a_full_disk_is_told_as_such_and_leaves_nothing_behind(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    flow = tmp_path / "flow.yaml"
    flow.write_text(FLOW)
    place = shlex.quote(str(disk))
    mount = (
        f"mount -t tmpfs -o size=1m tmpfs {place} && dd if=/dev/zero of={place}/fill bs=1k count=1000"
        f" 2> {tmp_path}/dd; export JOBLENS_STORE={place}/st.db;"
        f" trap 'ls -A {place} > {tmp_path}/left' EXIT; "
    )
    done = _on(mount, "run", flow, cwd=tmp_path)
    assert done.returncode == 125, done.stderr
    assert "the disk is full" in done.stderr
    assert "rollback" not in done.stderr
    assert (tmp_path / "left").read_text().split() == ["fill"]
