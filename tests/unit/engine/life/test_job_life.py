import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joblens.engine.life.job_life import (
    KILL_AGAIN_S,
    Command,
    Emptied,
    EndCause,
    Event,
    Exited,
    Finish,
    Forgiven,
    JobLife,
    KillAll,
    Phase,
    Send,
    Started,
    StopAsked,
    Tick,
    next_wake_s,
    on_event,
)

INT, TERM, KILL, USR1 = signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1


def running(**settings: Any) -> JobLife:
    life, commands = on_event(JobLife(**settings), Started(), 100.0)
    assert commands == []
    return life


def play(life: JobLife, *events: tuple[float, Event]) -> tuple[JobLife, list[tuple[float, Command]]]:
    done: list[tuple[float, Command]] = []
    for at_s, event in events:
        life, commands = on_event(life, event, at_s)
        done += [(at_s, command) for command in commands]
    return life, done


def test_a_job_that_exits_alone_is_over() -> None:
    life, done = play(running(), (103.0, Exited(0)))
    assert life.phase is Phase.OVER
    assert done == [(103.0, Finish())]
    assert life.cause is EndCause.NONE


def test_without_a_timeout_nothing_is_due() -> None:
    assert next_wake_s(running()) is None


# time-out


def test_a_timeout_sends_term_then_kill_after_the_grace_time() -> None:
    life = running(timeout_s=5.0, grace_s=10.0)
    assert next_wake_s(life) == 105.0
    life, done = play(life, (104.9, Tick()), (105.0, Tick()), (114.9, Tick()), (115.0, Tick()))
    assert done == [(105.0, Send(TERM)), (115.0, KillAll())]
    assert life.cause is EndCause.TIMEOUT


def test_kill_is_repeated_until_the_job_is_gone() -> None:
    life = running(timeout_s=0.0, grace_s=0.0)
    life, done = play(life, (100.0, Tick()), (100.0, Tick()), (100.1, Tick()), (100.0 + KILL_AGAIN_S, Tick()))
    assert [command for _, command in done] == [Send(TERM), KillAll(), KillAll()]


def test_a_job_that_heeds_term_keeps_timeout_as_its_cause() -> None:
    life, done = play(running(timeout_s=5.0), (105.0, Tick()), (105.5, Exited(0)))
    assert life.cause is EndCause.TIMEOUT
    assert done[-1] == (105.5, Finish())


def test_an_early_signal_comes_before_the_timeout_and_once() -> None:
    life = running(timeout_s=60.0, early_signal=USR1, early_lead_s=20.0)
    assert next_wake_s(life) == 140.0
    life, done = play(life, (140.0, Tick()), (150.0, Tick()), (160.0, Tick()))
    assert done == [(140.0, Send(USR1)), (160.0, Send(TERM))]


def test_a_job_whose_lead_was_its_grace_is_killed_at_the_timeout() -> None:
    life = running(timeout_s=60.0, early_signal=USR1, early_lead_s=20.0, lead_is_grace=True)
    life, done = play(life, (140.0, Tick()), (160.0, Tick()))
    assert done == [(140.0, Send(USR1)), (160.0, KillAll())]
    assert life.cause is EndCause.TIMEOUT


def test_an_early_signal_longer_before_than_the_whole_time_comes_at_once() -> None:
    life = running(timeout_s=5.0, early_signal=USR1, early_lead_s=60.0)
    assert next_wake_s(life) == 100.0


def test_an_early_signal_without_a_timeout_is_never_sent() -> None:
    assert next_wake_s(running(early_signal=USR1, early_lead_s=5.0)) is None


# asked to stop


def test_ctrl_c_goes_on_as_interrupt_then_term_then_kill() -> None:
    life = running(grace_s=10.0)
    life, done = play(
        life, (101.0, StopAsked(EndCause.CANCELLED, INT)), (106.0, Tick()), (110.9, Tick()), (111.0, Tick())
    )
    assert done == [(101.0, Send(INT)), (106.0, Send(TERM)), (111.0, KillAll())]
    assert (life.cause, life.first_signal) == (EndCause.CANCELLED, INT)


def test_asking_again_goes_on_to_the_next_step_at_once() -> None:
    again = StopAsked(EndCause.CANCELLED, INT)
    _, done = play(running(), (101.0, again), (101.5, again), (102.0, again))
    assert [command for _, command in done] == [Send(INT), Send(TERM), KillAll()]


def test_a_limit_seen_again_while_ending_changes_nothing() -> None:
    over = StopAsked(EndCause.PIDS_LIMIT)
    _, done = play(running(), (101.0, over), (101.1, over), (101.2, over))
    assert done == [(101.0, Send(TERM))]


def test_asked_with_kill_everything_is_killed_at_once() -> None:
    life, done = play(running(), (101.0, StopAsked(EndCause.MEMORY_LIMIT, KILL)))
    assert done == [(101.0, KillAll())]
    assert life.cause is EndCause.MEMORY_LIMIT
    assert next_wake_s(life) == pytest.approx(101.0 + KILL_AGAIN_S)


