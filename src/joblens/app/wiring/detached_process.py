"""Starting processes of joblens that go on by themselves: the supervisor, the worker that is started for a
job, the driver of a run. Their own side of it is in background_process.py."""

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence

from joblens.agent.cgroups.marked import JOB_ID_VARIABLE
from joblens.agent.runtime.locks import SupervisorLock, alone
from joblens.app.wiring.child_store import store_arguments, store_environment
from joblens.app.wiring.drivers import store_name
from joblens.app.wiring.paths import spool_dir, state_dir
from joblens.files.private import make_private_folder, open_with_folder
from joblens.model.errors import SupervisorError
from joblens.model.settings import Settings

_LOG_TAIL = 400
_START_PATIENCE_S = 30.0


def log_of(what: str) -> str:
    return os.path.join(state_dir(), f"{what}.log")


def wake(lock: SupervisorLock, what: str, settings: Settings, start: Callable[[], None]) -> None:
    """Tells the one that holds the lock to look now, or starts one. Raises SupervisorError."""
    spool = spool_dir(store_name(settings))
    try:
        make_private_folder(spool)
    except OSError as error:
        raise SupervisorError(f"the {what} needs {spool}: {error.strerror}") from error
    if lock.signal_holder(signal.SIGUSR1):
        return
    # One at a time, or every one of many submits would start one, of which all but one end again.
    with alone(spool, f"starting-{what}", _START_PATIENCE_S):
        if not lock.signal_holder(signal.SIGUSR1):
            start()


def warn_of_logout(lock: SupervisorLock, what: str, warn: Callable[[str], None]) -> None:
    """Warns when logging out would end the process that holds the lock, and with it `what` it looks after."""
    holder = lock.holder() if os.path.isdir("/run/systemd/system") and os.geteuid() else None
    if holder is None:
        return
    from joblens.agent.cgroups.login_session import logout_warning
    from joblens.app.wiring.owning import current_user

    text = logout_warning(holder, current_user(), what)
    if text:
        warn(text)


def start_detached(module: str, what: str, settings: Settings, config: str | None) -> None:
    """As `start_detached_process`, with a log of its kind. Raises SupervisorError."""
    log = log_of(what)
    argv = ["-m", module, "--detach", *store_arguments(settings)]
    if config:
        argv += ["--config", os.path.abspath(config)]
    hint = f"its log is {log}; the job stays queued until one starts"
    start_detached_process(argv, log, f"the background {what}", hint, store_environment(settings))


def start_detached_process(
    argv: Sequence[str], log: str, what: str, hint: str, env: Mapping[str, str]
) -> None:
    """A Python with these arguments. Returns when it is there: the process started here ends as soon as the
    one that is wanted, its child, stands on its own, so that whoever calls this gets no child that lives on.
    `env`: what it has beside this process's own. Raises SupervisorError."""
    files = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    try:
        os.close(open_with_folder(log, os.O_WRONLY))
        command = [sys.executable, "-P", *argv]
        whole = {**_own_environment(), **env}
        pid = os.posix_spawn(sys.executable, command, whole, file_actions=files, setsid=True)
    except OSError as error:
        raise SupervisorError(f"{what} could not be started: {error}") from error
    try:
        _, status = os.waitpid(pid, 0)
    except ChildProcessError:
        return  # the host program takes its children itself
    if status:
        raise SupervisorError(f"{what} could not be started: {_last_words(log)}", hint=hint)


def _own_environment() -> dict[str, str]:
    """It is nobody's job, though a job's notification may have started it."""
    return {name: value for name, value in os.environ.items() if name != JOB_ID_VARIABLE}


def _last_words(log: str) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL))
            return file.read().decode(errors="replace").strip().rpartition("\n")[2]
    except OSError:
        return "it left no word"
