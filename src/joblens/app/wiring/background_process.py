"""What the processes of joblens that go on by themselves have in common; detached_process.py starts them."""

import argparse
import os
import sys
import time
from collections.abc import Callable

from joblens.app.wiring.child_store import store_of_arguments
from joblens.app.wiring.owning import current_user
from joblens.app.wiring.settings import load_settings
from joblens.model.errors import JoblensError
from joblens.model.settings import Settings
from joblens.views.text.standard_streams import guard_standard_error
from joblens.views.text.style import clean_text

_LOG_BYTES = 5 * 1024**2


def log_line(what: str, text: str) -> None:
    # The journal has time, name and process of each line already.
    begin = "" if _is_journal(2) else f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {what} {os.getpid()}: "
    sys.stderr.write(f"{begin}{clean_text(text)}\n")
    sys.stderr.flush()


def _is_journal(descriptor: int) -> bool:
    """Whether systemd connected it to its journal."""
    try:
        file = os.fstat(descriptor)
    except OSError:
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{file.st_dev}:{file.st_ino}"


def begin_service(what: str, serve: Callable[[Settings, Callable[[], None]], object]) -> None:
    """The program of one that serves a store until it is idle. `serve` gets what it is to call once it is
    there."""
    guard_standard_error()  # it goes to a file, and the disk may be full
    options = service_arguments(what).parse_args()
    if os.fstat(2).st_size > _LOG_BYTES:
        os.ftruncate(2, 0)
    try:
        settings = settings_of(options)
        _leave_directory()
        serve(settings, stand_on_its_own() if options.detach else lambda: None)
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


def stand_on_its_own() -> Callable[[], None]:
    """Goes on in a child of its own. The parent ends, well, when the child calls what is returned here,
    and with an error when the child ends before that."""
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


def _leave_directory() -> None:
    """Its first caller's directory may be unmounted or removed while it runs."""
    sys.path[:] = [os.path.abspath(entry) for entry in sys.path]
    os.chdir("/")
