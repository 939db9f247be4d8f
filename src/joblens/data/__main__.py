"""`python -m joblens.data JOB_DIR`: executes a planned job, new or resumed."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from joblens.data.base.process_setup import imports_without_blas_threads
from joblens.files.standard_streams import guard_standard_error, guard_standard_output
from joblens.model.errors import JoblensError


class _StopSignal:
    """Signal that asked the job to stop."""

    def __init__(self) -> None:
        self.number: int | None = None
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.number = number


def _print_error(text: str) -> None:
    from joblens.views.text.style import clean_text

    sys.stderr.write(f"{clean_text(text)}\n")


def main(arguments: list[str]) -> int:
    if len(arguments) not in (1, 2):
        _print_error("usage: python -m joblens.data JOB_DIR [DIGEST_OF_ITS_PLAN]")
        return 2
    stop = _StopSignal()
    with imports_without_blas_threads():
        from joblens.data.executor.executor import execute
    try:
        end = execute(arguments[0], lambda: stop.number, *arguments[1:])
    except JoblensError as error:
        _print_error(f"joblens: {error}")
        if error.hint:
            _print_error(error.hint)
        return error.exit_code
    except OSError as error:  # the disk is full, or the job's folder was removed
        _print_error(f"joblens: {error}")
        return 1
    if end.error_message:
        _print_error(f"{end.status}: {end.error_message}")
    return end.exit_code


def _leave(code: int) -> NoReturn:
    """Exits at once: everything is written and closed, and tearing down the interpreter takes longer than a
    small partition."""
    if "ray" in sys.modules:  # Ray shuts down on its own
        sys.exit(code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    guard_standard_error()  # both streams go to files, and the disk may be full
    guard_standard_output(_print_error)
    _leave(main(sys.argv[1:]))
