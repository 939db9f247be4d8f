"""Real job groups and real jobs in them, for the tests of groups and probes."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from joblens.agent.cgroups.groups import GroupFactory, JobGroups
from joblens.model.errors import AccountingUnavailable

_JOIN_AND_EXEC = 'n=$1; shift; while [ $n -gt 0 ]; do echo 0 > "$1"; shift; n=$((n-1)); done; exec "$@"'


def factory_or_skip() -> GroupFactory:
    try:
        return GroupFactory.detect()
    except AccountingUnavailable as reason:
        pytest.skip(f"no control groups here: {reason}")


def make_groups(factory: GroupFactory | None = None) -> Iterator[JobGroups]:
    """A fresh job group that is emptied and removed at the end."""
    groups = (factory or factory_or_skip()).create(f"test-{os.getpid()}")
    yield groups
    groups.kill()
    assert groups.remove() == []


def start_in(groups: JobGroups, *argv: str, **popen: object) -> subprocess.Popen[bytes]:
    """The way a launcher does it: the child joins the groups itself, then becomes the job."""
    files = groups.attach_files()
    joining = ["sh", "-c", _JOIN_AND_EXEC, "join", str(len(files)), *files, *argv]
    return subprocess.Popen(joining, **popen)  # type: ignore[call-overload,no-any-return]


def start_python_in(groups: JobGroups, code: str, **popen: object) -> subprocess.Popen[bytes]:
    return start_in(groups, sys.executable, "-I", "-S", "-c", code, **popen)


def wait_usage(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """(wait status, CPU µs of the process and all it waited for)."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return status, round((usage.ru_utime + usage.ru_stime) * 1e6)
