"""Processes on other nodes of a job, started through their doors and counted as the job's."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from joblens.model.clusters.allocation import NodeDoorAddress, NodeDoors
from joblens.runners.nodes.remote_processes import Command, DoorAgents, DoorCall, DoorError, NodeDoor
from tests.conftest import wait_until
from tests.integration.run_jobs import PYTHON

TOKEN = "only this job knows it"


@pytest.fixture
def door() -> Iterator[NodeDoor]:
    made = NodeDoor(TOKEN)
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    made.close()
    thread.join(10)


def address(door: NodeDoor, node: str = "n2") -> NodeDoorAddress:
    return NodeDoorAddress(node, *door.address)


def test_a_command_has_its_streams_and_its_exit_code(door: NodeDoor) -> None:
    line = 'read x; echo "$x $JOBLENS_NODE"; echo bad >&2; exit 7'
    command = Command(argv=("sh", "-c", line), env={"JOBLENS_NODE": "n2"})
    call = DoorCall(address(door), TOKEN, command)
    out: list[bytes] = []
    err: list[bytes] = []
    call.write(b"hello\n")
    assert call.follow(out.append, err.append) == 7
    assert (b"".join(out), b"".join(err)) == (b"hello n2\n", b"bad\n")


def test_who_does_not_know_the_token_starts_nothing(door: NodeDoor, tmp_path: Path) -> None:
    made = tmp_path / "made"
    with pytest.raises(DoorError):
        DoorCall(address(door), "a guess", Command(argv=("touch", str(made))))
    assert DoorCall(address(door), TOKEN, Command(argv=("true",))).follow(bytes, bytes) == 0
    assert not made.exists()


def test_a_command_ends_with_anyone_who_asked_for_it(door: NodeDoor, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    call = DoorCall(address(door), TOKEN, Command(argv=("sh", "-c", f"echo $$ > {pid_file}; sleep 600")))
    wait_until(lambda: pid_file.exists() and pid_file.read_text().strip() != "")
    call.close()
    pid = int(pid_file.read_text())
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


def test_a_program_that_is_not_there_is_reported(door: NodeDoor) -> None:
    err: list[bytes] = []
    call = DoorCall(address(door), TOKEN, Command(argv=("no-such-program",)))
    assert call.follow(bytes, err.append) == 127
    assert b"no-such-program: No such file" in b"".join(err)


def test_agents_on_several_nodes_learn_the_same_and_their_lines_stay_whole() -> None:
    doors = [NodeDoor(TOKEN) for _ in range(2)]
    for each in doors:
        threading.Thread(target=each.serve, daemon=True).start()
    known = NodeDoors(
        here="n1", token=TOKEN, doors=tuple(address(each, f"n{n}") for n, each in enumerate(doors, start=2))
    )
    say = "import os\nfor _ in range(50): print(os.environ['JOBLENS_NODE'] * 100, flush=True)\nprint(input())"
    try:
        agents = DoorAgents("ray", "", known)
        processes = agents.start(("n2", "n3"), (*PYTHON, say))
        assert processes.stdin is not None
        assert processes.stdout is not None
        processes.stdin.write(b"end\n")
        lines = processes.stdout.read().split()
        processes.stdin.close()
        processes.wait(10)
        processes.stdout.close()
    finally:
        for each in doors:
            each.close()
    assert sorted(set(lines)) == [b"end", b"n2" * 100, b"n3" * 100]
    assert len(lines) == 102
    assert agents.allocation.nodes == ("n1", "n2", "n3")


def test_a_command_is_sent_to_a_node_as_rsh_would(door: NodeDoor, tmp_path: Path) -> None:
    known = NodeDoors(here="n1", token=TOKEN, doors=(address(door),))
    path = tmp_path / "doors"
    env = {**os.environ, **DoorAgents("ray", "", known).variables("a-job", str(path))}
    assert path.stat().st_mode & 0o777 == 0o600
    assert TOKEN not in json.dumps({name: value for name, value in env.items() if name not in os.environ})
    agent = env["OMPI_MCA_plm_rsh_agent"].split()
    from joblens.agent.nodes.protocol import TaskDoor

    announced = TaskDoor("a-job", "n2", lambda pid: "joined")
    try:
        words = [*agent, "n2", "cat; echo", "$JOBLENS_NODE;", "exit", "3"]
        ran = subprocess.run(words, env=env, input="in\n", capture_output=True, text=True, check=False)
    finally:
        announced.close()
    assert (ran.returncode, ran.stdout) == (3, "in\nn2\n")
    assert announced.taken == 1
    lost = subprocess.run([*agent, "n9", "true"], env=env, capture_output=True, text=True, check=False)
    assert lost.returncode == 255
    assert "has no node n9" in lost.stderr
    assert agent[0] == sys.executable
