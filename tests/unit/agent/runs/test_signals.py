"""A process that holds the lock of a run survives wakeups; inside a host program no signal is touched."""

import os
import signal
import threading
from pathlib import Path

from joblens.agent.runs.signals import WAKEUP, HostSignals, ProcessSignals, wakeups_ignored
from joblens.agent.runtime.loop import Loop
from joblens.agent.runtime.ownership import RunLock

_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, WAKEUP)


def test_a_wakeup_before_the_driver_listens_does_not_end_it() -> None:
    first = signal.getsignal(WAKEUP)
    with wakeups_ignored():
        os.kill(os.getpid(), WAKEUP)
        assert signal.getsignal(WAKEUP) not in (signal.SIG_DFL, signal.SIG_IGN)
    assert signal.getsignal(WAKEUP) is first


def test_on_another_thread_signals_are_left_alone() -> None:
    before, found = signal.getsignal(WAKEUP), []

    def drive() -> None:
        with wakeups_ignored():
            found.append(signal.getsignal(WAKEUP))

    thread = threading.Thread(target=drive)
    thread.start()
    thread.join()
    assert found == [before]


def test_signals_of_the_process_reach_the_loop_and_handlers_are_restored() -> None:
    before = [signal.getsignal(number) for number in _HANDLED]
    loop, handled = Loop(), list[int]()
    with ProcessSignals().handled(loop, handled.append):
        os.kill(os.getpid(), signal.SIGTERM)
        loop.run_until(lambda: bool(handled))
    loop.close()
    assert handled == [signal.SIGTERM]
    assert [signal.getsignal(number) for number in _HANDLED] == before


def test_a_host_program_keeps_its_handlers_and_sends_by_itself() -> None:
    before = [signal.getsignal(number) for number in _HANDLED]
    loop, handled, signals = Loop(), list[int](), HostSignals()
    signals.send(signal.SIGINT)  # before the run begins
    with signals.handled(loop, handled.append):
        assert [signal.getsignal(number) for number in _HANDLED] == before
        signals.send(signal.SIGTERM)
        loop.run_until(lambda: len(handled) == 2)
    signals.send(signal.SIGINT)  # after its end nobody listens
    loop.close()
    assert handled == [signal.SIGINT, signal.SIGTERM]


def test_no_wakeup_is_sent_to_a_host_program(tmp_path: Path) -> None:
    received: list[int] = []
    before = signal.signal(WAKEUP, lambda number, _frame: received.append(number))
    lock = RunLock(str(tmp_path), "run")
    try:
        assert lock.take()
        assert RunLock(str(tmp_path), "run").signal_holder(WAKEUP)
        assert received == [WAKEUP]
        lock.refuse_signals()
        assert RunLock(str(tmp_path), "run").signal_holder(WAKEUP)  # there is a holder, which polls
        assert received == [WAKEUP]
    finally:
        lock.release()
        signal.signal(WAKEUP, before)
    assert not RunLock(str(tmp_path), "run").signal_holder(WAKEUP)
