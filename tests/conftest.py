"""What every test may ask for: a joblens of its own (store, configuration, state), the real command line, and
waiting for a condition instead of for a time."""

import importlib.util
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import hypothesis
import msgspec
import pytest

from tests.fork_server import ForkServer
from tests.limits import IS_THOROUGH, pytest_addoption, pytest_sessionfinish, time_limit
from tests.servers import (
    own_postgres,
    own_rabbitmq,
    postgres_url,
    redis_server,
    shared_pooler,
    shared_postgres,
    shared_rabbitmq,
)
from tests.slurm_server import own_slurm, shared_slurm, slurm
from tests.stale_mounts import pytest_sessionstart

__all__ = [
    "own_postgres",
    "own_rabbitmq",
    "own_slurm",
    "postgres_url",
    "pytest_addoption",
    "pytest_sessionfinish",
    "pytest_sessionstart",
    "redis_server",
    "shared_pooler",
    "shared_postgres",
    "shared_rabbitmq",
    "shared_slurm",
    "slurm",
    "time_limit",
]  # fixtures and hooks for every folder of tests

# The machine may be busy: how long one example takes says nothing about the code.
hypothesis.settings.register_profile("joblens", deadline=None, max_examples=100 if IS_THOROUGH else 40)
hypothesis.settings.load_profile("joblens")


def restore_ignored_signals() -> None:
    """Commands under test get the usual dispositions, also where the tests were started by nohup or in the
    background of a shell: what a process ignores, its children ignore as well. Handlers are not handed down,
    so this process has some that do nothing; interrupting itself is what some tests do."""
    known = os.environ.get("TESTS_IGNORED_SIGNALS", "").split()  # in a process that xdist has started
    ignored = [
        number
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_IGN or number.name in known
    ]
    os.environ["TESTS_IGNORED_SIGNALS"] = " ".join(number.name for number in ignored)
    for number in ignored:
        is_interrupt = number is signal.SIGINT
        signal.signal(number, signal.default_int_handler if is_interrupt else lambda *_: None)


restore_ignored_signals()

REPOSITORY = Path(__file__).resolve().parent.parent

# Tests that ask for one of these are marked `server`.
_SERVERS = frozenset(
    {"cluster", "docker", "engine", "own_postgres", "own_rabbitmq", "own_slurm", "podman", "postgres_url"}
    | {"redis_server", "shared_pooler", "shared_postgres", "shared_rabbitmq", "shared_slurm", "slurm"}
)

T = TypeVar("T")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_on_postgres = "postgres" in getattr(getattr(item, "callspec", None), "id", "")
        if is_on_postgres or _SERVERS & set(getattr(item, "fixturenames", ())):
            item.add_marker("server")
        packages = [package for mark in item.iter_markers("needs") for package in mark.args]
        missing = [package for package in packages if importlib.util.find_spec(package) is None]
        if missing:
            item.add_marker(pytest.mark.skip(reason=f"not installed: {', '.join(missing)}"))


def python_path(*folders: str | Path) -> str:
    """Returns a PYTHONPATH with these folders first. The rest is how the tests themselves find joblens and
    its packages, which need not be installed for the interpreter."""
    return os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])


XDG_FOLDERS = {
    "XDG_CONFIG_HOME": "config",
    "XDG_DATA_HOME": "data",
    "XDG_STATE_HOME": "state",
    "XDG_CACHE_HOME": "cache",
    "XDG_RUNTIME_DIR": "runtime",
}


