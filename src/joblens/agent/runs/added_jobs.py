"""Jobs that jobs of a run have added to it, taken into the plan of its driver."""

import os
import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct, structs

from joblens.agent.runs.facts import News, RunFacts
from joblens.agent.session.context import AgentContext
from joblens.files.private import read_own
from joblens.model.redaction.secrets import SecretValues, secret_values
from joblens.model.runs.plan import Plan
from joblens.model.runs.run import JobsSpawned
from joblens.model.runs.workflow_spec import JobSpec
from joblens.plan.workflows.spawning import PlanExtender

_ASK_AGAIN_S = 1.0
_ASK_LONGEST_S = 60.0
# A command without its secrets could do anything.
_WITHOUT_SECRETS = "echo 'joblens: the private file with the secrets of this job is gone' >&2; exit 125"


class PrivateBatch(Struct, frozen=True):
    """The fields of a JobsSpawned that may hold secrets, whole."""

    jobs: tuple[JobSpec, ...]
    state: Any = None


def whole_batch(fact: JobsSpawned, spool_dir: str) -> JobsSpawned | None:
    """Returns the batch as it was given; None where its private file is gone."""
    if not fact.private:
        return fact
    try:
        data = read_own(os.path.join(spool_dir, os.path.basename(fact.private)))
        kept = msgspec.json.decode(data, type=PrivateBatch)
    except (OSError, msgspec.MsgspecError):
        return None
    return structs.replace(fact, jobs=kept.jobs, state=kept.state)


def secrets_of_batch(batch: JobsSpawned) -> SecretValues:
    """Returns the values of its environments that are secret by their names."""
    env: dict[str, str] = {}
    for job in batch.jobs:
        env |= job.env
    return secret_values(env)


class AddedJobs:
    """`are_likely`: the file says so, or it has happened; the driver then asks at the end of every job."""

    def __init__(
        self,
        plan: Plan,
        context: AgentContext,
        add_secrets: Callable[[SecretValues], None],
        note: Callable[[str], None],
    ) -> None:
        """`plan`: a growing one."""
        self._plan = plan
        self._context = context
        self._add_secrets = add_secrets
        self._note = note
        self._extender: PlanExtender | None = None  # made for the first batch
        self.batches: list[JobsSpawned] = []  # that came since this process drives the run
        self.are_likely = "dynamic_jobs" in plan.other or any(job.spawned_by >= 0 for job in plan.jobs)

    def take(self, fact: JobsSpawned) -> int | None:
        """Adds the jobs of a batch to the plan. -> the index of the first one; None: there are none, or the
        plan has them already"""
        self.are_likely = True
        if fact.first < len(self._plan.jobs):
            return None
        batch = whole_batch(fact, self._context.spool_dir)
        if batch is None:
            self._note(f"the secrets of {len(fact.jobs)} added jobs are not on this machine: they will fail")
            batch = structs.replace(
                fact, jobs=tuple(structs.replace(job, command=_WITHOUT_SECRETS) for job in fact.jobs)
            )
        if self._extender is None:
            self._extender = PlanExtender(self._plan)
        self.batches.append(batch)
        if not self._extender.add(batch):
            return None
        secrets = secrets_of_batch(batch)
        self._context.add_secrets(secrets)
        self._add_secrets(secrets)
        return batch.first


class JobsQuestion:
    """Nothing is left to do: before the run is over, jobs that others have added must be known. Where jobs of
    this run add jobs, a store that is away is asked again for a while, unless the run is being stopped;
    `resume` runs jobs that were missed. Where none does, a store that is gone ends no run later."""

    def __init__(
        self,
        facts: RunFacts,
        take: Callable[[list[News]], None],
        answered: Callable[[], None],
        may_wait: Callable[[], bool],
    ) -> None:
        """`may_wait`: whether an answer is worth waiting for."""
        self._facts = facts
        self._take = take
        self._answered = answered
        self._may_wait = may_wait
        self._until_s: float | None = None  # asked again until then
        self.next_wake_s: float | None = None

    def ask(self) -> None:
        self.next_wake_s = None
        self._facts.fetch(self._then, self._otherwise)

    def wake(self, now_s: float) -> None:
        if self.next_wake_s is not None and now_s >= self.next_wake_s:
            self.ask()

    def _then(self, news: list[News]) -> None:
        self._until_s = None
        self._take(news)
        self._answered()

    def _otherwise(self) -> None:
        now_s = time.monotonic()
        if self._until_s is None:
            self._until_s = now_s + _ASK_LONGEST_S
        if self._may_wait() and now_s < self._until_s:
            self.next_wake_s = now_s + _ASK_AGAIN_S
        else:
            self._until_s = None
            self._answered()
