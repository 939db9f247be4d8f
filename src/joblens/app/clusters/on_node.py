"""Runs a command on another node of its job: `python -m joblens.app.clusters.on_node NODE COMMAND…`.

It works like rsh, for an mpirun without ssh. Its processes are counted as the job's.
"""

import os
import sys
import threading

import msgspec

from joblens.runners.nodes.remote_processes import (
    DOORS_VARIABLE,
    NODE_VARIABLE,
    PYTHON,
    Command,
    DoorCall,
    NodeDoorFile,
)

_WAIT_S = "10"  # for the agent of the node to start
_FAILED = 255  # as rsh and ssh


def main(words: list[str]) -> int:
    if len(words) < 2:
        sys.stderr.write("on_node: usage: on_node NODE COMMAND\n")
        return 2
    node, line = words[0], " ".join(words[1:])
    try:
        with open(os.environ.get(DOORS_VARIABLE, ""), "rb") as file:
            known = msgspec.json.decode(file.read(), type=NodeDoorFile)
        door = next((each for each in known.doors.doors if each.node == node), None)
        if door is None:
            names = ", ".join(each.node for each in known.doors.doors)
            sys.stderr.write(f"on_node: the job has no node {node} besides this one; it has {names}\n")
            return _FAILED
        announced = (PYTHON, "-P", "-m", "joblens.agent.nodes.task_prolog", known.uuid, _WAIT_S)
        command = Command(
            argv=(*announced, "/bin/sh", "-c", line), env={NODE_VARIABLE: node}, cwd=os.getcwd()
        )
        call = DoorCall(door, known.doors.token, command)
    except (OSError, msgspec.MsgspecError) as error:
        sys.stderr.write(f"on_node: {node} cannot be reached: {error}\n")
        return _FAILED
    threading.Thread(target=_pass_on, args=(call,), daemon=True).start()
    return call.follow(lambda data: os.write(1, data), lambda data: os.write(2, data))


def _pass_on(call: DoorCall) -> None:
    try:
        while data := os.read(0, 1 << 16):
            call.write(data)
    except OSError:
        return
    call.end_input()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
