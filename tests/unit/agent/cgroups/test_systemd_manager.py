"""The D-Bus client against managers that answer, refuse, hang, send garbage and close."""

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from joblens.agent.cgroups import systemd_manager
from joblens.agent.cgroups.systemd_manager import (
    ManagerError,
    Scope,
    SystemdManager,
    manager_sockets,
    unit_path,
)
from tests.fake_systemd import FakeSystemd, message, signal

JOB = "/org/freedesktop/systemd1/job/42"
Making = Callable[..., FakeSystemd]


@pytest.fixture(autouse=True)
def _no_silent_managers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd_manager, "_silent", set())


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Making]:
    made: list[FakeSystemd] = []

    def start(name: str = "private", **answers: Any) -> FakeSystemd:
        made.append(FakeSystemd(tmp_path / name, answers))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Callable[[socket.socket], None]], str]]:
    """Starts a server that does something else with a connection than FakeSystemd; returns its path."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connections = []

    def start(talk: Callable[[socket.socket], None]) -> str:
        path = str(tmp_path / "private")
        listener.bind(path)
        listener.listen(1)

        def run() -> None:
            connection, _ = listener.accept()
            connections.append(connection)
            with contextlib.suppress(OSError):  # the client has enough of it
                talk(connection)

        threading.Thread(target=run, daemon=True).start()
        return path

    yield start
    for one in (*connections, listener):
        one.close()


def manager(*fakes: FakeSystemd, timeout_s: float = 5.0) -> SystemdManager:
    return SystemdManager([str(fake.path) for fake in fakes], timeout_s)


def manager_property(asked: SystemdManager, name: str) -> Any:
    """A property of the manager itself."""
    path, interface = "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"
    return asked.object_property(path, interface, name)


def test_a_scope_is_created_with_its_process_delegated_and_collected(make: Making) -> None:
    fake = make(StartTransientUnit=lambda *_: ("o", (JOB,)))
    scope = Scope(unit="joblens-1.scope", slice="app-x.slice", tasks_max=77, description="jobs: all öf them")
    manager(fake).start_scope(scope, 4711, lambda: True)
    ((method, (unit, mode, properties, others)),) = fake.calls
    assert (method, unit, mode, others) == ("StartTransientUnit", "joblens-1.scope", "fail", [])
    assert dict(properties) == {
        "PIDs": [4711],
        "Delegate": 1,
        "CollectMode": "inactive-or-failed",
        "TasksMax": 77,
        "Slice": "app-x.slice",
        "Description": "jobs: all öf them",
    }


def test_a_scope_without_limits_has_none_and_goes_where_the_manager_likes(make: Making) -> None:
    fake = make(StartTransientUnit=lambda *_: ("o", (JOB,)))
    manager(fake).start_scope(Scope(unit="joblens-1.scope"), 4711, lambda: True)
    properties = dict(fake.calls[0][1][2])
    assert properties["TasksMax"] == 2**64 - 1
    assert not {"Slice", "Description"} & properties.keys()


@pytest.mark.parametrize("name", ["private", "bus"])
def test_a_created_scope_is_waited_for(make: Making, name: str) -> None:
    """On a private connection and on a bus, where Hello comes first."""
    fake = make(name, StartTransientUnit=lambda *_: ("o", (JOB,)))
    answers = iter([False, False, True])
    manager(fake).start_scope(Scope(unit="joblens-1.scope"), 4711, lambda: next(answers))
    assert list(answers) == []
    assert [call for call, _ in fake.calls] == ["Hello"] * (name == "bus") + ["StartTransientUnit"]


def test_the_failure_of_the_job_that_starts_the_scope_is_the_reason(
    serve: Callable[[Callable[[socket.socket], None]], str],
) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"OK 1\r\n")
        connection.recv(4096)
        reply = message(2, [(5, "u", 1), (8, "g", "o")], struct.pack("<I", len(JOB)) + JOB.encode() + b"\0")
        other = signal("JobRemoved", "uoss", (7, "/another/job", "x.service", "failed"))
        connection.sendall(reply + other)
        connection.sendall(signal("JobRemoved", "uoss", (42, JOB, "joblens-1.scope", "failed")))

    path = serve(talk)
    with pytest.raises(ManagerError, match=r"systemd could not start joblens-1\.scope: failed"):
        SystemdManager([path], 5.0).start_scope(Scope(unit="joblens-1.scope"), 4711, lambda: False)


def test_processes_are_attached_to_a_subgroup_of_a_unit(make: Making) -> None:
    fake = make(AttachProcessesToUnit=lambda *_: ("", ()))
    manager(fake).attach("joblens-1.scope", "/joblens-self", [12, 13])
    assert fake.calls == [("AttachProcessesToUnit", ("joblens-1.scope", "/joblens-self", [12, 13]))]


@pytest.mark.parametrize(
    ("signature", "value"), [("s", "running"), ("b", True), ("u", 7), ("t", 2**40), ("o", "/a/b")]
)
def test_properties_are_read(make: Making, signature: str, value: Any) -> None:
    fake = make(Get=lambda *_: ("v", ((signature, value),)))
    assert manager_property(manager(fake), "SystemState") == value
    assert manager(fake).unit_property("a.scope", "ControlGroup") == value
    assert [arguments for _, arguments in fake.calls] == [
        ("org.freedesktop.systemd1.Manager", "SystemState"),
        ("org.freedesktop.systemd1.Scope", "ControlGroup"),
    ]


def test_the_path_of_a_unit_has_letters_and_digits_only() -> None:
    assert unit_path("joblens-1.scope") == "/org/freedesktop/systemd1/unit/joblens_2d1_2escope"
    assert unit_path("1é.scope") == "/org/freedesktop/systemd1/unit/_31_c3_a9_2escope"


def test_a_scope_that_started_without_its_process_is_not_waited_for(
    serve: Callable[[Callable[[socket.socket], None]], str],
) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"OK 1\r\n")
        connection.recv(4096)
        reply = message(2, [(5, "u", 1), (8, "g", "o")], struct.pack("<I", len(JOB)) + JOB.encode() + b"\0")
        connection.sendall(reply + signal("JobRemoved", "uoss", (42, JOB, "joblens-1.scope", "done")))
        connection.recv(4096)

    path = serve(talk)
    with pytest.raises(ManagerError, match=r"systemd could not start joblens-1\.scope: done"):
        SystemdManager([path], 5.0).start_scope(Scope(unit="joblens-1.scope"), 4711, lambda: False)


def test_a_refusal_can_neither_control_a_terminal_nor_fill_it(make: Making) -> None:
    text = "\x1b]0;title\x07 no\nentry \u202e" + "x" * 5000
    fake = make(AttachProcessesToUnit=lambda *_: ("error", ("org.x.Denied", text)))
    with pytest.raises(ManagerError) as refused:
        manager(fake).attach("a.scope", "/x", [1])
    assert str(refused.value).startswith("systemd refused: ?]0;title? no?entry ?xxx")
    assert len(str(refused.value)) < 400


def test_signals_and_replies_to_others_are_skipped(make: Making) -> None:
    fake = make(Get=lambda *_: ("v", (("s", "running"),)))
    stranger = message(2, [(5, "u", 1000)], b"")
    fake.before_reply = signal("UnitNew", "so", ("a.scope", "/a")) * 300 + stranger
    assert manager_property(manager(fake), "SystemState") == "running"


def test_a_refusal_has_the_words_and_the_name_of_the_error(make: Making) -> None:
    name = "org.freedesktop.systemd1.NoSuchUnit"
    fake = make(AttachProcessesToUnit=lambda *_: ("error", (name, "Unit a.scope not loaded.")))
    with pytest.raises(ManagerError, match=r"^systemd refused: Unit a\.scope not loaded\.$") as refused:
        manager(fake).attach("a.scope", "/x", [1])
    assert refused.value.name == name


def test_the_next_socket_is_tried_when_nobody_listens_at_the_first(make: Making, tmp_path: Path) -> None:
    dead = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    dead.bind(str(tmp_path / "private"))
    dead.close()
    fake = make("bus", Get=lambda *_: ("v", (("s", "degraded"),)))
    both = SystemdManager([str(tmp_path / "private"), str(fake.path)], 5.0)
    assert manager_property(both, "SystemState") == "degraded"


def test_a_silent_bus_does_not_keep_the_manager_from_its_private_socket(
    make: Making, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = str(tmp_path / "bus")
    monkeypatch.setattr(systemd_manager, "_silent", {bus})
    fake = make(Get=lambda *_: ("v", (("s", "running"),)))
    assert manager_property(SystemdManager([str(fake.path), bus], 5.0), "SystemState") == "running"
    with pytest.raises(ManagerError, match="is not asked again"):
        manager_property(SystemdManager([bus, str(fake.path)], 5.0), "SystemState")


def test_a_manager_that_hangs_is_waited_for_once(tmp_path: Path) -> None:
    """Also by others of this process that ask it, and its message bus is not tried either."""
    paths = [str(tmp_path / "private"), str(tmp_path / "bus")]
    listeners = []
    for path in paths:
        listeners.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        listeners[-1].bind(path)
        listeners[-1].listen(1)
    started_s = time.monotonic()
    with pytest.raises(ManagerError, match=r"has not answered within 0\.3s"):
        SystemdManager(paths, 0.3).attach("a.scope", "/x", [1])
    waited_s = time.monotonic() - started_s
    assert waited_s > 0.29
    for _ in range(20):
        with pytest.raises(ManagerError, match="has not answered"):
            manager_property(SystemdManager(paths, 0.3), "SystemState")
    assert time.monotonic() - started_s - waited_s < 20 * 0.3 / 2, "none of them waited"
    for listener in listeners:
        listener.close()


def test_a_manager_with_a_full_queue_of_connections_is_not_waited_for_longer(tmp_path: Path) -> None:
    path = str(tmp_path / "private")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(0)
    waiting = []
    for _ in range(5):
        waiting.append(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        waiting[-1].setblocking(False)
        waiting[-1].connect_ex(path)
    started_s = time.monotonic()
    with pytest.raises(ManagerError, match=r"has not answered within 0\.3s"):
        manager_property(SystemdManager([path], 0.3), "SystemState")
    assert time.monotonic() - started_s > 0.29
    for one in (*waiting, listener):
        one.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "closed the connection"),
        (b"REJECTED EXTERNAL\r\n", "does not accept uid"),
        (b"x" * 5000, "does not speak D-Bus"),
        (b"OK 1\r\n", "closed the connection"),
        (b"OK 1\r\n" + b"\xff" * 64, "not a D-Bus message"),
        (b"OK 1\r\nl\2\0\1" + struct.pack("<III", 2**32 - 1, 1, 8) + bytes(99), "a message of"),
        (b"OK 1\r\nl\2\0\1" + struct.pack("<III", 0, 1, 2**32 - 1) + bytes(99), "a message of"),
        (b"OK 1\r\nl\2\0\1" + struct.pack("<III", 0, 1, 24) + b"\xff" * 24, "cannot be read"),
        (
            b"OK 1\r\n" + message(2, [(5, "u", 1), (8, "g", "v")], b"\1s\0\0" + b"\xff\0\0\0ab"),
            "cannot be read",
        ),
        (b"OK 1\r\n" + message(2, [(5, "u", 1), (8, "g", "v")], b"\2at\0" + bytes(8)), "cannot be read"),
        (
            b"OK 1\r\n" + message(2, [(5, "u", 1), (8, "g", "v")], b"\2as\0" + b"\xff" * 4 + bytes(8)),
            "cannot be read",
        ),
        (b"OK 1\r\n" + message(2, [(5, "u", 1), (8, "g", "v")], b"\0\0" + bytes(8)), "cannot be read"),
        (b"OK 1\r\n" + message(2, [(5, "u", 1), (8, "g", "v")], b"\1v\0" * 100_000), "cannot be read"),
        (b"OK 1\r\n" + message(2, [(5, "u", 1)], b""), "cannot be read"),
        (b"OK 1\r\n" + message(3, [(5, "u", 1)], b""), "systemd refused: no reason given"),
    ],
)
def test_garbage_is_a_reason_and_nothing_worse(
    answer: bytes, reason: str, serve: Callable[[Callable[[socket.socket], None]], str]
) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(answer)
        if answer.startswith(b"OK"):
            connection.recv(4096)
        connection.shutdown(socket.SHUT_RDWR)

    with pytest.raises(ManagerError, match=reason):
        manager_property(SystemdManager([serve(talk)], 5.0), "SystemState")


def test_an_answer_in_the_other_byte_order_is_understood(
    serve: Callable[[Callable[[socket.socket], None]], str],
) -> None:
    def talk(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(b"OK 1\r\n")
        connection.recv(4096)
        fields = b"\5\1u\0" + struct.pack(">I", 1) + b"\x08\1g\0\1v\0" + b"\0"
        body = b"\1u\0\0" + struct.pack(">I", 7)
        connection.sendall(struct.pack(">BBBBIII", ord("B"), 2, 0, 1, len(body), 9, 15) + fields + body)

    assert manager_property(SystemdManager([serve(talk)], 5.0), "NNames") == 7


def test_a_socket_in_a_directory_of_another_user_is_not_trusted(
    make: Making, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = make(Get=lambda *_: ("v", (("s", "running"),)))
    if os.geteuid() == 0:
        os.chown(fake.path.parent, 4243, -1)
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    with pytest.raises(ManagerError, match="belongs to uid"):
        manager_property(manager(fake), "SystemState")
    assert fake.connections == 0


def test_without_any_socket_that_is_the_reason() -> None:
    with pytest.raises(ManagerError, match="no systemd manager runs for this user"):
        manager_property(SystemdManager([]), "SystemState")


@pytest.mark.parametrize(
    ("uid", "sockets"),
    [
        (0, ["systemd/private", "dbus/system_bus_socket"]),
        (1000, ["user/1000/systemd/private", "user/1000/bus"]),
    ],
)
def test_sockets_are_those_of_this_users_manager(
    uid: int, sockets: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert manager_sockets({}, str(tmp_path)) == []
    for name in reversed(sockets):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert manager_sockets({}, str(tmp_path)) == [str(tmp_path / name) for name in sockets]


@pytest.mark.parametrize("variable", ["", "/nowhere/at/all"])
def test_the_usual_runtime_directory_is_taken_where_the_variable_says_nothing(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    (tmp_path / "user/1000").mkdir(parents=True)
    (tmp_path / "user/1000/bus").touch()
    assert manager_sockets({"XDG_RUNTIME_DIR": variable}, str(tmp_path)) == [str(tmp_path / "user/1000/bus")]


def test_the_runtime_directory_of_the_session_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for folder in ("session", "user/1000"):
        (tmp_path / folder / "systemd").mkdir(parents=True)
        (tmp_path / folder / "systemd/private").touch()
    variables = {"XDG_RUNTIME_DIR": str(tmp_path / "session")}
    folders = [str(tmp_path / folder) for folder in ("session", "user/1000")]
    assert manager_sockets(variables, str(tmp_path)) == [f"{folder}/systemd/private" for folder in folders]
    same = {"XDG_RUNTIME_DIR": f"{folders[1]}/"}
    assert manager_sockets(same, str(tmp_path)) == [f"{folders[1]}/systemd/private"]
