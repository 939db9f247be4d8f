"""What engines answer, as a value; and why there is no answer."""

import os
import socket
from pathlib import Path

import pytest

from joblens.model.errors import ContainerError
from joblens.probes.cgroup.layout import groups_of_process
from joblens.probes.containers.api import connect, message_of
from joblens.probes.containers.info import info_of

RAW = {
    "Id": "abc",
    "Name": "/shy_name",
    "Image": "sha256:1",
    "State": {"Status": "exited", "Pid": 0, "ExitCode": 137, "OOMKilled": True, "StartedAt": ""},
    "Config": {"Image": "img:1", "Labels": {"joblens.job": "u-1"}},
    "HostConfig": {
        "NetworkMode": "none",
        "NanoCpus": 0,
        "CpuQuota": 50_000,
        "CpuPeriod": 100_000,
        "Memory": 1 << 26,
        "MemorySwap": -1,
        "PidsLimit": 0,
        "Binds": ["/a:/b"],
        "Devices": [{"PathOnHost": "/dev/fuse"}],
    },
}


def test_limits_state_and_labels_of_an_ended_container() -> None:
    info = info_of(RAW)
    assert (info.id, info.name, info.image, info.image_id) == ("abc", "shy_name", "img:1", "sha256:1")
    assert (info.pid, info.is_running, info.exit_code, info.oom_killed) == (None, False, 137, True)
    assert (info.cpus, info.memory_bytes, info.memory_swap_bytes, info.pids) == (0.5, 1 << 26, None, None)
    assert (info.volumes, info.devices, info.labels) == (("/a:/b",), ("/dev/fuse",), {"joblens.job": "u-1"})
    assert info.groups == {}


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("2026-11-15T17:09:31.123456789Z", 1_794_762_571_123_456),
        ("2026-11-15T17:09:31Z", 1_794_762_571_000_000),
        ("2026-11-15T19:09:31.5+02:00", 1_794_762_571_500_000),
        ("0001-01-01T00:00:00Z", None),
        ("yesterday", None),
    ],
)
def test_the_time_of_the_start_in_every_form(text: str, microseconds: int | None) -> None:
    assert info_of({"State": {"StartedAt": text}}).started_at_us == microseconds


def test_an_answer_with_nothing_in_it_is_a_container_of_which_nothing_is_known() -> None:
    info = info_of({})
    assert (info.id, info.pid, info.exit_code, info.cpus) == ("", None, None, None)


def test_groups_of_a_living_process_and_of_none() -> None:
    kind, groups = groups_of_process(os.getpid())
    assert all(os.path.isdir(path) for path in groups.values())
    assert bool(groups) == (kind not in ("", "none")) or groups == {}
    assert groups_of_process(2**22 + 1) == ("", {})


def test_words_of_an_engine_that_refuses() -> None:
    assert message_of(b'{"message": "no such image"}\n') == "no such image"
    assert message_of(b'{"cause": "it is so", "message": ""}') == "it is so"
    assert message_of(b"page not found\n") == "page not found"
    assert message_of(b"[1]") == ""


def test_who_was_asked_learns_when_nobody_answers(tmp_path: Path) -> None:
    with pytest.raises(ContainerError, match="nothing listens at /nowhere/s"):
        connect(socket="/nowhere/s")
    deaf = tmp_path / "deaf"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(deaf))
    with pytest.raises(ContainerError, match="nothing listens at"):
        connect(socket=f"unix://{deaf}")
    listener.listen()
    with pytest.raises(ContainerError, match=r"did not answer within 0\.1s"):
        connect("docker", str(deaf), timeout_s=0.1)
    listener.close()
    with pytest.raises(ContainerError, match="expected docker or podman"):
        connect("rocket")
