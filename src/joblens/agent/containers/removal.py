"""Container removal program: removes the container of a job whose client could not, as `container_removal
NOTE UUID`. A separate process, because an engine may take any time to answer."""

import sys
import time
from collections.abc import Callable

from msgspec.structs import replace

from joblens.agent.containers.job import start_removal
from joblens.agent.containers.protocol import jobs_with_note, note_path, read_note, remove_note, write_note
from joblens.files.private import age_s
from joblens.model.errors import ContainerError
from joblens.probes.containers.api import connect
from joblens.probes.containers.info import JOB_LABEL

_ANSWER_S = 10.0
_TRIES = 20  # while another process removes it
_PAUSE_S = 0.1
_TRIES_IN_ALL = 20
_BETWEEN_TRIES_S = 60.0


def remove_container(path: str, uuid: str) -> bool:
    """Returns False if the engine did not answer; the note stays for the next attempt."""
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
    write_note(path, replace(note, tries=note.tries + 1))
    return False


def sweep_notes(spool_dir: str, is_over: Callable[[str], bool], now_us: int) -> None:
    """Retries the removal of containers whose engine did not answer, without waiting.
    `is_over`: returns whether the job of a UUID has ended."""
    for uuid in jobs_with_note(spool_dir):
        path = note_path(spool_dir, uuid)
        note = read_note(path)
        if not is_over(uuid):
            continue
        if note is None or note.is_removed or not note.engine or note.tries >= _TRIES_IN_ALL:
            remove_note(path)
        elif note.tries == 0 or age_s(path, now_us) > _BETWEEN_TRIES_S:
            start_removal(path, uuid)


if __name__ == "__main__":
    sys.exit(0 if remove_container(sys.argv[1], sys.argv[2]) else 1)