def test_the_first_cause_stands() -> None:
    life, _ = play(
        running(timeout_s=5.0),
        (101.0, StopAsked(EndCause.CANCELLED)),
        (102.0, StopAsked(EndCause.MEMORY_LIMIT, KILL)),
        (105.0, Tick()),
    )
    assert life.cause is EndCause.CANCELLED


def test_a_stop_asked_before_the_start_is_sent_at_the_start() -> None:
    life, _ = on_event(JobLife(), StopAsked(EndCause.CANCELLED), 99.0)
    life, commands = on_event(life, Started(), 100.0)
    assert commands == [Send(TERM)]


def test_a_timeout_does_not_come_after_a_cancel() -> None:
    _life, done = play(
        running(timeout_s=5.0, grace_s=60.0), (101.0, StopAsked(EndCause.CANCELLED)), (105.0, Tick())
    )
    assert done == [(101.0, Send(TERM))]


def test_a_forgiven_interrupt_lets_the_job_go_on_with_its_timeout() -> None:
    life, done = play(
        running(timeout_s=50.0),
        (101.0, StopAsked(EndCause.CANCELLED, INT)),
        (101.1, Forgiven()),
        (120.0, Tick()),
    )
    assert done == [(101.0, Send(INT))]
    assert (life.cause, next_wake_s(life)) == (EndCause.NONE, 150.0)


def test_a_timeout_is_not_forgiven() -> None:
    life, _ = play(running(timeout_s=5.0), (105.0, Tick()), (105.1, Forgiven()))
    assert life.cause is EndCause.TIMEOUT


# what is left behind


def test_what_outlives_the_main_process_is_asked_and_then_killed() -> None:
    life, done = play(running(), (103.0, Exited(2)), (104.0, Tick()), (105.0, Tick()))
    assert (life.phase, life.leftovers) == (Phase.DRAINING, 2)
    assert done == [(103.0, Send(TERM)), (105.0, KillAll())]


def test_leftovers_that_go_by_themselves_end_it() -> None:
    life, done = play(running(), (103.0, Exited(1)), (103.1, Emptied()))
    assert life.phase is Phase.OVER
    assert done[-1] == (103.1, Finish())
    assert next_wake_s(life) is None


def test_a_stop_while_draining_kills_at_once_and_is_not_the_cause() -> None:
    life, done = play(running(), (103.0, Exited(1)), (103.5, StopAsked(EndCause.CANCELLED)))
    assert done[-1] == (103.5, KillAll())
    assert life.cause is EndCause.NONE
    assert next_wake_s(life) == pytest.approx(103.5 + KILL_AGAIN_S)


def test_the_timeout_ends_with_the_main_process() -> None:
    life, done = play(running(timeout_s=3.5, grace_s=60.0), (103.0, Exited(1)), (103.6, Tick()))
    assert life.cause is EndCause.NONE
    assert done == [(103.0, Send(TERM))]


# always

moments = st.lists(
    st.tuples(
        st.floats(0, 5),
        st.sampled_from(
            [
                *(Tick(), Tick(), Exited(0), Exited(2), Emptied(), Forgiven()),
                *(StopAsked(EndCause.CANCELLED, number) for number in (INT, TERM, KILL)),
                StopAsked(EndCause.MEMORY_LIMIT, KILL),
            ]
        ),
    ),
    max_size=30,
)


@given(moments, st.none() | st.floats(0, 20), st.floats(0, 10))
def test_whatever_happens_it_finishes_once_and_is_silent_then(
    steps: list[tuple[float, Event]], timeout_s: float | None, grace_s: float
) -> None:
    life = running(timeout_s=timeout_s, grace_s=grace_s)
    now_s, finished = 100.0, 0
    for wait_s, event in steps:
        now_s += wait_s
        was_over = life.phase is Phase.OVER
        life, commands = on_event(life, event, now_s)
        finished += commands.count(Finish())
        assert not (was_over and commands)
    assert finished == (1 if life.phase is Phase.OVER else 0)


@given(moments, st.floats(0, 10))
def test_a_job_asked_to_stop_is_killed_in_the_end_if_it_does_not_go(
    steps: list[tuple[float, Event]], grace_s: float
) -> None:
    life = running(grace_s=grace_s)
    now_s = 100.0
    for wait_s, event in [*steps, (0.0, StopAsked(EndCause.CANCELLED))]:
        now_s += wait_s
        life, _ = on_event(life, event, now_s)
    for _ in range(4):  # INT, TERM, KILL
        due_s = next_wake_s(life)
        if due_s is None:
            break
        now_s = max(now_s, due_s)
        life, commands = on_event(life, Tick(), now_s)
        if KillAll() in commands:
            return
    assert life.phase is Phase.OVER
