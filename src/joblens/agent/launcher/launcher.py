"""Launcher program: a tiny process between joblens and the job.

It runs in a bare `python -I -S` (see `start_argv`) or in a fork of an owner that has imported nothing yet,
and imports almost nothing: its memory is the floor under the job's `ru_maxrss`, and every job pays for its
start. It is the subreaper of everything the job starts, so that it can wait for each process with `wait4` and
sum up the usage. It puts the job into its control groups before the first instruction of the job runs. It
outlives a killed owner: it then waits for the job and leaves the outcome in a file.

Owner and launcher exchange messages over one SEQPACKET socket, one marshalled tuple per message:
owner -> launcher   ("join", groups)  ("part", bytes)…  ("start",)  ("go", counter files)
                    ("signal", n, to its group?)  ("bye",)
launcher -> owner   ("hello", pid)  ("joined",)  ("ready", pid, start ticks)  ("running", mono ns)
                    ("failed", errno, stage, name)
                    ("exited", wait status, totals, mono ns)  ("reaped", totals)  ("empty", totals)

The parts together are the marshalled description of the command: a message of the socket is limited. ("join",
…) makes the child and moves it into its groups, which takes longest, before the command is known. `totals` is
a tuple named by TOTALS. ("bye",) after "empty" ends the launcher. If the owner vanishes instead, it writes
the outcome file with the contents of the counter files (systemd removes the job's groups as soon as this
process ends) and restores the terminal's modes."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module around it imports enum, which costs
import marshal
import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TOTALS = (
    "user_usec",
    "system_usec",
    "max_rss_bytes",
    "faults_minor",
    "faults_major",
    "context_switches_voluntary",
    "context_switches_involuntary",
    "reaped",
    "io_call_read_bytes",
    "io_call_write_bytes",
    "io_call_reads",
    "io_call_writes",
    "io_read_bytes",
    "io_write_bytes",
    "io_removed_bytes",
    "rss_floor_bytes",
)
NOTE_BYTES, NOTE_HEAD_BYTES = 4096, 48  # of a note in the ledger of slot jobs (slot_ledger.py)
MAX_MESSAGE = 1 << 17
_COUNTER_BYTES = 1 << 16
# Blocked while a launcher starts, so that a Ctrl-C in that moment does not end it; then ignored.
BLOCKED_SIGNALS = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGTSTP)
_HANDLED_HERE = (_signal.SIGCHLD, *BLOCKED_SIGNALS)
_PR_SET_CHILD_SUBREAPER = 36


def start_argv(module: str) -> list[str]:
    """Returns the command line that runs `main` of this module, or of another one beside it, in a new
    process. An import, because a script would be compiled again at every start."""
    folder = os.path.dirname(__file__)
    code = f"import sys; sys.path.insert(0, {folder!r}); {main_of(module)}"
    return [sys.executable, "-I", "-S", "-c", code]


def main_of(module: str) -> str:
    """Returns the end of its command line, which identifies it among other processes."""
    return f"import {module}; {module}.main()"


def become_subreaper() -> None:
    prctl(_PR_SET_CHILD_SUBREAPER, 1)


def prctl(option: int, argument: int | bytes) -> None:
    try:
        import _ctypes  # the ctypes package costs several milliseconds of start-up

        handle = _ctypes.dlopen(None, 2)  # type: ignore[arg-type]
        _ctypes.call_function(_ctypes.dlsym(handle, "prctl"), (option, argument, 0, 0, 0))
    except (ImportError, AttributeError, OSError):
        import ctypes

        ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)


def read_io(pid: int) -> tuple[int, ...] | None:
    """Returns rchar, wchar, syscr, syscw, read_bytes, write_bytes, cancelled_write_bytes of a living process
    and all it has reaped, or None without permission."""
    text = _read_small(f"/proc/{pid}/io")
    return None if text is None else parse_io(text)


def parse_io(text: bytes) -> tuple[int, ...]:
    words = text.split()
    return tuple(int(words[index]) for index in (1, 3, 5, 7, 9, 11, 13))


class InheritedIo:
    """I/O that /proc/self/io of this process inherits from each process it waits for. The file of an ended
    process has the same numbers, but belongs to root: its own user can no longer read it."""

    def __init__(self) -> None:
        try:
            self._file = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def wait_for(self, pid: int) -> tuple[int, Any, tuple[int, ...] | None]:
        """Returns wait status, usage, and I/O as from `read_io`. Signals must be blocked meanwhile."""
        if self._file < 0:
            return (*os.wait4(pid, 0)[1:], None)
        text = os.pread(self._file, 4096, 0)
        _, status, usage = os.wait4(pid, 0)
        after = parse_io(os.pread(self._file, 4096, 0))
        # Each reading has the state before itself: the first one is included in the second.
        ours = (len(text), 0, 1, 0, 0, 0, 0)
        io = tuple(now - was - own for now, was, own in zip(after, parse_io(text), ours, strict=True))
        return status, usage, io


def read_before_exec(pid: int) -> dict[str, int]:
    """Returns the usage of the waiting child so far, which belongs to the launcher."""
    used = {"cpu_usec": 0, "faults_minor": 0, "faults_major": 0, "rss_floor_bytes": 0, "start_ticks": 0}
    schedstat = _read_small(f"/proc/{pid}/schedstat")
    if schedstat:
        used["cpu_usec"] = int(schedstat.split()[0]) // 1000
    stat = _read_small(f"/proc/{pid}/stat")
    if stat:
        words = stat[stat.rindex(b")") + 2 :].split()
        used["faults_minor"], used["faults_major"] = int(words[7]), int(words[9])
        used["start_ticks"] = int(words[19])
    status = _read_small(f"/proc/{pid}/status")
    index = status.find(b"VmHWM:") if status else -1
    if status and index >= 0:
        used["rss_floor_bytes"] = (int(status[index + 6 : index + 30].split()[0]) + 1024) * 1024
    return used


def _read_small(path: str, size: int = 4096) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            return os.read(descriptor, size)
        finally:
            os.close(descriptor)
    except OSError:
        return None


class Tally:
    """Sum of the usage of reaped processes, less the usage of the child before it became the job."""

    def __init__(self) -> None:
        self.user_usec = self.system_usec = self.max_rss_bytes = 0
        self.faults_minor = self.faults_major = self.voluntary = self.involuntary = self.reaped = 0
        self.io: tuple[int, ...] | None = (0,) * 7
        self.before: dict[str, int] = {}
        self.io_before: tuple[int, ...] | None = None

    def child_is_ready(self, pid: int) -> None:
        self.before = read_before_exec(pid)
        self.io_before = read_io(pid)

    def add(self, usage: Any, io: tuple[int, ...] | None, *, is_main: bool) -> None:
        user = round(usage.ru_utime * 1e6)
        system = round(usage.ru_stime * 1e6)
        minor, major = usage.ru_minflt, usage.ru_majflt
        if is_main and self.before:
            share = max(0.0, 1 - self.before["cpu_usec"] / max(1, user + system))
            user, system = round(user * share), round(system * share)
            minor = max(0, minor - self.before["faults_minor"])
            major = max(0, major - self.before["faults_major"])
            if io is not None and self.io_before is not None:
                io = tuple(max(0, now - then) for now, then in zip(io, self.io_before, strict=True))
        self.user_usec += user
        self.system_usec += system
        self.faults_minor += minor
        self.faults_major += major
        self.max_rss_bytes = max(self.max_rss_bytes, usage.ru_maxrss * 1024)
        self.voluntary += usage.ru_nvcsw
        self.involuntary += usage.ru_nivcsw
        self.reaped += 1
        self.add_io(io)

    def add_io(self, io: tuple[int, ...] | None) -> None:
        if io is None or self.io is None:
            self.io = None  # one part unknown makes the sum unknown
        else:
            self.io = tuple(a + b for a, b in zip(self.io, io, strict=True))

    def totals(self) -> tuple[Any, ...]:
        return (
            self.user_usec,
            self.system_usec,
            self.max_rss_bytes,
            self.faults_minor,
            self.faults_major,
            self.voluntary,
            self.involuntary,
            self.reaped,
            *(self.io or (None,) * 7),
            self.before.get("rss_floor_bytes", 0),
        )


def write_outcome(
    path: str, status: int | None, totals: tuple[Any, ...], ended_ns: int, counter_files: list[str]
) -> None:
    """Writes the outcome file for recovery (`slot_ledger`), which reads it with ast.literal_eval. `ended_ns`
    is monotonic."""
    ended_at_us = (time.time_ns() - (time.monotonic_ns() - ended_ns)) // 1000
    counters = {file: _read_small(file, _COUNTER_BYTES) for file in counter_files}
    if None in counters.values():
        counters = {}  # the groups are gone; some of the counters would look like all of them
    facts = (status, totals, ended_at_us, ended_ns, "", counters)
    temporary = path + ".part"
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)  # removed when it seemed idle
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(descriptor, ascii(facts).encode())
    os.fsync(descriptor)
    os.close(descriptor)
    os.rename(temporary, path)


class Launcher:
    def __init__(self, socket: int) -> None:
        self.socket = socket
        self.has_owner = True
        self.main_pid = 0
        self.main_status: int | None = None
        self.tally: Tally | None = None
        self.go = self.report = -1
        self.outcome_path = ""
        self.groups: list[str] = []
        self.counter_files: list[str] = []
        self.ended_ns = 0
        self.exec_confirmed = False
        self.parts: list[bytes] = []
        self.terminal_modes: list[Any] | None = None
        self.kill_with_owner = ""  # "job", "container": killed with the owner; "": not
        self.ignored_before: list[int] = []
        self.group_signals: set[int] = set()  # signals that were sent to this process too
        self.inherited_io = InheritedIo()
        os.set_inheritable(socket, False)

    def send(self, *message: Any) -> None:
        if not self.has_owner:
            return
        try:
            os.write(self.socket, marshal.dumps(message))
        except OSError:
            self._owner_vanished()

    def join(self, attach: list[str]) -> bool:
        """Makes the child that will become the job, inside its groups. Returns whether it joined them."""
        from launcher_child import child_becomes_job  # type: ignore[import-not-found]  # the file beside this

        self.groups = [os.path.dirname(path) for path in attach]
        go_read, self.go = os.pipe()
        self.report, report_write = os.pipe()
        self.tally = Tally()
        try:
            pid = os.fork()
        except OSError as error:  # out of processes
            self._failed(marshal.dumps((error.errno or 0, "start", "")))
            return False
        if pid == 0:
            os.close(self.go)
            os.close(self.report)
            child_becomes_job(attach, self.ignored_before, go_read, report_write)
        self.main_pid = pid
        os.close(go_read)
        os.close(report_write)
        answer = os.read(self.report, 4096)
        if answer != b"*":
            self._failed(answer)
        return answer == b"*"

    def start(self, description: bytes) -> None:
        start = marshal.loads(description)
        self.outcome_path = str(start["outcome_path"])
        self.terminal_modes, self.kill_with_owner = start["terminal_modes"], start["leash"]
        if not self.main_pid and not self.join(start["attach"]):
            return
        self.groups = start["groups"] or self.groups
        _write_all(self.go, len(description).to_bytes(8, "little") + description)
        self._close_job_files(start["stdio"])
        answer = os.read(self.report, 4096)
        if answer == b"+":
            assert self.tally is not None
            self.tally.child_is_ready(self.main_pid)
            self.send("ready", self.main_pid, self.tally.before["start_ticks"])
        else:
            self._failed(answer)

    def _close_job_files(self, stdio: list[Any]) -> None:
        """Closes the job's files: held open here, they would hide the end of the job's output."""
        nothing = os.open("/dev/null", os.O_RDWR)
        for index in (0, 1, 2):
            os.dup2(nothing, index)
        for source in (nothing, *stdio):
            if isinstance(source, int) and source > 2:
                _close(source)

    def release_child(self) -> None:
        try:
            os.write(self.go, b"g")
        except OSError:
            pass
        self._close_go()
        answer = os.read(self.report, 4096)
        _close(self.report)
        if answer:
            self._failed(answer)
        else:
            self.exec_confirmed = True
            self.send("running", time.monotonic_ns())

    def _failed(self, answer: bytes) -> None:
        killed = "it was killed before its command ran; its memory limit may be too low"
        error, stage, name = marshal.loads(answer) if answer else (0, "start", killed)
        self.send("failed", error, stage, as_text(name))

    def reap(self) -> None:
        """Waits for all processes that have ended."""
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _HANDLED_HERE)
        try:
            self._reap_undisturbed()
        finally:
            _signal.pthread_sigmask(_signal.SIG_SETMASK, ())

    def _reap_undisturbed(self) -> None:
        assert self.tally is not None
        news = False
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                if self.main_status is not None:
                    self._empty()
                return
            if ended is None:
                break
            pid = ended.si_pid
            status, usage, io = self.inherited_io.wait_for(pid)
            self.tally.add(usage, io, is_main=pid == self.main_pid)
            if pid == self.main_pid:
                self.main_status = status
                self.ended_ns = time.monotonic_ns()
                self.send("exited", status, self.tally.totals(), self.ended_ns)
            else:
                news = True
        if news:
            self.send("reaped", self.tally.totals())

    def _empty(self) -> None:
        assert self.tally is not None
        totals = self.tally.totals()
        self.send("empty", totals)
        while self.has_owner:
            message = self._receive()
            if message is not None and message[0] == "bye":
                os._exit(0)
        self._leave_outcome(totals)
        os._exit(0)

    def _close_go(self) -> None:
        go, self.go = self.go, -1
        if go >= 0:
            _close(go)

    def _owner_vanished(self) -> None:
        self.has_owner = False
        if not self.exec_confirmed:
            self._close_go()  # the waiting child reads the end of the pipe and exits
        if self.terminal_modes is not None:
            from launcher_terminal import restore_terminal  # type: ignore[import-not-found]

            restore_terminal(self.terminal_modes)
        if self.kill_with_owner and self.main_pid:
            from kill_with_owner import end_with_owner  # type: ignore[import-not-found]

            end_with_owner(self.groups, self.main_pid if self.kill_with_owner == "container" else 0)

    def _leave_outcome(self, totals: tuple[Any, ...]) -> None:
        """Writes the outcome for recovery. Of a job that never ran nothing stays, not even its groups."""
        if not self.exec_confirmed:
            from kill_with_owner import remove_groups

            remove_groups(self.groups)
        elif self.outcome_path:
            write_outcome(self.outcome_path, self.main_status, totals, self.ended_ns, self.counter_files)

    def read_message(self) -> bytes:
        return os.read(self.socket, MAX_MESSAGE)

    def _receive(self) -> tuple[Any, ...] | None:
        try:
            data = self.read_message()
        except OSError:
            data = b""
        if not data:
            self._owner_vanished()
            return None
        message = marshal.loads(data)
        return message if isinstance(message, tuple) else None

    def receive(self) -> None:
        message = self._receive()
        if message is None:
            if not self.main_pid:
                os._exit(0)
        elif message[0] == "part":
            self.parts.append(message[1])
        elif message[0] == "start":
            description, self.parts = b"".join(self.parts), []
            self.start(description)
        elif message[0] == "join":
            if self.join(message[1]):
                self.send("joined")
        elif message[0] == "go":
            self.counter_files = message[1]
            self.release_child()
        elif message[0] == "signal" and self.main_status is None and self.main_pid:
            self._signal_main(message[1], whole_group=message[2])

    def _signal_main(self, number: int, *, whole_group: bool) -> None:
        if not whole_group and number in self.group_signals:
            # A job without its own session is in our process group: a key on the terminal has reached it
            # already, and two signals would mean something else.
            self.group_signals.discard(number)
            return
        # Safe from pid reuse: the main process has not been waited for, so its pid is still its own.
        try:
            (os.killpg if whole_group else os.kill)(self.main_pid, number)
        except OSError:
            pass

    def run(self) -> None:
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        os.set_blocking(wake_read, False)
        _signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        for number in BLOCKED_SIGNALS:  # it ends when the job has ended, not before
            if _signal.getsignal(number) == _signal.SIG_IGN:
                self.ignored_before.append(number)
            else:
                _signal.signal(number, lambda number, _: self.group_signals.add(number))
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())  # blocked by the owner until here
        poll = select.poll()
        poll.register(wake_read, select.POLLIN)
        poll.register(self.socket, select.POLLIN)
        self.send("hello", os.getpid())
        while True:
            for descriptor, _ in poll.poll():
                if descriptor == wake_read:
                    try:
                        os.read(wake_read, 4096)
                    except BlockingIOError:
                        pass
                else:
                    self.receive()
            if self.main_pid:
                self.reap()
            if not self.has_owner:
                try:
                    poll.unregister(self.socket)
                except KeyError:
                    pass


def as_text(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        pass  # its reason is in the other pipe


def _close(descriptor: int) -> None:
    try:
        os.close(descriptor)
    except OSError:
        pass


def main() -> None:
    become_subreaper()
    Launcher(int(sys.argv[1])).run()
