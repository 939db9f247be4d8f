"""Task prolog: run by Slurm in each task of a step, just before the task becomes its program. It announces
the process to the agent that measures on this node, and waits for the answer. It never prevents a task from
running. Started without site packages, so that it costs little: it imports nothing of joblens."""

import _socket
import os
import struct
import sys
import time

_ANSWER_S = 10.0
_PAUSE_S = 0.02


def door_name(uid: int, uuid: str, node: str) -> bytes:
    """Returns an abstract socket name: no file remains, and none is shared between nodes."""
    return f"\0joblens-{uid}-{uuid}-{node}".encode()


def announce(uuid: str, wait_s: float, environ: "os._Environ[str] | dict[str, str]") -> str:
    """Announces the task. Returns the answer; '' without a listener."""
    node = environ.get("JOBLENS_NODE") or environ.get("SLURMD_NODENAME", "")
    task = environ.get("SLURM_TASK_PID") or str(os.getppid())
    step = f"{environ.get('SLURM_JOB_ID', '')}.{environ.get('SLURM_STEP_ID', '')}"
    deadline_s = time.monotonic() + wait_s
    while True:
        door = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        try:
            door.settimeout(_ANSWER_S)
            door.connect(door_name(os.geteuid(), uuid, node))
            credentials = door.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, struct.calcsize("3i"))
            if struct.unpack("3i", credentials)[1] not in (os.geteuid(), 0):
                return ""  # another user took the name
            door.send(f"{task} {environ.get('SLURM_PROCID', '')} {step}".encode())
            return door.recv(4096).decode(errors="replace")
        except OSError:
            if time.monotonic() >= deadline_s:
                return ""
            time.sleep(_PAUSE_S)
        finally:
            door.close()


if __name__ == "__main__":
    if len(sys.argv) == 3:
        announce(sys.argv[1], float(sys.argv[2]), os.environ)
    else:  # without prologs: it announces itself, and becomes the task
        announce(sys.argv[1], float(sys.argv[2]), {**os.environ, "SLURM_TASK_PID": str(os.getpid())})
        os.execvp(sys.argv[3], sys.argv[3:])
