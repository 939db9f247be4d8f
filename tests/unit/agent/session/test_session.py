"""Decisions of the session of a job: what comes before its first instruction, who is signalled when, what is
recorded. Launcher, groups, store and clock are fakes."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from joblens.agent.launcher import launcher as launcher_module
from joblens.agent.launcher.launch import LaunchPlan
from joblens.agent.measuring.meter import JobMeter
from joblens.agent.session.context import AgentContext, PreparedLauncher
from joblens.agent.session.session import JobSession
from joblens.engine.life.job_life import EndCause
from joblens.model.errors import LauncherLost, LaunchError
from joblens.model.jobs.job import Job, Outcome, Owner, Requirements, Status
from joblens.model.writes import JobEnded, JobQueued, JobStarted, SamplesTaken, Write
from tests.unit.agent.fake_clock import FakeClock

NOTHING_USED = tuple(0 for _ in launcher_module.TOTALS)
HELD_BYTES = 5_000_000


class Readings:
    """A probe of a job that holds some memory."""

    name = "readings"
    sources: Mapping[str, str] = {}
    unknown: Mapping[str, str] = {}

    def read(self) -> dict[str, Any]:
        return {"memory_current_bytes": HELD_BYTES, "memory_anon_bytes": HELD_BYTES, "processes": 1}

    def close(self) -> None: ...


class Nothing(Readings):
    """A probe of the machine that finds nothing."""

    def read(self) -> dict[str, Any]:
        return {}


class Bench:
    """A session, and all that it did, in order."""

    def __init__(self, job: Job) -> None:
        self.done: list[str] = []
        self.writes: list[Write] = []
        self.pids: list[int] = []  # of the job's processes that are alive
        self.clock = FakeClock()
        self.messages: list[tuple[Any, ...]] = []  # of the launcher; none: it is gone
        self.fails_to_launch = False
        self.timed: list[Any] = []
        self.samplers: dict[str, Callable[[], object]] = {}
        self._stored: list[Callable[[], None]] = []  # follow when the store has written
        launcher: Any = SimpleNamespace(
            pid=os.getpid(),
            socket=None,
            set_plan=lambda plan: self.done.append("give"),
            prepare=self._prepare,
            go=lambda files: self.done.append("go"),
            receive=self._receive,
            signal_main=lambda number: self.done.append(f"main {signal.Signals(number).name}"),
            abandon=lambda: self.done.append("abandon"),
            bye=lambda: self.done.append("bye"),
        )
        groups: Any = SimpleNamespace(
            kind="v2",
            paths={},
            attach_files=tuple,
            pids=lambda: self.pids,
            is_empty=lambda: not self.pids,
            signal=lambda number: self.done.append(f"all {signal.Signals(number).name}"),
            kill=self._kill,
            remove=lambda: self.done.append("remove groups"),
            set_limits=lambda *_: {},
        )
        self.session = JobSession(
            job,
            LaunchPlan(argv=job.argv, env={}),
            self._context(),
            on_outcome=lambda _: self.done.append("outcome known"),
            on_end=lambda _: self.done.append("end"),
            prepared=PreparedLauncher(launcher, groups),
        )

    def _context(self) -> AgentContext:
        loop: Any = SimpleNamespace(
            call=lambda function: function(),
            watch=lambda *_: None,
            unwatch=lambda *_: None,
            add_timed=self.timed.append,
            remove_timed=lambda one: self.timed.clear(),
        )
        recorder: Any = SimpleNamespace(put=self._put, record=self._record)
        sampler: Any = SimpleNamespace(
            add=lambda key, _interval_s, call: self.samplers.__setitem__(key, call),
            remove=lambda key: self.samplers.pop(key, None),
            change=lambda *_: None,
        )
        meter = JobMeter(Readings(), None, Nothing(), self.clock, probe_counts_reaped=False)
        accountant: Any = SimpleNamespace(meter=lambda *_: meter, reason_for=lambda _: "")
        instruments: Any = SimpleNamespace(
            open=lambda _: SimpleNamespace(probes=(), details=(), close=lambda: None)
        )
        host: Any = SimpleNamespace(kernel="6.1", cpu_count=2, memory_total_bytes=1 << 30)
        return AgentContext(
            recorder=recorder,
            sampler=sampler,
            accountant=accountant,
            clock=self.clock,
            loop=loop,
            owner=Owner(pid=1, host="here", boot_id="boot", start_ticks=0),
            host=host,
            spool_dir="/spool",
            instruments=instruments,
        )

    def _prepare(self, **_: Any) -> tuple[int, int]:
        if self.fails_to_launch:
            raise LaunchError("no such program: nothing")
        self.done.append("prepare")
        self.pids = [4711]
        return 4711, 1

    def _receive(self) -> tuple[Any, ...]:
        if not self.messages:
            raise LauncherLost("gone")
        return self.messages.pop(0)

    def _kill(self) -> None:
        self.done.append("kill")
        self.pids = []

    def _put(
        self, writes: Sequence[Write], *, can_wait: bool = False, then: Callable[[], None] | None = None
    ) -> None:
        self.writes += writes
        if then is not None:
            self._stored.append(then)

    def _record(self, _uuid: str, writes: Sequence[Write], then: Callable[[int | None], None]) -> None:
        self.writes += writes
        self._stored.append(lambda: then(7))

    def store(self) -> None:
        """The store has written everything."""
        stored, self._stored = self._stored, []
        for then in stored:
            then()

    def begin(self) -> None:
        self.session.start()
        self.store()
        self.done.clear()

    def receive(self, *message: Any) -> None:
        """From the launcher."""
        self.messages.append(message)
        self.session._on_message()

    def main_process_exits(self, code: int = 0) -> None:
        self.receive("exited", code << 8, NOTHING_USED, self.clock.mono_ns())

    def last_process_ends(self) -> None:
        self.pids = []
        self.receive("empty", NOTHING_USED)

    def pass_s(self, seconds: float) -> None:
        """Wakes the session as the loop would."""
        until_ns = self.clock.mono_ns() + round(seconds * 1e9)
        while (due_s := self.session.next_wake_s()) is not None and due_s * 1e9 <= until_ns:
            self.clock.pass_s(max(0.0, due_s - self.clock.mono_ns() / 1e9))
            self.session.wake()
        self.clock.pass_s((until_ns - self.clock.mono_ns()) / 1e9)

    @property
    def outcome(self) -> Outcome:
        (ended,) = [write for write in self.writes if isinstance(write, JobEnded)]
        return ended.outcome


def bench(**fields: Any) -> Bench:
    return Bench(Job(uuid="a", argv=("program",), created_at_us=1, **fields))


def kinds(writes: Sequence[Write]) -> list[type]:
    return [type(write) for write in writes if not isinstance(write, SamplesTaken)]


def test_the_store_knows_of_the_job_before_its_first_instruction_runs() -> None:
    one = bench()
    one.session.start()
    assert one.done == ["give", "prepare"]
    assert kinds(one.writes) == [JobQueued, JobStarted]
    one.store()
    assert one.done[-1] == "go"
    assert one.session.is_steady


def test_a_stop_that_comes_before_the_first_instruction_is_kept_for_it() -> None:
    one = bench()
    one.session.start()
    one.session.request_stop(EndCause.CANCELLED)
    assert one.session.is_stopping
    assert "main SIGTERM" not in one.done
    one.store()
    assert one.done[-2:] == ["go", "main SIGTERM"]
    assert not one.session.is_steady


def test_a_job_that_cannot_start_is_recorded_and_leaves_nothing() -> None:
    one = bench()
    one.fails_to_launch = True
    one.session.start()
    assert one.done == ["give", "kill", "abandon", "remove groups", "outcome known"]
    assert kinds(one.writes) == [JobQueued, JobEnded]
    assert str(one.session.error) == "no such program: nothing"
    one.store()
    assert one.done[-1] == "end"
    assert one.session.is_over
    assert not one.timed
    assert not one.samplers


def test_the_end_is_recorded_before_the_launcher_is_let_go() -> None:
    one = bench()
    one.begin()
    one.clock.pass_s(3)
    one.main_process_exits(2)
    one.last_process_ends()
    assert one.done == ["outcome known"]
    assert (one.outcome.status, one.outcome.exit_code) == (Status.FAILED, 2)
    assert one.outcome.duration_s == pytest.approx(3.0)
    one.store()
    assert one.done == ["outcome known", "remove groups", "bye", "end"]
    assert one.session.record.number == 7
    assert not one.timed
    assert not one.samplers


def test_processes_that_the_main_one_leaves_are_counted_and_ended() -> None:
    one = bench(grace_s=5.0)
    one.begin()
    one.pids = [1, 2]
    one.main_process_exits()
    assert one.done == []  # they may be just going
    one.pass_s(0.2)
    assert one.done == ["all SIGTERM"]
    one.pass_s(5.1)
    assert one.done[:2] == ["all SIGTERM", "kill"]
    one.last_process_ends()
    assert (one.outcome.status, one.outcome.leftovers) == (Status.SUCCESS, 2)


def test_processes_that_are_just_going_are_no_leftovers() -> None:
    one = bench()
    one.begin()
    one.main_process_exits()
    one.pids = []
    one.pass_s(0.2)
    one.last_process_ends()
    assert "all SIGTERM" not in one.done
    assert one.outcome.leftovers == 0


def test_a_process_that_another_put_into_the_group_is_killed_at_the_end() -> None:
    one = bench()
    one.begin()
    one.main_process_exits()
    one.receive("empty", NOTHING_USED)  # none of ours is left
    assert one.done == ["kill", "outcome known"]


def test_a_job_beyond_its_time_is_asked_and_then_killed() -> None:
    one = bench(requirements=Requirements(timeout_s=60.0), grace_s=10.0)
    one.begin()
    one.pass_s(59.0)
    assert one.done == []
    one.pass_s(1.5)
    assert one.done == ["main SIGTERM"]
    one.pass_s(9.6)
    assert one.done[:2] == ["main SIGTERM", "kill"]
    one.receive("exited", int(signal.SIGKILL), NOTHING_USED, one.clock.mono_ns())
    one.last_process_ends()
    assert one.outcome.status is Status.TIMEOUT


def test_a_limit_that_no_kernel_enforces_is_watched_and_kills() -> None:
    one = bench(requirements=Requirements(memory_bytes=HELD_BYTES - 1))
    one.begin()
    one.clock.pass_s(1)
    one.samplers["a (limits)"]()
    assert one.done == ["kill"]
    one.receive("exited", int(signal.SIGKILL), NOTHING_USED, one.clock.mono_ns())
    one.last_process_ends()
    assert one.outcome.reason == "out-of-memory"


def test_a_job_within_its_limit_is_left_alone() -> None:
    one = bench(requirements=Requirements(memory_bytes=HELD_BYTES * 100))
    one.begin()
    one.clock.pass_s(1)
    one.samplers["a (limits)"]()
    assert one.done == []
    assert not one.session.is_stopping


def test_without_its_launcher_a_job_is_ended_and_lost() -> None:
    one = bench()
    one.begin()
    one.session._on_message()
    assert one.done == ["kill", "outcome known"]
    assert one.outcome.status is Status.LOST


def test_a_launcher_that_is_lost_after_the_exit_costs_no_exit_code() -> None:
    one = bench()
    one.begin()
    one.main_process_exits(3)
    one.session._on_message()
    assert (one.outcome.status, one.outcome.exit_code) == (Status.FAILED, 3)
