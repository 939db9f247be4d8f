"""Takes away the container of a job whose client could not, as `container_removal NOTE UUID`.
A process of its own, because an engine may take any time to answer."""

import sys
import time

from joblens.agent.container_note import read_note, remove_note
from joblens.model.errors import ContainerError
from joblens.probes.container_api import connect
from joblens.probes.container_info import JOB_LABEL

_ANSWER_S = 10.0
_TRIES = 20  # while somebody else is at it
_PAUSE_S = 0.1


def remove_container(path: str, uuid: str) -> bool:
    """False: the engine did not answer; the note stays for the next try."""
    note = read_note(path)
    if note is None or not note.engine:
        remove_note(path)
        return True
    label = f"{JOB_LABEL}={uuid}"
    try:
        api = connect(note.engine, note.socket, timeout_s=_ANSWER_S)
        for _ in range(_TRIES):
            left = api.labelled(label)
            for container_id in left:
                api.remove(container_id)
            if not left:
                remove_note(path)
                return True
            time.sleep(_PAUSE_S)
    except ContainerError:
        pass
    return False


if __name__ == "__main__":
    sys.exit(0 if remove_container(sys.argv[1], sys.argv[2]) else 1)
