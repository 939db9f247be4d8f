"""Slot launcher: stays inside the control groups of one slot and runs one job after another.

Children of a process start in its groups, so no job has to be moved (which waits for the kernel), and a start
costs as much as a bare spawn. Like launcher.py it runs in a bare `python -I -S`.

owner -> launcher   ("groups", files to join them, packets?, peak?) with their descriptors: first of all, if
                    the owner can make the groups only once this process runs
                    ("counters", paths, index of the peak) the files of the groups to read after each job;
                    the peak among them is read through the descriptor that both have, and reset if
                    possible; packet counts of the kernel, if any, are read with them
                    [(uuid, argv, env changes, cwd, folder, streams, offset in the ledger, sent ahead?)…];
                    large: ("part", bytes)… ("start",)
                    ("reap",) when leftovers of the job were killed  |  () to end
launcher -> owner   ("hello", pid), or ("failed", errno, "join" or "open", path), and it ends
                    ("counters", contents)
                    ("done", wait status, totals, own CPU usec, mono start, mono end, stdout bytes,
                    stderr bytes, logs directory, others alive, contents)
                    ("failed", errno, stage, name)
                    ("skipped", uuid)
                    ("reaped", totals)

The next jobs are sent while one still runs, so that this process never waits for its owner. Such a job runs
only after a clean end of the previous one, and only if there is a permit for it, a byte in a pipe: the owner
takes a permit back to give the last of these jobs to another slot. The reader of the byte has the job.

It notes in the ledger (slot_ledger.py) that it begins a job, and how the job ended: an owner that is killed
may have received neither. Once the owner is gone it waits for the running job, kills its leftovers, and
exits. `folder` is for the job's output (empty: named by its uuid); letters in `streams` change it: c both
into stdout.log, o no standard output, e no standard error, d nothing is stored if the job succeeds."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the module around it imports enum, which costs
import marshal
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

import launcher  # type: ignore[import-not-found]  # noqa: E402 - beside this one; no package here

_MAX_MESSAGE = 1 << 17
_OTHERS = (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGTSTP, _signal.SIGUSR2)
# Python ignores the first two itself; signals that were ignored before (nohup) stay ignored for jobs.
_DEFAULTS = (
    _signal.SIGPIPE,
    _signal.SIGXFSZ,
    *(number for number in _OTHERS if _signal.getsignal(number) != _signal.SIG_IGN),
)
_RSS_SLACK_BYTES = 1 << 20
_COUNTER_BYTES = 16384
_NO_IO = (0,) * 7  # the I/O of all processes is added in one piece
_EINVAL = 22
_REAP_TIMEOUT_NS = 2_000_000_000
_ENDING_NS = 100_000_000  # for processes that end together with the main one
_LONG_NS = 1_000_000_000
_TOTALS, _OWN_USEC, _ALIVE, _CONTENTS = 2, 3, 9, 10  # in the "done" message: slot_ledger.JobDone
_NOTE_BYTES = launcher.NOTE_BYTES - launcher.NOTE_HEAD_BYTES


class CountedCalls:
    """Counts reads and writes of this process, to subtract them from /proc/self/io, which also has those of
    all processes it waited for. That file stays open and is read once per job; reading the file of each ended
    process would cost several times as much."""

    def __init__(self) -> None:
        try:
            self._file = os.open("/proc/self/io", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1
        self._read_bytes = self._written_bytes = self._reads = self._writes = 0
        self._last = self._reading()

    def read(self, descriptor: int, size: int) -> bytes:
        self._reads += 1
        data = os.read(descriptor, size)
        self._read_bytes += len(data)
        return data

    def read_into(self, descriptor: int, buffer: memoryview) -> memoryview:
        self._reads += 1
        size = os.readv(descriptor, (buffer,))
        self._read_bytes += size
        return buffer[:size]

    def pread_all(self, descriptors: list[int], size: int) -> list[bytes]:
        contents = [os.pread(descriptor, size, 0) for descriptor in descriptors]
        self._reads += len(contents)
        self._read_bytes += sum(map(len, contents))
        return contents

    def write(self, descriptor: int, data: bytes) -> None:
        self._writes += 1
        self._written_bytes += os.write(descriptor, data)

    def pwrite(self, descriptor: int, data: bytes, offset: int) -> None:
        self._writes += 1
        self._written_bytes += os.pwrite(descriptor, data, offset)

    def io_of_others(self) -> tuple[int, ...] | None:
        """Returns the I/O of processes waited for since the last call, in the order of launcher.read_io, or
        None if the kernel does not count it."""
        last, self._last = self._last, self._reading()
        if last is None or self._last is None:
            return None
        return tuple(max(0, now - before) for now, before in zip(self._last, last, strict=True))

    def _reading(self) -> tuple[int, ...] | None:
        if self._file < 0:
            return None
        data = os.pread(self._file, 4096, 0)
        words = data.split()
        found = (
            int(words[1]) - self._read_bytes,
            int(words[3]) - self._written_bytes,
            int(words[5]) - self._reads,
            int(words[7]) - self._writes,
            int(words[9]),
            int(words[11]),
            int(words[13]),
        )
        # Counted now: the kernel returns the state before this call.
        self._reads += 1
        self._read_bytes += len(data)
        return found


class SlotLauncher:
    def __init__(
        self, ends: tuple[int, int], descriptors: tuple[int, int], files: str, ledger: str, logs: str
    ) -> None:
        self.socket, self.permits = ends
        os.set_inheritable(self.socket, False)  # a job that held it would hide this process's end
        os.set_inheritable(self.permits, False)
        self.has_owner = True
        self.is_clean = True  # no process of the last job is left
        self.files = files  # path prefix of the two output files of jobs
        self.ledger = _open_ledger(ledger)
        self.name = os.path.basename(files)[1:]
        self.logs = logs
        self.env = dict(os.environb)
        self.owner_pid = os.getppid()
        self.parts: list[bytes] = []
        self.counters: list[int] = []
        self.contents: list[bytes] = []  # of the last reading
        self.peak_index = -1
        self.groups: list[str] = []
        self.unfinished: tuple[Any, ...] = ()  # uuid, offset, answer of a job of which processes still run
        packets, self.peak = descriptors  # -1: there is none
        if self.peak >= 0:
            os.set_inheritable(self.peak, False)
        self.packets: Any = None
        if packets >= 0:
            from slot_launcher_start import mapped_packets  # type: ignore[import-not-found]

            self.packets = mapped_packets(packets)
        self.own_ns = 0
        self.tally = launcher.Tally()
        self.rss_floor = self._own_peak_rss()
        self.out = self._open("out")
        self.err = self._open("err")
        self.calls = CountedCalls()  # last: earlier calls do not count

    def _open(self, suffix: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC | os.O_CLOEXEC
        return os.open(f"{self.files}.{suffix}", flags, 0o600)

    def _own_peak_rss(self) -> int:
        own: int = launcher.read_before_exec(os.getpid())["rss_floor_bytes"]
        return own + _RSS_SLACK_BYTES

    def run(self) -> None:
        self._answer("hello", os.getpid())
        # One buffer for all messages: each of this size would be allocated and freed.
        buffer = memoryview(bytearray(_MAX_MESSAGE))
        while self.has_owner:
            try:
                data = self.calls.read_into(self.socket, buffer)
            except OSError:
                data = buffer[:0]
            message = marshal.loads(data) if data else ()
            if not message:
                break
            if type(message) is list:
                for job in message:
                    self._run_if_permitted(*job)
            elif message[0] == "part":
                self.parts.append(message[1])
            elif message[0] == "counters":
                self._open_counters(*message[1:])
            elif message[0] == "start":
                whole, self.parts = b"".join(self.parts), []
                for job in marshal.loads(whole):
                    self._run_if_permitted(*job)
            else:
                self._answer("reaped", self._reap_leftovers(_REAP_TIMEOUT_NS))
        if self.unfinished:
            self._kill_leftovers()
        self.remove_files()

    def remove_files(self) -> None:
        for suffix in ("out", "err"):
            try:
                os.unlink(f"{self.files}.{suffix}")
            except OSError:
                pass

    def _open_counters(self, paths: list[str], peak_index: int) -> None:
        self.peak_index = peak_index
        for index, path in enumerate(paths):
            is_shared = index == peak_index and self.peak >= 0
            self.counters.append(self.peak if is_shared else os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        self._answer("counters", self._read_counters()[0])

    def _read_counters(self) -> tuple[list[bytes], int]:
        """Returns the contents of the files, and the CPU of this process since the last reading: it is in the
        same groups, and that part does not belong to the job."""
        before_ns, self.own_ns = self.own_ns, time.process_time_ns()
        contents = self.calls.pread_all(self.counters, _COUNTER_BYTES)
        self.contents = contents if self.packets is None else [*contents, self.packets[:]]
        return self.contents, (self.own_ns - before_ns) // 1000

    def _run_if_permitted(
        self,
        uuid: str,
        argv: list[bytes],
        changes: dict[bytes, bytes],
        cwd: str,
        folder: str,
        streams: str,
        offset: int,
        is_ahead: bool,  # noqa: FBT001 - one marshalled message
    ) -> None:
        if os.getppid() != self.owner_pid:
            return  # the owner is gone, and the job would have none
        if is_ahead and not (self._has_permit() and self.is_clean):
            self._answer("skipped", uuid)
        else:
            self._run_job(uuid, argv, changes, cwd, folder, streams, offset)

    def _reset_peak(self) -> None:
        try:
            self.calls.write(self.peak, b"0")
        except OSError:
            self.peak = -1

    def _has_permit(self) -> bool:
        try:
            return bool(self.calls.read(self.permits, 1))
        except BlockingIOError:
            return False

    def _run_job(
        self,
        uuid: str,
        argv: list[bytes],
        changes: dict[bytes, bytes],
        cwd: str,
        folder: str,
        streams: str,
        offset: int,
    ) -> None:
        self._note_begin(uuid, offset)
        if self.peak >= 0:
            self._reset_peak()  # again: the kernel frees some memory of an ended job late
        # Before, not after: the call returns when the program is loaded, and a short one has ended by then.
        started_ns = time.monotonic_ns()
        try:
            pid = self._spawn(uuid, argv, changes, cwd, streams)
        except ValueError:  # a null character in an argument
            self._report_failure(uuid, offset, _EINVAL, "execute", "")
            return
        except OSError as error:
            name = error.filename
            stage = "enter the directory" if name == cwd else "execute"
            self._report_failure(uuid, offset, error.errno or 0, stage, launcher.as_text(name))
            return
        _, status, usage = os.wait4(pid, 0)
        ended_ns = time.monotonic_ns()
        tally = launcher.Tally()
        tally.before = {
            "cpu_usec": 0,
            "faults_minor": 0,
            "faults_major": 0,
            "rss_floor_bytes": self.rss_floor,
        }
        tally.add(usage, _NO_IO, is_main=True)
        alive = self._reap_others(tally)
        tally.add_io(self.calls.io_of_others())
        if "d" in streams and status == 0:
            self._discard_output()
        printed = self._move_output(folder or os.path.join(self.logs, uuid), streams)
        contents, own_usec = self._read_counters()
        if self.peak >= 0:
            self._reset_peak()  # before the answer: a sample of the next job must not contain this one's
        answer = ("done", status, tally.totals(), own_usec, started_ns, ended_ns, *printed, alive, contents)
        self.tally = tally
        self.is_clean = not alive and not os.WIFSIGNALED(status)
        self.unfinished = (uuid, offset, answer) if alive else ()
        self._note_and_answer(uuid, offset, answer)
        if ended_ns - started_ns > _LONG_NS:
            self.calls.io_of_others()  # writing to a page after its write-back counts for this process

    def _report_failure(self, uuid: str, offset: int, error: int, stage: str, name: str) -> None:
        self.is_clean = True
        self._note_and_answer(uuid, offset, ("failed", error, stage, name))

    def _note_begin(self, uuid: str, offset: int) -> None:
        if offset < 0 or self.ledger < 0:
            return
        reaped_s = os.times()[2:4] if not self.counters else (0.0, 0.0)
        begin = time.monotonic_ns(), self.name, self.peak >= 0, reaped_s, self.contents
        self._note(uuid, offset, begin, marshal.dumps(begin))

    def _note_and_answer(self, uuid: str, offset: int, answer: tuple[Any, ...]) -> None:
        data = marshal.dumps(answer)
        if offset >= 0 and self.ledger >= 0:
            self._note(uuid, offset + launcher.NOTE_BYTES, answer, data)
        self._send(data)

    def _note(self, uuid: str, offset: int, facts: tuple[Any, ...], data: bytes) -> None:
        """`data`: the facts, which end with the contents of counters."""
        if len(data) > _NOTE_BYTES:
            data = marshal.dumps((*facts[:-1], []))
        head = (
            uuid.encode() + (time.time_ns() // 1000).to_bytes(8, "little") + len(data).to_bytes(4, "little")
        )
        try:
            self.calls.pwrite(self.ledger, head + data, offset)
        except OSError:
            pass  # a full disk: a living owner gets the answer

    def _kill_leftovers(self) -> None:
        """Kills the leftovers of the last job, because the owner is gone. The groups may vanish with the last
        process in them, so this cannot be done later."""
        self._reap_leftovers(_ENDING_NS)
        if self.unfinished:
            from kill_with_owner import end_job  # type: ignore[import-not-found]

            end_job(self.groups, reap=lambda: self._reap_others(self.tally))
            self._reap_leftovers(_REAP_TIMEOUT_NS)

    def _reap_leftovers(self, timeout_ns: int) -> tuple[Any, ...]:
        """Waits for processes that outlived the job, and returns its totals with theirs."""
        deadline_ns = time.monotonic_ns() + timeout_ns
        while (alive := self._reap_others(self.tally)) and time.monotonic_ns() < deadline_ns:
            time.sleep(0.001)
        self.tally.add_io(self.calls.io_of_others())
        totals: tuple[Any, ...] = self.tally.totals()
        if self.unfinished and not alive:
            (uuid, offset, answer), self.unfinished = self.unfinished, ()
            contents, own_usec = self._read_counters()
            if self.peak >= 0:  # it was reset when the main process had ended
                before = answer[_CONTENTS][self.peak_index]
                contents[self.peak_index] = max(before, contents[self.peak_index], key=int)
            times_and_output = answer[_OWN_USEC + 1 : _ALIVE]
            own_usec += answer[_OWN_USEC]
            done = (*answer[:_TOTALS], totals, own_usec, *times_and_output, alive, contents)
            if offset >= 0 and self.ledger >= 0:
                self._note(uuid, offset + launcher.NOTE_BYTES, done, marshal.dumps(done))
        return totals

    def _spawn(
        self, uuid: str, argv: list[bytes], changes: dict[bytes, bytes], cwd: str, streams: str
    ) -> int:
        os.chdir(cwd)  # every time: the directory of that name may have been replaced
        env = {**self.env, **changes, b"JOBLENS_JOB_ID": uuid.encode()}
        program = _find_program(argv[0], env[b"PATH"]) if b"PATH" in changes else argv[0]
        out = 0 if "o" in streams else self.out  # 0 is /dev/null
        err = out if "c" in streams else 0 if "e" in streams else self.err
        return os.posix_spawnp(
            program,
            argv,
            env,
            file_actions=((os.POSIX_SPAWN_DUP2, out, 1), (os.POSIX_SPAWN_DUP2, err, 2)),
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULTS,
        )

    def _reap_others(self, tally: launcher.Tally) -> bool:
        """Reaps orphans of the job, which are now children of this process. Returns whether some run."""
        while True:
            try:
                pid, _, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            tally.add(usage, _NO_IO, is_main=False)

    def _discard_output(self) -> None:
        os.ftruncate(self.out, 0)
        os.ftruncate(self.err, 0)

    def _move_output(self, folder: str, streams: str) -> tuple[int, int, str]:
        """Moves the output into the folder. Most short jobs print nothing, and the same two empty files serve
        the next job."""
        sizes = os.fstat(self.out).st_size, os.fstat(self.err).st_size
        if not any(sizes):
            return *sizes, ""
        files = [("out", self.out, "stdout.log")] if "o" not in streams else []
        if "c" not in streams and "e" not in streams:
            files.append(("err", self.err, "stderr.log"))
        try:
            os.makedirs(folder, 0o700, exist_ok=True)
            for suffix, descriptor, name in files:
                self._move_file(f"{self.files}.{suffix}", descriptor, os.path.join(folder, name))
            fresh = [self._open(suffix) for suffix, _, _ in files]
        except OSError:
            # It cannot be stored: it must not become output of the next job.
            self._discard_output()
            return *sizes, ""
        for (_, descriptor, _), new in zip(files, fresh, strict=True):
            os.dup2(new, descriptor, inheritable=False)
            os.close(new)
        return *sizes, folder

    def _move_file(self, path: str, descriptor: int, kept: str) -> None:
        try:
            os.rename(path, kept)
        except FileNotFoundError:  # the folder was removed: the output is still open here
            source = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC)
            target = os.open(kept, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            while data := self.calls.read(source, _MAX_MESSAGE):
                self.calls.write(target, data)
            os.close(source)
            os.close(target)

    def _answer(self, *message: Any) -> None:
        self._send(marshal.dumps(message))

    def _send(self, data: bytes) -> None:
        try:
            self.calls.write(self.socket, data)
        except OSError:
            self.has_owner = False  # jobs that it sent ahead do not start


def _open_ledger(path: str) -> int:
    """Returns -1 if there is none."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def _find_program(program: bytes, path: bytes) -> bytes:
    """Returns the program's path in the job's own PATH: posix_spawnp searches the PATH of this process."""
    if b"/" in program:
        return program
    for folder in path.split(b":"):
        candidate = os.path.join(folder or b".", program)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    raise FileNotFoundError(2, "not found", program)


