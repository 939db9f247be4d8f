"""Jobs whose environment is collected, and what the collector records of them."""

import os
from collections.abc import Sequence
from typing import Any

from joblens.model.jobs.details import Provenance
from joblens.model.jobs.job import Attempt, Job, Outcome, Owner, Record, Status
from joblens.model.values.ids import new_uuid
from joblens.model.writes import ProvenanceSeen, Write

ATTEMPT = Attempt(started_at_us=1, owner=Owner("here", 1, 1, "boot"))
OUTCOME = Outcome(status=Status.SUCCESS, ended_at_us=2, duration_s=1.0)


class Kept:
    """In place of a recorder: what was put."""

    def __init__(self) -> None:
        self.writes: list[Write] = []

    def put(self, writes: Sequence[Write], *, can_wait: bool = False) -> int:
        assert can_wait
        self.writes += writes
        return len(self.writes)

    @property
    def seen(self) -> dict[str, Provenance]:
        return {each.digest: each.provenance for each in self.writes if isinstance(each, ProvenanceSeen)}


def job(*argv: str, cwd: str = "/", **more: Any) -> Job:
    env = {"PATH": os.environ["PATH"]}
    return Job(uuid=new_uuid(), argv=argv, created_at_us=1, cwd=cwd, env=env, **more)


def ended(one: Job) -> Record:
    return Record(status=Status.SUCCESS, job=one, attempt=ATTEMPT, outcome=OUTCOME)
