"""Life cycle of a job up to its end, decided purely.

    starting --Started--> running --Exited--> draining --GroupEmpty--> over
                             |  StopAsked / time-out                    ^
                             +--> stopping (signal, TERM, KILL) --Exited+

The caller feeds events with the monotonic time and executes the returned commands."""

import enum
import signal

from msgspec import Struct
from msgspec.structs import replace

KILL_AGAIN_S = 0.2
DRAIN_S = 2.0  # for processes that outlive the main one


class Phase(enum.StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"  # the main process has exited, other processes of the job have not
    OVER = "over"


class EndCause(enum.StrEnum):
    NONE = ""
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    OWNER_STOPPED = "owner-stopped"  # the process that runs it was asked to stop
    MEMORY_LIMIT = "memory-limit"  # set by the sampler where the kernel cannot enforce the limit
    PIDS_LIMIT = "pids-limit"


_BY_PEOPLE = (EndCause.CANCELLED, EndCause.OWNER_STOPPED)


class JobLife(Struct, frozen=True, kw_only=True):
    phase: Phase = Phase.STARTING
    timeout_s: float | None = None
    early_signal: int | None = None
    early_lead_s: float = 0.0
    lead_is_grace: bool = False  # the warning signal was sent already when the time-out comes
    grace_s: float = 10.0
    deadline_s: float | None = None  # monotonic
    early_at_s: float | None = None
    next_step_at_s: float | None = None  # of the escalation
    pending_signals: tuple[int, ...] = ()
    cause: EndCause = EndCause.NONE
    first_signal: int | None = None
    leftovers: int = 0


class Started(Struct, frozen=True):
    pass


class StopAsked(Struct, frozen=True):
    """A request to stop the job, or a limit that it reached."""

    cause: EndCause
    signal: int = signal.SIGTERM


class Forgiven(Struct, frozen=True):
    """The job handled the interrupt itself (a prompt, an editor) and keeps running."""


class Exited(Struct, frozen=True):
    """The main process has exited; `alive` other processes of the job are still running."""

    alive: int


class Emptied(Struct, frozen=True):
    """No process of the job is left."""


class Tick(Struct, frozen=True):
    pass


Event = Started | StopAsked | Forgiven | Exited | Emptied | Tick


class Send(Struct, frozen=True):
    signal: int


class KillAll(Struct, frozen=True):
    pass


class Finish(Struct, frozen=True):
    pass


Command = Send | KillAll | Finish


def on_event(life: JobLife, event: Event, now_s: float) -> tuple[JobLife, list[Command]]:
    if life.phase is Phase.OVER:
        return life, []
    if isinstance(event, Started):
        return _started(life, now_s)
    if isinstance(event, StopAsked):
        return _stop(life, event, now_s)
    if isinstance(event, Forgiven):
        return _forgive(life), []
    if isinstance(event, Exited):
        return _exited(life, event, now_s)
    if isinstance(event, Emptied):
        return replace(life, phase=Phase.OVER, next_step_at_s=None), [Finish()]
    return _tick(life, now_s)


def next_wake_s(life: JobLife) -> float | None:
    """Returns when a Tick is due at the latest, or None if only outside events matter."""
    if life.phase is Phase.OVER:
        return None
    times = [life.next_step_at_s]
    if life.cause is EndCause.NONE and life.phase is Phase.RUNNING:
        times += [life.deadline_s, life.early_at_s]
    return min((time for time in times if time is not None), default=None)


def _started(life: JobLife, now_s: float) -> tuple[JobLife, list[Command]]:
    deadline_s = now_s + life.timeout_s if life.timeout_s is not None else None
    early_at_s = None
    if deadline_s is not None and life.early_signal is not None:
        early_at_s = max(now_s, deadline_s - life.early_lead_s)
    running = replace(life, phase=Phase.RUNNING, deadline_s=deadline_s, early_at_s=early_at_s)
    # A stop was requested before the process existed: send the signal now.
    return running, [] if life.first_signal is None else [Send(life.first_signal)]


def _stop(life: JobLife, event: StopAsked, now_s: float) -> tuple[JobLife, list[Command]]:
    if life.phase is Phase.DRAINING:
        return _kill(life, now_s)  # the exit status of the main process is already known
    if event.signal == signal.SIGKILL:
        cause = event.cause if life.cause is EndCause.NONE else life.cause
        return _kill(replace(life, cause=cause), now_s)
    if life.cause is not EndCause.NONE:
        # A second request means it: take the next step at once. A limit is merely reported again until the
        # job is gone.
        return _escalate(life, now_s) if event.cause in _BY_PEOPLE else (life, [])
    escalation = (signal.SIGTERM,) if event.signal != signal.SIGTERM else ()
    stopping = replace(
        life,
        cause=event.cause,
        first_signal=int(event.signal),
        pending_signals=escalation,
        next_step_at_s=now_s + life.grace_s / (len(escalation) + 1),
    )
    return stopping, [Send(event.signal)]


def _forgive(life: JobLife) -> JobLife:
    if life.cause is not EndCause.CANCELLED or life.phase is not Phase.RUNNING:
        return life
    return replace(life, cause=EndCause.NONE, first_signal=None, pending_signals=(), next_step_at_s=None)


def _escalate(life: JobLife, now_s: float) -> tuple[JobLife, list[Command]]:
    if life.pending_signals:
        first, *rest = life.pending_signals
        waiting = replace(life, pending_signals=tuple(rest), next_step_at_s=now_s + life.grace_s / 2)
        return waiting, [Send(first)]
    return _kill(life, now_s)


def _kill(life: JobLife, now_s: float) -> tuple[JobLife, list[Command]]:
    # KILL is repeated: a process may be forked between listing and killing.
    return replace(life, pending_signals=(), next_step_at_s=now_s + KILL_AGAIN_S), [KillAll()]


def _exited(life: JobLife, event: Exited, now_s: float) -> tuple[JobLife, list[Command]]:
    if event.alive == 0:
        return replace(life, phase=Phase.OVER, next_step_at_s=None), [Finish()]
    # Processes must not outlive the main one: TERM first, so that they can clean up.
    draining = replace(
        life,
        phase=Phase.DRAINING,
        leftovers=event.alive,
        pending_signals=(),
        next_step_at_s=now_s + min(life.grace_s, DRAIN_S),
    )
    return draining, [Send(signal.SIGTERM)]


def _tick(life: JobLife, now_s: float) -> tuple[JobLife, list[Command]]:
    if life.next_step_at_s is not None and now_s >= life.next_step_at_s:
        return _escalate(life, now_s)
    if life.phase is not Phase.RUNNING or life.cause is not EndCause.NONE:
        return life, []
    if life.deadline_s is not None and now_s >= life.deadline_s:
        number = signal.SIGKILL if life.lead_is_grace else signal.SIGTERM
        return _stop(life, StopAsked(EndCause.TIMEOUT, number), now_s)
    if life.early_signal is not None and life.early_at_s is not None and now_s >= life.early_at_s:
        return replace(life, early_at_s=None), [Send(life.early_signal)]
    return life, []