def main() -> None:
    socket, permits, packets, peak, files, ledger, logs, limits, with_owner, *attach = sys.argv[1:]
    descriptors = int(packets), int(peak)
    if limits:
        from slot_launcher_start import set_limits  # the file beside this

        set_limits(limits)
    launcher.become_subreaper()
    if attach == [""]:  # they are not made yet
        from slot_launcher_start import receive_groups

        attach, descriptors = receive_groups(int(socket))
    for path in attach:
        try:
            descriptor = os.open(path, os.O_WRONLY)
            os.write(descriptor, b"0")
            os.close(descriptor)
        except OSError as error:
            os.write(int(socket), marshal.dumps(("failed", error.errno or 0, "join", path)))
            return
    nothing = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)  # a parent that ignores it passes that on
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGTSTP):
        _signal.signal(number, _signal.SIG_IGN)
    try:
        slot = SlotLauncher((int(socket), int(permits)), descriptors, files, ledger, logs)
    except OSError as error:
        name = launcher.as_text(error.filename)
        os.write(int(socket), marshal.dumps(("failed", error.errno or 0, "open", name)))
        return
    slot.groups = [os.path.dirname(path) for path in attach]
    if with_owner:
        from kill_with_owner import end_slot_with_owner

        end_slot_with_owner(slot.groups, slot.remove_files)
    slot.run()
