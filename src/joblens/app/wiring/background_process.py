"""Background processes: started detached, given their store, restarted when joblens is replaced.

Python imports modules when they are first needed, and launchers are started from the package's folder: a
process that keeps running after an upgrade would mix two versions. It executes itself again, under the
same pid, so that a service manager or a terminal keeps it.
"""

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence

import joblens
from joblens.agent.measuring.accounting import JOB_ID_VARIABLE
from joblens.agent.runtime.ownership import SupervisorLock, exclusive_lock
from joblens.app.wiring.agent_context import current_user
from joblens.app.wiring.drivers import spool_dir, state_dir, store_name
from joblens.app.wiring.settings import load_settings
from joblens.files.private import make_private_folder, open_with_folder
from joblens.files.standard_streams import guard_standard_error
from joblens.model.errors import JoblensError, SupervisorError
from joblens.model.settings import Settings, has_password, without_password
from joblens.views.text.style import clean_text

_FROM_PARENT = "JOBLENS_STORE_FROM_PARENT"


def store_arguments(settings: Settings) -> list[str]:
    return ["--store", store_name(settings)]


def store_environment(settings: Settings) -> dict[str, str]:
    """Returns variables to add to its environment."""
    url = settings.store.url
    return {_FROM_PARENT: url} if url is not None and has_password(url) else {}


def store_of_arguments(name: str, env: MutableMapping[str, str] = os.environ) -> str:
    """Parses `store_arguments`, with the password. Jobs of this process do not get it."""
    url = env.pop(_FROM_PARENT, "")
    return url if without_password(url) == name else name


def keep_passwords_from_jobs(env: MutableMapping[str, str] = os.environ) -> None:
    """Jobs of a worker have its environment, and may be other users'."""
    from joblens.runners.celery.broker_url import remove_passwords

    remove_passwords(env)


_LOG_TAIL = 400
_START_TIMEOUT_S = 30.0


def log_of(what: str) -> str:
    return os.path.join(state_dir(), f"{what}.log")


def wake(lock: SupervisorLock, what: str, settings: Settings, start: Callable[[], None]) -> None:
    """Wakes the process that holds the lock, or starts one. Raises SupervisorError."""
    spool = spool_dir(store_name(settings))
    try:
        make_private_folder(spool)
    except OSError as error:
        raise SupervisorError(f"the {what} needs {spool}: {error.strerror}") from error
    if lock.signal_holder(signal.SIGUSR1):
        return
    # One at a time, or each of many submits would start one, of which all but one exit again.
    with exclusive_lock(spool, f"starting-{what}", _START_TIMEOUT_S):
        if not lock.signal_holder(signal.SIGUSR1):
            start()


def warn_of_logout(lock: SupervisorLock, what: str, warn: Callable[[str], None]) -> None:
    """Warns if logging out would stop the process that holds the lock, and with it `what`."""
    holder = lock.holder() if os.path.isdir("/run/systemd/system") and os.geteuid() else None
    if holder is None:
        return
    from joblens.agent.cgroups.login_session import logout_warning
    from joblens.app.wiring.agent_context import current_user

    text = logout_warning(holder, current_user(), what)
    if text:
        warn(text)


def start_detached(module: str, what: str, settings: Settings, config: str | None) -> None:
    """Like `start_detached_process`, with a log of its kind. Raises SupervisorError."""
    log = log_of(what)
    argv = ["-m", module, "--detach", *store_arguments(settings)]
    if config:
        argv += ["--config", os.path.abspath(config)]
    hint = f"its log is {log}; the job stays queued until one starts"
    start_detached_process(argv, log, f"the background {what}", hint, store_environment(settings))


def start_detached_process(
    argv: Sequence[str], log: str, what: str, hint: str, env: Mapping[str, str]
) -> None:
    """Starts Python with these arguments. Returns when it is running: the process started here exits as
    soon as the intended one, its child, is independent, so the caller gets no long-lived child. `env`:
    added to this process's own. Raises SupervisorError."""
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
        return  # the host program reaps its children itself
    if status:
        raise SupervisorError(f"{what} could not be started: {_last_words(log)}", hint=hint)


def _own_environment() -> dict[str, str]:
    """It belongs to no job, though a job's notification may have started it."""
    return {name: value for name, value in os.environ.items() if name != JOB_ID_VARIABLE}


def _last_words(log: str) -> str:
    try:
        with open(log, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _LOG_TAIL))
            return file.read().decode(errors="replace").strip().rpartition("\n")[2]
    except OSError:
        return "it left no message"


_LOG_BYTES = 5 * 1024**2


