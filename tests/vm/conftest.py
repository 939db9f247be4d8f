"""Tests on a machine with systemd: a virtual one that is built and booted here, or one that already runs.

`make test-vm` runs them. Environment: SUITE (bookworm or trixie), JOBLENS_VM_SSH (a command that runs
`USER COMMAND` in a login session of a running machine; no virtual one is booted then), JOBLENS_VM_CACHE,
JOBLENS_VM_ACCEL."""

import os
from collections.abc import Generator, Iterator

import pytest

from tests.vm.image import CannotBuild, build, cache_folder
from tests.vm.leftovers import Inspector, fail_on
from tests.vm.machine import Machine, MachineError, booted, running_machine
from tests.vm.situations import (
    ALICE_SSH,
    ROOT_SSH,
    SITUATIONS,
    Session,
    SessionOf,
    Situation,
    install_programs,
    manager_command,
)
from tests.vm.summary import Summary

# Read once: each test runs with an environment of its own.
SUITE = os.environ.get("SUITE") or "bookworm"
PREFIX = os.environ.get("JOBLENS_VM_SSH", "")
CACHE = cache_folder()

_summary = pytest.StashKey[Summary]()
_machine = pytest.StashKey[Machine]()


_reporter: pytest.TerminalReporter | None = None


@pytest.hookimpl(trylast=True)  # the reporter is registered by then
def pytest_configure(config: pytest.Config) -> None:
    global _reporter  # noqa: PLW0603 - a hook for reports is not given the configuration
    _reporter = config.pluginmanager.get_plugin("terminalreporter")
    config.stash[_summary] = Summary()


@pytest.fixture(scope="session")
def summary(pytestconfig: pytest.Config) -> Summary:
    return pytestconfig.stash[_summary]


@pytest.fixture(scope="session")
def machine(pytestconfig: pytest.Config, summary: Summary) -> Iterator[Machine]:
    """The machine under test, with the programs of tests/vm/inside in it."""

    def report(text: str) -> None:
        _show(pytestconfig, text)

    try:
        if PREFIX:
            yield _prepared(running_machine(PREFIX), pytestconfig, summary)
        else:
            with booted(build(SUITE, CACHE, report), report) as machine:
                report("")
                yield _prepared(machine, pytestconfig, summary)
    except (CannotBuild, MachineError) as error:
        pytest.exit(f"make test-vm: {error}", returncode=2)


def _prepared(machine: Machine, config: pytest.Config, summary: Summary) -> Machine:
    config.stash[_machine] = machine
    install_programs(machine)
    facts = machine.run("root", "systemctl --version | head -1; uname -r; joblens --version; nproc").stdout
    summary.machine = ", ".join(facts.split("\n")[:3]) + f", {facts.split()[-1]} CPUs"
    return machine


def _show(config: pytest.Config, text: str) -> None:
    """A progress line, rewritten in place on a terminal; one line per step elsewhere."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    capture = config.pluginmanager.get_plugin("capturemanager")
    if reporter is None or capture is None:
        return
    with capture.global_and_fixture_disabled():
        if reporter.isatty:
            reporter.rewrite(text, erase=True)
        elif text and not text.startswith("booting"):
            reporter.write_line(text)


@pytest.fixture(scope="session")
def inspector(machine: Machine) -> Iterator[Inspector]:
    inspector = Inspector(machine)
    yield inspector
    inspector.close()


_checked_at: dict[int, tuple[int, set[str]]] = {}  # commands run and entries, at the end of the last test


@pytest.fixture(autouse=True)
def nothing_left_behind(machine: Machine, inspector: Inspector) -> Iterator[None]:
    """Fails a test that leaves scopes, groups, processes, failed units or spool files in the machine.
    Tests that run no command cost nothing."""
    commands, before = _checked_at.get(id(machine), (-1, set()))
    if commands != machine.commands_run:
        before = inspector.entries()
        commands = machine.commands_run
        _checked_at[id(machine)] = (commands, before)
    yield
    if commands != machine.commands_run and not machine.is_interrupted:
        new = inspector.new_entries(before)
        _checked_at[id(machine)] = (machine.commands_run, inspector.entries())
        fail_on(new)


_sessions: dict[str, Session] = {}


@pytest.fixture
def session_of(machine: Machine, nothing_left_behind: None) -> Iterator[SessionOf]:
    """A session for a launch situation. A user manager that it starts is stopped after the test."""
    commands = machine.commands_run
    used: list[Situation] = []

    def session(situation: Situation) -> Session:
        used.append(situation)
        return _sessions.setdefault(situation.name, Session(machine, situation))

    yield session
    if machine.commands_run != commands and any(situation.has_manager for situation in used):
        machine.run("root", manager_command(is_running=False))


@pytest.fixture
def alice(session_of: SessionOf) -> Session:
    """The ordinary user, over ssh."""
    return session_of(ALICE_SSH)


@pytest.fixture
def root(session_of: SessionOf) -> Session:
    """The superuser, over ssh."""
    return session_of(ROOT_SSH)


@pytest.fixture(params=SITUATIONS, ids=lambda situation: situation.id)
def situation(request: pytest.FixtureRequest, session_of: SessionOf) -> Session:
    """Each launch situation in turn."""
    return session_of(request.param)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _machine in item.config.stash:
        console = item.config.stash[_machine].console()
        if console:
            report.sections.append(("End of the machine's console", console[-1500:]))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Show a failure when it happens: the whole suite takes minutes."""
    if report.failed and _reporter is not None:
        _reporter.write_line(f"\n{report.nodeid}\n{last_lines(report.longreprtext)}")


def last_lines(text: str) -> str:
    """The message of a failure in a few lines."""
    message = [line[2:] for line in text.splitlines() if line.startswith("E ")] or text.splitlines()
    return "\n".join(line[:600] for line in message[:12])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    summary = config.stash[_summary]
    if not summary.cells and not summary.numbers:
        return
    path = CACHE / f"results-{'given' if PREFIX else SUITE}.json"
    terminalreporter.section("summary of the machine")
    summary.print(terminalreporter.write_line)
    summary.save(path)
    terminalreporter.write_line(f"written to {path}")


@pytest.fixture(autouse=True)
def time_limit() -> None:
    """None here: an emulated machine takes its time, and each command in it has a limit of its own."""
