"""Which commands of actions are due. The commands of one action run one after the other; when one fails,
those after it are left out, and the run goes on. A run that is resumed takes up an action at the command that
failed or did not come to its end. An action that asks for nodes has no commands: it is due, and no more.

Actions of workers run on each worker of the run (`agent.served_runs`). Without others the process that drives
the run is the one worker it has."""

from collections.abc import Iterable
from itertools import chain

from joblens.engine.schedule.events import AskForNodes, RunActionCommand
from joblens.engine.schedule.retries import CUT_OFF
from joblens.model.jobs.job import Status
from joblens.model.runs.plan import Plan, PlannedAction
from joblens.model.runs.workflow_spec import WORKER_TRIGGERS, ActionType, TriggerType
from joblens.plan.workflows.graph import schedules_nodes

Due = RunActionCommand | AskForNodes
_AT_START = (TriggerType.ON_WORKFLOW_START, TriggerType.ON_WORKER_START)


class Triggers:
    def __init__(self, plan: Plan, *, is_worker: bool = True) -> None:
        """`is_worker`: this process serves the run itself."""
        self._actions = {
            place: action
            for place, action in enumerate(plan.actions)
            if schedules_nodes(action.spec) or _runs_commands(action)
        }
        self._is_worker = is_worker
        self._on_ready = self._watchers(TriggerType.ON_JOBS_READY)
        self._on_complete = self._watchers(TriggerType.ON_JOBS_COMPLETE)
        # What each action still waits for: places of jobs.
        self._missing = {
            place: set(self._actions[place].jobs)
            for place in chain(*self._on_ready.values(), *self._on_complete.values())
        }
        self._running: dict[int, int] = {}  # action -> command
        self._again: dict[int, int] = {}  # fired while it was still running: how often
        self._next: dict[int, int] = {}  # command with which an action of an earlier life of the run goes on
        self._fired: set[int] = set()
        self.failed: set[int] = set()  # actions with a command that failed

    def _watchers(self, trigger: TriggerType) -> dict[int, list[int]]:
        watchers: dict[int, list[int]] = {}
        for place, action in self._actions.items():
            if action.spec.trigger_type is trigger:
                for index in action.jobs:
                    watchers.setdefault(index, []).append(place)
        return watchers

    @property
    def any_running(self) -> bool:
        return bool(self._running)

    @property
    def start_is_over(self) -> bool:
        """Whether what runs before the first job has ended."""
        return not any(self._trigger(place) in _AT_START for place in self._running)

    def recall(self, action: int, command: int, status: Status) -> None:
        """A command that ended before this process took over. Persistent actions at the start run again."""
        if action in self._actions and not self._begins_each_time(action) and status not in CUT_OFF:
            self._next[action] = command + 1 if status is Status.SUCCESS else command

    def _begins_each_time(self, place: int) -> bool:
        trigger = self._trigger(place)
        if trigger in WORKER_TRIGGERS:
            return True
        return trigger is TriggerType.ON_WORKFLOW_START and self._actions[place].spec.persistent

    def on_start(self) -> list[Due]:
        due = self._fire_all(TriggerType.ON_WORKFLOW_START)
        return [*due, *self._fire_all(TriggerType.ON_WORKER_START)] if self._is_worker else due

    def on_complete(self) -> list[Due]:
        return self._fire_all(TriggerType.ON_WORKFLOW_COMPLETE)

    def on_worker_complete(self) -> list[Due]:
        """This process stops to serve the run."""
        return self._fire_all(TriggerType.ON_WORKER_COMPLETE) if self._is_worker else []

    def failed_elsewhere(self, action: int) -> None:
        """A command of it failed on a worker."""
        if action in self._actions:
            self.failed.add(action)

    def on_job_ready(self, index: int, *, is_final: bool) -> list[Due]:
        """It is ready or beyond: running, ended, or left out of the run. That one which was ready has ended
        makes nothing ready again."""
        places = self._on_ready.get(index, ())
        return self._seen(index, [one for one in places if not is_final or index in self._missing[one]])

    def on_job_complete(self, index: int) -> list[Due]:
        """It is in a final state, whichever."""
        return self._seen(index, self._on_complete.get(index, ()))

    def on_command_ended(self, action: int, command: int, status: Status) -> list[Due]:
        if self._running.get(action) != command:
            return []
        del self._running[action]
        if status is not Status.SUCCESS:
            self.failed.add(action)
        elif command + 1 < len(self._actions[action].spec.commands):
            return self._run(action, command + 1)
        if self._again.get(action):
            self._again[action] -= 1
            return self._run(action, 0)
        return []

    def forget(self, due: Iterable[Due]) -> None:
        """They are not carried out: the run is being stopped."""
        for command in due:
            if isinstance(command, RunActionCommand):
                self._running.pop(command.action, None)

    def _trigger(self, place: int) -> TriggerType:
        return self._actions[place].spec.trigger_type

    def _fire_all(self, trigger: TriggerType) -> list[Due]:
        return self._fire(place for place in self._actions if self._trigger(place) is trigger)

    def _seen(self, index: int, places: Iterable[int]) -> list[Due]:
        met = []
        for place in places:
            self._missing[place].discard(index)
            if not self._missing[place]:
                met.append(place)
        return self._fire(met)

    def _fire(self, places: Iterable[int]) -> list[Due]:
        due: list[Due] = []
        for place in places:
            if place in self._fired and not self._actions[place].spec.persistent:
                continue
            self._fired.add(place)
            if schedules_nodes(self._actions[place].spec):
                due.append(AskForNodes(place))
                continue
            if place in self._running:
                self._again[place] = self._again.get(place, 0) + 1
                continue
            due += self._resume(place)
        return due

    def _resume(self, place: int) -> list[Due]:
        """From the first command that has not succeeded in an earlier life of the run."""
        command = self._next.pop(place, 0)
        return self._run(place, command) if command < len(self._actions[place].spec.commands) else []

    def _run(self, place: int, command: int) -> list[Due]:
        self._running[place] = command
        return [RunActionCommand(place, command)]


def _runs_commands(action: PlannedAction) -> bool:
    return action.spec.action_type is ActionType.RUN_COMMANDS and bool(action.spec.commands)