def log_line(what: str, text: str) -> None:
    # The journal already has time, name and process of each line.
    begin = "" if _is_journal(2) else f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {what} {os.getpid()}: "
    sys.stderr.write(f"{begin}{clean_text(text)}\n")
    sys.stderr.flush()


def _is_journal(descriptor: int) -> bool:
    """Returns whether systemd connected it to its journal."""
    try:
        file = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{file.st_dev}:{file.st_ino}"


def begin_service(what: str, serve: Callable[[Settings, Callable[[], None]], object]) -> None:
    """Main program of a process that serves a store until it is idle. `serve` gets the function to call
    once it is running."""
    guard_standard_error()  # it goes to a file, and the disk may be full
    options = service_arguments(what).parse_args()
    if os.fstat(2).st_size > _LOG_BYTES:
        os.ftruncate(2, 0)
    try:
        settings = settings_of(options)
        _change_to_root()
        serve(settings, daemonize() if options.detach else lambda: None)
    except (JoblensError, OSError) as error:
        log_line(what, f"ended: {error}")
        sys.exit(1)


def service_arguments(what: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"joblens {what}")
    parser.add_argument("--store", required=True)
    parser.add_argument("--config")
    parser.add_argument("--detach", action="store_true")
    return parser


def settings_of(options: argparse.Namespace) -> Settings:
    store = store_of_arguments(options.store)
    return load_settings(config=options.config, overrides={"store.url": store}).settings


def daemonize() -> Callable[[], None]:
    """Continues in a child. The parent exits with 0 when the child calls the returned function, and with
    an error if the child ends before that."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os._exit(0 if os.read(reader, 1) else 1)
    os.close(reader)
    if os.path.isdir("/run/systemd/system"):
        from joblens.agent.cgroups.login_session import leave_session

        leave_session(current_user())

    def is_there() -> None:
        os.write(writer, b"+")
        os.close(writer)

    return is_there


def _change_to_root() -> None:
    """Its first caller's directory may be unmounted or removed while it runs."""
    sys.path[:] = [os.path.abspath(entry) for entry in sys.path]
    os.chdir("/")


_POLL_S = 1.0
_TIMEOUT_S = 300.0
_ENDING = (signal.SIGTERM, signal.SIGINT)
_WAKING = (signal.SIGUSR1, signal.SIGUSR2)


class Installation:
    """The files of joblens that this process was started from."""

    def __init__(self) -> None:
        self._path = joblens.__file__ or ""
        self._first = _identity(self._path)

    @property
    def exists(self) -> bool:
        return self._first is not None

    def has_changed(self) -> bool:
        """Installers replace the package's first file with all others."""
        return _identity(self._path) != self._first


def _identity(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def restart(module: str, env: Mapping[str, str], *, is_stopping: Callable[[], bool] = lambda: False) -> None:
    """Executes this process's command line again, once the new version's `module` can be imported. `env`:
    added to the environment. `is_stopping`: a signal came since this process decided to restart. The
    restarted process gets that signal, and later ones. Raises SupervisorError."""
    received: list[int] = []
    signal.set_wakeup_fd(-1)  # the loop may be closed
    for number in _ENDING:
        signal.signal(number, lambda number, _: received.append(number))
    # Until the new handlers exist: by default these would kill it.
    for number in _WAKING:
        signal.signal(number, signal.SIG_IGN)
    if callable(signal.getsignal(signal.SIGHUP)):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    wait_until_importable(module, is_ending=lambda: bool(received) or is_stopping())
    arguments = [argument for argument in sys.orig_argv[1:] if argument != "--detach"]
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    if received or is_stopping():
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)  # pending until the new handlers exist
    try:
        os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, **env})
    except OSError as error:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        raise SupervisorError(f"cannot restart: {sys.executable}: {error.strerror}") from error


def wait_until_importable(
    module: str, timeout_s: float = _TIMEOUT_S, is_ending: Callable[[], bool] = lambda: False
) -> None:
    """Waits while an installer replaces files. `is_ending`: this process was asked to stop, and tries
    only once more. Raises SupervisorError."""
    deadline_s = time.monotonic() + timeout_s
    while not _is_importable(module):
        if time.monotonic() > deadline_s or is_ending():
            raise SupervisorError(
                f"the newly installed joblens cannot be imported ({module})",
                hint="install it again; running jobs continue",
            )
        time.sleep(_POLL_S)


def _is_importable(module: str) -> bool:
    command = [sys.executable, "-P", "-c", f"import {module}"]
    try:
        before = Installation()
        code = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        ).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False
    time.sleep(_POLL_S)  # files may still be written
    return code == 0 and before.exists and not before.has_changed()
