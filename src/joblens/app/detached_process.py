"""Processes of joblens that go on by themselves: the supervisor, the worker that is started for a job."""

import os
import sys
from collections.abc import Sequence

from joblens.agent.marked import JOB_ID_VARIABLE
from joblens.app.child_store import store_arguments, store_environment
from joblens.app.places import state_dir
from joblens.model.errors import SupervisorError
from joblens.model.settings import Settings
from joblens.stores.private_files import make_private_folder

_LOG_TAIL = 400


def log_of(what: str) -> str:
    return os.path.join(state_dir(), f"{what}.log")


def start_detached(
    module: str, what: str, settings: Settings, config: str | None, arguments: Sequence[str] = ()
) -> None:
    """Returns when it is there. The process started here ends as soon as the one that is wanted, its child,
    stands on its own: whoever calls this gets no child that lives on. Raises SupervisorError."""
    log = log_of(what)
    argv = [sys.executable, "-P", "-m", module, "--detach", *store_arguments(settings), *arguments]
    if config:
        argv += ["--config", os.path.abspath(config)]
    files = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    try:
        make_private_folder(os.path.dirname(log))
        env = _own_environment() | store_environment(settings)
        pid = os.posix_spawn(sys.executable, argv, env, file_actions=files, setsid=True)
    except OSError as error:
        raise SupervisorError(f"the background {what} could not be started: {error}") from error
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return  # the host program takes its children itself
    if status:
        raise SupervisorError(
            f"the background {what} could not be started: {last_words(log)}",
            hint=f"its log is {log}; the job stays queued until one starts",
        )


def _own_environment() -> dict[str, str]:
    """It is nobody's job, though a job's notification may have started it."""
    return {name: value for name, value in os.environ.items() if name != JOB_ID_VARIABLE}


def last_words(log: str) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL))
            return file.read().decode(errors="replace").strip().rpartition("\n")[2]
    except OSError:
        return "it left no word"
