"""Launcher process as its owner controls it, and whether this process is itself inside a job."""

import _socket
import marshal
import os
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from joblens.agent.launcher import forked, launcher
from joblens.agent.launcher.launcher import main_of
from joblens.model.errors import (
    CommandNotExecutable,
    CommandNotFound,
    LauncherLost,
    LaunchError,
    ProbeError,
)
from joblens.model.jobs.job import ExitUsage
from joblens.probes.proc.kernel_files import parse_stat

_PIECE = 1 << 16  # of a description that is larger than one message of the socket
_ENOENT, _EACCES, _ENOEXEC = 2, 13, 8
_EXHAUSTED = (11, 12, 23, 24)  # EAGAIN, ENOMEM, ENFILE, EMFILE: no more processes, memory or files
_INTERPRETERS = {".py": "python3", ".sh": "bash", ".pl": "perl", ".R": "Rscript", ".jl": "julia"}


class LaunchPlan(Struct, frozen=True, kw_only=True):
    """Command that really runs: unredacted, never stored."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str = ""
    stdio: tuple[int | str, int | str, int | str] = (0, 1, 2)  # descriptor, or path to open
    new_session: bool = True
    controlling_terminal: int | None = None  # index of one of its streams
    terminal_modes: list[Any] | None = None  # modes to restore on the user's terminal if the owner is killed


_NOTHING = LaunchPlan(argv=("",), env={}, stdio=("", "", ""))


class LauncherProcess:
    """Starts a launcher and exchanges messages with it. One launcher runs one job."""

    def __init__(self, plan: LaunchPlan | None) -> None:
        """Starts the launcher without waiting for it; `prepare` waits. Without a plan it stands by: call
        `wait_until_up`, `join` and `set_plan` first."""
        self._plan = plan or _NOTHING
        self._is_up = False
        taken = forked.take_forked() if plan is not None else None
        self._is_forked = taken is not None
        self.pid, self.socket = taken or self._spawn()

    def _spawn(self) -> tuple[int, int]:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        os.set_inheritable(ours.fileno(), False)
        their_end = theirs.detach()
        argv = [*launcher.start_argv("launcher"), str(their_end)]
        # dup2 onto itself keeps a descriptor open in posix_spawn.
        actions = [(os.POSIX_SPAWN_DUP2, fd, fd) for fd in (their_end, *self._files)]
        mask = launcher.BLOCKED_SIGNALS
        try:
            pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=actions, setsigmask=mask)
        except OSError as error:
            ours.close()
            raise LaunchError(f"the launcher could not be started: {error}") from error
        finally:
            os.close(their_end)
        return pid, ours.detach()

    @property
    def _files(self) -> list[int]:
        """Descriptors of the job's streams, except this process's own streams."""
        return list(dict.fromkeys(fd for fd in self._plan.stdio if isinstance(fd, int) and fd > 2))

    def wait_until_up(self) -> None:
        """Waits until it runs."""
        if not self._is_up:
            self._expect("hello")
            self._is_up = True

    def join(self, attach: Sequence[str]) -> None:
        """Makes the job's process and moves it into its groups, before its command is known."""
        self._send("join", list(attach))

    def wait_until_joined(self) -> None:
        """Waits until the process has joined its groups."""
        self._expect("joined")

    def set_plan(self, plan: LaunchPlan) -> None:
        """Sets the job of a launcher on standby. Its streams must be files: it inherits no descriptor."""
        self._plan = plan

    def prepare(
        self,
        *,
        attach: Sequence[str],
        outcome_path: str,
        rlimits: Sequence[tuple[int, int, int]] = (),
        affinity: Sequence[int] | None = None,
        groups: Sequence[str] = (),
        kill_with_owner: str = "",
    ) -> tuple[int, int]:
        """Makes the job's process, if `join` has not, and moves it into its groups, where it waits. Returns
        (pid, start ticks). `groups`: of a job whose process does not join them; they are removed too if it
        never runs. `kill_with_owner`: 'job' or 'container' is killed when this process is gone; '' keeps it
        running."""
        self.wait_until_up()
        plan = self._plan
        start: dict[str, Any] = {
            "argv": [os.fsencode(word) for word in plan.argv],
            "env": {os.fsencode(name): os.fsencode(value) for name, value in plan.env.items()},
            "cwd": os.fsencode(plan.cwd),
            "files": self._files,
            "stdio": [os.fsencode(end) if isinstance(end, str) else end for end in plan.stdio],
            "attach": list(attach),
            "groups": list(groups),
            "rlimits": list(rlimits),
            "affinity": list(affinity) if affinity is not None else None,
            "new_session": plan.new_session,
            "controlling_terminal": plan.controlling_terminal,
            "outcome_path": outcome_path,
            "terminal_modes": plan.terminal_modes,
            "leash": kill_with_owner,  # name in launchers of earlier versions
        }
        description = marshal.dumps(start)
        for start_at in range(0, len(description), _PIECE):
            self._send("part", description[start_at : start_at + _PIECE])
        self._send("start", files=self._files if self._is_forked else ())
        ready = self._expect("ready")
        return int(ready[1]), int(ready[2])

    def go(self, counter_files: Sequence[str] = ()) -> None:
        """Lets the waiting process become the job. Raises LaunchError if that fails. If this process is
        killed, the launcher notes the contents of `counter_files` when the job has ended."""
        self._send("go", list(counter_files))
        self._expect("running")

    def signal_main(self, number: int) -> None:
        self._send("signal", int(number), self._plan.new_session)

    def bye(self) -> None:
        """Lets the launcher exit, because the outcome is recorded."""
        self._send("bye")
        self.abandon()

    def abandon(self) -> None:
        """Stops the launcher of a job that never ran."""
        os.close(self.socket)
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            pass  # the host program has reaped it

    def receive(self) -> tuple[Any, ...]:
        """Returns the next message. Raises LauncherLost if the launcher is gone."""
        try:
            data = os.read(self.socket, launcher.MAX_MESSAGE)
        except OSError:
            data = b""
        if not data:
            raise LauncherLost("the launcher ended before it reported how the job ended")
        message = marshal.loads(data)
        assert isinstance(message, tuple)
        return message

    def _send(self, *message: Any, files: Sequence[int] = ()) -> None:
        try:
            if files:
                forked.send_with_files(self.socket, marshal.dumps(message), files)
            else:
                os.write(self.socket, marshal.dumps(message))
        except OSError:
            pass  # it is gone; `receive` reports that

    def _expect(self, word: str) -> tuple[Any, ...]:
        message = self.receive()
        if message[0] == "failed":
            raise start_error(int(message[1]), str(message[2]), str(message[3]), self._plan)
        if message[0] != word:
            raise LauncherLost(f"the launcher said '{message[0]}' where '{word}' was due")
        return message