class Finished(msgspec.Struct, frozen=True):
    """A joblens command that has ended."""

    code: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout, or the last line where the job printed before it."""
        text = self.stdout.strip()
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return msgspec.json.decode(text.rsplit("\n", 1)[-1])

    @property
    def json_lines(self) -> list[Any]:
        return [msgspec.json.decode(line) for line in self.stdout.splitlines() if line.strip()]


class RunJoblens(Protocol):
    def __call__(
        self,
        *arguments: str | Path,
        stdin: str | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 60.0,
        code: int | None = None,
    ) -> Finished: ...


# Nothing can be written there, by root either.
_NO_HOME = Path("/proc/joblens-tests-have-no-home")
# Tests that use no disk: making folders for each of them would take longer than the tests.
_WITHOUT_DISK = tuple(str(REPOSITORY / "tests" / name) for name in ("docs", "golden", "project", "unit"))


@pytest.fixture(autouse=True)
def own_environment(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """No test sees the user's store or configuration, and none sees another test's. A test without a folder
    of its own has a home that does not exist."""
    assert _forks.can_run(os.environ), (
        "a test before this one left variables behind that the interpreter reads"
    )
    for name in list(os.environ):
        if name.startswith("JOBLENS_"):
            monkeypatch.delenv(name)
    home = _NO_HOME
    if "tmp_path" in request.fixturenames or not str(request.path).startswith(_WITHOUT_DISK):
        home = request.getfixturevalue("tmp_path") / "home"
        home.mkdir()
        for folder in XDG_FOLDERS.values():
            (home / folder).mkdir(mode=0o700)
    monkeypatch.setenv("HOME", str(home))
    for variable, folder in XDG_FOLDERS.items():
        monkeypatch.setenv(variable, str(home / folder))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "110")
    return {name: os.environ[name] for name in ("HOME", *XDG_FOLDERS)}


@pytest.fixture
def store_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for a store, also told to every joblens this test starts."""
    path = tmp_path / "store" / "joblens.db"
    monkeypatch.setenv("JOBLENS_STORE", str(path))
    return path


@pytest.fixture
def joblens(store_path: Path, tmp_path: Path) -> RunJoblens:
    """The command line as a real process with its own store: `joblens("run", "--", "true").code`."""

    def run(
        *arguments: str | Path,
        stdin: str | None = None,
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float = 60.0,
        code: int | None = None,
    ) -> Finished:
        done = completed_joblens(
            *arguments,
            stdin=None if stdin is None else stdin.encode(),
            env={**os.environ, **(env or {})},
            cwd=cwd or tmp_path,
            timeout=timeout,
        )
        return finished(done, code)

    return run


_forks = ForkServer()


@pytest.fixture(scope="session", autouse=True)
def fork_server() -> Iterator[None]:
    """Ends it after the last test."""
    yield
    _forks.close()


def completed_joblens(
    *arguments: str | Path, env: dict[str, str], cwd: Path, stdin: bytes | None = None, timeout: float = 60.0
) -> "subprocess.CompletedProcess[bytes]":
    """A process of `joblens ARGUMENTS` from start to end. Input: empty unless given."""
    words = list(map(str, arguments))
    if _forks.can_run(env):
        return _forks.run(words, stdin=stdin, env=env, cwd=cwd, timeout=timeout)
    return subprocess.run(
        [sys.executable, "-m", "joblens", *words],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        env=env,
        cwd=cwd,
        timeout=timeout,
        check=False,
    )


def finished(done: "subprocess.CompletedProcess[bytes]", code: int | None = None) -> Finished:
    """Its output as text. `code`: the exit code it must have."""
    stdout, stderr = (
        io.TextIOWrapper(io.BytesIO(written), "utf-8").read() for written in (done.stdout, done.stderr)
    )
    if code is not None:
        assert done.returncode == code, f"exit code {done.returncode}\n{stdout}\n{stderr}"
    return Finished(done.returncode, stdout, stderr)


def wait_until(condition: Callable[[], T], *, timeout: float = 20.0, what: str = "the condition") -> T:
    """Ask until the answer is true and return it; fail with `what` when the time is up."""
    end = time.monotonic() + timeout
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() > end:
            pytest.fail(f"waited {timeout:g}s for {what}, which did not happen")
        time.sleep(0.02)


@pytest.fixture(name="wait_until")
def wait_until_fixture() -> Callable[..., Any]:
    return wait_until


@pytest.fixture
def processes_to_end() -> Iterator[list[subprocess.Popen[Any]]]:
    """Put every process here that a test leaves running; each is killed and waited for at the end."""
    started: list[subprocess.Popen[Any]] = []
    yield started
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
