"""Who drives a run may be nudged as soon as it holds the lock, and until it lets go of it."""

import os
import signal
import threading

from joblens.agent.runtime.loop import heed_as_before, heed_no_nudge


def test_a_nudge_before_the_driver_listens_does_not_end_it() -> None:
    first = signal.getsignal(signal.SIGUSR1)
    before = heed_no_nudge()
    try:
        os.kill(os.getpid(), signal.SIGUSR1)
        assert signal.getsignal(signal.SIGUSR1) not in (signal.SIG_DFL, signal.SIG_IGN)
    finally:
        heed_as_before(before)
    assert signal.getsignal(signal.SIGUSR1) is first


def test_on_another_thread_signals_are_left_alone() -> None:
    before, found = signal.getsignal(signal.SIGUSR1), []

    def drive() -> None:
        found.append(heed_no_nudge())
        heed_as_before(found[0])

    thread = threading.Thread(target=drive)
    thread.start()
    thread.join()
    assert found == [None]
    assert signal.getsignal(signal.SIGUSR1) is before