def start_error(number: int, stage: str, name: str, plan: LaunchPlan) -> LaunchError:
    """Returns the error for the user, from the operating system's error number."""
    command = plan.argv[0]
    if stage == "execute":
        return _exec_error(number, command, os.path.join(plan.cwd, command))
    reason = os.strerror(number) if number else name or "the system gave no reason"
    where = f" ({name})" if name and number else ""
    if stage == "enter the directory":
        return LaunchError(f"the job's directory {plan.cwd} cannot be entered: {reason}")
    return LaunchError(f"the job could not {stage}: {reason}{where}")


def _exec_error(number: int, command: str, path: str) -> LaunchError:
    if number == _ENOENT:
        if "/" in command and os.path.exists(path):
            return CommandNotFound(
                f"{command}: the interpreter named in its first line does not exist",
                hint="check the first line of the script, also for carriage returns",
            )
        return CommandNotFound(f"{command}: command not found", hint=_hint_for_unknown(command, path))
    if number in _EXHAUSTED:
        return LaunchError(f"{command}: cannot be started: {os.strerror(number)}")
    if number == _ENOEXEC:
        return CommandNotExecutable(
            f"{command}: not a program this machine can run",
            hint="a script needs a first line such as #!/bin/sh",
        )
    if number == _EACCES and os.path.isdir(path):
        return CommandNotExecutable(f"{command}: is a directory")
    if number == _EACCES:
        return CommandNotExecutable(f"{command}: permission denied", hint=f"chmod +x {command}")
    return CommandNotExecutable(f"{command}: {os.strerror(number)}")


def _hint_for_unknown(command: str, path: str) -> str:
    if any(character in command for character in " \t|&;<>"):
        return "a shell line goes into --shell: --shell 'a | b'"
    if not os.path.isfile(path):
        return "check the spelling and PATH"
    if os.access(path, os.X_OK):
        return f"the file is here, but not in PATH: ./{command}"
    interpreter = _INTERPRETERS.get(os.path.splitext(command)[1])
    return f"the file is here: {interpreter} {command}" if interpreter else "check the spelling and PATH"


def exit_usage_of(totals: Any) -> ExitUsage:
    """Returns a launcher's totals as a value."""
    assert isinstance(totals, tuple)
    return ExitUsage(**dict(zip(launcher.TOTALS, totals, strict=True)))


_LAUNCHERS = tuple(main_of(module).encode() for module in ("launcher", "slot_launcher"))


def is_inside_a_job() -> bool:
    """Returns whether an ancestor is a launcher. The environment does not decide: a notification has the
    job's id too, but runs outside the job."""
    pid = os.getppid()
    while pid > 1:
        try:
            if _is_launcher(f"/proc/{pid}"):
                return True
            pid = parse_stat(_read(f"/proc/{pid}/stat")).parent_pid
        except (OSError, ValueError, ProbeError):
            return False
    return False


def _is_launcher(folder: str) -> bool:
    words = _read(f"{folder}/cmdline").split(b"\0")
    return any(word.endswith(_LAUNCHERS) for word in words) or _read(f"{folder}/comm").strip() == forked.NAME


def _read(path: str) -> bytes:
    with open(path, "rb", buffering=0) as file:
        return file.read()
