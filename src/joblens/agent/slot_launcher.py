"""A launcher that stays: it sits inside the control groups of one slot and runs one job after another.

Children of a process are born in its groups, so no job has to be moved (which waits for the kernel) and
the cost of a start is that of a bare spawn. Like launcher.py it is run as a plain file by `python -I -S`.

  owner -> launcher   (uuid, argv, env changes, cwd)   |  () to end
  launcher -> owner   ("hello", pid)  ("done", pid, wait status, totals, own CPU usec, mono start, mono end,
                      stdout bytes, stderr bytes, others alive)  ("failed", errno, stage, name)"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module around it imports enum, which costs
import marshal
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

sys.path.insert(0, os.path.dirname(__file__))
import launcher  # type: ignore[import-not-found]  # noqa: E402 - the file beside this one; not part of a package here

_MAX_MESSAGE = 1 << 20
_DEFAULTS = (
    _signal.SIGPIPE,
    _signal.SIGXFSZ,
    _signal.SIGINT,
    _signal.SIGTERM,
    _signal.SIGHUP,
    _signal.SIGQUIT,
    _signal.SIGTSTP,
)
_RSS_SLACK_BYTES = 1 << 20


class SlotLauncher:
    def __init__(self, socket: int, files: str, outcomes: str, logs: str) -> None:
        self.socket = socket
        self.files = files  # path prefix of the two files jobs print to
        self.outcomes = outcomes
        self.logs = logs
        self.env = dict(os.environb)
        self.cwd = os.getcwd()
        self.rss_floor = self._own_peak_rss()
        self.out = self._open("out")
        self.err = self._open("err")

    def _open(self, suffix: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC
        return os.open(f"{self.files}.{suffix}", flags, 0o600)

    def _own_peak_rss(self) -> int:
        own: int = launcher.read_before_exec(os.getpid())["rss_floor_bytes"]
        return own + _RSS_SLACK_BYTES

    def run(self) -> None:
        self._answer("hello", os.getpid())
        while True:
            try:
                data = os.read(self.socket, _MAX_MESSAGE)
            except OSError:
                data = b""
            message = marshal.loads(data) if data else ()  # noqa: S302 - from the owner, over our own socket
            if not message:
                break
            self._one(*message)
        for suffix in ("out", "err"):
            os.unlink(f"{self.files}.{suffix}")

    def _one(self, uuid: str, argv: list[bytes], changes: dict[bytes, bytes], cwd: str) -> None:
        own_before = time.process_time_ns()
        try:
            pid = self._spawn(uuid, argv, changes, cwd)
        except OSError as error:
            name = error.filename
            stage = "enter the directory" if name == cwd else "execute"
            self._answer("failed", error.errno or 0, stage, launcher.as_text(name))
            return
        started_ns = time.monotonic_ns()
        # Look first and take away after: until then /proc still knows what it read and wrote.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        ended_ns = time.monotonic_ns()
        tally = launcher.Tally()
        tally.before = {
            "cpu_usec": 0,
            "faults_minor": 0,
            "faults_major": 0,
            "rss_floor_bytes": self.rss_floor,
        }
        io = launcher.read_io(pid)
        _, status, usage = os.wait4(pid, 0)
        tally.add(usage, io, is_main=True)
        alive = self._reap_others(tally)
        printed = self._put_output_away(uuid)
        own_usec = (time.process_time_ns() - own_before) // 1000
        answer = (pid, status, tally.totals(), own_usec, started_ns, ended_ns, *printed, alive)
        if not self._answer("done", *answer):
            self._write_outcome(uuid, status, tally.totals())

    def _spawn(self, uuid: str, argv: list[bytes], changes: dict[bytes, bytes], cwd: str) -> int:
        if cwd != self.cwd:
            os.chdir(cwd)
            self.cwd = cwd
        env = {**self.env, **changes, b"JOBLENS_JOB_ID": uuid.encode()}
        return os.posix_spawnp(
            argv[0],
            argv,
            env,
            file_actions=(
                (os.POSIX_SPAWN_DUP2, self.out, 1),
                (os.POSIX_SPAWN_DUP2, self.err, 2),
            ),
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULTS,
        )

    def _reap_others(self, tally: launcher.Tally) -> bool:
        """Orphans of the job came to this process. True: some are still running."""
        while True:
            try:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return False
            if ended is None:
                return True
            io = launcher.read_io(ended.si_pid)
            _, _, usage = os.wait4(ended.si_pid, 0)
            tally.add(usage, io, is_main=False)

    def _put_output_away(self, uuid: str) -> tuple[int, int]:
        """Most short jobs print nothing and the same two empty files serve the next one."""
        sizes = os.fstat(self.out).st_size, os.fstat(self.err).st_size
        if not any(sizes):
            return sizes
        folder = os.path.join(self.logs, uuid)
        os.makedirs(folder, 0o700, exist_ok=True)
        for suffix, name in (("out", "stdout.log"), ("err", "stderr.log")):
            os.rename(f"{self.files}.{suffix}", os.path.join(folder, name))
        os.close(self.out)
        os.close(self.err)
        self.out, self.err = self._open("out"), self._open("err")
        return sizes

    def _answer(self, *message: Any) -> bool:
        try:
            os.write(self.socket, marshal.dumps(message))
        except OSError:
            return False
        return True

    def _write_outcome(self, uuid: str, status: int, totals: tuple[Any, ...]) -> None:
        launcher.write_outcome(os.path.join(self.outcomes, f"{uuid}.outcome"), status, totals)


def main() -> None:
    socket, files, outcomes, logs, *attach = sys.argv[1:]
    launcher.become_subreaper()
    for path in attach:
        descriptor = os.open(path, os.O_WRONLY)
        os.write(descriptor, b"0")
        os.close(descriptor)
    nothing = os.open("/dev/null", os.O_RDWR)
    for place in (0, 1, 2):
        os.dup2(nothing, place)
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGTSTP):
        _signal.signal(number, _signal.SIG_IGN)
    SlotLauncher(int(socket), files, outcomes, logs).run()


if __name__ == "__main__":
    main()
