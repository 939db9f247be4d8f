"""Limits of a test run: how long one test may take, and how many tests may be skipped."""

import os
import signal
from collections.abc import Iterator
from types import FrameType

import pytest

# Fewer examples and kills are enough for each run; TESTS_THOROUGH=1 takes as many as find rare mistakes.
IS_THOROUGH = os.environ.get("TESTS_THOROUGH", "") not in ("", "0")
LONGEST_S = 300.0  # the machine may be busy; a test that hangs takes longer


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--max-skips", type=int, metavar="N", help="fail when more than N tests are skipped; CI has a ceiling"
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    most = session.config.getoption("--max-skips")
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if most is None or reporter is None:  # without a reporter: a worker of xdist
        return
    skipped = len(reporter.stats.get("skipped", ()))
    if skipped > most:
        reporter.write_line(f"\n{skipped} tests were skipped; at most {most} may be (--max-skips)", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(autouse=True)
def time_limit(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that does not end. `@pytest.mark.within(SECONDS)` for one whose only failure is a hang."""
    mark = request.node.get_closest_marker("within")
    seconds = float(mark.args[0]) if mark is not None else LONGEST_S

    def fail(_number: int, _frame: FrameType | None) -> None:
        pytest.fail(f"no end after {seconds:g}s")

    previous = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)
