"""Stores on file systems that are read-only or full, each mounted for one command only."""

import ast
import os
import shlex
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from joblens.stores.sqlite import SqliteStore
from joblens.stores.sqlite.opening import APPLICATION_ID
from joblens.stores.sqlite.sql import migration_files, read_text
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
        for arguments, result in (
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
            assert result in done.stdout
            assert done.stderr == ""
    finally:
        if user is not None:
            user.close()
    if not is_in_use:
        assert sorted(os.listdir(store_path.parent)) == before


def test_a_new_store_on_a_full_disk_is_reported_as_such_and_leaves_nothing_behind(tmp_path: Path) -> None:
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


CREATE_ON_DISKS_OF_ALL_SIZES = """
import collections, os, subprocess, sys
from joblens.model.errors import StoreError
from joblens.stores.sqlite import SqliteStore

disk, step = sys.argv[1], int(sys.argv[2])
counts = collections.Counter()

def mount(*options):
    subprocess.run(["mount", "-t", "tmpfs", "-o", *options, "tmpfs", disk], check=True)

def attempt():
    try:
        SqliteStore(disk + "/s.db").close()
        return "created"
    except StoreError as error:
        return "full" if "the disk is full" in str(error) else repr(error)

for size in range(100, 500, step):
    mount(f"size={size}k")
    counts[attempt()] += 1
    mount("remount,size=8m")
    counts["then " + attempt()] += 1
    with_problems = SqliteStore(disk + "/s.db").check().problems
    counts["damaged"] += bool(with_problems)
    counts["leftovers"] += len(os.listdir(disk)) - 1
    subprocess.run(["umount", disk], check=True)
print(dict(counts))
"""


@pytest.mark.parametrize("step", [20, pytest.param(4, marks=pytest.mark.slow)])
def test_a_store_is_created_whole_or_not_at_all_on_a_disk_of_any_size(tmp_path: Path, step: int) -> None:
    script = tmp_path / "create.py"
    script.write_text(CREATE_ON_DISKS_OF_ALL_SIZES)
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["unshare", "-rm", sys.executable, str(script), str(disk), str(step)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    counts = ast.literal_eval(done.stdout)
    total = len(range(100, 500, step))
    assert counts["created"] + counts["full"] == total
    assert counts["then created"] == total
    assert (counts["damaged"], counts["leftovers"]) == (0, 0)


def test_a_migration_on_a_full_disk_says_so_and_changes_nothing(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    old = tmp_path / "old.db"
    connection = apsw.Connection(str(old))
    connection.execute(read_text(migration_files()[0]))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    place = shlex.quote(str(disk))
    mount = (
        f"mount -t tmpfs -o size=200k tmpfs {place} && cp {shlex.quote(str(old))} {place}/st.db;"
        f" trap 'cat {place}/st.db > {tmp_path}/after' EXIT; "
    )
    done = _on(mount, "--store", disk / "st.db", "prune", "--older-than", "0s", "--yes", cwd=tmp_path)
    assert done.returncode == 125
    assert "the disk is full" in done.stderr
    assert (tmp_path / "after").read_bytes() == old.read_bytes()


def test_an_older_store_without_space_for_a_copy_is_migrated_by_who_may(tmp_path: Path) -> None:
    disk, folder = tmp_path / "disk", tmp_path / "store"
    disk.mkdir()
    folder.mkdir()
    old = folder / "old.db"
    connection = apsw.Connection(str(old))
    connection.execute(read_text(migration_files()[0]))
    connection.execute("CREATE TABLE filling AS SELECT zeroblob(8000000)")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1")
    connection.close()
    place, there = shlex.quote(str(disk)), shlex.quote(str(folder))
    mount = f"mount -t tmpfs -o size=1m tmpfs {place}; export SQLITE_TMPDIR={place}; "
    read_only = f"{mount} mount --bind {there} {there}; mount -o remount,bind,ro {there}; "
    refused = _on(read_only, "--store", old, "history", cwd=tmp_path)
    assert refused.returncode == 125
    assert "there is no space for the temporary copy" in refused.stderr
    done = _on(mount, "--store", old, "history", cwd=tmp_path)
    assert (done.returncode, "was upgraded from schema version 1" in done.stderr) == (0, True)


def test_a_backup_onto_a_full_disk_names_that_disk_and_leaves_nothing_behind(
    joblens: RunJoblens, tmp_path: Path
) -> None:
    joblens("run", "--", "true", code=0)
    disk = tmp_path / "disk"
    disk.mkdir()
    place = shlex.quote(str(disk))
    mount = f"mount -t tmpfs -o size=100k tmpfs {place}; trap 'ls -A {place} > {tmp_path}/left' EXIT; "
    done = _on(mount, "store", "backup", disk / "copy.db", cwd=tmp_path)
    assert done.returncode == 125
    assert done.stderr.startswith(
        f"joblens: error: the store {disk}/copy.db cannot be written: the disk is full"
    )
    assert "not an error" not in done.stderr
    assert (tmp_path / "left").read_text() == ""


def test_a_report_on_a_read_only_disk_is_refused_before_the_job_with_the_reason(
    joblens: RunJoblens, tmp_path: Path
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = READ_ONLY.format(shlex.quote(str(disk)))
    done = _on(mount, "run", "--report", disk / "r.json", "--", "touch", tmp_path / "ran", cwd=tmp_path)
    assert done.returncode == 2
    assert "cannot be written: its file system is read-only" in done.stderr
    assert not (tmp_path / "ran").exists()
