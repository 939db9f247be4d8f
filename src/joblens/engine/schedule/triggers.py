"""Triggers: which commands of actions are due. The commands of one action run one after the other; after a
failure the rest are skipped and the run continues. A resumed run continues an action at the command that
failed or did not end. An action that requests nodes has no commands.

Actions of workers run on each worker of the run (`agent.queue.worker_actions`). Without workers, the driver
is the only worker of the run.
"""

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
    def __init__(self, plan: Plan, *, is_worker: bool) -> None:
        """`is_worker`: this process serves the run itself."""
        self._actions = {
            number: action
            for number, action in enumerate(plan.actions)
            if schedules_nodes(action.spec) or _runs_commands(action)
        }
        self._is_worker = is_worker
        self._on_ready = self._watchers(TriggerType.ON_JOBS_READY)
        self._on_complete = self._watchers(TriggerType.ON_JOBS_COMPLETE)
        # Indices of the jobs that each action still waits for.
        self._missing = {
            number: set(self._actions[number].jobs)
            for number in chain(*self._on_ready.values(), *self._on_complete.values())
        }
        self._running: dict[int, int] = {}  # action -> command
        self._again: dict[int, int] = {}  # number of triggers while it was running
        self._next: dict[int, int] = {}  # next command of an action that an earlier driver began
        self._fired: set[int] = set()
        self.failed: set[int] = set()  # actions with a command that failed

    def _watchers(self, trigger: TriggerType) -> dict[int, list[int]]:
        watchers: dict[int, list[int]] = {}
        for number, action in self._actions.items():
            if action.spec.trigger_type is trigger:
                for index in action.jobs:
                    watchers.setdefault(index, []).append(number)
        return watchers

    @property
    def any_running(self) -> bool:
        return bool(self._running)

    @property
    def start_is_over(self) -> bool:
        """Returns whether everything that runs before the first job has ended."""
        return not any(self._trigger(action) in _AT_START for action in self._running)

    def recall(self, action: int, command: int, status: Status) -> None:
        """Restores a command that ended under an earlier driver. Persistent start actions run again."""
        if action in self._actions and not self._begins_each_time(action) and status not in CUT_OFF:
            self._next[action] = command + 1 if status is Status.SUCCESS else command

    def _begins_each_time(self, action: int) -> bool:
        trigger = self._trigger(action)
        if trigger in WORKER_TRIGGERS:
            return True
        return trigger is TriggerType.ON_WORKFLOW_START and self._actions[action].spec.persistent

    def on_start(self) -> list[Due]:
        due = self._fire_all(TriggerType.ON_WORKFLOW_START)
        return [*due, *self._fire_all(TriggerType.ON_WORKER_START)] if self._is_worker else due

    def on_complete(self) -> list[Due]:
        return self._fire_all(TriggerType.ON_WORKFLOW_COMPLETE)

    def on_worker_complete(self) -> list[Due]:
        """This process stops serving the run."""
        return self._fire_all(TriggerType.ON_WORKER_COMPLETE) if self._is_worker else []

    def failed_elsewhere(self, action: int) -> None:
        """A command of it failed on a worker."""
        if action in self._actions:
            self.failed.add(action)

    def on_job_ready(self, index: int, *, is_final: bool) -> list[Due]:
        """The job is ready or beyond: running, ended, or not part of the run. A job that ends does not
        become ready again."""
        actions = self._on_ready.get(index, ())
        return self._job_reached(
            index, [one for one in actions if not is_final or index in self._missing[one]]
        )

    def on_job_complete(self, index: int) -> list[Due]:
        """The job is in a final state."""
        return self._job_reached(index, self._on_complete.get(index, ()))

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
        """These commands are not executed: the run is being stopped."""
        for command in due:
            if isinstance(command, RunActionCommand):
                self._running.pop(command.action, None)

    def _trigger(self, action: int) -> TriggerType:
        return self._actions[action].spec.trigger_type

    def _fire_all(self, trigger: TriggerType) -> list[Due]:
        return self._fire(action for action in self._actions if self._trigger(action) is trigger)

    def _job_reached(self, index: int, actions: Iterable[int]) -> list[Due]:
        met = []
        for action in actions:
            self._missing[action].discard(index)
            if not self._missing[action]:
                met.append(action)
        return self._fire(met)

    def _fire(self, actions: Iterable[int]) -> list[Due]:
        due: list[Due] = []
        for action in actions:
            if action in self._fired and not self._actions[action].spec.persistent:
                continue
            self._fired.add(action)
            if schedules_nodes(self._actions[action].spec):
                due.append(AskForNodes(action))
                continue
            if action in self._running:
                self._again[action] = self._again.get(action, 0) + 1
                continue
            due += self._resume(action)
        return due

    def _resume(self, action: int) -> list[Due]:
        """Continues with the first command that has not succeeded under an earlier driver."""
        command = self._next.pop(action, 0)
        return self._run(action, command) if command < len(self._actions[action].spec.commands) else []

    def _run(self, action: int, command: int) -> list[Due]:
        self._running[action] = command
        return [RunActionCommand(action, command)]


def _runs_commands(action: PlannedAction) -> bool:
    return action.spec.action_type is ActionType.RUN_COMMANDS and bool(action.spec.commands)
